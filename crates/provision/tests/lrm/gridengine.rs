//! Against a real Grid Engine of several hosts.

use crate::cluster::{
    Daemons, Site, block_on, is_over, is_running, submit, wait_for, wait_for_state,
};
use falkon_provision::lrm::JobStatus;
use falkon_trials::trial;
use std::path::{Path, PathBuf};

/// Where the process is that a line is of.
fn process_of(line: &str) -> PathBuf {
    let (_, process) = line.split_once("|A_VARIABLE=").unwrap();
    PathBuf::from("/proc").join(process.split_once('|').unwrap().0)
}

/// All that Grid Engine keeps, in files, of jobs.
fn kept_of_jobs(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(kept_of_jobs(&path));
        } else if let Ok(bytes) = std::fs::read(&path) {
            all.push((path, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    all
}

#[trial]
fn a_job_of_grid_engine_has_an_executor_on_each_of_its_hosts() {
    let site = Site::new();
    let home = site.path("gridengine");
    let _daemons = Daemons::start("gridengine.sh", &[home.to_str().unwrap(), "4", "3"]);
    // Its programs are those that lead to where its daemons live.
    let own =
        falkon_provision::lrm::KINDS.iter().find(|(kind, _)| *kind == "gridengine").unwrap().1;
    let own: toml::Table = own.parse().unwrap();
    let mut there = toml::Table::new();
    for name in ["submit", "query", "cancel", "about"] {
        let mut command = own[name]["command"].clone();
        let program = command.as_array_mut().unwrap().first_mut().unwrap();
        let path = home.join("bin").join(program.as_str().unwrap());
        *program = path.to_str().unwrap().into();
        there.insert(name.to_owned(), toml::Table::from_iter([("command".into(), command)]).into());
    }
    // What it runs tells which process it is.
    let settings = "cpus = 2\nsettings = { pe_nodes = \"nodes\" }\n\
                    prologue = ['export A_VARIABLE=$$ # ours']\n";
    let driver = site.driver("gridengine", &there.to_string(), settings);
    assert_eq!(driver.nodes_max(), None);

    let job = submit(&driver, 1, 3);
    let started = site.wait_for_started(3);
    let mut hosts = Vec::new();
    let mut processes = Vec::new();
    for line in &started {
        // Two slots of each host were granted, and no more are offered.
        assert!(line.contains("|--slots|2|"), "{line}");
        assert!(line.ends_with("stdin={\"the access\": \"file's text\"}"), "{line}");
        let (_, name) = line.split_once("--name|falkon-test-1/").unwrap();
        hosts.push(name.split_once('|').unwrap().0);
        processes.push(process_of(line));
    }
    hosts.sort_unstable();
    assert_eq!(hosts, ["host1", "host2", "host3"]);
    assert_eq!(wait_for_state(&driver, 1, is_running).unwrap().job, job);
    assert!(matches!(block_on(driver.about(&job)).unwrap(), JobStatus::Known(_)));
    assert_eq!(block_on(driver.about("4711")).unwrap(), JobStatus::Gone);
    // What others can read of it holds no secret.
    for (file, text) in kept_of_jobs(&home.join("spool")) {
        assert!(!text.contains("the access"), "{}", file.display());
    }
    assert!(processes.iter().all(|process| process.exists()), "{processes:?}");

    // A job that is cancelled ends on all of them.
    block_on(driver.cancel(&[job])).unwrap();
    wait_for_state(&driver, 1, is_over);
    for process in &processes {
        wait_for(|| (!process.exists()).then_some(()));
    }

    // An executor that leaves does not take the others with it.
    let job = submit(&driver, 2, 2);
    let started = site.wait_for_started(5);
    let (first, second) = (process_of(&started[3]), process_of(&started[4]));
    let number = first.file_name().unwrap().to_str().unwrap().parse().unwrap();
    let process = rustix::process::Pid::from_raw(number).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    wait_for(|| (!first.exists()).then_some(()));
    wait_for_state(&driver, 2, is_running);
    assert!(second.exists());
    block_on(driver.cancel(&[job])).unwrap();
    wait_for_state(&driver, 2, is_over);
    wait_for(|| (!second.exists()).then_some(()));
}
