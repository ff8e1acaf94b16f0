//! Archives that tasks find unpacked: software that a node has once.

use super::nothing_is_left;
use crate::fixture::{Running, Site, poll};
use falkon_trials::trial;
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Packs an environment with a program, and a `conda-unpack` that notes where it
/// has run.
fn environment(site: &Site, hook: &str) -> String {
    let folder = site.path("env/bin");
    std::fs::create_dir_all(&folder).unwrap();
    let tool = "#!/bin/sh\ncat \"$(dirname \"$0\")/../greeting\"; echo \"$1\"\n";
    let hook = format!("#!/bin/sh\npwd >> {}\n{hook}\n", site.text("unpacked"));
    for (name, script) in [("tool", tool), ("conda-unpack", &hook)] {
        std::fs::write(folder.join(name), script).unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.join(name), mode).unwrap();
    }
    site.write("env/greeting", "hello ");
    pack(site, "env", "env.tar.gz")
}

fn pack(site: &Site, folder: &str, archive: &str) -> String {
    let mut tar = Command::new("tar");
    tar.args(["-C", &site.text(folder), "-czf", &site.text(archive), "."]);
    assert!(tar.status().unwrap().success());
    site.text(archive)
}

/// Where the environment has been unpacked.
fn places(site: &Site) -> Vec<String> {
    site.read("unpacked").lines().map(str::to_owned).collect()
}

fn end(executor: Running) {
    executor.signal(Signal::TERM);
    executor.finish().exits(0);
}

#[trial]
fn hundreds_of_tasks_on_three_executors_have_it_fetched_once_and_unpacked_once_each() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let env = environment(&site, "");
    let executor = |name: &str| {
        let cache = format!("{}=64MiB", site.text(&format!("cache-{name}")));
        dispatcher.executor(name, &["--slots", "2", "--cache", &cache])
    };
    let executors = ["a", "b", "c"].map(executor);
    let args = ["--range", "1-300", "--unpack", &format!("env={env}"), "--", "env/bin/tool", "{}"];
    let id = access.submit(&args);
    let results = access.results(&id);
    for (result, number) in results.iter().zip(1..) {
        assert_eq!(result["stdout"], format!("hello {number}\n"), "{result}");
    }
    let mut used: Vec<&str> =
        results.iter().map(|result| result["executor"].as_str().unwrap()).collect();
    used.sort_unstable();
    used.dedup();
    let mut places = places(&site);
    places.sort();
    let count = places.len();
    places.dedup();
    assert_eq!((places.len(), count), (used.len(), used.len()), "{places:?}");
    let [local, _, store] = super::all_sources(&results);
    assert_eq!(store, 1, "the store is read once");
    assert!(local >= 290, "{local}");
    executors.into_iter().for_each(end);
}

#[trial]
fn half_an_environment_is_made_again_and_a_whole_one_is_found_after_a_restart() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let busy = site.write("busy", "");
    let env = environment(&site, &format!("while [ -e {busy} ]; do :; done"));
    let cache = format!("{}=64MiB", site.text("cache"));
    let executor = || dispatcher.executor("e", &["--slots", "2", "--cache", &cache]);
    let first = executor();
    let unpack = format!("env={env}");
    let args = ["--unpack", &unpack, "--", "env/bin/tool", "x"];
    let id = access.submit(&args);
    // The line is there, not only its file: the hook is killed with the executor.
    let is_noted =
        || std::fs::read_to_string(site.path("unpacked")).is_ok_and(|it| it.ends_with('\n'));
    poll("it is being unpacked", is_noted);
    first.kill();
    std::fs::remove_file(busy).unwrap();
    let second = executor();
    assert_eq!(access.results(&id)[0]["stdout"], "hello x\n");
    assert_eq!(places(&site).len(), 2);
    let trees = || std::fs::read_dir(site.path("cache/trees")).unwrap().count();
    assert_eq!(trees(), 1);
    second.kill();
    let third = executor();
    let id = access.submit(&args);
    let results = access.results(&id);
    assert_eq!(results[0]["stdout"], "hello x\n");
    assert_eq!((super::all_sources(&results), places(&site).len(), trees()), ([1, 0, 0], 2, 1));
    end(third);
}

#[trial]
fn task_files_name_archives_and_what_is_wrong_with_one_is_said() {
    let site = Site::new();
    let env = environment(&site, "");
    std::fs::create_dir(site.path("evil")).unwrap();
    site.write("evil/x", "");
    let mut tar = Command::new("tar");
    tar.args(["-C", &site.text("evil"), "--transform", "s,^,../,", "-cPf", &site.text("evil.tar")]);
    assert!(tar.arg("x").status().unwrap().success());
    let tasks = format!(
        "{}\n{}\n{}\n",
        serde_json::json!({
            "id": "good", "command": ["sh", "-c", "env/bin/tool 1; stat -Lc %a env"],
            "unpack": [format!("env={env}")], "inputs": [format!("packed={env}")],
        }),
        serde_json::json!({
            "id": "evil", "command": ["true"],
            "unpack": [format!("env={}", site.text("evil.tar"))],
        }),
        serde_json::json!({
            "id": "none", "command": ["true"],
            "unpack": [format!("env={}", site.text("env/greeting"))],
        }),
    );
    let tasks = site.write("tasks.jsonl", tasks);
    let dry = site.run(["run", "--dry-run", "--tasks", &tasks]).exits(0);
    assert!(dry.text().contains(&format!("unpacks env={env}; reads packed={env}")), "{dry}");
    let ran = site.run(["run", "--json", "--tasks", &tasks]).exits(1);
    let results = ran.results();
    let of = |id: &str| results.iter().find(|result| result["id"] == id).unwrap();
    assert_eq!(of("good")["stdout"], "hello 1\n555\n");
    for (id, said) in
        [("evil", "its entry `../x` leads out of the archive"), ("none", "it is no tar archive")]
    {
        let error = of(id)["error"].as_str().unwrap();
        assert!(error.contains("could not be unpacked") && error.contains(said), "{error}");
    }
    nothing_is_left(&site);
    site.run(["run", "--unpack", &env, "--", "true"]).exits(2).says("write NAME=ARCHIVE");
    // One that does not fit is refused with both sizes, and nothing is written.
    std::fs::write(site.path("env/large"), vec![0; 8 << 20]).unwrap();
    let large = format!("env={}", pack(&site, "env", "large.tar.gz"));
    let cache = format!("{}=4MiB", site.text("cache"));
    let ran = site.run(["run", "--json", "--cache", &cache, "--unpack", &large, "--", "true"]);
    let error = ran.exits(1).results()[0]["error"].as_str().unwrap().to_owned();
    assert!(error.contains("./large") || error.contains("`large`"), "{error}");
    assert!(error.contains("give the executor a larger cache"), "{error}");
}

#[trial]
fn a_directory_is_packed_once_for_all_executors_and_its_next_version_anew() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    environment(&site, "");
    let executor = |name: &str| {
        let cache = format!("{}=64MiB", site.text(&format!("cache-{name}")));
        dispatcher.executor(name, &["--slots", "2", "--cache", &cache])
    };
    let executors = ["a", "b"].map(executor);
    let env = format!("{}/", site.text("env"));
    let ahead = access.run_sub(&["data", "broadcast"], &[&env]).exits(0);
    ahead.says("on 2 of 2 executors");
    assert_eq!(places(&site).len(), 2, "it is unpacked ahead of the tasks");
    let unpack = format!("env={env}");
    let args = ["--range", "1-40", "--unpack", &unpack, "--", "env/bin/tool", "{}"];
    let results = access.results(&access.submit(&args));
    for (result, number) in results.iter().zip(1..) {
        assert_eq!(result["stdout"], format!("hello {number}\n"), "{result}");
    }
    assert_eq!(super::all_sources(&results), [40, 0, 0]);
    site.write("env/greeting", "good morning ");
    let results = access.results(&access.submit(&args));
    assert_eq!(results[0]["stdout"], "good morning 1\n");
    let [_, _, store] = super::all_sources(&results);
    assert_eq!(store, 1, "the directory is read once");
    executors.into_iter().for_each(end);
}

#[trial]
fn only_what_is_unpacked_can_be_a_directory() {
    let site = Site::new();
    environment(&site, "");
    let inside = ["run", "--unpack", "e=env/", "--", "e/bin/tool", "x"];
    assert_eq!(site.run(inside).exits(0).text(), "hello x\n");
    let dot = ["run", "--unpack", "e=./env/.", "--", "e/bin/tool", "y"];
    assert_eq!(site.run(dot).exits(0).text(), "hello y\n");
    for args in [["--input", "e=env/"], ["--output", "e=env/"]] {
        let args = [&["run"], &args[..], &["--", "true"]].concat();
        site.run(args).exits(2).says("`env/` names a directory").says("--unpack");
    }
    let bare = site.run(["run", "--json", "--unpack", "e=env", "--", "true"]).exits(1);
    let error = bare.results()[0]["error"].as_str().unwrap().to_owned();
    assert!(error.contains("it is a directory") && error.contains("with a slash"), "{error}");
    let version = |place: &str| site.run(["data", "version", "--json", place]).exits(0).results();
    let of_folder = &version("env/")[0];
    assert_eq!(of_folder["url"], format!("{}/", site.text("env")));
    assert!(of_folder["version"].as_str().unwrap().starts_with("tree:"), "{of_folder}");
    assert_eq!(version("env/greeting")[0]["size"], 6);
    site.run(["data", "version", "none/"]).exits(2).says("there is no ");
    nothing_is_left(&site);
}

#[trial]
fn a_virtual_environment_of_this_machine_is_used_where_it_is_unpacked() {
    let site = Site::new();
    let venv = site.text("venv");
    let made = Command::new("python3").args(["-m", "venv", "--without-pip", &venv]).status();
    if !made.is_ok_and(|made| made.success()) {
        falkon_trials::skip("there is no python3 with venv");
    }
    let lib = std::fs::read_dir(site.path("venv/lib")).unwrap().flatten().next().unwrap();
    let package = lib.path().join("site-packages/packed_with_it.py");
    std::fs::write(package, "def answer(n): return n * 2\n").unwrap();
    let unpack = format!("env={}", pack(&site, "venv", "venv.tar.gz"));
    let script = "import packed_with_it as p; print(p.answer({}))";
    let args = ["run", "--json", "--range", "1-20", "--unpack", &unpack, "--"];
    let ran = site.run(args.iter().chain(&["env/bin/python", "-c", script])).exits(0);
    let mut found: Vec<u64> = ran
        .results()
        .iter()
        .map(|result| result["stdout"].as_str().unwrap().trim().parse().unwrap())
        .collect();
    found.sort_unstable();
    assert_eq!(found, (1..=20).map(|n| n * 2).collect::<Vec<_>>());
}
