//! Jobs that are processes of this machine.

use crate::cluster::{Site, block_on, is_over, is_running, submit, wait_for_state};
use falkon_trials::trial;

#[trial]
fn a_job_starts_its_executors_and_is_cancelled() {
    let site = Site::new();
    let driver = site.driver("local", "", "environment = { A_VARIABLE = \"it's $HOME\" }");
    let job = submit(&driver, 7, 2);
    let started = site.wait_for_started(2);
    for line in &started {
        assert!(line.starts_with("executor|--access|-|--name|falkon-test-7/"), "{line}");
        assert!(line.contains("|--allocation|7|--give-up|60s|--walltime|120s|"), "{line}");
        assert!(line.contains("|A_VARIABLE=it's $HOME|"), "{line}");
        assert!(line.ends_with("stdin={\"the access\": \"file's text\"}"), "{line}");
    }
    let found = wait_for_state(&driver, 7, is_running).unwrap();
    assert_eq!((found.job, found.nodes), (job.clone(), Some(2)));
    // Another dispatcher's jobs are not ours.
    assert_eq!(driver.allocation_of("falkon-other-7"), None);
    block_on(driver.cancel(std::slice::from_ref(&job))).unwrap();
    wait_for_state(&driver, 7, is_over);
    block_on(driver.cancel(&[job])).unwrap();
}
