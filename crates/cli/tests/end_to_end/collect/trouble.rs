//! Archives whose store is full or away while outputs are staged for them.

use super::members;
use crate::fixture::{Access, Dispatcher, Running, Site, poll};
use crate::resume::SmallDisk;
use falkon_trials::{skip, trial};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::Signal;
use serde_json::Value;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// Tasks with an output each.
const TASKS: u64 = 5;

/// A file system that nobody serves, over a directory: what is asked of it has no
/// answer.
struct Silent {
    path: PathBuf,
    /// Without this end it is broken: whatever waits for it fails.
    server: Option<OwnedFd>,
}

impl Silent {
    fn over(path: PathBuf) -> Silent {
        if !rustix::process::geteuid().is_root() {
            skip("only root can mount a file system that nobody serves");
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let Ok(server) = rustix::fs::open("/dev/fuse", flags, Mode::empty()) else {
            skip("there is no /dev/fuse");
        };
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        let options = std::ffi::CString::new(options).unwrap();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        if mount("falkon-test", &path, "fuse", flags, Some(options.as_c_str())).is_err() {
            skip("a file system cannot be mounted here");
        }
        Silent { path, server: Some(server) }
    }

    /// What is asked of it fails from now on.
    fn fail(&mut self) {
        self.server = None;
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.fail();
        let _ = unmount(&self.path, UnmountFlags::DETACH);
    }
}

/// An executor, and an instance whose tasks' outputs are staged there for
/// `store/a.zip`.
fn staging(dispatcher: &Dispatcher<'_>, access: &Access<'_>) -> (Running, String) {
    let executor = dispatcher.executor("e", &["--slots", "2", "--collect-delay", "1ms"]);
    let (range, output) = (format!("1-{TASKS}"), "out=store/a.zip!{}");
    let command = ["sh", "-c", "echo {} > out"];
    let args = [&["--range", &range, "--output", output, "--"], &command[..]].concat();
    let id = access.submit(&args);
    poll("outputs are staged", || {
        let tasks = access.run("tasks", &[&id, "--json"]).exits(0).results();
        tasks.iter().all(|task| task["state"] == "staged")
    });
    (executor, id)
}

/// Each task has ended at its first attempt, and its member is there.
fn are_safe(site: &Site, access: &Access<'_>, id: &str, archive: &str) {
    for result in access.results(id) {
        let found = (&result["status"], &result["attempts"]);
        assert_eq!(found, (&Value::from("done"), &1.into()), "{result}");
    }
    let names = || (1..=TASKS).map(|at| at.to_string());
    assert_eq!(
        members(site, archive, names()),
        names().map(|name| name + "\n").collect::<Vec<_>>()
    );
}

/// Each task is cancelled, and says why its member is not there.
fn are_cancelled(access: &Access<'_>, id: &str, why: &str) {
    let results = access.results(id);
    assert_eq!(results.len() as u64, TASKS);
    for result in results {
        assert_eq!(result["status"], "cancelled", "{result}");
        let error = result["error"].as_str().unwrap();
        assert!(error.contains("a.zip was not written") && error.contains(why), "{error}");
    }
}

fn end(executor: Running) {
    executor.signal(Signal::TERM);
    executor.finish().exits(0);
}

/// A disk that takes nothing.
fn full_disk(site: &Site) -> SmallDisk {
    let disk = SmallDisk::mount(site, "store", "64k");
    let all = vec![7; 1 << 20];
    assert!(std::fs::write(site.path("store/filler"), all).is_err());
    disk
}

#[trial]
fn outputs_wait_until_a_full_store_has_room() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let disk = full_disk(&site);
    let (executor, id) = staging(&dispatcher, &access);
    poll("the status names the archive", || {
        let status = access.run("status", &[]).exits(0);
        let line =
            status.text().lines().find(|line| line.contains("store/a.zip is not written by"));
        line.is_some_and(|line| line.contains("No space left on device"))
    });
    std::fs::remove_file(site.path("store/filler")).unwrap();
    are_safe(&site, &access, &id, "store/a.zip");
    end(executor);
    drop(disk);
}

#[trial]
fn outputs_wait_for_a_store_that_is_away() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    std::fs::create_dir(site.path("store")).unwrap();
    let mut store = Silent::over(site.path("store"));
    store.fail();
    let (executor, id) = staging(&dispatcher, &access);
    drop(store);
    are_safe(&site, &access, &id, "store/a.zip");
    end(executor);
}

#[trial]
fn a_cancelled_task_does_not_wait_for_a_full_store() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let disk = full_disk(&site);
    let (executor, id) = staging(&dispatcher, &access);
    access.run("cancel", &[&id]).exits(0);
    are_cancelled(&access, &id, "No space left on device");
    end(executor);
    drop(disk);
}

#[trial]
fn a_cancelled_task_does_not_wait_for_a_store_that_does_not_answer() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    std::fs::create_dir(site.path("store")).unwrap();
    let store = Silent::over(site.path("store"));
    let (executor, id) = staging(&dispatcher, &access);
    access.run("cancel", &[&id]).exits(0);
    are_cancelled(&access, &id, "within 10 s of the cancellation");
    drop(store);
    end(executor);
}

#[trial]
fn an_interrupted_run_does_not_wait_for_a_full_store() {
    let site = Site::new();
    let disk = full_disk(&site);
    let mut started = site.signals("started");
    let gate = site.gate("gate");
    // Two tasks: one is staged before the other, which holds the run, begins.
    let script = format!(
        "if [ {{}} = 2 ]; then echo > {}; read line < {}; fi; echo {{}} > out",
        started.path(),
        gate.path()
    );
    let args = ["run", "--json", "-j", "1", "--range", "1-2", "--collect-delay", "1ms"];
    let output = ["--output", "out=store/a.zip!{}", "--", "sh", "-c", &script];
    let run = site.start(args.iter().chain(&output));
    started.next();
    run.signal(Signal::INT);
    let ran = run.finish().exits(1).says("stopping");
    for result in ran.results() {
        assert_eq!(result["status"], "cancelled", "{result}");
    }
    drop(disk);
}
