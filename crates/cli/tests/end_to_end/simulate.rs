//! `falkon sim` and `falkon model`: what they print, and what they refuse.

use crate::fixture::{Site, json_lines};
use falkon_trials::trial;

const SCENARIO: &str = r#"
name = "small"
[workload]
tasks = 200
kind = "compute"
run_min = "10ms"
run_max = "2s"
[[nodes]]
count = 4
slots = 2
[faults]
node_crash = "20s"
node_down = "5s"
"#;

const MODEL: &str = r#"
[workload]
tasks = 1000
run = "2s"
dispatch = "500ms"
[machine]
nodes = 10
"#;

#[trial]
fn a_seed_is_a_run_and_json_has_its_figures() {
    let site = Site::new();
    let file = site.write("small.toml", SCENARIO);
    let first = site.run(["sim", &file, "--seed", "3", "--json"]).exits(0);
    let again = site.run(["sim", &file, "--seed", "3", "--json"]).exits(0);
    assert_eq!(first.text(), again.text());
    let line = &json_lines(first.text())[0];
    assert_eq!(line["done"], 200);
    assert_eq!(line["series"].as_array().unwrap().last().unwrap()["delivered"], 200);
    assert!(line["efficiency"].as_f64().unwrap() > 0.5);
    let other = site.run(["sim", &file, "--seed", "4", "--json"]).exits(0);
    assert_ne!(line["trace"], json_lines(other.text())[0]["trace"]);
    let table = site.run(["sim", &file]).exits(0);
    assert!(table.text().contains("makespan") && table.text().contains("queued"), "{table}");
}

#[trial]
fn a_simulated_run_has_the_events_and_the_report_of_a_real_one() {
    let site = Site::new();
    let file = site.write("small.toml", SCENARIO);
    let told = site.run(["sim", &file, "--json", "--events", "simulated"]).exits(0);
    let told = &json_lines(told.text())[0];
    let found = site.run(["report", "simulated", "--json"]).exits(0);
    let found = &json_lines(found.text())[0];
    assert_eq!(found["tasks"]["done"], 200, "{found}");
    let near = |one: &serde_json::Value, other: &serde_json::Value| {
        let (one, other) = (one.as_f64().unwrap(), other.as_f64().unwrap());
        assert!((one - other).abs() < 0.05 * other, "{one} {other}");
    };
    near(&found["makespan_s"], &told["makespan_s"]);
    let replayed = site.run(["replay", "simulated", "--json"]).exits(0);
    assert_eq!(json_lines(replayed.text())[0]["recorded"]["done"], 200, "{replayed}");
    // Events of another run would be told as the same one.
    site.run(["sim", &file, "--events", "simulated"]).exits(2).says_only(1, "has the events");
    let several = format!("{SCENARIO}[grid]\nnodes = [2, 4]\n");
    let several = site.write("several.toml", several);
    site.run(["sim", &several, "--events", "more"]).exits(2).says_only(1, "is for one run");
}

#[trial]
fn a_report_counts_the_processors_of_tasks_on_several_nodes() {
    let site = Site::new();
    let scenario = r#"
[workload]
tasks = 40
run = "10s"
wide = { nodes = 4, every = 2 }
[[nodes]]
count = 4
"#;
    let file = site.write("wide.toml", scenario);
    site.run(["sim", &file, "--events", "wide"]).exits(0);
    let found = site.run(["report", "wide", "--json"]).exits(0);
    let found = &json_lines(found.text())[0];
    assert!(found["utilization"].as_f64().unwrap() > 0.8, "{found}");
}

#[trial]
fn a_grid_is_a_run_for_each_point() {
    let site = Site::new();
    let grid = "[grid]\nnodes = [2, 4]\nrun = [\"1s\", \"2s\", 4]\n";
    let scenario = "[workload]\ntasks_per_slot = 2\n[[nodes]]\ncount = 1\n";
    let file = site.write("grid.toml", format!("{scenario}{grid}"));
    let ran = site.run(["sim", &file, "--json"]).exits(0);
    let lines = json_lines(ran.text());
    assert_eq!(lines.len(), 6);
    assert_eq!(lines[5]["tasks"], 8);
    assert_eq!(lines[5]["ideal_s"], 8.0);
    assert_eq!(site.run(["sim", &file]).exits(0).lines().len(), 7);
}

#[trial]
fn time_series_and_plots_are_written_to_files() {
    let site = Site::new();
    let grid = "name = \"<b>&\"\n[workload]\nrun_spread = 0.5\n[[nodes]]\ncount = 1\n\
                [grid]\nrun = [1, 2]\nworkload = [{ tasks = 4 }, { tasks = 8 }]\n";
    let file = site.write("grid.toml", grid);
    let (csv, html) = (site.path("series.csv"), site.path("page.html"));
    let (csv_text, html_text) = (csv.to_str().unwrap(), html.to_str().unwrap());
    site.run(["sim", &file, "--csv", csv_text, "--html", html_text]).exits(0);
    let text = std::fs::read_to_string(csv).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0][..3], ["run", "run_s", "at_s"]);
    let column = rows[0].iter().position(|name| *name == "delivered").unwrap();
    let last = |run: &str| rows.iter().rev().find(|row| row[0] == run).unwrap();
    assert_eq!((last("1")[column], last("4")[column]), ("4", "8"));
    assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("<h1>&lt;b&gt;&amp;</h1>") && page.contains("</html>"));
    let nowhere = site.path("none/page.html");
    let ran = site.run(["sim", &file, "--html", nowhere.to_str().unwrap()]).exits(2);
    ran.says("cannot write");
}

#[trial]
fn the_smallest_machine_for_a_deadline_is_found() {
    let site = Site::new();
    // 40 tasks of 1 s on two slots of each node: ten rounds on two nodes.
    let scenario = "[workload]\ntasks = 40\nrun = 1\n[[nodes]]\ncount = 99\nslots = 2\n";
    let file = site.write("small.toml", scenario);
    let plan = |more: &[&str]| site.run([&["plan", &file, "--json", "--deadline"], more].concat());
    for (args, nodes, slots) in [
        (&["10.5s"][..], 2, 4),
        (&["1.5s"], 20, 40),
        (&["1h"], 1, 2),
        (&["11s", "--slots", "1"], 4, 4),
    ] {
        let ran = plan(args).exits(0);
        let found = &json_lines(ran.text())[0];
        assert_eq!((&found["nodes"], &found["slots"]), (&nodes.into(), &slots.into()), "{args:?}");
        assert!(found["makespan_s"].as_f64() <= found["deadline_s"].as_f64(), "{found}");
    }
    plan(&["0.9s"]).exits(2).says_only(1, "no number of nodes makes it in 0.9 s");
    let ran = site.run(["plan", &file, "--deadline", "5m"]).exits(0);
    assert!(ran.text().contains("nodes") && ran.text().contains("makespan, s"), "{ran}");
    let grid = site.write("grid.toml", format!("{scenario}[grid]\nnodes = [1, 2]\n"));
    site.run(["plan", &grid, "--deadline", "1h"]).exits(2).says_only(1, "leave the grid out");
    let two = site.write("two.toml", format!("{scenario}[[nodes]]\ncount = 1\n"));
    site.run(["plan", &two, "--deadline", "1h"]).exits(2).says_only(1, "there are 2 groups");
    site.run(["plan", &file]).exits(2);
}

#[trial]
fn what_is_wrong_with_a_description_is_said() {
    let site = Site::new();
    for (scenario, expected) in [
        ("[workload]\ntasks = 1\nrun = \"1 fortnight\"\n[[nodes]]\ncount = 1", "is not a duration"),
        ("[workload]\ntasks = 1\nrun = 1\n[[nodes]]\ncount = 0", "0 nodes"),
        ("[workload]\ntasks = 1\n[[nodes]]\ncount = 1", "needs either `run`"),
        ("[workload]\ntasks = 1\nran = 1\n[[nodes]]\ncount = 1", "unknown field `ran`"),
        ("limit = \"1s\"\n[workload]\ntasks = 9\nrun = 1\n[[nodes]]\ncount = 1", "raise `limit`"),
    ] {
        let file = site.write("wrong.toml", scenario);
        let code = if expected == "raise `limit`" { 3 } else { 2 };
        site.run(["sim", &file]).exits(code).says(expected);
    }
    site.run(["sim"]).exits(2);
    site.run(["sim", "none.toml"]).exits(2).says_only(1, "cannot read none.toml");
}

#[trial]
fn the_model_is_printed() {
    let site = Site::new();
    let file = site.write("model.toml", MODEL);
    let ran = site.run(["model", &file, "--json"]).exits(0);
    let answer = &json_lines(ran.text())[0];
    let figures = answer["figures"].as_array().unwrap();
    let figure = |symbol: &str| {
        let found = figures.iter().find(|figure| figure["symbol"] == symbol).unwrap();
        found["value"].as_f64().unwrap()
    };
    assert_eq!((figure("V"), figure("W"), figure("S")), (200.0, 250.0, 8.0));
    assert!(site.run(["model", &file]).exits(0).text().contains("efficiency"));
    let wrong = site.write("wrong.toml", MODEL.replace("nodes = 10", "nodes = 0"));
    assert!(site.run(["model", &wrong]).exits(2).err.contains("no slots"));
}
