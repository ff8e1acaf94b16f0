//! `falkon bench`: what it measures is there, and no process is left.

use crate::fixture::{Site, json_lines};
use falkon_trials::trial;

#[trial]
fn a_machine_is_measured() {
    let site = Site::new();
    let quick = ["bench", "--tasks", "3000", "--processes", "20", "--rounds", "1", "-j", "3"];
    let ran = site.run(quick.iter().chain(&["--json"])).exits(0);
    let figures = &json_lines(ran.text())[0];
    assert_eq!(figures["jobs"], 3);
    for figure in ["noop_tasks_per_s", "processes_per_s", "process_round_trip_ms"] {
        assert!(figures[figure].as_f64().is_some_and(|value| value > 0.0), "{figures}");
    }
    let table = site.run(quick).exits(0);
    assert_eq!(table.lines().len(), 4);
    assert!(table.text().contains("from submission to result"));
    site.left().wait_for_none();
}
