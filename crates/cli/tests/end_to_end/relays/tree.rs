//! Relays and their sites, as the dispatcher at the top shows them.

use super::{Relay, wait_for_nodes};
use crate::fixture::{Access, Site, poll, poll_for};
use crate::web::{Page, with_page};
use falkon_trials::trial;
use serde_json::{Value, json};

/// A command that runs until a file is there.
fn until(gate: &str) -> [String; 3] {
    ["sh".into(), "-c".into(), format!("until [ -e {gate} ]; do sleep 0.05; done; : {{}}")]
}

#[trial]
fn the_tree_says_what_runs_where_and_which_relay_is_away() {
    let site = Site::new();
    let dispatcher = with_page(&site);
    let page = Page::of(&dispatcher.access_of("access-observer.json"));
    let mut upper = Relay::start(&site, "upper", dispatcher.access().file());
    let mut lower = Relay::start(&site, "lower", upper.access().file());
    let _executors = [upper.executor("near", "1"), lower.executor("far", "2")];
    wait_for_nodes(&dispatcher, &[("upper", 2)]);
    let access = dispatcher.access();
    let gate = site.text("gate");
    let [shell, option, script] = until(&gate);
    let args = ["--range", "1-1000", "--", &shell, &option, &script];
    let instance = access.submit(&args);
    // Both are busy, and say so to the top.
    let own = |key: &str| -> Vec<Value> {
        let relays = access.status()["executors"][0]["relays"].clone();
        relays.as_array().unwrap().iter().map(|relay| relay[key].clone()).collect()
    };
    poll("all slots are taken", || own("cpus_used") == [json!(3.0), json!(2.0)]);
    assert_eq!(own("name"), ["upper", "lower"]);
    assert_eq!(own("depth"), [0, 1]);
    assert_eq!(own("nodes"), [2, 1]);
    assert_eq!(own("away_seconds"), [Value::Null, Value::Null]);
    let text = access.run("status", &["--tree"]).exits(0);
    assert!(text.text().contains("  lower"), "{text}");
    let value = |line: &str| {
        let text = page.get("/metrics").body;
        text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse::<f64>().ok())
    };
    poll("metrics have the tree", || {
        value("falkon_relay_cpus_used{relay=\"upper\"}") == Some(3.0)
            && value("falkon_relay_tasks_running{relay=\"upper/lower\"}") == Some(2.0)
            && value("falkon_relay_nodes{relay=\"upper/lower\"}") == Some(1.0)
            && value("falkon_relay_away_seconds{relay=\"upper/lower\"}") == Some(0.0)
    });

    // The one below dies, and the one above says so; then that one dies.
    lower.take().kill();
    poll("the lower one is away", || {
        own("away_seconds").get(1).is_some_and(|away| away.as_f64().is_some_and(|away| away > 3.0))
    });
    let text = access.run("status", &["--tree"]).exits(0);
    assert!(text.text().contains("a relay to 1 node (away for "), "{text}");
    assert!(value("falkon_relay_away_seconds{relay=\"upper/lower\"}").unwrap() > 3.0);
    upper.take().kill();
    poll("the upper one is away", || access.status()["away"][0]["name"] == "upper");
    let text = access.run("status", &[]).exits(0);
    assert!(text.text().contains("relay upper lost its connection "), "{text}");
    upper.start_again();
    lower.start_again();
    wait_for_nodes(&dispatcher, &[("upper", 2)]);
    poll("nobody is away", || {
        access.status()["away"] == json!([]) && own("away_seconds") == [Value::Null, Value::Null]
    });
    site.write("gate", "");
    access.run("wait", &[&instance, "--quiet"]).exits(0);
    poll("all ends are counted", || {
        let ended = |relay: &str| {
            value(&format!("falkon_relay_tasks_ended_total{{relay=\"{relay}\"}}")).unwrap_or(0.0)
        };
        ended("upper") >= 900.0 && ended("upper/lower") > 0.0
    });
}

#[trial]
fn the_plan_at_the_top_has_the_queues_of_all_sites() {
    let site = Site::new();
    // It has no provisioner of its own.
    let dispatcher = site.dispatcher("d", &["--no-journal"]);
    let access = dispatcher.access();
    access.run("provision", &["plan"]).exits(2).says("has no provisioner");
    let middle = Relay::start(&site, "middle", access.file());
    let (dir, upstream) = (site.text("below"), middle.access().file().to_owned());
    let queue = "kind = \"local\"\nnodes_max = 1\nwalltime = 7200\nquery_interval = 0.2\n";
    let queue = site.write("here.toml", queue);
    let below = site.start([
        "relay",
        "--upstream",
        &upstream,
        "--dir",
        &dir,
        "--listen",
        "127.0.0.1:0",
        "--name",
        "below",
        "--provision",
        &queue,
    ]);
    below.wait_for("dispatcher at ");
    let sites = || -> Vec<Value> {
        let ran = access.run("provision", &["plan", "--json"]);
        if !ran.succeeded() {
            return Vec::new();
        }
        let plan: Value = serde_json::from_str(ran.text()).unwrap();
        plan["sites"].as_array().unwrap().clone()
    };
    let site_of_all = poll_for("the site is known at the top", || sites().pop());
    assert_eq!(site_of_all["relays"], "middle/below");
    assert_eq!((&site_of_all["name"], &site_of_all["nodes_max"]), (&"here".into(), &1.into()));
    assert_eq!(site_of_all["walltime_seconds"], 7200.0);
    assert_eq!(site_of_all["unmet"], 0);
    // More waits at the top than is ever sent ahead.
    let gate = site.text("gate");
    let [shell, option, script] = until(&gate);
    let args = ["--range", "1-1000000000", "--", &shell, &option, &script];
    let instance = access.submit(&args);
    poll("the site has its node and knows of more tasks", || {
        let sites = sites();
        sites.iter().any(|one| one["nodes"] == 1 && one["unmet"].as_u64() > Some(0))
    });
    let plan = access.run("provision", &["plan"]).exits(0);
    assert!(plan.text().contains("middle/below"), "{plan}");
    assert!(plan.text().contains("1 of 1"), "{plan}");
    assert!(plan.text().contains("up to 2 h 0 min"), "{plan}");
    assert!(plan.text().contains("ask for nothing"), "{plan}");
    // The relay between shows what is below it alone, and the lowest its own queue.
    let seen = middle.access().run("provision", &["plan"]).exits(0);
    assert!(seen.text().contains("below") && !seen.text().contains("middle"), "{seen}");
    let lowest = Access::at(&site, &site.path("below").join("access.json"));
    let own = lowest.run("provision", &["plan"]).exits(0);
    assert!(own.text().starts_with("here: would now ask for nothing"), "{own}");
    site.write("gate", "");
    access.run("cancel", &[&instance]).exits(0);
    lowest.run("provision", &["remove", "here"]).exits(0);
    poll("the queue is gone at the top", || sites().is_empty());
}
