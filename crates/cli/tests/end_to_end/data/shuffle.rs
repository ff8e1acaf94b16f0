//! Folders that become archives in caches, and members of these as inputs.

use super::services::{end, executor};
use super::{all_sources, nothing_is_left, sources};
use crate::fixture::{Access, Site};
use falkon_trials::trial;
use serde_json::Value;
use std::collections::BTreeMap;

const MAKERS: usize = 4;
const PARTS: usize = 3;

/// What member `part` of archive `maker` has.
fn text(maker: usize, part: usize) -> String {
    format!("{maker} {part}\n").repeat(if part == 1 { 10_000 } else { 10 })
}

/// Makers that each leave an archive, on `makers` in turn or anywhere, and readers of one member of each
/// archive, on `reader`.
pub(crate) fn shuffle(site: &Site, makers: &[&str], reader: &str) -> String {
    let mut lines = String::new();
    for maker in 0..MAKERS {
        let mut script = format!("echo {maker} >> {}\n", site.text("runs"));
        for part in 0..PARTS {
            let lines = text(maker, part).lines().count();
            script += &format!("yes '{maker} {part}' | head -n {lines} > parts/range.{part}\n");
        }
        let resources = makers.get(maker % makers.len().max(1)).map(|name| (*name, 1));
        let task = serde_json::json!({
            "command": ["sh", "-e", "-c", script],
            "outputs": [format!("parts/=cache:part.{maker}.zip")],
            "resources": resources.into_iter().collect::<BTreeMap<_, _>>(),
        });
        lines += &format!("{task}\n");
    }
    for part in 0..PARTS {
        let input = |maker: usize| format!("in.{maker}=cache:part.{maker}.zip!range.{part}");
        let task = serde_json::json!({
            "command": ["sh", "-c", "cat in.* | uniq -c | sed 's/^ *//'; wc -c in.*"],
            "inputs": (0..MAKERS).map(input).collect::<Vec<_>>(),
            "resources": {reader: 1},
        });
        lines += &format!("{task}\n");
    }
    site.write("shuffle.jsonl", lines)
}

/// Checks that each reader has read its members.
#[track_caller]
pub(crate) fn judge(results: &[Value]) {
    assert_eq!(results.len(), MAKERS + PARTS);
    for (part, result) in results[MAKERS..].iter().enumerate() {
        let counted = |maker| format!("{} {maker} {part}\n", text(maker, part).lines().count());
        let counted: String = (0..MAKERS).map(counted).collect();
        let printed = result["stdout"].as_str().unwrap();
        assert!(printed.starts_with(&counted), "{result}");
        let bytes: usize = (0..MAKERS).map(|maker| text(maker, part).len()).sum();
        assert!(printed.ends_with(&format!("{bytes} total\n")), "{result}");
    }
}

/// The objects that are in caches.
fn held(access: &Access<'_>) -> Vec<Value> {
    access.run_sub(&["data", "ls"], &["--json"]).exits(0).results()
}

#[trial]
fn a_reader_receives_its_members_and_no_more() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let [a, b, c] = ["a", "b", "c"].map(|name| executor(&site, &dispatcher, name));
    // An instance is there as long as nobody destroys it, and so are its objects.
    let tasks = shuffle(&site, &["a", "b"], "c");
    let id = access.submit(&["--tasks", &tasks]);
    let results = access.results(&id);
    judge(&results);
    let readers = &results[MAKERS..];
    assert_eq!(all_sources(readers), [0, (MAKERS * PARTS) as u64, 0]);
    for (part, result) in readers.iter().enumerate() {
        let bytes: usize = (0..MAKERS).map(|maker| text(maker, part).len()).sum();
        assert_eq!(result["data"]["peer"]["bytes"], bytes, "{result}");
    }
    // One object for each archive, where it was made; none for members.
    let objects = held(&access);
    assert_eq!(objects.len(), MAKERS, "{objects:?}");
    for object in &objects {
        let url = object["url"].as_str().unwrap();
        assert!(url.starts_with("cache:part.") && url.ends_with(".zip"), "{url}");
        assert_eq!(object["holders"], 1);
    }
    end([a, b, c]);
}

#[trial]
fn readers_of_members_run_where_the_archive_is() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let [a, b] = ["a", "b"].map(|name| executor(&site, &dispatcher, name));
    let maker = serde_json::json!({
        "command": ["sh", "-c", "echo 0 > parts/0; echo 1 > parts/1"],
        "outputs": ["parts/=cache:parts.zip"],
        "resources": {"b": 1},
    });
    let reader = |part: usize| {
        let input = format!("in=cache:parts.zip!{part}");
        serde_json::json!({"command": ["cat", "in"], "inputs": [input]})
    };
    let tasks = format!("{maker}\n{}\n{}\n", reader(0), reader(1));
    let tasks = site.write("tasks.jsonl", tasks);
    let results = access.results(&access.submit(&["--tasks", &tasks]));
    for result in &results[1..] {
        assert_eq!((sources(result), &result["executor"]), ([1, 0, 0], &"b".into()), "{result}");
    }
    end([a, b]);
}

#[trial]
fn members_of_an_archive_that_is_here_do_not_travel() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let [a, b] = ["a", "b"].map(|name| executor(&site, &dispatcher, name));
    let tasks = shuffle(&site, &["a", "b"], "a");
    let results = access.results(&access.submit(&["--tasks", &tasks]));
    judge(&results);
    for result in &results[MAKERS..] {
        assert_eq!(sources(result), [MAKERS as u64 / 2, MAKERS as u64 / 2, 0], "{result}");
    }
    end([a, b]);
}

#[trial]
fn archives_that_are_lost_with_their_makers_are_made_again() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let first = executor(&site, &dispatcher, "first");
    // The makers need nothing that only one executor has.
    let tasks = shuffle(&site, &[], "late");
    let id = access.submit(&["--tasks", &tasks]);
    while access.instance(&id)["done"] != MAKERS {}
    first.kill();
    let late = executor(&site, &dispatcher, "late");
    judge(&access.results(&id));
    let instance = access.instance(&id);
    assert_eq!(instance["recomputed"], MAKERS);
    assert_eq!(site.read("runs").lines().count(), 2 * MAKERS);
    end([late]);
}

#[trial]
fn members_of_archives_that_were_put_into_caches_are_read_at_every_level() {
    for level in ["none", "authenticate", "encrypt"] {
        let site = Site::new();
        let dispatcher = site.dispatcher("d", &["--security", level]);
        let access = dispatcher.access();
        let [a, b] = ["a", "b"].map(|name| executor(&site, &dispatcher, name));
        std::fs::create_dir(site.path("files")).unwrap();
        let large = "deflated\n".repeat(50_000);
        site.write("files/large", &large);
        site.write("files/small", "7");
        site.run(["archive", "create", "in.zip", "-C", "files", "."]).exits(0);
        let key = ["in.zip", "--replicas", "1"];
        access.run_sub(&["data", "put"], &key).exits(0);
        for name in ["a", "b"] {
            let need = format!("{name}=1");
            let inputs = ["--input", "l=cache:in.zip!large", "--input", "s=cache:in.zip!small"];
            let args = ["--wait", "--json", "--resource", &need];
            let command = ["--", "sh", "-c", "wc -c < l; cat s"];
            let args = [&args[..], &inputs, &command].concat();
            let results = access.run("submit", &args).exits(0).results();
            assert_eq!(results[0]["stdout"], format!("{}\n7", large.len()), "{level} {name}");
        }
        end([a, b]);
    }
}

#[trial]
fn a_folder_becomes_an_archive_wherever_it_goes() {
    let site = Site::new();
    let script = "echo {} > parts/n; mkdir parts/deep; echo deep > parts/deep/d";
    let args = ["run", "--range", "1-2", "--output", "parts/=made/{}.zip", "--shell", "--", script];
    site.run(args).exits(0);
    assert_eq!(site.run(["archive", "cat", "made/2.zip!n"]).exits(0).text(), "2\n");
    assert_eq!(site.run(["archive", "ls", "made/1.zip"]).exits(0).text(), "n\ndeep/d\n");
    let args = ["run", "--output", "parts/=made/none.zip", "--", "ln", "-s", "/etc", "parts/link"];
    site.run(args).exits(1).says("is neither a file nor a folder").says("parts/link");
    let args = ["run", "--output", "parts/=made/none.zip", "--", "rmdir", "parts"];
    site.run(args).exits(1).says("cannot read the folder");
    assert!(!site.path("made/none.zip").exists());
    nothing_is_left(&site);
}

#[trial]
fn what_is_no_member_is_said_at_once() {
    let site = Site::new();
    let write = |source: &str| {
        site.write(
            "tasks.jsonl",
            format!(
                r#"{{"command": ["sh", "-c", "echo >> {}; echo 1 > parts/a"], "outputs": ["parts/=cache:p.zip"]}}
{{"command": ["sh", "-c", "echo no archive > out"], "outputs": ["out=cache:odd.zip"]}}
{{"command": ["cat", "in"], "inputs": ["in={source}"]}}
"#,
                site.text("runs")
            ),
        )
    };
    let said = |source: &str| {
        let tasks = write(source);
        site.run(["run", "--tasks", &tasks]).exits(1)
    };
    // The archive is there: nothing is run again for what it does not have.
    said("cache:p.zip!b").says("cache:p.zip!b cannot be read: the archive has no member `b`");
    assert_eq!(site.read("runs").lines().count(), 1);
    said("cache:odd.zip!a").says("it is no archive that members can be read from");
    let tasks = write("cache:other.zip!a");
    site.run(["run", "--tasks", &tasks]).exits(2).says("cache:other.zip");
    for (output, why) in [
        ("a=cache:p.zip!a", "DIR/=cache:NAME.zip"),
        ("parts/=cache:p", "a target that ends in .zip"),
        ("a/../=cache:p.zip", "no name for a data object"),
    ] {
        site.run(["run", "--output", output, "--", "true"]).exits(2).says(why);
    }
    nothing_is_left(&site);
}

#[trial]
fn collected_outputs_are_read_from_the_caches_of_those_who_made_them() {
    let site = Site::new();
    // One executor collects for both: the other keeps what it has made all the same.
    let dispatcher = site.dispatcher("d", &["--collectors", "1"]);
    let access = dispatcher.access();
    let [a, b] = ["a", "b"].map(|name| executor(&site, &dispatcher, name));
    let mut lines = String::new();
    for number in 0..4 {
        let task = serde_json::json!({
            "command": ["sh", "-c", format!("echo {number} > e.dat")],
            "outputs": [format!("e.dat=scores.zip!{number}/e.dat")],
            "resources": {"a": 1},
        });
        lines += &format!("{task}\n");
    }
    // Nobody reads that of the last.
    for (number, reader) in [(0, "a"), (1, "b"), (2, "b")] {
        let task = serde_json::json!({
            "command": ["cat", "in"],
            "inputs": [format!("in=scores.zip!{number}/e.dat")],
            "resources": {reader: 1},
        });
        lines += &format!("{task}\n");
    }
    let tasks = site.write("tasks.jsonl", lines);
    let results = access.results(&access.submit(&["--tasks", &tasks]));
    let readers: Vec<_> =
        results[4..].iter().map(|it| (it["stdout"].as_str(), sources(it))).collect();
    assert_eq!(
        readers,
        [(Some("0\n"), [1, 0, 0]), (Some("1\n"), [0, 1, 0]), (Some("2\n"), [0, 1, 0]),]
    );
    let urls: Vec<Value> = held(&access).iter().map(|object| object["url"].clone()).collect();
    assert_eq!(urls.len(), 3, "{urls:?}");
    // They are in the archive as well.
    for number in 0..4 {
        let member = format!("scores.zip!{number}/e.dat");
        assert_eq!(site.run(["archive", "cat", &member]).exits(0).text(), format!("{number}\n"));
    }
    end([a, b]);
}
