//! Who gets in, and what they may do there.

use crate::fixture::{Access, Dispatcher, Running, Site, heard_along};
use falkon_trials::trial;
use serde_json::Value;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn access_json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Writes an access file that differs from another one.
fn changed(
    site: &Site,
    from: &Path,
    name: &str,
    change: impl Fn(&mut Value),
) -> std::path::PathBuf {
    let mut json = access_json(from);
    change(&mut json);
    site.write(name, json.to_string());
    let path = site.path(name);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// All secrets in an access file, as text.
fn secrets(path: &Path) -> Vec<String> {
    let json = access_json(path);
    let secrets = json["secrets"].as_object().unwrap();
    secrets.values().map(|secret| secret.as_str().unwrap().to_owned()).collect()
}

#[trial]
fn three_levels() {
    for (level, readable) in [("none", true), ("authenticate", true), ("encrypt", false)] {
        let site = Site::new();
        let mut dispatcher = site.dispatcher("d", &["--security", level]);
        let owner = dispatcher.access();
        assert_eq!(access_json(&owner.file)["level"], level);
        let (via, heard) = heard_along(&site, &owner.file, "via.json");
        let access = Access::at(&site, &via);
        let _executor = access.start("executor", &["--name", "worker"]);
        dispatcher.service().wait_for("executor worker joined");
        access.run("status", &[]).exits(0);
        let args =
            ["--wait", "--keep-order", "--range", "1-5", "--", "echo", "the-word-that-travels"];
        let ran = access.run("submit", &args).exits(0);
        assert_eq!(ran.lines()[4], "the-word-that-travels 5");
        let heard = heard.lock().unwrap().clone();
        let holds = |text: &[u8]| heard.windows(text.len()).any(|window| window == text);
        assert_eq!(holds(b"the-word-that-travels"), readable, "level {level}");
        for secret in secrets(&owner.file) {
            let bytes: Vec<u8> = (0..secret.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&secret[at..at + 2], 16).unwrap())
                .collect();
            assert!(!holds(&bytes) && !holds(secret.as_bytes()), "a secret travels at {level}");
        }
        let log = dispatcher.kill().err;
        assert!(!log.contains("the-word-that-travels"), "{log}");
        assert!(secrets(&owner.file).iter().all(|secret| !log.contains(secret)), "{log}");
    }
}

#[trial]
fn who_ends_as_it_should_leaves_no_word_of_a_broken_connection() {
    for level in ["none", "authenticate", "encrypt"] {
        let site = Site::new();
        let mut dispatcher = site.dispatcher("d", &["--security", level]);
        let access = dispatcher.access();
        let executor = dispatcher.executor("worker", &[]);
        access.run("submit", &["--wait", "--range", "1-3", "--", "true"]).exits(0);
        let instance = access.submit(&["--", "true"]);
        for (command, args) in [
            ("wait", &[instance.as_str()][..]),
            ("results", &[&instance, "--json"]),
            ("tasks", &[&instance]),
            ("status", &[]),
            ("destroy", &[&instance]),
        ] {
            access.run(command, args).exits(0);
        }
        executor.signal(rustix::process::Signal::INT);
        executor.finish().exits(0);
        access.run("stop", &[]).exits(0);
        let ran = dispatcher.running.take().unwrap().finish().exits(0);
        for part in ["middle of a message", "without a farewell", "connection failed"] {
            assert!(!ran.err.contains(part), "{level}\n{ran}");
        }
    }
}

#[trial]
fn beyond_this_machine_everything_is_encrypted_unless_forced() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &["--listen", "0.0.0.0:0"]);
    let json = access_json(&dispatcher.access().file);
    assert_eq!(json["level"], "encrypt");
    assert!(json["fingerprint"].is_string());
    dispatcher.access().run("status", &[]).exits(0);
    for level in ["none", "authenticate"] {
        let args = ["start", "--dir", "e", "--listen", "0.0.0.0:0", "--security", level];
        site.run(args).exits(2).says_only(1, "--force");
        assert!(!site.path("e").join("access.json").exists());
        let args = ["--listen", "0.0.0.0:0", "--security", level, "--force"];
        let forced = site.dispatcher(level, &args);
        forced.access().run("status", &[]).exits(0);
    }
}

#[trial]
fn wrong_and_old_access_files_are_refused() {
    for level in ["none", "authenticate", "encrypt"] {
        let site = Site::new();
        let mut dispatcher = site.dispatcher("d", &["--security", level]);
        let good = dispatcher.access();
        let refused = |path: &Path, code: i32, part: &str| {
            for (command, args) in
                [("status", &[][..]), ("executor", &[]), ("submit", &["--", "true"])]
            {
                let ran = Access::at(&site, path).run(command, args);
                ran.exits(code).says_only(1, part);
            }
        };
        let wrong = changed(&site, &good.file, "wrong.json", |json| {
            for secret in json["secrets"].as_object_mut().unwrap().values_mut() {
                *secret = "0123456789abcdef".repeat(4).into();
            }
        });
        refused(&wrong, 2, "does not accept this access file");
        let other_level = if level == "encrypt" { "none" } else { "encrypt" };
        let other = changed(&site, &good.file, "level.json", |json| {
            json["level"] = other_level.into();
            json["fingerprint"] = "00".repeat(32).into();
        });
        refused(&other, 2, "copy the current one from its directory");
        if level == "encrypt" {
            let other = changed(&site, &good.file, "print.json", |json| {
                json["fingerprint"] = "00".repeat(32).into();
            });
            refused(&other, 2, "showed another certificate");
        }
        // The service is there for those who have the right one, and logs the
        // others.
        good.run("status", &[]).exits(0);
        dispatcher.service().wait_for_count("refused a connection", 3);

        // Set up anew: the old file is no good any more.
        let old = site.path("old.json");
        std::fs::copy(&good.file, &old).unwrap();
        dispatcher.kill();
        std::fs::remove_file(site.path("d/identity.json")).unwrap();
        dispatcher.start();
        let part = if level == "encrypt" { "another certificate" } else { "or was renewed" };
        refused(&old, 2, part);
        good.run("status", &[]).exits(0);
    }
}

#[trial]
fn damaged_and_exposed_access_files_are_refused_with_what_to_do() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let good = dispatcher.access().file;
    let check = |path: &Path, part: &str| {
        Access::at(&site, path).run("status", &[]).exits(2).says_only(1, part);
    };
    let copy = |name: &str, change: &dyn Fn(&mut Value)| changed(&site, &good, name, change);
    let exposed = copy("exposed", &|_| {});
    for mode in [0o644, 0o640, 0o606] {
        std::fs::set_permissions(&exposed, std::fs::Permissions::from_mode(mode)).unwrap();
        check(&exposed, &format!("chmod 600 {}", exposed.display()));
    }
    check(&site.path("nowhere"), "is the path right, and has the dispatcher started?");
    check(site.dir(), "is not a file");
    check(&copy("format", &|json| json["format"] = 99.into()), "format 99");
    check(&copy("empty", &|json| json["addresses"] = serde_json::json!([])), "has no addresses");
    check(&copy("short", &|json| json["secrets"]["owner"] = "abc".into()), "line 1 column");
    site.write("text", "hello");
    std::fs::set_permissions(site.path("text"), std::fs::Permissions::from_mode(0o600)).unwrap();
    check(&site.path("text"), "is not an access file");
    let mut huge = std::fs::File::create(site.path("huge")).unwrap();
    huge.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
    huge.write_all(&vec![b' '; 1 << 20]).unwrap();
    check(&site.path("huge"), "is larger than");
}

#[trial]
fn each_role_may_do_its_part_and_nothing_else() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let owner = dispatcher.access();
    let client = dispatcher.access_of("access-client.json");
    let observer = dispatcher.access_of("access-observer.json");
    let executor = dispatcher.access_of("access-executor.json");
    let _executor = executor.start("executor", &["--name", "worker"]);
    dispatcher.service().wait_for("executor worker joined");
    let of_owner = owner.submit(&["--", "echo", "owner's"]);
    owner.run("wait", &[&of_owner]).exits(0);

    // A client creates instances and uses only its own.
    let ran = client.run("submit", &["--wait", "--", "echo", "mine"]).exits(0);
    assert_eq!(ran.text(), "mine\n");
    client.run("submit", &["--", "true"]).exits(2).says_only(1, "--instance-access FILE");
    let file = site.text("instance.json");
    let args = ["--instance-access", &file, "--", "echo", "through its own file"];
    let of_client = client.submit(&args);
    let own = Access::at(&site, Path::new(&file));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    own.run("wait", &[&of_client]).exits(0);
    assert_eq!(own.run("results", &[&of_client]).exits(0).text(), "through its own file\n");
    own.run("status", &[&of_client]).exits(0);
    own.run("tasks", &[&of_client]).exits(0);

    let not_allowed = "does not allow";
    for command in ["results", "tasks", "wait", "cancel", "destroy"] {
        client.run(command, &[&of_client]).exits(2).says_only(1, not_allowed);
        client.run(command, &[&of_owner]).exits(2).says_only(1, not_allowed);
        own.run(command, &[&of_owner]).exits(2).says_only(1, not_allowed);
        if command != "tasks" {
            observer.run(command, &[&of_owner]).exits(2);
        }
        executor.run(command, &[&of_owner]).exits(2).says_only(1, "has no secret for role client");
    }
    client.run("stop", &[]).exits(2).says_only(1, not_allowed);
    own.run("stop", &[]).exits(2).says_only(1, not_allowed);
    own.run("submit", &["--wait", "--", "true"]).exits(2).says_only(1, not_allowed);
    // With a file for one instance, that one is what status is about.
    let ran = own.run("status", &["--json"]).exits(0);
    let seen: Value = serde_json::from_str(ran.text()).unwrap();
    assert_eq!(seen["instances"].as_array().unwrap().len(), 1);
    assert_eq!(seen["instances"][0]["id"].to_string(), of_client);

    // An observer sees how things are.
    observer.run("status", &[]).exits(0);
    observer.run("status", &[&of_owner]).exits(0);
    observer.run("tasks", &[&of_owner]).exits(0);
    observer.run("submit", &["--wait", "--", "true"]).exits(2).says_only(1, not_allowed);
    observer.run("stop", &[]).exits(2).says_only(1, not_allowed);
    observer.run("executor", &[]).exits(2).says_only(1, "no secret for role executor");
    executor.run("submit", &["--wait", "--", "true"]).exits(2).says_only(1, "access");
    client.run("executor", &[]).exits(2).says_only(1, "no secret for role executor");

    // None of this has done anything.
    let instance = owner.instance(&of_owner);
    assert_eq!((&instance["done"], &instance["tasks"]), (&1.into(), &1.into()));
    // An instance's file is worth nothing once it is gone.
    own.run("destroy", &[&of_client]).exits(0);
    own.run("results", &[&of_client]).exits(2).says_only(1, "was it destroyed?");
    let said = dispatcher.service().said();
    for path in [&owner.file, &own.file] {
        assert!(secrets(path).iter().all(|secret| !said.contains(secret)), "{said}");
    }
}

/// Submits a task to an instance of its own, with an access file for that
/// instance alone.
fn in_its_own<'a>(site: &'a Site, dispatcher: &Dispatcher, file: &str) -> (String, Access<'a>) {
    let path = site.text(file);
    let instance = dispatcher.access().submit(&["--instance-access", &path, "--", "echo", file]);
    (instance, Access::at(site, Path::new(&path)))
}

#[trial]
fn an_instance_file_opens_no_later_instance_of_the_same_number() {
    for concentrators in ["0", "1"] {
        let site = Site::new();
        let mut dispatcher = site.dispatcher("d", &["--concentrators", concentrators]);
        let (first, own) = in_its_own(&site, &dispatcher, "first.json");

        // With its journal a dispatcher has the same instance again.
        for _ in 0..2 {
            dispatcher.kill();
            dispatcher.start();
            own.run("status", &[&first]).exits(0);
        }
        dispatcher.kill();
        let copy = site.text("older");
        let copied = site.program("cp").args(["-a", &site.text("d/journal"), &copy]).status();
        assert!(copied.unwrap().success());
        dispatcher.start();
        let (second, lost) = in_its_own(&site, &dispatcher, "second.json");
        lost.run("status", &[&second]).exits(0);

        // An older copy of the journal does not know of the second instance, so
        // another one gets its number.
        dispatcher.kill();
        std::fs::remove_dir_all(site.path("d/journal")).unwrap();
        std::fs::rename(&copy, site.path("d/journal")).unwrap();
        dispatcher.start();
        let (other, _) = in_its_own(&site, &dispatcher, "other.json");
        assert_eq!(other, second);
        lost.run("results", &[&second]).exits(2).says_only(1, "does not open instance 1");
        own.run("status", &[&first]).exits(0);

        // Without the journal numbers begin anew.
        dispatcher.kill();
        std::fs::remove_dir_all(site.path("d/journal")).unwrap();
        dispatcher.start();
        let (other, access) = in_its_own(&site, &dispatcher, "anew.json");
        assert_eq!(other, first);
        for command in ["status", "results", "cancel", "destroy"] {
            own.run(command, &[&first]).exits(2).says_only(1, "does not open instance 0");
        }
        access.run("status", &[&other]).exits(0);
    }
}

#[trial]
fn an_instance_file_ends_with_a_dispatcher_that_keeps_no_journal() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &["--no-journal"]);
    let (first, own) = in_its_own(&site, &dispatcher, "first.json");
    own.run("status", &[&first]).exits(0);
    dispatcher.kill();
    dispatcher.start();
    let (other, _) = in_its_own(&site, &dispatcher, "other.json");
    assert_eq!(other, first);
    own.run("destroy", &[&first]).exits(2).says_only(1, "does not open instance 0");
}

#[trial]
fn an_executor_whose_access_was_renewed_says_so_and_keeps_trying() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let executor: Running = dispatcher.executor("worker", &[]);
    std::fs::copy(site.path("d/identity.json"), site.path("identity.json")).unwrap();
    dispatcher.kill();
    std::fs::remove_file(site.path("d/identity.json")).unwrap();
    dispatcher.start();
    executor.wait_for("does not accept this access file");
    dispatcher.kill();
    std::fs::copy(site.path("identity.json"), site.path("d/identity.json")).unwrap();
    dispatcher.start();
    dispatcher.service().wait_for("executor worker joined");
}

#[trial]
fn a_dispatcher_that_is_started_again_is_where_it_was() {
    let site = Site::new();
    let queue = site.write("q.toml", "kind = \"slurm\"\nquery_interval = 3600\n");
    let args = ["--listen", "127.0.0.1:0", "--security", "encrypt", "--advertise", "localhost:9"];
    let mut dispatcher = site.dispatcher("d", &args[..4]);
    let before = access_json(&dispatcher.access().file);
    let executor = dispatcher.executor("e", &[]);
    dispatcher.kill();
    // Whatever it is to do besides: its user has said where.
    let mut dispatcher = site.dispatcher("d", &["--listen", "127.0.0.1:0"]);
    dispatcher.service().wait_for("executor e joined");
    dispatcher.kill();
    let mut dispatcher = site.dispatcher("d", &["--provision", &queue]);
    let access = dispatcher.access();
    let again = access_json(&access.file);
    assert_eq!((&again["addresses"], &again["level"]), (&before["addresses"], &before["level"]));
    dispatcher.service().wait_for("executor e joined");
    access.run("submit", &["--wait", "--quiet", "--", "echo", "on"]).exits(0);
    dispatcher.kill();
    drop(executor);
    // What is said holds, and goes on to hold.
    let mut dispatcher = site.dispatcher("d", &args);
    assert_eq!(access_json(&dispatcher.access().file)["addresses"][0], "localhost:9");
    dispatcher.kill();
    let mut dispatcher = site.dispatcher("d", &[]);
    assert_eq!(access_json(&dispatcher.access().file)["addresses"][0], "localhost:9");
    dispatcher.kill();

    // Where nobody has said anything it goes where nodes can reach it, and says
    // whom that shuts out.
    let mut dispatcher = site.dispatcher("e", &[]);
    let before = access_json(&dispatcher.access().file);
    let address = before["addresses"][0].as_str().unwrap().to_owned();
    dispatcher.kill();
    let mut dispatcher = site.dispatcher("e", &["--provision", &queue]);
    let again = access_json(&dispatcher.access().file);
    assert_eq!(again["level"], "encrypt");
    assert_eq!(again["addresses"][1], address.as_str());
    let said = dispatcher.kill().err;
    assert!(said.contains(&format!("that were told {address} need a new access file")), "{said}");
}
