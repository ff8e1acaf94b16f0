//! Connections that other processes hold for a dispatcher.

use crate::fixture::{Access, Running, Site, poll};
use falkon_core::task::Resources;
use falkon_data::overflow::OverflowDirectory;
use falkon_executor::{Link, Options};
use falkon_net::secure::AccessFile;
use falkon_trials::trial;
use rustix::process::Signal;
use std::path::Path;
use tokio::sync::oneshot;

#[trial]
fn others_hold_connections_at_every_level() {
    for level in ["none", "authenticate", "encrypt"] {
        let site = Site::new();
        let mut dispatcher = site.dispatcher("d", &["--security", level, "--concentrators", "2"]);
        let access = dispatcher.access();
        let _executors = ["one", "two", "three"]
            .map(|name| dispatcher.executor(name, &["--capture", "2000000"]));
        assert_eq!(site.left().concentrators().len(), 2);
        // More than may be on its way to a client at a time.
        let script = "head -c 1500000 /dev/zero | tr '\\0' x; echo {}";
        let id = access.submit(&["--range", "1-8", "--", "sh", "-c", script]);
        let ran = access.run("results", &[&id]).exits(0);
        assert_eq!((ran.lines().len(), ran.out.len()), (8, 8 * 1_500_002), "level {level}");

        // A secret of nobody's.
        let other = site.dispatcher("other", &["--security", level]);
        let text = site.read("d/access.json");
        let dispatcher_of =
            |text: &str| -> serde_json::Value { serde_json::from_str(text).unwrap() };
        let (mut mixed, theirs) =
            (dispatcher_of(&text), dispatcher_of(&site.read("other/access.json")));
        mixed["secrets"] = theirs["secrets"].clone();
        let path = site.write("mixed.json", mixed.to_string());
        private(&path);
        Access::at(&site, Path::new(&path)).run("status", &[]).exits(2);
        drop(other);

        // The dispatcher knows which instances there are.
        let file = site.text("instance.json");
        let id = access.submit(&["--instance-access", &file, "--", "echo", "its own"]);
        let own = Access::at(&site, Path::new(&file));
        assert_eq!(own.run("results", &[&id]).exits(0).text(), "its own\n");
        own.run("destroy", &[&id]).exits(0);
        own.run("results", &[&id]).exits(2).says_only(1, "was it destroyed?");

        access.run("stop", &[]).exits(0);
        let ran = dispatcher.running.take().unwrap().finish().exits(0);
        assert!(!ran.err.contains("concentrator has ended"), "{}", ran.err);
    }
}

fn private(path: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[trial]
fn one_that_is_killed_costs_its_executors_a_reconnect() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &["--concentrators", "2"]);
    let access = dispatcher.access();
    let mut started = site.signals("started");
    let mut gate = site.gate("gate");
    let executors: Vec<Running> = (0..4)
        .map(|number| dispatcher.executor(&format!("e{number}"), &["--slots", "1"]))
        .collect();
    let script = format!("echo on > {}; read line < {}", started.path(), gate.path());
    let id = access.submit(&["--range", "1-8", "--", "sh", "-c", &script]);
    started.take(4);
    for round in 1..=2 {
        let killed = site.left().concentrators()[0];
        rustix::process::kill_process(killed, Signal::KILL).unwrap();
        dispatcher.service().wait_for_count("a concentrator has ended", round);
        poll("all executors are back", || {
            let status = access.status();
            let executors = status["executors"].as_array().unwrap();
            executors.len() == 4 && executors.iter().all(|executor| executor["connected"] == true)
        });
        assert_eq!(site.left().concentrators().len(), 2);
    }
    gate.let_through(8);
    started.take(4);
    let results = access.results(&id);
    assert_eq!(results.len(), 8);
    assert!(results.iter().all(|one| one["attempts"] == 1), "{results:?}");
    drop(executors);
}

/// Holds executors in this process until the sender that it returns is dropped.
/// They are for builtin tasks.
fn emulate(access: &str, executors: usize) -> oneshot::Sender<()> {
    let access = AccessFile::load(Path::new(access)).unwrap();
    let (over, is_over) = oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let overflow = OverflowDirectory::create(scratch.path()).unwrap();
        let mut held = Vec::new();
        for number in 0..executors {
            let name = format!("emulated {number}");
            let scratch = scratch.path().to_owned();
            let options = Options::new(name, Resources::cpus(1), scratch, overflow.clone());
            let (leave, leaving) = oneshot::channel();
            let link = Link::Access { access: Box::new(access.clone()), source: None };
            held.push((leave, runtime.spawn(falkon_executor::run(options, link, leaving))));
        }
        runtime.block_on(is_over).unwrap_err();
    });
    over
}

#[trial]
fn they_start_when_descriptors_run_short() {
    const EXECUTORS: usize = 120;
    let site = Site::new();
    let dir = site.text("d");
    let mut command = site.program("sh");
    command.args(["-c", "ulimit -n 80; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_falkon")]);
    command.args(["start", "--dir", &dir]);
    let dispatcher = Running::start(command);
    dispatcher.wait_for("dispatcher at ");
    assert_eq!(site.left().concentrators().len(), 0);
    let access = Access::at(&site, &site.path("d/access.json"));
    let file = access.file.to_str().unwrap();
    let emulated = emulate(file, EXECUTORS);
    dispatcher.wait_for_count(" joined with ", EXECUTORS);
    assert!(site.left().concentrators().len() > 1);
    let ran = access.run("submit", &["--wait", "--range", "1-1000", "--", "@noop"]).exits(0);
    ran.says("1000");
    drop(emulated);
    poll("they are gone", || access.status()["executors"].as_array().unwrap().is_empty());
    dispatcher.signal(Signal::INT);
    let ran = dispatcher.finish().exits(0);
    assert!(!ran.err.contains("cannot"), "{}", ran.err);
    site.left().wait_for_none();
}

#[trial]
fn they_end_with_a_dispatcher_that_is_killed() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &["--concentrators", "2"]);
    let executor = dispatcher.executor("worker", &["--slots", "2"]);
    let access = dispatcher.access();
    let id = access.submit(&["--range", "1-10", "--", "echo"]);
    access.run("wait", &[&id]).exits(0);
    dispatcher.kill();
    site.left().wait_for_none_but(&[&executor]);
    dispatcher.start();
    dispatcher.service().wait_for("executor worker joined");
    assert_eq!(access.results(&id).len(), 10);
    let ran = access.run("submit", &["--wait", "--range", "1-4", "--", "echo"]).exits(0);
    assert_eq!(ran.sorted(), ["1", "2", "3", "4"]);
}
