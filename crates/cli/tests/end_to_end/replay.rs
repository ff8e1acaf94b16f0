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
    let ran = site.run(["replay", "o"]).exits(0);
    assert!(ran.text().contains("events do not have which tasks wait for which"), "{}", ran.text());
    // Six sleeps of at least 0.1 s that come together need a slot each, or more time.
    let ran = site.run(["replay", "o", "--deadline", "1h", "--json"]).exits(0);
    assert_eq!(json_lines(ran.text()).remove(0)["changed"]["executors"], 1, "{}", ran.text());
    site.run(["replay", "o", "--deadline", "50ms"]).exits(2).says_only(1, "no number of executors");
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
