//! Against a real sshd.

use crate::cluster::{
    Daemons, Site, block_on, is_over, is_running, refusal, submit, wait_for, wait_for_state,
};
use falkon_trials::trial;

#[trial]
fn a_host_takes_one_job_at_a_time() {
    let site = Site::new();
    let home = site.path("ssh");
    let _daemons = Daemons::start("ssh.sh", &[home.to_str().unwrap()]);
    let settings = format!(
        "hosts = [\"near\"]\noptions = [\"-F\", \"{}/config\"]\ncpus = 3\n\
         environment = {{ A_VARIABLE = \"it's \\\"$HOME\\\" and \\\\ more\" }}",
        home.display()
    );
    let driver = site.driver("ssh", "", &settings);
    assert_eq!(driver.nodes_max(), Some(1));
    let job = submit(&driver, 7, 1);
    let started = site.wait_for_started(1);
    assert!(started[0].starts_with("executor|--access|-|--name|falkon-test-7/"), "{started:?}");
    assert!(started[0].contains("|--slots|3|"), "{started:?}");
    assert!(started[0].contains("|A_VARIABLE=it's \"$HOME\" and \\ more|"), "{started:?}");
    assert!(started[0].ends_with("stdin={\"the access\": \"file's text\"}"), "{started:?}");
    wait_for_state(&driver, 7, is_running);

    // The host is in use.
    let words = refusal(&driver, 8, 1);
    assert!(words.contains("no host takes it"), "{words}");

    block_on(driver.cancel(&[job])).unwrap();
    wait_for_state(&driver, 7, is_over);
    // Where the program is not on the host, it is brought, and removed in the
    // end.
    let there = site.path("it's there");
    std::fs::create_dir(&there).unwrap();
    let settings =
        format!("{settings}\nbinary = \"/nowhere/it's\"\nsend = \"{}\"", there.display());
    let driver = site.driver("ssh", "", &settings);
    let job = submit(&driver, 9, 1);
    let started = site.wait_for_started(2);
    assert!(started[1].contains("--name|falkon-test-9/"), "{started:?}");
    assert_eq!(std::fs::read_dir(&there).unwrap().count(), 1);
    block_on(driver.cancel(&[job])).unwrap();
    wait_for_state(&driver, 9, is_over);
    wait_for(|| (std::fs::read_dir(&there).unwrap().count() == 0).then_some(()));
}
