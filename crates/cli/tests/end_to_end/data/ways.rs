//! Which way data objects take, as people see it before and while tasks read
//! them.

use super::services::{end, executor_with};
use crate::fixture::{Site, poll};
use falkon_trials::trial;
use serde_json::Value;

/// A file of so many bytes, which take no room.
fn file_of(site: &Site, name: &str, bytes: u64) -> String {
    let path = site.path(name);
    std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[trial]
fn a_dry_run_says_which_way_objects_would_take() {
    let site = Site::new();
    let database = file_of(&site, "db", 20 << 20);
    for number in 1..=5 {
        site.write(&format!("query{number}"), "x".repeat(100 * number));
    }
    let tasks = [
        &["--range", "1-5", "--input", "db=db", "--input", "q=query{}"][..],
        &["--output", "hits=scores.zip!{}/hits", "--output", "best=best{}"],
        &["--", "search", "db", "q"],
    ];
    let tasks = tasks.concat();
    let ways = |command: &[&str]| {
        let ran = site.run(command.iter().chain(&tasks)).exits(0);
        let lines = ran.lines();
        assert!(lines[..5].iter().all(|line| line.contains("search")), "{ran}");
        assert!(lines[5..].iter().all(|line| line.starts_with("# ")), "{ran}");
        lines[5..].iter().map(|line| (*line).to_owned()).collect::<Vec<_>>()
    };
    let submitted = ways(&["submit", "--dry-run", "--input", "log=cache:log"]);
    let folder = site.path("").to_str().unwrap().trim_end_matches('/').to_owned();
    let expected = [
        "# cache: 5 inputs, 1.5 KiB: smaller than 16.0 MiB",
        &format!("#   {folder}/query5: 500 B, 1 task reads it"),
        &format!("#   {folder}/query4: 400 B, 1 task reads it"),
        &format!("#   {folder}/query3: 300 B, 1 task reads it"),
        "#   and 2 more",
        "# cache: 1 input: its size is not known beforehand",
        "#   cache:log: 5 tasks read it",
        "# broadcast: 1 input, 20.0 MiB: at least 16.0 MiB, and several tasks read it",
        &format!("#   {database}: 20.0 MiB, 5 tasks read it"),
        "# collected: 5 outputs: its target is a member of an archive",
    ];
    assert_eq!(submitted[..expected.len()], expected);
    let text = submitted.join("\n");
    assert!(text.contains("# written: 5 outputs: "), "{text}");
    // On this machine alone there is nobody to send it to, and this cache is too small.
    let ran = ways(&["run", "--dry-run"]).join("\n");
    assert!(ran.contains("# cache: 1 input, 20.0 MiB: there is one executor"), "{ran}");
    let cache = format!("{}=1MiB", site.text("cache"));
    let ran = ways(&["run", "--dry-run", "--cache", &cache]).join("\n");
    let said = "# nowhere: 1 input, 20.0 MiB: larger than any cache (1.0 MiB)";
    assert!(ran.contains(said), "{ran}");
    let ran = ways(&["submit", "--dry-run", "--policy", "max-cache-hit"]).join("\n");
    assert!(ran.contains("# broadcast: 1 input, 20.0 MiB"), "{ran}");
    assert!(!site.path("cache").exists());
}

#[trial]
fn what_was_read_on_several_executors_goes_to_as_many_again_ahead_of_the_tasks() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let executors = ["a", "b", "c"].map(|name| executor_with(&site, &dispatcher, name, "64MiB"));
    file_of(&site, "db", 17 << 20);
    let where_is = |args: &[&str]| access.run_sub(&["data", "where"], args).exits(0);
    let dry = || {
        access
            .run_sub(&["submit"], &["--dry-run", "--input", "in=db", "--", "true"])
            .exits(0)
            .text()
            .to_owned()
    };
    let said = "# cache: 1 input, 17.0 MiB: no more than one task reads it\n";
    assert!(dry().contains(said), "{}", dry());
    for name in ["a", "b", "c"] {
        let resource = format!("{name}=1");
        access.results(&access.submit(&[
            "--resource",
            &resource,
            "--input",
            "in=db",
            "--",
            "true",
        ]));
    }
    // The next run reads another version, and is one task so far.
    file_of(&site, "db", 18 << 20);
    let said = "# broadcast: 1 input, 18.0 MiB: at least 16.0 MiB, and earlier tasks read it on \
                several executors";
    assert!(dry().contains(said), "{}", dry());
    access.results(&access.submit(&["--input", "in=db", "--", "true"]));
    poll("all executors have it", || {
        let found = where_is(&["--json", "db"]).results();
        found.iter().any(|one| one["size"] == 18 << 20 && one["holders"] == 3)
    });
    assert_eq!(where_is(&["db"]).text().matches("earlier: ").count(), 2);
    // What was journaled lasts, whoever holds it.
    end(executors);
    dispatcher.kill();
    let mut dispatcher = site.dispatcher("d", &[]);
    let found = dispatcher.access().run_sub(&["data", "where"], &["--json", "db"]).exits(0);
    let expected = serde_json::json!({"readers": 3, "executors": 3, "size": 17 << 20});
    assert_eq!(found.results()[0]["earlier"], expected);
    // What is forgotten stays so.
    dispatcher.access().run_sub(&["data", "forget"], &["db"]).exits(0);
    dispatcher.kill();
    let dispatcher = site.dispatcher("d", &[]);
    dispatcher.access().run_sub(&["data", "where"], &["db"]).exits(2);
    dispatcher.access().run_sub(&["data", "forget"], &["db"]).exits(2);
    let all = dispatcher.access().run_sub(&["data", "forget"], &["--all"]).exits(0);
    all.says("forgot 0 names");
}

#[trial]
fn where_an_object_is_comes_with_its_way() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let a = executor_with(&site, &dispatcher, "a", "64MiB");
    file_of(&site, "db", 20 << 20);
    file_of(&site, "huge", 100 << 20);
    site.write("small", "x");
    let way_of = |name: &str| -> Value {
        let ran = access.run_sub(&["data", "where"], &["--json", name]).exits(0);
        ran.results().remove(0)
    };
    // Nobody offers what they need, so they wait.
    let submit = |source: &str| {
        let input = format!("in={source}");
        access.submit(&["--range", "1-3", "--resource", "b=1", "--input", &input, "--", "cat"])
    };
    for source in ["db", "huge", "small"] {
        submit(source);
    }
    // Executors tell the size of their caches once they are connected.
    let come_to = |expected: [&str; 3]| {
        poll(&format!("{expected:?}"), || {
            ["db", "huge", "small"].map(|name| way_of(name)["way"].clone()) == expected
        });
    };
    come_to(["cache", "nowhere", "cache"]);
    let b = executor_with(&site, &dispatcher, "c", "200MiB");
    come_to(["broadcast", "broadcast", "cache"]);
    let found = way_of("db");
    assert_eq!(found["readers"], 3);
    assert_eq!(found["reason"], "at least 16.0 MiB, and several tasks read it");
    let text = access.run_sub(&["data", "where"], &["small"]).exits(0);
    assert!(text.text().contains("way: cache (smaller than 16.0 MiB)"), "{text}");
    end([a, b]);
}
