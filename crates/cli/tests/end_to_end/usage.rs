//! What tasks used.

use crate::fixture::Site;
use falkon_trials::trial;
use serde_json::Value;

/// A process whose child has 30 MB.
const LARGE: [&str; 3] = ["sh", "-c", "dd if=/dev/zero of=/dev/null bs=30000000 count=1; exit {}"];

#[trial]
fn results_say_what_the_processes_of_a_task_used() {
    let site = Site::new();
    let run = [&["run", "--usage", "--out", "kept", "--range", "0-1", "--"], &LARGE[..]].concat();
    let ran = site.run(run).exits(1);
    let row = |name: &str| {
        let line = ran.err.lines().find(|line| line.starts_with(name)).expect(name);
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("sh")[1], "2", "{ran}");
    let results = site.read("kept/results.jsonl");
    assert_eq!(results.lines().count(), 2);
    for line in results.lines() {
        let result: Value = serde_json::from_str(line).unwrap();
        let used = |name: &str| result["usage"][name].as_f64().expect(name);
        assert!(used("rss_max_bytes") >= 30e6, "{line}");
        assert!(used("user_seconds") + used("system_seconds") > 0.0, "{line}");
        let times = |name: &str| result["times"][name].as_f64().unwrap();
        let wall = times("ended") - times("started");
        assert!((used("wall_seconds") - wall).abs() < 1e-5, "{line}");
        assert!(used("read_bytes") >= 0.0 && used("written_bytes") >= 0.0, "{line}");
    }
    // What did not start, and what is no process, was not measured.
    let ran = site.run(["run", "--json", "--usage", "--", "no-such-program"]).exits(1);
    assert!(!ran.text().contains("usage"), "{ran}");
    ran.says("none was measured");
    let ran = site.run(["run", "--json", "--", "@noop"]).exits(0);
    assert!(!ran.text().contains("usage"), "{ran}");
}
