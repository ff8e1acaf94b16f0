//! A full disk, and one that hangs, under the files that say who the users are and what was done.

use super::{add, audit, listed};
use crate::fixture::{Site, json_lines, poll};
use crate::resume::SmallDisk;
use falkon_core::task::InstanceId;
use falkon_net::client::Client;
use falkon_net::secure::{AccessFile, Role};
use falkon_trials::{skip, trial};
use std::path::PathBuf;
use std::process::Command;

/// Lines of the record that are more than fits into the last page of its file.
const LINES: u64 = 100;

#[trial]
fn a_full_disk_changes_no_user_and_loses_no_line_of_the_record() {
    let site = Site::new();
    let _small = SmallDisk::mount(&site, "d", "8m");
    let dispatcher = site.dispatcher("d", &["--no-journal"]);
    let owner = dispatcher.access();
    let alice = add(&site, &owner, "alice", &["--share", "3"]);
    let instance = owner.submit(&["--range", "1-9", "--", "@noop"]);
    let before = site.read("d/users.json");
    assert!(std::fs::write(site.path("d/filler"), vec![0; 16 << 20]).is_err(), "there is room");
    let out = site.text("bob.json");
    let refused = [
        (&["user", "add"][..], &["bob", "--out", &out][..]),
        (&["user", "set"], &["alice", "--share", "4"]),
        (&["user", "revoke"], &["alice"]),
    ];
    for (command, args) in refused {
        let ran = owner.run_sub(command, args).exits(2);
        ran.says_only(1, "the dispatcher refused: cannot write ").says("No space left on device");
        assert_eq!(site.read("d/users.json"), before);
    }
    assert_eq!(listed(&owner, "alice").unwrap()["share"], 3);
    assert!(listed(&owner, "bob").is_none());
    // The record waits for room, and nothing waits for the record.
    let instance = InstanceId(instance.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let file = AccessFile::load(&owner.file).unwrap();
        let (client, _) = Client::connect(&file, Role::Owner).await.unwrap();
        for line in 0..LINES {
            client.pause(instance, line % 2 == 0).await.unwrap();
        }
    });
    dispatcher.service().wait_for("audit.jsonl: No space left on device");
    alice.submit(&["--", "@noop"]);
    std::fs::remove_file(site.path("d/filler")).unwrap();
    dispatcher.service().wait_for("audit.jsonl can be written again");
    let pauses = || audit(&site).iter().filter(|(_, action, _)| action != "create").count() as u64;
    // With the addition of a user before, and what was refused.
    poll("all lines are written", || pauses() == LINES + 4);
    add(&site, &owner, "bob", &[]);
    assert!(listed(&owner, "bob").is_some());
}

/// A file system that hangs for as long as it is frozen.
struct HangingDisk(PathBuf);

impl HangingDisk {
    fn run(program: &str, args: &[&str]) -> bool {
        let ran = Command::new(program).args(args).output();
        ran.is_ok_and(|ran| ran.status.success())
    }

    /// Mounts one; skips the test where that is not allowed.
    fn mount(site: &Site, name: &str) -> HangingDisk {
        let (path, image) = (site.path(name), site.text("image"));
        std::fs::create_dir(&path).unwrap();
        std::fs::File::create(site.path("image")).unwrap().set_len(32 << 20).unwrap();
        let made = HangingDisk::run("mkfs.ext4", &["-q", "-F", &image]);
        if !made || !HangingDisk::run("mount", &["-o", "loop", &image, path.to_str().unwrap()]) {
            skip("no file system can be mounted that is frozen later");
        }
        let disk = HangingDisk(path);
        if !disk.freeze(true) || !disk.freeze(false) {
            skip("no file system can be frozen");
        }
        disk
    }

    fn freeze(&self, is_frozen: bool) -> bool {
        let how = if is_frozen { "-f" } else { "-u" };
        HangingDisk::run("fsfreeze", &[how, self.0.to_str().unwrap()])
    }
}

impl Drop for HangingDisk {
    fn drop(&mut self) {
        self.freeze(false);
        // Lazily: what still writes there is killed with the site.
        HangingDisk::run("umount", &["-l", self.0.to_str().unwrap()]);
    }
}

#[trial]
fn a_disk_that_hangs_delays_changes_of_users_and_nothing_else() {
    let site = Site::new();
    let disk = HangingDisk::mount(&site, "d");
    let dispatcher = site.dispatcher("d", &["--no-journal"]);
    let owner = dispatcher.access();
    let alice = add(&site, &owner, "alice", &[]);
    let executor = dispatcher.executor("worker", &["--slots", "2"]);
    assert!(disk.freeze(true));
    let out = site.text("bob.json");
    let adds = owner.start_sub(&["user", "add"], &["bob", "--out", &out]);
    let sets = owner.start_sub(&["user", "set"], &["alice", "--share", "7"]);
    // Tasks run, executors stay connected, and whoever asks is answered.
    for _ in 0..3 {
        alice.run("submit", &["--wait", "--range", "1-20", "--", "@noop"]).exits(0);
        assert_eq!(listed(&owner, "alice").unwrap()["share"], 1);
        assert!(listed(&owner, "bob").is_none());
    }
    assert!(!executor.said().contains("lost"), "{}", executor.said());
    assert!(disk.freeze(false));
    for running in [adds, sets] {
        running.finish().exits(0);
    }
    assert_eq!(listed(&owner, "alice").unwrap()["share"], 7);
    assert!(listed(&owner, "bob").is_some());
    // The record has all of it.
    let actions = || json_lines(&site.read("d/audit.jsonl")).len();
    poll("all lines are written", || actions() == 3 + 3);
}
