//! Objects that are in caches alone, of tasks below relays.

use super::{Relay, wait_for_nodes};
use crate::data::shuffle::{judge, shuffle};
use crate::fixture::{Access, Running, Site, json_lines, poll, poll_for};
use falkon_trials::trial;
use serde_json::Value;

/// An executor for tasks that need what it is called.
pub(super) fn executor(site: &Site, access: &Access<'_>, name: &str) -> Running {
    executor_for(site, access, name, name)
}

/// An executor for tasks that need `offer`.
pub(super) fn executor_for(site: &Site, access: &Access<'_>, name: &str, offer: &str) -> Running {
    let cache = format!("{}=64MiB", site.text(&format!("cache-{name}")));
    let offer = format!("{offer}=100");
    let own = ["--name", name, "--slots", "2", "--cache", &cache, "--resource", &offer];
    access.start("executor", &own)
}

/// Submits tasks, and waits until they have succeeded. Returns their instance and their results.
fn results(access: &Access<'_>, tasks: &str) -> (String, Vec<Value>) {
    let id = access.submit(&["--tasks", tasks]);
    access.run("wait", &[&id]).exits(0);
    let results = access.results(&id);
    (id, results)
}

/// What each of many tasks needs.
pub(super) fn task(command: &str, on: &str, inputs: &[String], outputs: &[String]) -> String {
    let task = serde_json::json!({
        "command": ["sh", "-e", "-c", command],
        "inputs": inputs,
        "outputs": outputs,
        "resources": {on: 1},
    });
    format!("{task}\n")
}

#[trial]
fn what_tasks_leave_in_caches_is_read_wherever_tasks_run() {
    for level in ["none", "authenticate", "encrypt"] {
        let site = Site::new();
        let dispatcher = site.dispatcher("d", &["--security", level]);
        let access = dispatcher.access();
        let left = Relay::start(&site, "left", access.file());
        let right = Relay::start(&site, "right", access.file());
        let far = Relay::start(&site, "far", right.access().file());
        let _executors = [
            executor(&site, &access, "home"),
            executor(&site, &left.access(), "west"),
            executor(&site, &right.access(), "east"),
            executor(&site, &far.access(), "deep"),
        ];
        wait_for_nodes(&dispatcher, &[("left", 1), ("right", 2)]);
        // Members of archives that several clusters have.
        let tasks = shuffle(&site, &["west", "deep", "home", "east"], "east");
        let (shuffled, all) = results(&access, &tasks);
        judge(&all);
        assert_eq!(site.read("runs").lines().count(), 4, "{level}: a maker ran twice");
        // Objects of many parts, each read in all clusters.
        let places = ["home", "west", "east", "deep"];
        let make = "head -c 5000000 /dev/zero | tr '\\0' $1 > made; echo $1 >> $2; cksum < made";
        let mut lines = String::new();
        for (at, place) in places.iter().enumerate() {
            let script = make.replace("$1", &at.to_string()).replace("$2", &site.text("made"));
            lines += &task(&script, place, &[], &[format!("made=cache:{place}")]);
        }
        for place in places {
            let inputs = places.map(|from| format!("{from}=cache:{from}"));
            let script = format!("for of in {}; do cksum < $of; done", places.join(" "));
            lines += &task(&script, place, &inputs, &[]);
        }
        let (id, all) = results(&access, &site.write("large.jsonl", lines));
        let made: String = all[..4].iter().map(|made| made["stdout"].as_str().unwrap()).collect();
        for read in &all[4..] {
            assert_eq!(read["stdout"], made, "{level}");
        }
        assert_eq!(site.read("made").lines().count(), 4, "{level}: an object was made twice");
        // What nobody can read any more is in no cache.
        let caches = [access, left.access(), right.access(), far.access()];
        let held = |caches: &Access<'_>| {
            let held = caches.run_sub(&["data", "ls", "cache:"], &["--json"]).exits(0).results();
            held.iter().filter(|object| object["holders"] != 0).count()
        };
        // Relays say with a delay what has come to nodes below them, and what they have not said
        // stays until it is evicted.
        let is_known = |(caches, holders): (&Access<'_>, u64)| {
            let all = caches.run_sub(&["data", "ls", "cache:"], &["--json"]).exits(0).results();
            let is_held = |place: &&str| {
                let url = format!("cache:{place}");
                all.iter().any(|one| one["url"] == url && one["holders"] == holders)
            };
            places.iter().all(is_held)
        };
        poll("it is known who holds what", || caches.iter().zip([3, 1, 2, 1]).all(is_known));
        for id in [&id, &shuffled] {
            caches[0].run("destroy", &[id]).exits(0);
        }
        poll("nothing is held", || caches.iter().all(|caches| held(caches) == 0));
    }
}

#[trial]
fn what_is_read_through_a_relay_comes_though_relays_are_killed() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut left = Relay::start(&site, "left", access.file());
    let mut right = Relay::start(&site, "right", access.file());
    let _executors =
        [executor(&site, &left.access(), "west"), executor(&site, &right.access(), "east")];
    wait_for_nodes(&dispatcher, &[("left", 1), ("right", 1)]);
    // A chain from cluster to cluster and back.
    let mut lines = task("seq 100000 > made", "west", &[], &["made=cache:0".to_owned()]);
    const LINKS: usize = 60;
    for link in 1..=LINKS {
        let place = if link % 2 == 0 { "west" } else { "east" };
        let input = format!("in=cache:{}", link - 1);
        let script = format!("cp in made; echo {link} >> made; chmod u+w made");
        lines += &task(&script, place, &[input], &[format!("made=cache:{link}")]);
    }
    let last = format!("in=cache:{LINKS}");
    lines += &task("tail -n 1 in; wc -l < in", "east", &[last], &[]);
    let tasks = site.write("chain.jsonl", lines);
    let client = access.start("submit", &["--wait", "--json", "--tasks", &tasks]);
    client.wait_for_lines(15);
    left.kill_and_restart();
    client.wait_for_lines(35);
    right.kill_and_restart();
    let ran = client.finish().exits(0);
    let results = json_lines(ran.text());
    assert_eq!(results.len(), LINKS + 2);
    let last = results.iter().max_by_key(|result| result["index"].as_u64()).unwrap();
    assert_eq!(last["stdout"], format!("{LINKS}\n{}\n", 100_000 + LINKS), "{last}");
}

#[trial]
fn what_is_lost_with_a_cluster_is_made_again_in_another() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let mut left = Relay::start(&site, "left", access.file());
    let first = executor_for(&site, &left.access(), "first", "both");
    wait_for_nodes(&dispatcher, &[("left", 1)]);
    let made = site.text("made");
    let make = format!("echo made >> {made}; echo 7 > made");
    let wait = format!("until test -e {}; do sleep 0.05; done; cat in", site.text("go"));
    let lines = task(&make, "both", &[], &["made=cache:made".to_owned()])
        + &task(&wait, "both", &["in=cache:made".to_owned()], &[]);
    let tasks = site.write("lost.jsonl", lines);
    let client = access.start("submit", &["--wait", "--json", "--tasks", &tasks]);
    poll_for("the object", || std::fs::read_to_string(&made).ok());
    client.wait_for_lines(1);
    drop((left.take().kill(), first.kill()));
    let right = Relay::start(&site, "right", access.file());
    let _second = executor_for(&site, &right.access(), "second", "both");
    site.write("go", "");
    let results = json_lines(client.finish().exits(0).text());
    assert_eq!(results[1]["stdout"], "7\n", "{results:?}");
    assert_eq!(site.read("made"), "made\nmade\n");
}

#[trial]
fn a_run_on_several_clusters_passes_objects_from_one_to_another() {
    let site = Site::new();
    let [left, right] = ["left", "right"].map(|name| site.dispatcher(name, &[]));
    let _executors =
        [executor(&site, &left.access(), "west"), executor(&site, &right.access(), "east")];
    let (out, one, other) = (site.text("out"), left.access(), right.access());
    let tasks = shuffle(&site, &["west", "east"], "east");
    let args = ["run", "--access", one.file(), "--access", other.file(), "--out", &out, "--quiet"];
    site.run(args.iter().chain(&["--out-files", "--tasks", &tasks])).exits(0);
    let mut results = json_lines(&site.read("out/results.jsonl"));
    results.sort_by_key(|result| result["index"].as_u64());
    for (task, result) in results.iter_mut().enumerate() {
        let written = std::fs::read_to_string(site.path(format!("out/tasks/{task}.stdout")));
        // Makers write nothing.
        result["stdout"] = written.unwrap_or_default().into();
    }
    judge(&results);
    assert_eq!(site.read("runs").lines().count(), 4, "a maker ran twice");
}
