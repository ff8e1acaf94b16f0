//! Against a real Slurm.

use crate::cluster::{
    Daemons, Site, block_on, is_over, is_running, refusal, submit, wait_for_state,
};
use falkon_provision::lrm::{JobStatus, Request, Size, State, Submission};
use falkon_trials::trial;
use std::time::Duration;

#[trial]
fn a_real_slurm_does_as_it_is_told() {
    let site = Site::new();
    let home = site.path("slurm");
    let mut daemons = Daemons::start("slurm.sh", &[home.to_str().unwrap(), "3", "2"]);
    // Slurm's programs find their daemons by it: a wrapper sets it for each.
    let conf = format!("SLURM_CONF={}", home.join("slurm.conf").display());
    let with_conf = |words: &str| format!("command = [\"env\", \"{conf}\", {words}]\n");
    let slurm = falkon_provision::lrm::KINDS.iter().find(|(kind, _)| *kind == "slurm").unwrap().1;
    let own: toml::Table = slurm.parse().unwrap();
    let mut site_says = String::new();
    for table in ["submit", "query", "cancel", "free", "about", "size"] {
        let words = own[table]["command"].as_array().unwrap();
        let words: Vec<String> =
            words.iter().map(|word| format!("{:?}", word.as_str().unwrap())).collect();
        site_says.push_str(&format!("[{table}]\n{}", with_conf(&words.join(", "))));
    }
    let driver = |settings: &str| site.driver("slurm", &site_says, settings);
    let plain = driver("prologue = ['export A_VARIABLE=\"of the prologue\"']");

    assert_eq!(block_on(plain.free()).unwrap(), Some(3));
    let all = Size { nodes: 3, job_nodes: None };
    assert_eq!(block_on(plain.size()).unwrap(), Some(all));
    assert_eq!(block_on(driver("partition = \"short\"").size()).unwrap(), Some(all));
    let job = submit(&plain, 1, 2);
    let started = site.wait_for_started(2);
    for line in &started {
        assert!(line.starts_with("executor|--access|-|--name|falkon-test-1/"), "{line}");
        assert!(line.contains("|--walltime|120s|--began|"), "{line}");
        assert!(line.contains("|A_VARIABLE=of the prologue|"), "{line}");
        // Whole nodes, each with what it has.
        assert!(line.contains("|cpus=2|"), "{line}");
        assert!(line.ends_with("stdin={\"the access\": \"file's text\"}"), "{line}");
    }
    let found = wait_for_state(&plain, 1, is_running).unwrap();
    assert_eq!((&found.job, found.nodes), (&job, Some(2)));
    let left = found.left.unwrap();
    assert!(left <= Duration::from_secs(120) && left > Duration::from_secs(30), "{left:?}");

    // Asked by its number it is known, and one that never was is not.
    match block_on(plain.about(&job)).unwrap() {
        JobStatus::Known(found) => assert_eq!((found.state, &found.job), (State::Running, &job)),
        JobStatus::Gone => panic!("job {job} is said not to be there"),
    }
    assert_eq!(block_on(plain.about("4711")).unwrap(), JobStatus::Gone);

    // One CPU of a node, beside others.
    let one_cpu = driver("cpus = 1\npartition = \"short\"");
    submit(&one_cpu, 3, 1);
    let started = site.wait_for_started(3);
    assert!(started[2].contains("|cpus=1|"), "{}", started[2]);

    // More than is free waits, and says why.
    let waiting = submit(&plain, 2, 3);
    let found = wait_for_state(&plain, 2, |job| {
        job.is_some_and(|job| job.state == State::Pending && job.words.contains("Resources"))
    });
    assert_eq!(found.unwrap().job, waiting);

    // A job that the LRM was not asked for by us is found by its name alone.
    block_on(plain.cancel_by_name(3)).unwrap();
    wait_for_state(&plain, 3, is_over);
    block_on(plain.cancel(&[job, waiting])).unwrap();
    wait_for_state(&plain, 1, is_over);
    wait_for_state(&plain, 2, is_over);
    block_on(plain.cancel(&["1".to_owned()])).unwrap();

    // What cannot be is refused with Slurm's own words.
    let words = refusal(&driver("partition = \"nonesuch\""), 4, 1);
    assert!(words.contains("Invalid partition name specified"), "{words}");
    let words = refusal(&driver("options = [\"--no-such-option\"]"), 4, 1);
    assert!(words.contains("unrecognized option"), "{words}");
    let words = refusal(&driver("gpus = 1"), 4, 1);
    assert!(words.contains("Invalid generic resource"), "{words}");

    // Nothing is left of it.
    assert!(block_on(plain.query()).unwrap().iter().all(|(_, job)| job.state == State::Ended));

    // Daemons that are down are no refusal.
    daemons.tell("stop slurmctld");
    let request = Request { allocation: 5, nodes: 1, walltime: None };
    match block_on(driver("").submit(&request)) {
        Submission::Unknown(words) => assert!(words.contains("contact slurm"), "{words}"),
        other => panic!("{other:?}"),
    }
    block_on(plain.about("1")).unwrap_err();
    block_on(plain.size()).unwrap_err();
    let words = block_on(plain.query()).unwrap_err().to_string();
    assert!(words.contains("slurm_load_jobs error"), "{words}");
}
