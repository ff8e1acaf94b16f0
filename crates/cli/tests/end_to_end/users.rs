//! Users of a dispatcher: what each may do, see and have, and what is left of one who is removed.

mod disks;

use crate::fixture::{Access, Dispatcher, Running, Site, json_lines, poll};
use falkon_net::client::Client;
use falkon_net::secure::AccessFile;
use falkon_trials::trial;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

/// Adds a user, and returns the access that the written file gives.
#[track_caller]
fn add<'a>(site: &'a Site, owner: &Access<'a>, name: &str, args: &[&str]) -> Access<'a> {
    let ran = owner.run_sub(&["user", "add"], &[&[name], args].concat()).exits(0);
    let file = std::path::PathBuf::from(ran.text().trim());
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    Access::at(site, &file)
}

#[track_caller]
fn revoke(owner: &Access<'_>, name: &str, args: &[&str]) {
    owner.run_sub(&["user", "revoke"], &[&[name], args].concat()).exits(0);
}

/// What `falkon user list` says of a user.
#[track_caller]
fn listed(owner: &Access<'_>, name: &str) -> Option<Value> {
    let ran = owner.run_sub(&["user", "list"], &["--json"]).exits(0);
    json_lines(ran.text()).into_iter().find(|user| user["name"] == name)
}

/// The numbers of the instances that an access shows.
fn seen(access: &Access<'_>) -> Vec<String> {
    let status = access.status();
    let instances = status["instances"].as_array().unwrap().iter();
    instances.map(|instance| instance["id"].to_string()).collect()
}

/// The names of the users that an access shows.
fn users(access: &Access<'_>) -> Vec<String> {
    let status = access.status();
    let users = status["users"].as_array().unwrap().iter();
    users.map(|user| user["name"].as_str().unwrap().to_owned()).collect()
}

/// A message without its numbers.
fn without_digits(text: &str) -> String {
    text.chars().filter(|char| !char.is_ascii_digit()).collect()
}

#[trial]
fn users_see_and_control_their_own_tasks_alone() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let owner = dispatcher.access();
    let (alice, bob) = (add(&site, &owner, "alice", &[]), add(&site, &owner, "bob", &[]));
    let _executor = dispatcher.executor("worker", &["--slots", "2"]);
    let alices = alice.submit(&["--name", "hers", "--range", "1-3", "--", "echo", "secret"]);
    let bobs = bob.submit(&["--name", "his", "--", "echo", "his"]);
    let owners = owner.submit(&["--", "true"]);
    for (access, instance) in [(&alice, &alices), (&bob, &bobs), (&owner, &owners)] {
        access.run("wait", &[instance]).exits(0);
    }
    assert_eq!(alice.results(&alices).len(), 3);
    assert_eq!((seen(&alice), seen(&bob)), (vec![alices.clone()], vec![bobs.clone()]));
    assert_eq!(seen(&owner), [alices.clone(), bobs, owners.clone()]);
    assert_eq!((users(&alice), users(&bob)), (vec!["alice".to_owned()], vec!["bob".to_owned()]));
    assert_eq!(users(&owner), ["alice", "bob"]);
    let told = alice.status()["users"][0].clone();
    assert_eq!(
        (&told["done"], &told["queued"], &told["instances"]),
        (&3.into(), &0.into(), &1.into())
    );
    assert_eq!(owner.instance(&alices)["user"], "alice");
    assert_eq!(owner.instance(&owners)["user"], Value::Null);
    owner.run("results", &[&alices]).exits(0);
    // Another's instance is as one that there is not, to every command, by number and by name.
    let commands: [(&str, &[&str]); 13] = [
        ("wait", &[]),
        ("results", &[]),
        ("status", &[]),
        ("tasks", &[]),
        ("explain", &[]),
        ("pause", &[]),
        ("resume", &[]),
        ("priority", &["-1"]),
        ("priority", &["1"]),
        ("cancel", &[]),
        ("retry", &[]),
        ("destroy", &[]),
        ("data", &[]),
    ];
    for (command, more) in commands {
        let refused = |named: &str| {
            let ran = match command {
                "data" => bob.run_sub(&["data", "ls"], &["--instance", named]),
                _ => bob.run(command, &[&[named], more].concat()),
            };
            let said = (ran.status.code(), without_digits(&ran.err), without_digits(ran.text()));
            assert!(!format!("{said:?}").contains("secret"), "{ran}");
            if command != "status" {
                assert_ne!(said.0, Some(0), "{ran}");
            }
            said
        };
        if command != "status" {
            assert_eq!(refused(&alices), refused("999"), "falkon {command}");
        }
        if command != "data" {
            let (hers, nobodys) = (refused("hers"), refused("nobodys"));
            assert_eq!(hers.1.replace("hers", ""), nobodys.1.replace("nobodys", ""), "{command}");
        }
    }
    for task in ["0", "17"] {
        let of = |instance: &str| {
            let ran = bob.run("tail", &[&format!("{instance}/{task}")]);
            assert_ne!(ran.status.code(), Some(0), "{ran}");
            without_digits(&ran.err)
        };
        assert_eq!(of(&alices), of("999"));
    }
    // Nothing of that has done anything.
    assert_eq!(owner.instance(&alices)["done"], 3);
    // One who has the instance's own access file has what its user has of it.
    let own = site.text("own.json");
    let id = alice.submit(&["--instance-access", &own, "--", "echo", "own"]);
    let own = Access::at(&site, &site.path("own.json"));
    own.run("wait", &[&id]).exits(0);
    alice.run("destroy", &[&id]).exits(0);
}

#[trial]
fn only_the_owner_controls_the_dispatcher() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let owner = dispatcher.access();
    let alice = add(&site, &owner, "alice", &[]);
    let bob = add(&site, &owner, "bob", &["--sees-all"]);
    let _executor = dispatcher.executor("worker", &[]);
    let instance = alice.submit(&["--", "true"]);
    alice.run("wait", &[&instance]).exits(0);
    for user in [&alice, &bob] {
        let refused: [(&[&str], &[&str], &str); 7] = [
            (&["stop"], &[], "only the owner of the dispatcher may stop it"),
            (&["drain"], &["worker"], "drain executors"),
            (&["user", "list"], &[], "manage users"),
            (&["user", "add"], &["carol", "--out", "carol.json"], "manage users"),
            (&["user", "revoke"], &["bob"], "manage users"),
            (&["provision"], &["list"], "use the provisioner"),
            (&["data", "forget"], &["--all"], "have it forgotten"),
        ];
        for (command, args, part) in refused {
            let ran = user.run_sub(command, args);
            assert!(ran.err.contains(part) && !ran.succeeded(), "{ran}");
        }
        let own = user.submit(&["--", "true"]);
        user.run("priority", &[&own, "-1"]).exits(0);
        user.run("priority", &[&own, "1"]).says("have an instance go before others");
    }
    assert!(!site.path("carol.json").exists());
    // One who may see all reads how all are, and nothing else.
    assert!(seen(&bob).contains(&instance));
    assert_eq!(users(&bob), ["alice", "bob"]);
    let observer = dispatcher.access_of("access-observer.json");
    assert_eq!(users(&observer), ["alice", "bob"]);
    bob.run("tasks", &[&instance]).exits(0);
    bob.run("log", &[]).exits(0);
    alice.run("log", &[]).says("see what happens to the tasks of all");
    bob.run("results", &[&instance]).says("there is no instance");
    bob.run("cancel", &[&instance]).says("there is no instance");
    bob.run("destroy", &[&instance]).says("there is no instance");
    // Other roles are no users, and what is none is no name.
    for file in ["access-client.json", "access-observer.json", "access-executor.json"] {
        let ran = dispatcher.access_of(file).run_sub(&["user", "list"], &[]);
        assert!(!ran.succeeded(), "{ran}");
    }
    owner.run_sub(&["user", "add"], &["alice"]).says("there is a user alice already");
    owner.run_sub(&["user", "add"], &["../x"]).says("a user's name has letters");
    owner.run_sub(&["user", "add"], &["x", "--share", "0"]).says("a share is 1 to");
    owner.run_sub(&["user", "revoke"], &["nobody"]).says("there is no user nobody");
}

#[trial]
fn a_user_who_is_removed_has_nothing_any_more() {
    for concentrators in ["0", "1"] {
        let site = Site::new();
        let dispatcher = site.dispatcher("d", &["--concentrators", concentrators]);
        let owner = dispatcher.access();
        let alice = add(&site, &owner, "alice", &[]);
        let bob = add(&site, &owner, "bob", &[]);
        let _executor = dispatcher.executor("worker", &["--slots", "4"]);
        let (mut signals, mut gate) = (site.signals("signals"), site.gate("gate"));
        let script = format!("echo x > {}; read line < {}", signals.path(), gate.path());
        let file = site.text("own.json");
        let run = |access: &Access<'_>, args: &[&str]| {
            let all = [args, &["--range", "1-2", "--shell", &script]].concat();
            access.submit(&all)
        };
        let (hers, his) = (run(&alice, &["--instance-access", &file]), run(&bob, &[]));
        signals.take(4);
        let waits = alice.start("wait", &[&hers]);
        let own = Access::at(&site, &site.path("own.json"));
        let waits_too = own.start("results", &[&hers]);
        poll("both are connected", || listed(&owner, "alice").unwrap()["connections"] == 2);
        revoke(&owner, "alice", &[]);
        // Connections end at once, and no later one is taken.
        let ran = waits.finish();
        assert!(!ran.succeeded() && ran.err.contains("has removed the user"), "{ran}");
        assert!(!waits_too.finish().succeeded());
        alice.run("status", &[]).exits(2).says_only(1, "has removed the user");
        alice.run("submit", &["--", "true"]).says("has removed the user");
        own.run("status", &[]).says("has no instance");
        // Her tasks are stopped, his go on.
        owner.run("wait", &[&hers]).exits(1);
        assert_eq!(owner.instance(&hers)["cancelled"], 2);
        gate.let_through(2);
        owner.run("wait", &[&his]).exits(0);
        assert_eq!(bob.instance(&his)["done"], 2);
        // The name is free when nothing of hers is left.
        owner.run_sub(&["user", "add"], &["alice"]).says("destroy them first");
        owner.run("destroy", &[&hers]).exits(0);
        let again = site.text("again.json");
        add(&site, &owner, "alice", &["--out", &again]);
        alice.run("status", &[]).exits(2).says_only(1, "has removed the user");
        Access::at(&site, &site.path("again.json")).run("status", &[]).exits(0);
        assert_eq!(seen(&Access::at(&site, &site.path("again.json"))), [""; 0]);
    }
}

#[trial]
fn tasks_of_a_user_who_is_removed_may_go_on() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let owner = dispatcher.access();
    let alice = add(&site, &owner, "alice", &[]);
    let _executor = dispatcher.executor("worker", &["--slots", "1"]);
    let (mut signals, mut gate) = (site.signals("signals"), site.gate("gate"));
    let script = format!("echo x > {}; read line < {}; echo done", signals.path(), gate.path());
    let hers = alice.submit(&["--range", "1-3", "--shell", &script]);
    signals.next();
    revoke(&owner, "alice", &["--keep"]);
    assert_eq!(listed(&owner, "alice").unwrap()["revoked"], true);
    alice.run("results", &[&hers]).says("has removed the user");
    gate.let_through(3);
    owner.run("wait", &[&hers]).exits(0);
    assert_eq!(owner.results(&hers).len(), 3);
}

#[trial]
fn a_stolen_or_altered_access_file_opens_nothing_else() {
    for level in ["authenticate", "encrypt"] {
        let site = Site::new();
        let one = site.dispatcher("d", &["--security", level]);
        let other = site.dispatcher("e", &["--security", level]);
        let alice = add(&site, &one.access(), "alice", &[]);
        let bob = add(&site, &one.access(), "bob", &[]);
        let parsed = |access: &Access<'_>| -> Value {
            serde_json::from_slice(&std::fs::read(&access.file).unwrap()).unwrap()
        };
        let (of_alice, of_bob) = (parsed(&alice), parsed(&bob));
        let names = |file: &Value| -> Vec<String> {
            file["secrets"].as_object().unwrap().keys().cloned().collect()
        };
        let (hers, his) = (names(&of_alice), names(&of_bob));
        assert_eq!((hers.len(), his.len()), (1, 1), "a file has its user's secret alone");
        let refused = |name: &str, file: &Value| {
            site.write(name, file.to_string());
            let path = site.path(name);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            let ran = Access::at(&site, &path).run("status", &[]);
            ran.exits(2);
        };
        // Her secret as his, as another role's, and at another dispatcher.
        let secret = of_alice["secrets"][&hers[0]].clone();
        for role in [his[0].as_str(), "owner", "client", "instance-0", "user-1"] {
            let mut file = of_alice.clone();
            file["secrets"] = serde_json::json!({ role: secret });
            refused("changed.json", &file);
        }
        let mut file = of_alice;
        file["addresses"] = parsed(&other.access())["addresses"].clone();
        refused("elsewhere.json", &file);
        // The file names no secret, and the dispatcher's own list has none.
        let list = site.read("d/users.json");
        assert!(!list.contains(secret.as_str().unwrap()), "{list}");
    }
    let site = Site::new();
    let open = site.dispatcher("d", &["--security", "none"]);
    let ran = open.access().run_sub(&["user", "add"], &["alice"]);
    assert!(!ran.succeeded() && ran.err.contains("only where its connections are protected"));
    assert!(!site.path("d/access-user-alice.json").exists());
}

/// Kills a dispatcher with -9, and starts it again.
fn restart(dispatcher: &mut Dispatcher<'_>) {
    dispatcher.kill();
    dispatcher.start();
}

#[trial]
fn users_and_what_is_theirs_survive_a_restart() {
    for journal in [true, false] {
        let site = Site::new();
        let args: &[&str] = if journal { &[] } else { &["--no-journal"] };
        let mut dispatcher = site.dispatcher("d", args);
        let owner = dispatcher.access();
        let limits = ["--share", "3", "--tasks-max", "100", "--slots-max", "2"];
        let alice = add(&site, &owner, "alice", &limits);
        let bob = add(&site, &owner, "bob", &[]);
        let carol = add(&site, &owner, "carol", &[]);
        let hers = alice.submit(&["--range", "1-5", "--", "@noop"]);
        let his = bob.submit(&["--range", "1-5", "--", "@noop"]);
        let carols = carol.submit(&["--range", "1-5", "--", "@noop"]);
        revoke(&owner, "bob", &[]);
        revoke(&owner, "carol", &["--keep"]);
        restart(&mut dispatcher);
        let user = listed(&owner, "alice").unwrap();
        assert_eq!((&user["share"], &user["tasks_max"]), (&3.into(), &100.into()));
        for gone in [&bob, &carol] {
            gone.run("status", &[]).says("has removed the user");
        }
        if journal {
            assert_eq!((seen(&alice), user["tasks"].clone()), (vec![hers.clone()], 5.into()));
            assert_eq!(owner.instance(&his)["cancelled"], 5);
            assert_eq!(owner.instance(&carols)["cancelled"], 0);
            let _executor = dispatcher.executor("worker", &[]);
            alice.run("wait", &[&hers]).exits(0);
            owner.run("wait", &[&carols]).exits(0);
            // The removal of one of whom nothing is left is not remembered.
            for id in [&his, &carols] {
                owner.run("destroy", &[id]).exits(0);
            }
            restart(&mut dispatcher);
        }
        assert!(listed(&owner, "bob").is_none() && listed(&owner, "carol").is_none());
        let own = alice.submit(&["--", "@noop"]);
        assert!(seen(&alice).contains(&own));
        // The file can be written again.
        let file = site.text("again.json");
        owner.run_sub(&["user", "access"], &["alice", "--out", &file]).exits(0);
        Access::at(&site, &site.path("again.json")).run("status", &[]).exits(0);
    }
}

#[trial]
fn who_has_as_much_as_is_allowed_waits() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let owner = dispatcher.access();
    let alice = add(&site, &owner, "alice", &["--tasks-max", "8", "--slots-max", "2"]);
    let bob = add(&site, &owner, "bob", &["--bytes-max", "10kB"]);
    let (mut signals, mut gate) = (site.signals("signals"), site.gate("gate"));
    let script = format!("echo x > {}; read line < {}", signals.path(), gate.path());
    // More tasks than there may be are submitted as others end.
    let submits = alice.start("submit", &["--wait", "--range", "1-30", "--shell", &script]);
    poll("as many as may be are queued", || listed(&owner, "alice").unwrap()["tasks"] == 8);
    let _executor = dispatcher.executor("worker", &["--slots", "8"]);
    for _ in 0..15 {
        signals.take(2);
        let user = listed(&owner, "alice").unwrap();
        assert!(user["tasks"].as_u64().unwrap() <= 8, "{user}");
        assert_eq!(user["cpus"], 2.0, "{user}");
        assert!(signals.is_silent());
        if user["tasks"].as_u64().unwrap() > 2 {
            let explained = alice.run("explain", &["0"]).exits(0);
            assert!(explained.text().contains("may use 2"), "{explained}");
        }
        gate.let_through(2);
    }
    submits.finish().exits(0);
    alice.run("submit", &["--cpus", "3", "--", "true"]).says("this user may use 2 at a time");
    // What the executor has left is for others meanwhile.
    let hers = alice.submit(&["--range", "1-2", "--shell", &script]);
    signals.take(2);
    bob.run("submit", &["--wait", "--range", "1-3", "--", "true"]).exits(0);
    gate.let_through(2);
    alice.run("wait", &[&hers]).exits(0);
    // Results that are kept fill a quota of bytes until they are destroyed.
    let large = bob.submit(&["--", "seq", "10000"]);
    bob.run("wait", &[&large]).exits(0);
    let waits = bob.start("submit", &["--wait", "--", "echo", "more"]);
    waits.wait_for("bytes of results and queued tasks are kept");
    bob.run("destroy", &[&large]).exits(0);
    let ran = waits.finish().exits(0);
    assert_eq!(ran.text(), "more\n");
}

#[trial]
fn what_a_user_may_have_is_changed_while_the_user_is_there() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let owner = dispatcher.access();
    let alice = add(&site, &owner, "alice", &["--tasks-max", "4", "--slots-max", "1"]);
    let set = |args: &[&str]| owner.run_sub(&["user", "set"], args);
    let (mut signals, mut gate) = (site.signals("signals"), site.gate("gate"));
    let script = format!("echo x > {}; read line < {}", signals.path(), gate.path());
    let hers = alice.submit(&["--range", "1-4", "--shell", &script]);
    let _executor = dispatcher.executor("worker", &["--slots", "4"]);
    signals.next();
    // Her tasks that were held back start, and her next ones are accepted.
    set(&["alice", "--slots-max", "3", "--tasks-max", "none", "--share", "5"]).exits(0);
    signals.take(2);
    let more = alice.submit(&["--range", "1-9", "--shell", &script]);
    // What is more than a lowered quota stays, and what comes is pushed back.
    set(&["alice", "--slots-max", "1", "--tasks-max", "2"]).exits(0);
    let user = listed(&owner, "alice").unwrap();
    assert_eq!((&user["tasks"], &user["cpus"]), (&13.into(), &3.0.into()));
    assert_eq!((&user["tasks_max"], &user["share"]), (&2.into(), &5.into()));
    gate.let_through(2);
    poll("two have ended", || alice.instance(&hers)["done"] == 2);
    assert!(signals.is_silent());
    let pushed_back = alice.start("submit", &["--", "true"]);
    pushed_back.wait_for("may have 2 tasks");
    set(&["alice", "--slots-max", "none", "--tasks-max", "none"]).exits(0);
    pushed_back.finish().exits(0);
    let all = owner.status()["users"].as_array().unwrap().clone();
    assert_eq!((&all[0]["name"], &all[0]["tasks_max"]), (&"alice".into(), &Value::Null));
    // It is the same after a restart.
    set(&["alice", "--tasks-max", "7"]).exits(0);
    restart(&mut dispatcher);
    let user = listed(&owner, "alice").unwrap();
    assert_eq!((&user["tasks_max"], &user["share"]), (&7.into(), &5.into()));
    for id in [&hers, &more] {
        owner.run("cancel", &[id]).exits(0);
    }
    // What makes no sense changes nothing.
    set(&["bob", "--share", "2"]).says("there is no user bob");
    set(&["alice", "--share", "0"]).says("a share is 1 to");
    set(&["alice", "--instances-max", "20000"]).says("a user may have 1 to 16384 instances");
    set(&["alice"]).exits(2);
    let told = alice.run_sub(&["user", "set"], &["alice", "--share", "9"]);
    told.says("only the owner of the dispatcher may manage users");
    assert_eq!(listed(&owner, "alice").unwrap()["share"], 5);
    let text = site.read("d/audit.jsonl");
    assert!(text.contains("alice --share 5 --tasks-max none --slots-max 3"), "{text}");
}

#[trial]
fn a_user_has_no_more_instances_than_are_allowed() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let owner = dispatcher.access();
    let alice = add(&site, &owner, "alice", &["--instances-max", "2"]);
    let submit = || alice.run("submit", &["--", "@noop"]);
    let first = alice.submit(&["--", "@noop"]);
    alice.submit(&["--", "@noop"]);
    submit().says("this user has 2 of 2 instances: destroy some that are over");
    alice.run("destroy", &[&first]).exits(0);
    submit().exits(0);
    submit().says("this user has 2 of 2 instances");
    owner.run_sub(&["user", "set"], &["alice", "--instances-max", "none"]).exits(0);
    submit().exits(0);
    assert_eq!(listed(&owner, "alice").unwrap()["instances_max"], 1000);
}

#[trial]
fn a_client_of_version_8_has_users_without_what_it_does_not_know() {
    for concentrators in ["0", "1"] {
        let site = Site::new();
        let dispatcher = site.dispatcher("d", &["--concentrators", concentrators]);
        let owner = dispatcher.access();
        let alice = add(&site, &owner, "alice", &["--instances-max", "1"]);
        let old = |access: &Access<'_>, args: &[&str]| {
            let mut command = site.falkon(args);
            command.env("FALKON_ACCESS", access.file()).env("FALKON_PROTOCOL", "8");
            Running::start(command).finish()
        };
        let ran = old(&owner, &["user", "list", "--json"]).exits(0);
        let told = json_lines(ran.text());
        assert_eq!((&told[0]["name"], &told[0]["instances_max"]), (&"alice".into(), &Value::Null));
        let ran = old(&owner, &["status", "--json"]).exits(0);
        assert_eq!(json_lines(ran.text())[0]["users"], serde_json::json!([]));
        alice.submit(&["--", "@noop"]);
        old(&alice, &["submit", "--", "@noop"]).says("this user has 1 of 1 instances");
        for args in [
            &["user", "set", "alice", "--share", "2"][..],
            &["user", "add", "bob", "--instances-max", "3"],
        ] {
            let ran = old(&owner, args).exits(2);
            ran.says("is in protocol 8, and this request is in protocol 9 and later");
        }
        old(&owner, &["user", "add", "bob"]).exits(0);
    }
}

/// The lines of a dispatcher's record of control actions: user, action, outcome.
fn audit(site: &Site) -> Vec<(String, String, String)> {
    let field = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
    let lines = json_lines(&site.read("d/audit.jsonl"));
    let lines = lines.iter().map(|line| {
        assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
        assert!(line["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
        (field(line, "user"), field(line, "action"), field(line, "outcome"))
    });
    lines.collect()
}

#[trial]
fn who_did_what_is_on_record() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let owner = dispatcher.access();
    let alice = add(&site, &owner, "alice", &[]);
    let id = alice.submit(&["--name", "hers", "--range", "1-9", "--", "@noop"]);
    alice.run("pause", &[&id]).exits(0);
    alice.run("cancel", &["999"]);
    alice.run("stop", &[]);
    owner.run("cancel", &[&id]).exits(0);
    owner.run("status", &[]).exits(0);
    revoke(&owner, "alice", &[]);
    let expected = [
        ("owner", "user add", "done"),
        ("alice", "create", "done"),
        ("alice", "pause", "done"),
        ("alice", "stop", "refused"),
        ("owner", "cancel", "done"),
        ("owner", "user revoke", "done"),
    ];
    let expected: Vec<_> =
        expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned())).into();
    poll("all is written", || audit(&site).len() == expected.len());
    assert_eq!(audit(&site), expected);
    // Another life of the dispatcher goes on with it, and its end is the last line.
    restart(&mut dispatcher);
    owner.run("stop", &[]).exits(0);
    dispatcher.running.take().unwrap().finish().exits(0);
    assert_eq!(audit(&site)[expected.len()], ("owner".into(), "stop".into(), "done".into()));
    let text = site.read("d/audit.jsonl");
    let secret = std::fs::read_to_string(&alice.file).unwrap();
    let secret: Value = serde_json::from_str(&secret).unwrap();
    for secret in secret["secrets"].as_object().unwrap().values() {
        assert!(!text.contains(secret.as_str().unwrap()));
    }
}

#[trial]
fn requests_that_are_refused_in_a_loop_fill_neither_the_record_nor_the_log() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let owner = dispatcher.access();
    let alice = add(&site, &owner, "alice", &[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let file = AccessFile::load(&alice.file).unwrap();
    let role = file.roles().next().unwrap();
    runtime.block_on(async {
        let (client, _) = Client::connect(&file, role).await.unwrap();
        for _ in 0..1000 {
            client.stop().await.unwrap_err();
        }
    });
    owner.run("stop", &[]).exits(0);
    let ran = dispatcher.running.take().unwrap().finish().exits(0);
    assert_eq!(ran.err.matches("refused a request of ").count(), 1, "{ran}");
    let lines = json_lines(&site.read("d/audit.jsonl"));
    let told = lines.iter().map(|line| (&line["user"], &line["action"], &line["repeated"]));
    let expected: [(Value, Value, Value); 4] = [
        ("owner".into(), "user add".into(), Value::Null),
        ("alice".into(), "stop".into(), Value::Null),
        ("owner".into(), "stop".into(), Value::Null),
        ("alice".into(), "stop".into(), 999.into()),
    ];
    assert!(told.eq(expected.iter().map(|(a, b, c)| (a, b, c))), "{lines:?}");
}
