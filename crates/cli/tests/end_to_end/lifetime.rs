//! How long instances stay, and what clients and the log say of it.

use crate::fixture::{Site, poll};
use falkon_core::dispatch::InstanceOptions;
use falkon_core::task::{Packed, Rows, Submission, TaskClass, TaskId};
use falkon_net::client::Client;
use falkon_net::secure::{AccessFile, Role};
use falkon_trials::trial;
use falkon_wire::codec::Wire;
use falkon_wire::command::{Command, Template};
use std::sync::Arc;

#[trial]
fn results_that_nobody_looks_at_expire_and_whoever_asks_is_told_so() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &["--keep", "1s"]);
    let access = dispatcher.access();
    let _executor = dispatcher.executor("worker", &["--slots", "2"]);
    let file = site.path("own.json");
    let own = file.to_str().unwrap();
    let short = access.submit(&["--instance-access", own, "--range", "1-5", "--", "echo"]);
    let long = access.submit(&["--keep", "12h", "--", "echo"]);
    let forever = access.submit(&["--keep", "forever", "--", "echo"]);
    let waits = access.submit(&["--gpus", "7", "--", "echo"]);
    for id in [&long, &forever] {
        access.run("wait", &[id]).exits(0);
    }
    dispatcher.service().wait_for(&format!("instance {short} has expired: its tasks had ended"));
    let expired = format!("instance {short} has expired: nobody had looked at it");
    for restarted in [false, true] {
        if restarted {
            dispatcher.kill();
            dispatcher.start();
        }
        for command in ["wait", "results", "tasks", "cancel", "destroy", "status"] {
            access.run(command, &[&short]).exits(2).says_only(1, &expired);
        }
        // Its own access file leads to the same.
        site.run(["results", "--access", own, &short]).exits(2).says_only(1, &expired);
        let expires = |id: &str| access.instance(id)["expires"].as_f64();
        let now = access.status()["now"].as_f64().unwrap();
        let left = expires(&long).unwrap() - now;
        assert!((12.0 * 3600.0 - 120.0..=12.0 * 3600.0 + 60.0).contains(&left), "{left}");
        assert_eq!((expires(&forever), expires(&waits)), (None, None));
    }
    assert_eq!(access.results(&long).len(), 1);
}

#[trial]
fn the_status_of_several_instances_says_how_old_they_are_and_what_they_hold() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let name = "a name that is longer than any column was ever made for";
    let lines = site.write("lines", "one\ntwo\nthree\n");
    let ids: Vec<String> = ["first", name, "third"]
        .iter()
        .map(|name| access.submit(&["--name", name, "--each-line", &lines, "--", "echo"]))
        .collect();
    let ran = access.run("status", &[&ids[2], &ids[0], "--json"]).exits(0);
    let status = &ran.results()[0];
    let instances = status["instances"].as_array().unwrap();
    let names: Vec<_> = instances.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["first", "third"]);
    for instance in instances {
        let (created, heard) = (&instance["created"], &instance["last_heard"]);
        let (created, heard) = (created.as_f64().unwrap(), heard.as_f64().unwrap());
        let started = status["started"].as_f64().unwrap();
        assert!(started <= created && created <= heard, "{instance}");
        assert!(instance["queued_bytes"].as_u64().unwrap() > 10, "{instance}");
        assert_eq!(instance["results_bytes"], 0);
    }
    let ran = access.run("status", &[]).exits(0);
    for part in ["CREATED", "LAST HEARD OF", "EXPIRES", "QUEUED", "RESULTS"] {
        assert!(ran.text().contains(part), "no {part:?} in\n{ran}");
    }
    // A long name moves no column.
    let table = ran.lines().into_iter().skip_while(|line| !line.contains("NAME"));
    let table: Vec<&str> = table.filter(|line| !line.contains("need")).take(4).collect();
    let tasks = table[0].find("TASKS").unwrap() + "TASKS".len();
    for line in &table[1..] {
        let before: String = line.chars().take(tasks).collect();
        assert!(before.ends_with(" 3"), "{before:?} in\n{ran}");
    }
    access.run("status", &[&ids[0], "77"]).exits(2).says_only(1, "there is no instance 77");
}

fn one_process(argv: &[&str]) -> Submission {
    let argv = argv.iter().map(|word| word.as_bytes().to_vec()).collect();
    let row = Command { argv, ..Command::default() }.to_bytes();
    let ends = Arc::new(vec![row.len() as u32]);
    Submission {
        count: 1,
        template: Arc::new(Template::Each.to_bytes()),
        rows: Rows::Packed(Packed { blob: Arc::new(row), ends }),
        classes: vec![TaskClass::default()],
        class_runs: vec![(1, 0)],
        names: None,
        after: Vec::new(),
        everywhere: None,
        data: None,
    }
}

#[trial]
fn what_a_vanished_client_had_is_stopped() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut started = site.signals("started");
    let script = format!("echo $$ > {}; exec sleep 1000", started.path());
    let _executor = dispatcher.executor("worker", &["--slots", "2"]);
    let file = AccessFile::load(&access.file).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (id, client) = runtime.block_on(async {
        let (client, _) = Client::connect(&file, Role::Client).await.unwrap();
        let lease_micros = Some(1);
        let options = InstanceOptions { lease_micros, ..InstanceOptions::default() };
        let (id, _) = client.create(options).await.unwrap();
        (id, client)
    });
    // While it is connected, others may submit to it, and nothing ends.
    let submission = one_process(&["sh", "-c", &script]);
    runtime.block_on(async {
        client.submit(id, TaskId(0), submission).await.unwrap().accepted().await.unwrap();
    });
    let pid = started.take(1)[0].clone();
    assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
    // It vanishes without a word.
    drop(client);
    drop(runtime);
    dispatcher.service().wait_for("has expired: its client was away for more than");
    poll("the task is killed", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
    let ran = access.run("status", &[&id.0.to_string()]).exits(2);
    ran.says_only(1, "has expired");
}

#[trial]
fn what_nobody_offers_fails_where_that_is_wanted() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executor = dispatcher.executor("worker", &[]);
    let args = ["--fail-unschedulable=1s", "--wait", "--gpus", "1", "--", "true"];
    access.run("submit", &args).exits(1).says("no executor offers");
}
