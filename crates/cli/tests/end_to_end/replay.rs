//! `falkon replay`: a run that took place, simulated.

use crate::fixture::{Site, json_lines};
use falkon_trials::trial;

#[trial]
fn a_run_is_replayed_on_its_executors_and_on_others() {
    let site = Site::new();
    let script = "sleep 0.1; test $0 != 3 || exit 7";
    site.run(["run", "-j", "2", "--out", "o", "--range", "1-6", "--", "sh", "-c", script]).exits(1);
    let ran = site.run(["replay", "o", "--executors", "3", "--json"]).exits(0);
    let found = json_lines(ran.text()).remove(0);
    for (which, executors, slots) in [("recorded", 1, 2), ("replayed", 1, 2), ("changed", 3, 6)] {
        let one = &found[which];
        assert_eq!((&one["done"], &one["failed"]), (&5.into(), &1.into()), "{which}: {found}");
        let machine = (&one["executors"], &one["slots"]);
        assert_eq!(machine, (&executors.into(), &slots.into()), "{which}: {found}");
        assert!(one["makespan_s"].as_f64().unwrap() >= 0.1, "{which}: {found}");
    }
    let refused = site.run(["replay", "o", "--policy", "queue-aware"]).exits(2);
    refused.says_only(1, "no task of the run has data objects: --policy makes no difference");
    // Six sleeps of at least 0.1 s that come together need a slot each, or more time.
    let ran = site.run(["plan", "o", "--deadline", "1h", "--json"]).exits(0);
    assert_eq!(json_lines(ran.text()).remove(0)["changed"]["executors"], 1, "{}", ran.text());
    site.run(["plan", "o", "--deadline", "50ms"]).exits(2).says_only(1, "no number of executors");
    // Two nodes come a second after they were asked for, and all six tasks run on them.
    let queue = "[provision]\nmax = 2\nacquire = \"all-at-once\"\n[lrm]\nstart = \"1s\"\n";
    let queue = site.write("queue.toml", queue);
    let args = ["replay", "o", "--provision", &queue, "--events", "acquired", "--json"];
    let ran = site.run(args).exits(0);
    let changed = &json_lines(ran.text()).remove(0)["changed"];
    assert_eq!(changed["done"], 5, "{changed}");
    assert!(changed["makespan_s"].as_f64().unwrap() >= 1.0, "{changed}");
    let report = site.run(["report", "acquired", "--json"]).exits(0);
    assert_eq!(json_lines(report.text()).remove(0)["tasks"]["failed"], 1, "{}", report.text());
    let wrong = site.write("wrong.toml", "[provision]\nmax = 2\nacquire = \"never\"\n");
    let refused = site.run(["replay", "o", "--provision", &wrong]).exits(2);
    refused.says_only(1, "acquisition strategy");
    // What has no run, a part of one, or two.
    let none = site.text("none");
    std::fs::create_dir(&none).unwrap();
    site.run(["replay", &none]).exits(2).says_only(1, "has no events");
    site.run(["replay", "o", "-i", "5"]).exits(2).says_only(1, "no events of tasks of \"5\"");
    // Of a file that was cut off in its first block, nothing can be read.
    let whole = std::fs::read(site.path("o/events/00000001.events")).unwrap();
    std::fs::create_dir_all(site.path("cut/events")).unwrap();
    std::fs::write(site.path("cut/events/00000001.events"), &whole[..40]).unwrap();
    site.run(["replay", "cut"]).exits(2).says_only(1, "no events of tasks");
    site.run(["run", "--resume", "o", "--range", "1-6", "--", "sh", "-c", script]).exits(1);
    site.run(["replay", "o"]).exits(2).says_only(1, "has ended twice");
}

#[trial]
fn a_graph_is_replayed_as_a_graph_and_its_objects_as_objects() {
    let site = Site::new();
    // Two tasks each read a file and leave one in caches; one more reads both of these.
    std::fs::create_dir(site.path("in")).unwrap();
    let mut tasks = String::new();
    for at in ["a", "b"] {
        std::fs::write(site.path(format!("in/{at}")), at.repeat(1000)).unwrap();
        let task = serde_json::json!({
            "id": at,
            "command": ["sh", "-c", "cat in in > out; sleep 0.1"],
            "inputs": [format!("in={}", site.text(&format!("in/{at}")))],
            "outputs": [format!("out=cache:{at}")],
        });
        tasks += &format!("{task}\n");
    }
    let last = serde_json::json!({
        "command": ["sh", "-c", "cat a b; sleep 0.1"],
        "inputs": ["a=cache:a", "b=cache:b"],
    });
    let file = site.write("graph.jsonl", format!("{tasks}{last}\n"));
    site.run(["run", "-j", "4", "--out", "o", "--tasks", &file]).exits(0);
    let ran = site.run(["log", "o", "--kind", "submitted", "--json"]).exits(0);
    let events = json_lines(ran.text());
    let of = |kind: &str| events.iter().filter(|one| one["event"] == kind).collect::<Vec<_>>();
    let waits = of("waits");
    assert_eq!(waits.len(), 1, "{waits:?}");
    assert_eq!((&waits[0]["first"], &waits[0]["count"]), (&2.into(), &1.into()));
    assert_eq!(waits[0]["after"], serde_json::json!([{"first": 0, "count": 2}]));
    let uses = of("uses");
    assert_eq!(uses.len(), 3, "{uses:?}");
    assert_eq!(uses[0]["inputs"][0]["bytes"], 1000);
    assert_eq!(uses[0]["outputs"][0]["object"], uses[2]["inputs"][0]["object"]);
    assert_eq!(uses[2]["inputs"][1]["url"], "cache:b");
    let text = site.run(["log", "o", "--kind", "submitted"]).exits(0).text().to_owned();
    assert!(text.contains("task 0/2 after 0-1\n"), "{text}");
    assert!(text.contains("task 0/2 read cache:a, cache:b\n"), "{text}");
    // As many slots as there are tasks do not make the last one start with the others.
    let replay = ["replay", "o", "--policy", "queue-aware", "--cache", "1MiB", "--json"];
    let found = json_lines(site.run(replay).exits(0).text()).remove(0);
    for which in ["recorded", "replayed", "changed"] {
        let one = &found[which];
        assert_eq!((&one["done"], &one["failed"]), (&3.into(), &0.into()), "{which}: {found}");
        assert!(one["makespan_s"].as_f64().unwrap() >= 0.2, "{which}: {found}");
        assert_eq!(one["store_bytes"], 2000, "{which}: {found}");
        assert_eq!(one["local_bytes"], 4000, "{which}: {found}");
    }
    let refused = site.run(["replay", "o", "--policy", "first-available"]).exits(2);
    refused.says_only(1, "tasks of the run read what others left in caches");
    site.run(["replay", "o", "--cache", "0"]).exits(2).says_only(3, "at least one byte");
}
