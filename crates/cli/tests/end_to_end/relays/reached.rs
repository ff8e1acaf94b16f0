//! Objects below relays that people get and remove.

use super::objects::{executor, task};
use super::{Relay, wait_for_nodes};
use crate::fixture::{Access, Client, Running, Site, poll, poll_for};
use falkon_core::data::object::ObjectId;
use falkon_core::dispatch::AccessError;
use falkon_core::part::{PartAnswer, PartQuestion};
use falkon_core::task::InstanceId;
use falkon_trials::{skip, trial};
use falkon_wire::message::{BelowAsk, FromClient, Refusal, ToClient};
use rustix::process::Signal;
use std::path::Path;
use std::time::Duration;

/// The exit status of what does not succeed.
const FAILURE: i32 = 3;
/// Lines of an object of many parts.
const LINES: u64 = 600_000;

/// Lines as tasks write them, of that number.
fn lines(count: u64) -> String {
    (1..=count).map(|line| format!("{line}\n")).collect()
}

/// Has a task on each of these executors leave an object, under the executor's name. Returns the
/// instance.
fn leave(site: &Site, access: &Access<'_>, places: &[&str], args: &[&str]) -> String {
    let make = format!("seq {LINES} > made");
    let each = |place: &&str| task(&make, place, &[], &[format!("made=cache:{place}")]);
    let tasks = site.write("tasks.jsonl", places.iter().map(each).collect::<String>());
    let id = access.submit(&[args, &["--tasks", &tasks]].concat());
    access.run("wait", &[&id]).exits(0);
    for place in places {
        poll_for("the dispatcher knows the object", || holders(access, place).pop());
    }
    id
}

/// The executors and relays that hold the object of this key.
fn holders(access: &Access<'_>, key: &str) -> Vec<String> {
    let ran = access.run_sub(&["data", "where"], &["--json", &format!("cache:{key}")]);
    let Some(found) = ran.results().pop() else { return Vec::new() };
    let executors = found["executors"].as_array().cloned().unwrap_or_default();
    let held = executors.iter().filter(|executor| executor["state"] == "held");
    held.map(|executor| executor["name"].as_str().unwrap().to_owned()).collect()
}

#[track_caller]
fn get(access: &Access<'_>, key: &str, to: &str) {
    access.run_sub(&["data", "get"], &[&format!("cache:{key}"), to]).exits(0);
}

/// Starts to get an object, and waits until it is about to come.
fn start_to_get(site: &Site, access: &Access<'_>, key: &str) -> Running {
    let copy = site.text("copy");
    let running = access.start_sub(&["data", "get"], &[&format!("cache:{key}"), &copy]);
    poll("it is begun", || is_begun(site.dir()));
    running
}

fn is_begun(dir: &Path) -> bool {
    let mut names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.any(|name| name.to_string_lossy().starts_with(".copy."))
}

#[trial]
fn objects_below_relays_are_got_and_removed() {
    for level in ["none", "encrypt"] {
        let site = Site::new();
        let dispatcher = site.dispatcher("d", &["--security", level]);
        let access = dispatcher.access();
        let near = Relay::start(&site, "near", access.file());
        let far = Relay::start(&site, "far", near.access().file());
        let _executors =
            [executor(&site, &near.access(), "west"), executor(&site, &far.access(), "deep")];
        wait_for_nodes(&dispatcher, &[("near", 2)]);
        let (own, other) = (site.text("own.json"), site.text("other.json"));
        let id = leave(&site, &access, &["west", "deep"], &["--instance-access", &own]);
        access.run("submit", &["--wait", "--instance-access", &other, "--", "true"]).exits(0);
        let whole = lines(LINES);
        for place in ["west", "deep"] {
            assert_eq!(holders(&access, place), ["near"], "{level}");
            get(&access, place, &site.text("copy"));
            assert!(site.read("copy") == whole, "{level}: {place}");
        }
        let printed = access.run_sub(&["data", "get"], &["cache:deep"]).exits(0);
        assert!(printed.text() == whole, "{level}");
        // Others get it as little as from executors.
        let [own, other] = [&own, &other].map(|file| Access::at(&site, Path::new(file)));
        get(&own, "west", &site.text("copy"));
        other.run_sub(&["data", "get"], &["cache:west"]).exits(2).says("no executor holds");
        let client = dispatcher.access_of("access-client.json");
        client.run_sub(&["data", "get"], &["cache:west"]).exits(2).says("no executor holds");
        let observer = dispatcher.access_of("access-observer.json");
        observer.run_sub(&["data", "get"], &["cache:west"]).exits(2).says("does not allow that");
        observer.run_sub(&["data", "rm"], &["cache:west"]).exits(2).says("does not allow that");
        ask_for_others(&access, [&own, &other], id.parse().unwrap());
        // It goes in all clusters.
        for place in ["west", "deep"] {
            own.run_sub(&["data", "rm"], &[&format!("cache:{place}")]).exits(0);
            assert_eq!(holders(&access, place), [""; 0], "{level}");
        }
        for below in [near.access(), far.access()] {
            let listed = below.run_sub(&["data", "ls", "cache:"], &["--json"]).exits(0).results();
            assert!(listed.iter().all(|object| object["holders"] == 0), "{level}: {listed:?}");
        }
        access.run_sub(&["data", "get"], &["cache:west"]).exits(2).says("no executor holds");
    }
}

/// Messages that the command line would not send are refused as well.
fn ask_for_others(access: &Access<'_>, [own, other]: [&Access<'_>; 2], id: u64) {
    let found = access.run_sub(&["data", "where"], &["--json", "cache:west"]).exits(0).results();
    let object = ObjectId::parse(found[0]["id"].as_str().unwrap()).unwrap();
    let question = PartQuestion { object, from: 0, count: 10 };
    let read = |access: &Access<'_>, instance| {
        let ask = BelowAsk::Read(question);
        Client::connect(access).ask(&FromClient::Below { request: 1, instance, ask })
    };
    let (id, mine) = (InstanceId(id), InstanceId(id + 1));
    let ToClient::Part { answer: PartAnswer::Here { bytes, .. }, .. } = read(own, Some(id)) else {
        panic!("nothing is read");
    };
    assert_eq!(bytes, b"1\n2\n3\n4\n5\n");
    let refused = |answer| match answer {
        ToClient::Refused { reason, .. } => reason,
        answer => panic!("{answer:?}"),
    };
    assert_eq!(refused(read(other, Some(id))), Refusal::NotAllowed);
    assert_eq!(refused(read(other, Some(mine))), Refusal::Access(AccessError::NotHeld));
    let ask = BelowAsk::Drop { object, force: true };
    let drop = FromClient::Below { request: 1, instance: Some(mine), ask };
    assert_eq!(refused(Client::connect(other).ask(&drop)), Refusal::Access(AccessError::NotHeld));
}

#[trial]
fn what_was_put_is_checked_when_it_comes_from_below_a_relay() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let left = Relay::start(&site, "left", access.file());
    let home = executor(&site, &access, "home");
    let _west = executor(&site, &left.access(), "west");
    wait_for_nodes(&dispatcher, &[("left", 1)]);
    let whole = lines(LINES);
    let file = site.write("file", &whole);
    let client = dispatcher.access_of("access-client.json");
    client.run_sub(&["data", "put"], &["--key", "put", &file]).exits(0);
    let args = ["--resource", "west=1", "--input", "in=cache:put", "--", "wc", "-l", "in"];
    client.run("submit", &[&["--wait"][..], &args].concat()).exits(0);
    poll("both hold it", || holders(&access, "put").len() == 2);
    home.kill();
    poll("the executor is gone", || holders(&access, "put") == ["left"]);
    get(&client, "put", &site.text("copy"));
    assert!(site.read("copy") == whole);
    client.run_sub(&["data", "rm"], &["cache:put"]).exits(0);
    assert_eq!(holders(&access, "put"), [""; 0]);
}

#[trial]
fn what_tasks_need_below_a_relay_is_not_removed() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let left = Relay::start(&site, "left", access.file());
    let _west = executor(&site, &left.access(), "west");
    wait_for_nodes(&dispatcher, &[("left", 1)]);
    let out = ["made=cache:west".to_owned()];
    let made = task("echo made > made", "west", &[], &out);
    let reads = task("cat in", "nowhere", &["in=cache:west".to_owned()], &[]);
    let tasks = site.write("tasks.jsonl", made + &reads);
    let id = access.submit(&["--tasks", &tasks]);
    poll_for("the dispatcher knows the object", || holders(&access, "west").pop());
    let refused = access.run_sub(&["data", "rm"], &["cache:west"]).exits(2);
    refused.says("1 task that has not ended reads it");
    assert_eq!(holders(&access, "west"), ["left"]);
    // It goes by itself when nobody reads it any more.
    access.run("cancel", &[&id]).exits(0);
    poll("nobody holds it", || holders(&access, "west").is_empty());
}

#[trial]
fn a_get_whose_relay_is_killed_says_so() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut left = Relay::start(&site, "left", access.file());
    let _west = executor(&site, &left.access(), "west");
    wait_for_nodes(&dispatcher, &[("left", 1)]);
    leave(&site, &access, &["west"], &[]);
    let relay = left.take();
    relay.signal(Signal::STOP);
    let running = start_to_get(&site, &access, "west");
    relay.kill();
    running.finish().exits(FAILURE).says("cannot get cache:west from relay left: it was lost");
    assert!(!site.path("copy").exists());
    // It is there again when the relay is.
    left.start_again();
    wait_for_nodes(&dispatcher, &[("left", 1)]);
    poll("the relay says what is held", || {
        let copy = site.text("copy");
        access.run_sub(&["data", "get"], &["cache:west", &copy]).succeeded()
    });
    assert!(site.read("copy") == lines(LINES));
}

#[trial]
fn another_relay_gives_what_a_killed_one_does_not() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut left = Relay::start(&site, "left", access.file());
    let right = Relay::start(&site, "right", access.file());
    let _executors =
        [executor(&site, &left.access(), "west"), executor(&site, &right.access(), "east")];
    wait_for_nodes(&dispatcher, &[("left", 1), ("right", 1)]);
    let make = format!("seq {LINES} > made");
    let made = task(&make, "west", &[], &["made=cache:both".to_owned()]);
    let read = task("wc -l < in", "east", &["in=cache:both".to_owned()], &[]);
    let tasks = site.write("tasks.jsonl", made + &read);
    let id = access.submit(&["--tasks", &tasks]);
    access.run("wait", &[&id]).exits(0);
    poll("both clusters hold it", || holders(&access, "both").len() == 2);
    let relay = left.take();
    relay.signal(Signal::STOP);
    let running = start_to_get(&site, &access, "both");
    relay.kill();
    running.finish().exits(0);
    assert!(site.read("copy") == lines(LINES));
}

#[trial]
fn objects_below_relays_are_files_under_their_keys() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let left = Relay::start(&site, "left", access.file());
    let _west = executor(&site, &left.access(), "west");
    wait_for_nodes(&dispatcher, &[("left", 1)]);
    leave(&site, &access, &["west"], &[]);
    std::fs::create_dir(site.path("m")).unwrap();
    let mut running = access.start_sub(&["data", "mount"], &["m"]);
    let mut status = None;
    poll("a mount", || {
        status = running.ended_within(Duration::ZERO);
        status.is_some() || running.said().contains("shown as a file at")
    });
    match status {
        Some(status) if status.code() == Some(FAILURE) => skip(running.said()),
        Some(status) => panic!("{status}: {}", running.said()),
        None => {}
    }
    assert!(std::fs::read_to_string(site.path("m/west")).unwrap() == lines(LINES));
    running.signal(Signal::TERM);
    running.finish().exits(0);
}
