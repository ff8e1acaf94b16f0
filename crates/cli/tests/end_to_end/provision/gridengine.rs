//! Against a real Grid Engine.

use super::{allocations, run_some, wait_for_none};
use crate::fixture::{Daemons, Site, poll_for};
use falkon_trials::trial;

#[trial]
fn slots_of_grid_engine_come_and_go_with_the_tasks() {
    let mut site = Site::new();
    let home = site.text("gridengine");
    let _daemons = Daemons::start(&site, "gridengine.sh", &[&home, "4"]);
    site.set("PATH", &format!("{home}/bin:{}", std::env::var("PATH").unwrap()));
    let jobs = || {
        let qstat = site.program(format!("{home}/bin/qstat")).output().unwrap();
        String::from_utf8(qstat.stdout).unwrap()
    };
    let queue = |name: &str, job: &str| {
        let text = format!(
            "kind = \"gridengine\"\nnodes_max = 2\nidle = 2\nrelease = \"idle\"\n\
             query_interval = 0.5\ndelay = 1\nwalltime = 600\n[job]\n{job}"
        );
        site.write(name, text)
    };
    let good = queue("q.toml", "cpus = 2\nsettings = { pe = \"smp\" }\n");
    let mut dispatcher = site.dispatcher("d", &["--provision", &good]);
    let access = dispatcher.access();

    // Two slots of a node were granted, and no more are used.
    run_some(&access, 20);
    let said = dispatcher.service().said();
    assert!(said.contains(" joined with 2 cpus"), "{said}");
    wait_for_none(&access);
    poll_for("no job is left", || jobs().trim().is_empty().then_some(()));

    // What runs is found again after a crash, and used.
    let mut signals = site.signals("signals");
    let mut gate = site.gate("gate");
    let command = format!("echo on > {}; read line < {}", signals.path(), gate.path());
    let id = access.submit(&["--", "sh", "-c", &command]);
    assert_eq!(signals.next(), "on");
    dispatcher.kill();
    dispatcher.start();
    poll_for("the allocation is there again", || (!allocations(&access).is_empty()).then_some(()));
    gate.let_through(1);
    access.run("wait", &[&id, "--quiet"]).exits(0);
    assert_eq!(access.results(&id)[0]["attempts"], 1);

    // A job that somebody deletes costs nothing but its time.
    let id = access.submit(&["--range", "1-4", "--retries", "0", "--", "sleep", "2"]);
    let job = poll_for("a job has executors", || {
        let all = allocations(&access);
        let here = all.iter().find(|one| one["executors"] != 0 && one["ending"] == false);
        here.and_then(|one| one["job"].as_str().map(str::to_owned))
    });
    let deleted = site.program(format!("{home}/bin/qdel")).arg(&job).status().unwrap();
    assert!(deleted.success());
    access.run("wait", &[&id, "--quiet"]).exits(0);
    wait_for_none(&access);

    // What cannot be is refused with Grid Engine's own words.
    access.run("provision", &["remove", "q"]).exits(0);
    dispatcher.service().wait_for("queue q: is removed");
    let bad = queue("bad.toml", "partition = \"nonesuch\"\n");
    access.run("provision", &["add", &bad]).exits(0);
    access.submit(&["--", "true"]);
    dispatcher.service().wait_for("requests unknown queue");
    access.run("provision", &["remove", "bad"]).exits(0);
    dispatcher.service().wait_for("queue bad: is removed");
    poll_for("no job is left", || jobs().trim().is_empty().then_some(()));
}
