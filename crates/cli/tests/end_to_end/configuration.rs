//! `falkon.toml`, services in the background, and manual pages.

use crate::fixture::{Site, poll};
use falkon_trials::trial;

#[trial]
fn options_come_from_the_configuration_unless_the_command_line_has_them() {
    let site = Site::new();
    let file =
        site.write("a.toml", "[run]\njobs = 1\nshell = true\n[data.broadcast]\nto = \"x\"\n");
    let script = "echo $((40 + {}))";
    let ran = site.run(["--config", &file, "run", "--range", "2-2", "--", script]).exits(0);
    assert_eq!(ran.text(), "42\n");
    let ran = site.run(["--config", &file, "config", "check"]).exits(0);
    assert!(ran.text().contains("3 options, no errors"), "{ran}");
    let shown = site.run(["--config", &file, "config", "show"]).exits(0);
    assert!(shown.text().contains("[run]\njobs = 1  # "), "{shown}");

    // The command line counts; an unknown command's table hurts nobody else.
    let wrong = site.write("b.toml", "[run]\njobs = 1\n[rum]\na = 1\n");
    let ran = site.run(["--config", &wrong, "run", "--jobs", "2", "--dry-run", "--", "true"]);
    ran.exits(0);
    let ran = site.run(["--config", &wrong, "config", "check"]).exits(2);
    ran.says_only(1, "[rum]: there is no command falkon rum");
}

#[trial]
fn what_is_wrong_with_a_configuration_is_said_of_each_option() {
    let site = Site::new();
    let text = "x = 1\n[run]\njobs = \"many\"\njbos = 1\nshell = 1\n[executor]\nslots = []\n";
    let file = site.write("a.toml", text);
    let ran = site.run(["config", "check", &file, "missing.toml"]).exits(2);
    for part in [
        "x stands before the first table",
        "[run] jobs: invalid value 'many'",
        "[run] jbos: falkon run has no option --jbos",
        "[run] shell: this option is true or false",
        "[executor] slots: this option takes one value",
        "cannot read the configuration missing.toml",
    ] {
        assert!(ran.to_string().contains(part), "no {part:?} in\n{ran}");
    }
    site.run(["--config", &file, "run", "--", "true"]).exits(2).says("[run] jbos");
}

#[trial]
fn services_go_to_the_background_and_wait_for_each_other() {
    let site = Site::new();
    let log = site.text("executor.log");
    // Before the dispatcher, whose access file it needs.
    let executor = site.start(["executor", "--slots", "1", "--background", "--log", &log]);
    executor.wait_for("waiting: no access file");
    site.run(["start", "--background"]).exits(0).says("continues in the background");
    executor.wait_for("continues in the background");
    executor.finish().exits(0);
    let ran = site.run(["submit", "--wait", "--", "echo", "there"]).exits(0);
    assert!(ran.text().contains("there"), "{ran}");
    site.run(["start", "--background"]).exits(3).says("is in use by process");
    assert!(site.read("state/falkon/dispatcher.log").contains(" joined with 1 cpu"));
    assert!(site.read("executor.log").contains("connected to the dispatcher"));
    site.run(["stop"]).exits(0);
    poll("the dispatcher to say so", || {
        site.read("state/falkon/dispatcher.log").contains("asked to stop")
    });
    site.run(["executor", "--access", "none.json", "--give-up", "0"])
        .exits(2)
        .says("there is no access file at none.json");
}

#[trial]
fn every_command_has_a_manual_page() {
    let site = Site::new();
    std::fs::create_dir(site.path("man")).unwrap();
    site.run(["man", "man"]).exits(0);
    for page in ["falkon.1", "falkon-run.1", "falkon-data-broadcast.1"] {
        assert!(site.read(&format!("man/{page}")).starts_with(".ie"), "{page}");
    }
    let printed = site.run(["man"]).exits(0);
    assert_eq!(printed.text(), site.read("man/falkon.1"), "the page of the program is printed");
    site.run(["man", "nowhere"]).exits(2).says("cannot write the manual pages into nowhere");
}
