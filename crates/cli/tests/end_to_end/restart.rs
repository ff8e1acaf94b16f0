//! `falkon restart`: another program takes a dispatcher's place in its process, and no task, no
//! client and no executor is lost by that.

use crate::fixture::{Access, Dispatcher, Gate, Running, Signals, Site, indices, json_lines, poll};
use falkon_trials::trial;
use std::os::unix::fs::{PermissionsExt, symlink};

/// The program under test.
const FALKON: &str = env!("CARGO_BIN_EXE_falkon");

/// A script in the test's directory that can be executed.
pub(crate) fn script(site: &Site, name: &str, text: &str) -> String {
    let path = site.write(name, format!("#!/bin/sh\n{text}\n"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Tasks that say when they start, and wait until they may end.
pub(crate) struct Held {
    started: Signals,
    gate: Gate,
    script: String,
}

impl Held {
    pub(crate) fn new(site: &Site) -> Held {
        let (started, gate) = (site.signals("started"), site.gate("gate"));
        let script =
            format!("echo {{}} > {}; read line < {}; echo {{}}", started.path(), gate.path());
        Held { started, gate, script }
    }

    /// Submits so many and waits for their results.
    fn submit(&self, access: &Access<'_>, count: u32) -> Running {
        let range = format!("1-{count}");
        access.start("submit", &self.submission(&range))
    }

    /// The arguments that submit a range of them and wait.
    pub(crate) fn submission<'a>(&'a self, range: &'a str) -> [&'a str; 8] {
        ["--wait", "--json", "--range", range, "--", "sh", "-c", &self.script]
    }

    /// Waits until so many more have started.
    pub(crate) fn begin(&mut self, count: usize) {
        self.started.take(count);
    }

    /// Lets so many end that have started, and those that come after them start.
    pub(crate) fn go_on(&mut self, count: usize, coming: usize) {
        self.gate.let_through(count);
        self.started.take(coming);
    }

    /// Each of so many tasks has run once, and the client has all results once.
    #[track_caller]
    pub(crate) fn check(mut self, client: Running, count: u64) {
        let ran = client.finish().exits(0);
        assert_eq!(indices(ran.text()), (0..count).collect::<Vec<_>>());
        for result in json_lines(ran.text()) {
            assert_eq!((&result["status"], &result["attempts"]), (&"done".into(), &1.into()));
        }
        assert!(self.started.is_silent(), "a task has run twice");
    }
}

/// The program that a process is.
fn executed(pid: u32) -> String {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The children of a process that have ended and that nobody has waited for.
fn zombies(pid: u32) -> usize {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let is_zombie = |child: &&str| {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
    };
    children.split_whitespace().filter(is_zombie).count()
}

fn starts(dispatcher: &Dispatcher<'_>) -> usize {
    dispatcher.service().said().matches("dispatcher at ").count()
}

#[trial]
fn a_program_takes_over_and_running_tasks_do_not_notice() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let executor = dispatcher.executor("worker", &["--slots", "2"]);
    let mut held = Held::new(&site);
    let client = held.submit(&access, 9);
    held.started.take(2);
    let (addresses, pid) = (site.read("d/access.json"), dispatcher.service().pid());
    for round in 1..=3 {
        let ran = access.run("restart", &[]).exits(0);
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(ran.text(), format!("restarted: was falkon {version}, is falkon {version}\n"));
        // The same process at the same port, which nobody has to be told.
        dispatcher.service().wait_for_count("dispatcher at ", round + 1);
        assert_eq!(site.read("d/access.json"), addresses);
        assert!(site.read("d/journal/journal.lock").contains(&format!("{pid}\n")));
        held.go_on(1, 1);
    }
    held.go_on(6, 4);
    held.check(client, 9);
    site.left().wait_for_none_but(&[dispatcher.service(), &executor]);
    access.run("stop", &[]).exits(0);
}

#[trial]
fn connections_that_other_processes_hold_come_back_too() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &["--concentrators", "2"]);
    let access = dispatcher.access();
    let executor = dispatcher.executor("worker", &["--slots", "2"]);
    let mut held = Held::new(&site);
    let client = held.submit(&access, 5);
    held.started.take(2);
    let before = site.left().concentrators();
    access.run("restart", &[]).exits(0);
    held.go_on(5, 3);
    held.check(client, 5);
    let pid = dispatcher.service().pid();
    poll("nobody is left of the ones before", || {
        let now = site.left().concentrators();
        now.len() == 2 && now.iter().all(|one| !before.contains(one)) && zombies(pid) == 0
    });
    site.left().wait_for_none_but(&[dispatcher.service(), &executor]);
}

#[trial]
fn a_dispatcher_that_is_killed_after_its_restart_continues() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executor = dispatcher.executor("worker", &["--slots", "2"]);
    let mut held = Held::new(&site);
    let client = held.submit(&access, 6);
    held.started.take(2);
    access.run("restart", &[]).exits(0);
    dispatcher.kill();
    held.gate.let_through(1);
    dispatcher.start();
    held.started.next();
    held.go_on(5, 3);
    held.check(client, 6);
}

#[trial]
fn the_program_is_the_one_that_is_now_where_the_running_one_was_started_from() {
    let site = Site::new();
    let link = site.text("falkon");
    symlink(FALKON, &link).unwrap();
    let dir = site.text("d");
    let mut command = site.program(&link);
    command.args(["start", "--dir", &dir]);
    let dispatcher = Running::start(command);
    dispatcher.wait_for("dispatcher at ");
    let new = script(&site, "new", &format!("echo \"$*\" >> ran\nexec {FALKON} \"$@\""));
    site.run(["restart", "--dir", &dir]).exits(0);
    std::fs::remove_file(&link).unwrap();
    let ran = site.run(["restart", "--dir", &dir]).exits(2);
    ran.says_only(1, &format!("there is no program at {link}"));
    symlink(&new, &link).unwrap();
    site.run(["restart", "--dir", &dir]).exits(0);
    let ran = site.read("ran");
    let ran: Vec<&str> = ran.lines().collect();
    let start = format!("start --dir {dir} --takes-over");
    assert_eq!(ran, ["--version", &format!("{start} check"), &format!("{start} serve")]);
    // A path in the place of that one, from where the command runs.
    site.write("ran", "");
    site.run(["restart", "--dir", &dir, "--binary", "new"]).exits(0);
    assert_eq!(site.read("ran").lines().count(), 3);
    assert_eq!(executed(dispatcher.pid()), FALKON);
    site.run(["stop", "--access", &site.text("d/access.json")]).exits(0);
    dispatcher.finish().exits(0);
}

#[trial]
fn a_program_that_will_not_do_leaves_the_running_one_as_it_is() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executor = dispatcher.executor("worker", &["--slots", "1"]);
    let mut held = Held::new(&site);
    let client = held.submit(&access, 2);
    held.started.next();
    let not_executable = site.write("text", "no program");
    let answers = |name: &str, check: &str| {
        let text = format!("test $1 = --version && {{ echo falkon 9.9.9; exit; }}; {check}");
        script(&site, name, &text)
    };
    let journal = "echo falkon: 1.log has journal format version 7 >&2; exit 3";
    for (program, why) in [
        (site.text("missing"), "there is no program at"),
        (not_executable, "cannot be executed: Permission denied"),
        (site.dir().to_str().unwrap().to_owned(), "cannot be executed: Permission denied"),
        ("/bin/true".to_owned(), "is not falkon: asked for its --version, it said"),
        (answers("silent", "exit 1"), "cannot take over: exit status: 1"),
        (answers("older", journal), "cannot take over: 1.log has journal format version 7"),
        (
            answers("newer", "echo takes-over 9.9.9 9999"),
            "speaks protocol 9999, and the executors and clients that are connected speak",
        ),
        (answers("both", "echo takes-over 9.9.9 10 11"), "speaks protocol 10 and 11, and"),
    ] {
        let ran = access.run("restart", &["--binary", &program]).exits(2);
        ran.says_only(1, "the dispatcher refused: it goes on as it is: ").says(why);
    }
    assert_eq!(starts(&dispatcher), 1);
    held.go_on(2, 1);
    held.check(client, 2);
    assert_eq!(starts(&dispatcher), 1);
}

#[trial]
fn a_damaged_file_is_noticed_before_the_running_program_is_given_up() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    access.run_sub(&["user", "add"], &["alice"]).exits(0);
    std::fs::create_dir_all(site.path("d/provision")).unwrap();
    for name in ["d/users.json", "d/provision/provision.json"] {
        let path = site.path(name);
        let before = std::fs::read(&path).ok();
        std::fs::write(&path, "{\"format\":1,").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let ran = access.run("restart", &[]).exits(2);
        ran.says_only(1, "the dispatcher refused: it goes on as it is: ").says("is damaged");
        assert_eq!(starts(&dispatcher), 1);
        access.run("status", &[]).exits(0);
        match before {
            Some(text) => std::fs::write(&path, text).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
    }
    access.run("restart", &[]).exits(0);
    dispatcher.service().wait_for_count("dispatcher at ", 2);
    let ran = access.run_sub(&["user", "list"], &[]).exits(0);
    assert!(ran.text().contains("alice"), "{ran}");
}

#[trial]
fn a_program_that_cannot_be_executed_after_all_leaves_the_running_one_to_continue() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    // It removes itself once it has said that it can take over.
    let new = script(&site, "new", &format!("test $1 = --version || rm new\n{FALKON} \"$@\""));
    access.run("restart", &["--binary", &new]).exits(0);
    dispatcher.service().wait_for("cannot be executed after all: No such file or directory");
    assert_eq!(executed(dispatcher.service().pid()), FALKON);
    dispatcher.service().wait_for_count("dispatcher at ", 2);
}

#[trial]
fn what_would_lose_tasks_is_refused() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &["--no-journal"]);
    let ran = dispatcher.access().run("restart", &[]).exits(2);
    ran.says_only(1, "it keeps no journal, so a restart would lose its tasks");
    assert_eq!(starts(&dispatcher), 1);
}

#[trial]
fn only_the_owner_has_a_dispatcher_restarted() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let owner = dispatcher.access();
    let added = owner.run_sub(&["user", "add"], &["alice"]).exits(0);
    let user = Access::at(&site, std::path::Path::new(added.text().trim()));
    user.run("restart", &[]).exits(2).says_only(1, "only the owner of the dispatcher may restart");
    for file in ["access-observer.json", "access-client.json"] {
        let ran = dispatcher.access_of(file).run("restart", &[]).exits(2);
        ran.says_only(1, "this access file does not allow that");
    }
    assert_eq!(starts(&dispatcher), 1);
    owner.run("restart", &["--binary", "missing"]).exits(2);
    owner.run("restart", &[]).exits(0);
    let audit = json_lines(&site.read("d/audit.jsonl"));
    let restarts = audit.iter().filter(|line| line["action"] == "restart");
    let restarts: Vec<_> = restarts
        .map(|line| (line["user"].as_str().unwrap(), line["outcome"].as_str().unwrap()))
        .collect();
    let refused = ["alice", "observer", "client", "owner"].map(|who| (who, "refused"));
    assert_eq!(restarts, [&refused[..], &[("owner", "done")]].concat());
}

#[trial]
fn a_service_in_the_background_stays_there() {
    let site = Site::new();
    site.run(["start", "--background"]).exits(0).says("continues in the background");
    let lock = site.read("state/falkon/journal/journal.lock");
    let id = site.run(["submit", "--", "echo", "there"]).exits(0).text().trim().to_owned();
    site.run(["restart"]).exits(0);
    assert_eq!(site.read("state/falkon/journal/journal.lock"), lock);
    let log = site.read("state/falkon/dispatcher.log");
    for part in ["asked to restart as version", " becomes ", "recovered from"] {
        assert!(log.contains(part), "no {part:?} in\n{log}");
    }
    let executor = site.start(["executor", "--slots", "1"]);
    site.run(["results", &id]).exits(0);
    site.run(["stop"]).exits(0);
    drop(executor);
    poll("its last line", || site.read("state/falkon/dispatcher.log").contains("asked to stop"));
}

#[trial]
fn a_relay_is_restarted_as_a_dispatcher_is() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let (dir, upstream) = (site.text("r"), dispatcher.access().file().to_owned());
    let relay = site.start(["relay", "--upstream", &upstream, "--dir", &dir, "--name", "relay"]);
    relay.wait_for("dispatcher at ");
    let below = Access::at(&site, &site.path("r").join("access.json"));
    let _executor = below.start("executor", &["--name", "worker", "--slots", "2"]);
    let mut held = Held::new(&site);
    let client = held.submit(&dispatcher.access(), 6);
    held.started.take(2);
    site.run(["restart", "--dir", &dir]).exits(0);
    held.go_on(6, 4);
    held.check(client, 6);
    below.run("stop", &[]).exits(0);
    relay.finish().exits(0);
}
