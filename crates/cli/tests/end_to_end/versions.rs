//! Two versions of the protocol together: this program beside one that speaks the version before
//! alone. That is this program with `FALKON_PROTOCOL`, and also, where `FALKON_BEFORE` names one, a
//! program of the release before.

use crate::fixture::{Access, Running, Site, indices, poll_for};
use crate::restart::{Held, script};
use falkon_trials::trial;
use falkon_wire::message::{PROTOCOL_VERSION, PROTOCOL_VERSION_OLDEST};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

const VARIABLE: &str = "FALKON_PROTOCOL";
/// How executors and relays name a version that is not this release's newest in their logs.
const IN_OLD: &str = ", in protocol 8";

/// A program that speaks certain versions.
#[derive(Clone)]
struct Program {
    path: String,
    protocol: Option<String>,
}

impl Program {
    /// The program under test.
    fn new() -> Program {
        Program { path: env!("CARGO_BIN_EXE_falkon").to_owned(), protocol: None }
    }

    /// The same, limited to the version before.
    fn limited() -> Program {
        Program { protocol: Some(PROTOCOL_VERSION_OLDEST.to_string()), ..Program::new() }
    }

    /// A program of the release before.
    fn before() -> Program {
        match std::env::var("FALKON_BEFORE") {
            Ok(path) => Program { path, protocol: None },
            Err(_) => falkon_trials::skip("FALKON_BEFORE names no program of the version before"),
        }
    }

    fn command(&self, site: &Site, args: &[&str]) -> Command {
        let mut command = site.program(&self.path);
        command.args(args).env_remove(VARIABLE);
        command.envs(self.protocol.iter().map(|version| (VARIABLE, version)));
        command
    }

    fn start(&self, site: &Site, args: &[&str]) -> Running {
        Running::start(self.command(site, args))
    }

    /// Starts a dispatcher and waits until it is ready.
    fn dispatcher(&self, site: &Site, args: &[&str]) -> Running {
        let dir = site.text("d");
        let dispatcher = self.start(site, &[&["start", "--dir", &dir], args].concat());
        dispatcher.wait_for("dispatcher at ");
        dispatcher
    }

    /// Starts an executor and waits until it is connected.
    fn executor(&self, site: &Site, access: &str, name: &str) -> Running {
        let args = ["executor", "--access", access, "--name", name, "--slots", "2"];
        let executor = self.start(site, &args);
        executor.wait_for("connected to the dispatcher at ");
        executor
    }

    /// Submits tasks and checks their results.
    #[track_caller]
    fn submits(&self, site: &Site, access: &str) {
        let args = ["submit", "--access", access, "--wait", "--json", "--range", "1-20"];
        let ran = self.start(site, &[&args[..], &["--", "echo", "{}"]].concat()).finish().exits(0);
        assert_eq!(indices(ran.text()), (0..20).collect::<Vec<_>>());
    }

    /// A script that executes this program, whatever the environment says of versions.
    fn script(&self, site: &Site, name: &str) -> String {
        let set = match &self.protocol {
            Some(version) => format!("export {VARIABLE}={version}"),
            None => format!("unset {VARIABLE}"),
        };
        script(site, name, &format!("{set}\nexec {} \"$@\"", self.path))
    }
}

fn access(site: &Site) -> String {
    site.text("d/access.json")
}

fn old_peers_with_a_new_dispatcher(old: &Program) {
    let new = Program::new();
    for args in [
        &["--security", "none"][..],
        &["--security", "authenticate"],
        &["--security", "encrypt"],
        &["--concentrators", "2"],
    ] {
        let site = Site::new();
        let dispatcher = new.dispatcher(&site, args);
        let first = old.executor(&site, &access(&site), "old");
        old.submits(&site, &access(&site));
        new.submits(&site, &access(&site));
        let second = new.executor(&site, &access(&site), "new");
        assert!(!second.said().contains(IN_OLD));
        drop(first);
        old.submits(&site, &access(&site));
        assert!(!dispatcher.said().contains("speaks protocol"), "{}", dispatcher.said());
    }
}

#[trial]
fn executors_and_clients_of_version_8_with_a_dispatcher_of_9() {
    old_peers_with_a_new_dispatcher(&Program::limited());
}

#[trial]
fn executors_and_clients_of_the_release_before_with_a_new_dispatcher() {
    old_peers_with_a_new_dispatcher(&Program::before());
}

fn new_peers_with_an_old_dispatcher(old: &Program) {
    let new = Program::new();
    for level in ["none", "authenticate", "encrypt"] {
        let site = Site::new();
        let args = ["--security", level];
        let dispatcher = old.dispatcher(&site, &args);
        let executor = new.executor(&site, &access(&site), "worker");
        executor.wait_for(IN_OLD);
        new.submits(&site, &access(&site));
        old.submits(&site, &access(&site));
        // An executor that has learnt the version comes back in it at once.
        assert!(dispatcher.said().contains("speaks protocol 9"), "{}", dispatcher.said());
        dispatcher.kill();
        let dispatcher = old.dispatcher(&site, &args);
        dispatcher.wait_for("executor worker joined");
        executor.wait_for_count(IN_OLD, 2);
        assert!(!dispatcher.said().contains("speaks protocol"), "{}", dispatcher.said());
        new.submits(&site, &access(&site));
    }
}

#[trial]
fn executors_and_clients_of_version_9_with_a_dispatcher_of_8() {
    new_peers_with_an_old_dispatcher(&Program::limited());
}

#[trial]
fn new_executors_and_clients_with_a_dispatcher_of_the_release_before() {
    new_peers_with_an_old_dispatcher(&Program::before());
}

/// A dispatcher becomes one of the new version and one of the old version again, while executors
/// of both run tasks for clients of both.
fn restarts_between(old: &Program) {
    let (site, new) = (Site::new(), Program::new());
    let dispatcher = old.dispatcher(&site, &[]);
    let access = access(&site);
    let owner = Access::at(&site, access.as_ref());
    let _executors = [old.executor(&site, &access, "old"), new.executor(&site, &access, "new")];
    let mut held = Held::new(&site);
    let submit = [&["submit", "--access", &access][..], &held.submission("1-16")].concat();
    let client = old.start(&site, &submit);
    held.begin(4);
    let programs = [new.script(&site, "upgrade"), old.script(&site, "downgrade")];
    for (round, program) in [&programs[0], &programs[1], &programs[0]].into_iter().enumerate() {
        owner.run("restart", &["--binary", program]).exits(0);
        dispatcher.wait_for_count("dispatcher at ", round + 2);
        poll_for("both executors are back", || {
            let status = owner.status();
            let executors = status["executors"].as_array().unwrap();
            let back = executors.iter().filter(|executor| executor["connected"] == true);
            (back.count() == 2).then_some(())
        });
        held.go_on(2, 2);
    }
    held.go_on(10, 6);
    held.check(client, 16);
    let third = new.executor(&site, &access, "third");
    assert!(!third.said().contains(IN_OLD), "it is a dispatcher of the new version now");
    new.submits(&site, &access);
    old.submits(&site, &access);
}

#[trial]
fn a_dispatcher_is_restarted_from_version_8_to_9_and_back_with_tasks_running() {
    restarts_between(&Program::limited());
}

#[trial]
fn a_dispatcher_of_the_release_before_is_restarted_and_back_with_tasks_running() {
    restarts_between(&Program::before());
}

/// A relay of one version below a dispatcher of another, with an executor of a third.
fn a_tree(above: &Program, relay: &Program, below: &Program) {
    let site = Site::new();
    let _dispatcher = above.dispatcher(&site, &[]);
    let (upstream, dir) = (access(&site), site.text("relay"));
    let args = ["relay", "--upstream", &upstream, "--dir", &dir, "--name", "relay"];
    let relay = relay.start(&site, &args);
    relay.wait_for("dispatcher at ");
    let _executor = below.executor(&site, &site.text("relay/access.json"), "worker");
    poll_for("the node below the relay", || {
        let status = Access::at(&site, upstream.as_ref()).status();
        (status["executors"][0]["nodes"] == 1).then_some(())
    });
    above.submits(&site, &upstream);
    below.submits(&site, &upstream);
}

#[trial]
fn relays_stand_between_versions() {
    let (old, new) = (Program::limited(), Program::new());
    a_tree(&old, &new, &old);
    a_tree(&new, &old, &new);
}

#[trial]
fn relays_stand_between_releases() {
    let (old, new) = (Program::before(), Program::new());
    a_tree(&old, &new, &old);
    a_tree(&new, &old, &new);
}

#[trial]
fn a_version_that_this_release_does_not_speak_is_refused_at_once() {
    let mut site = Site::new();
    for value in ["7", "10", "new"] {
        site.set(VARIABLE, value);
        let ran = site.run(["status"]).exits(2);
        let (old, new) = (PROTOCOL_VERSION_OLDEST, PROTOCOL_VERSION);
        let said =
            format!("{VARIABLE} is {value:?}, and this falkon speaks protocol {old} and {new}");
        ran.says_only(1, &said);
    }
}

/// The journal was written by a release of protocol 8: a complete instance, one that was destroyed,
/// one whose tasks wait, and one of which four tasks were cancelled.
#[trial]
fn a_journal_of_a_release_of_protocol_8_is_read() {
    let site = Site::new();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/end_to_end/versions/journal_of_protocol_8");
    std::fs::create_dir_all(site.path("d/journal")).unwrap();
    for file in ["00000001.log", "epochs.json"] {
        let copy = site.path("d/journal").join(file);
        std::fs::copy(folder.join(file), &copy).unwrap();
        // It holds secrets, and a checkout makes files that all may read.
        std::fs::set_permissions(&copy, Permissions::from_mode(0o600)).unwrap();
    }
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let status = access.status();
    let counts: Vec<_> = status["instances"]
        .as_array()
        .unwrap()
        .iter()
        .map(|instance| {
            let count = |name: &str| instance[name].as_u64().unwrap();
            let name = instance["name"].as_str().unwrap().to_owned();
            (count("id"), name, count("tasks"), count("done"), count("failed"), count("cancelled"))
        })
        .collect();
    let expected = [
        (0, "finished".to_owned(), 40, 36, 4, 0),
        (2, "waiting".to_owned(), 30, 0, 0, 0),
        (3, "cancelled".to_owned(), 10, 0, 0, 4),
    ];
    assert_eq!(counts, expected);
    let results = access.results("finished");
    assert_eq!(results.len(), 40);
    for result in results {
        let number = result["index"].as_u64().unwrap() + 1;
        let fails = number % 10 == 0;
        assert_eq!(result["stdout"], format!("line {number}\n"));
        assert_eq!(result["stderr"], format!("err {number}\n"));
        assert_eq!(result["exit_code"], u64::from(fails));
        assert_eq!(result["status"], if fails { "failed" } else { "done" });
    }
    // What was to run is run. The directory in which it was submitted is gone.
    let _executor = dispatcher.executor("another", &["--slots", "2"]);
    for (name, tasks, left) in [("waiting", 30, 30), ("cancelled", 10, 6)] {
        access.run("wait", &[name]).exits(1);
        let lines = access.results(name);
        assert_eq!(lines.len(), tasks, "{name}");
        let are = |key: &str, value: &str| lines.iter().filter(|line| line[key] == value).count();
        assert_eq!((are("cause", "no_folder"), are("status", "cancelled")), (left, tasks - left));
    }
}
