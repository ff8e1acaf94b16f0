//! `falkon report`: how a run went, from its events.

use crate::fixture::{Site, json_lines};
use falkon_trials::trial;
use serde_json::Value;

fn report(site: &Site, args: &[&str]) -> Value {
    let ran = site.run([&["report", "--json"], args].concat()).exits(0);
    json_lines(ran.text()).remove(0)
}

#[trial]
fn a_report_has_what_became_of_a_run_and_where_its_time_went() {
    let site = Site::new();
    let script = "sleep 0.$0; test $0 != 3 || { exit 7; }";
    site.run(["run", "-j", "2", "--out", "o", "--range", "1-6", "--", "sh", "-c", script]).exits(1);
    let found = report(&site, &["o"]);
    let tasks = &found["tasks"];
    assert_eq!((&tasks["submitted"], &tasks["done"]), (&6.into(), &5.into()), "{found}");
    assert_eq!(found["failures"][0]["message"], "exited with status 7");
    assert_eq!(found["failures"][0]["example"], "0/2");
    assert_eq!(found["slowest"][0]["task"], "0/5");
    let command = &found["commands"][0];
    assert!(command["command"].as_str().unwrap().starts_with("sh -c sleep"), "{found}");
    let number = |of: &Value, key: &str| of[key].as_f64().unwrap();
    // What ran is as long as it was, and the slots' time is divided without a rest.
    assert!(number(&found, "work_s") >= 2.1, "{found}");
    let spent = &found["slot_seconds"];
    let parts = ["run", "failed", "starting", "dispatch", "no_work"];
    let sum: f64 = parts.iter().map(|part| number(spent, part)).sum();
    let there = number(spent, "there");
    assert!((sum - there).abs() <= 0.05 * there, "{spent}");
    assert!(number(&found, "efficiency") <= 1.0 && number(&found, "efficiency") > 0.2, "{found}");
    let course = found["course"].as_array().unwrap();
    let ended: u64 = course.iter().map(|one| one["ended"].as_u64().unwrap()).sum();
    assert_eq!(ended, 6);
    assert!(course.iter().all(|one| number(one, "running") <= 2.001), "{found}");
    site.run(["report", "o", "--markdown", "-o", "report.md"]).exits(0);
    let text = site.read("report.md");
    for part in ["# Report", "5 done, 1 failed, 0 cancelled", "## Failures", "## The slowest tasks"]
    {
        assert!(text.contains(part), "{text}");
    }
    site.run(["report", "o", "-o", "report.html"]).exits(0);
    let page = site.read("report.html");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<h1>Instance 0</h1>"));
    assert_eq!(page.matches("<figure class=\"chart\">").count(), 4);
    assert!(page.contains("exited with status 7"));
    assert!(
        !page.contains(" src=") && !page.contains(" href="),
        "it needs something from elsewhere"
    );
    let none = site.text("none");
    std::fs::create_dir(&none).unwrap();
    site.run(["report", "--json", &none]).exits(2).says_only(1, "has no events");
    site.run(["report", "--json", "o", "-i", "5"]).exits(2).says_only(1, "no events of tasks");
}

#[trial]
fn an_instance_of_a_dispatcher_has_a_report_of_its_own() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executor = dispatcher.executor("worker", &["--slots", "2"]);
    access.submit(&["--wait", "--name", "<b>|one", "--range", "0-4", "--", "true"]);
    access.submit(&["--wait", "--name", "two", "--range", "0-9", "--", "@noop"]);
    let observer = dispatcher.access_of("access-observer.json");
    crate::fixture::poll("the events are written", || {
        let ran = observer.run("report", &["--json", "two"]);
        ran.succeeded() && json_lines(ran.text())[0]["tasks"]["done"] == 10
    });
    let both = json_lines(observer.run("report", &["--json"]).exits(0).text()).remove(0);
    assert_eq!(both["tasks"]["done"], 15);
    assert_eq!(both["executors"][0]["name"], "worker");
    let text = observer.run("report", &["--markdown", "0"]).exits(0);
    assert!(text.text().contains("0 (\\<b\\>\\|one)"), "{text}");
    assert!(text.text().contains("| tasks | 5 submitted, 5 ended |"), "{text}");
    let page = observer.run("report", &["0"]).exits(0);
    assert!(page.text().contains("<h1>&lt;b&gt;|one</h1>"), "{page}");
    observer.run("report", &["--json", "three"]).exits(2).says_only(1, "of \"three\"");
}
