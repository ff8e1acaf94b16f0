//! A journal on a disk without room: clients wait, what runs ends, and what is
//! destroyed makes room for the rest.

use crate::fixture::{Access, Site, poll};
use crate::resume::SmallDisk;
use falkon_trials::trial;

/// A task's output; its number comes last.
const OUTPUT_BYTES: usize = 60_000;
const DISK: &str = "64m";
/// A disk without room for anything from the start.
const TINY_DISK: &str = "40m";
const FILL_BYTES: usize = 64 << 20;
/// Room for what runs, and not for a submission.
const SCANT_BYTES: u64 = 8 << 20;

/// Submits more than the disk has room for; nobody fetches it.
fn submit_much(access: &Access<'_>, site: &Site) -> String {
    site.write("much", vec![b'x'; OUTPUT_BYTES]);
    access.submit(&["--range", "1-5000", "--", "sh", "-c", "cat much; echo :{}"])
}

/// Has others take room of the disk until so much is free.
fn leave(site: &Site, free_bytes: u64, filler: &str) {
    let disk = rustix::fs::statvfs(site.path("d")).unwrap();
    let taken = (disk.f_bavail * disk.f_frsize).saturating_sub(free_bytes);
    std::fs::write(site.path(filler), vec![0; taken as usize]).unwrap();
}

fn submit_few(range: &str) -> [&str; 7] {
    ["--wait", "--range", range, "--", "sh", "-c", "echo {}"]
}

#[trial]
fn clients_wait_for_room_and_go_on_when_an_instance_is_destroyed() {
    let site = Site::new();
    let _small = SmallDisk::mount(&site, "d", DISK);
    let dispatcher = site.dispatcher("d", &[]);
    let _executor = dispatcher.executor("one", &["--slots", "3"]);
    let access = dispatcher.access();
    let gated = "while [ ! -e go ]; do sleep 0.05; done; cat much; echo :gated";
    site.write("much", "");
    let runs = access.submit(&["--", "sh", "-c", gated]);
    poll("the task runs", || access.instance(&runs)["running"] == 1);
    let much = submit_much(&access, &site);
    dispatcher.service().wait_for("nothing more is accepted until there is room");
    // A snapshot might make room for a moment.
    leave(&site, SCANT_BYTES, "d/most");
    let waits = access.start("submit", &submit_few("1-20"));
    waits.wait_for("waiting: the dispatcher has no room for more: its disk at ");
    // What runs ends, and its result can be fetched.
    site.write("go", "");
    let result = access.run("results", &[&runs]).exits(0);
    assert_eq!(result.text(), format!("{}:gated\n", "x".repeat(OUTPUT_BYTES)));
    // Also when others take the rest.
    assert!(std::fs::write(site.path("d/filler"), vec![0; FILL_BYTES]).is_err(), "there is room");
    access.run("destroy", &[&much]).exits(0);
    for filler in ["d/filler", "d/most"] {
        std::fs::remove_file(site.path(filler)).unwrap();
    }
    let ran = waits.finish().exits(0);
    assert_eq!(ran.sorted().len(), 20, "{ran}");
    assert!(ran.err.matches("waiting: ").count() <= 1, "{ran}");
    access.run("destroy", &[&runs]).exits(0);
    let ran = access.run("submit", &submit_few("1-100")).exits(0);
    assert_eq!(ran.sorted().len(), 100, "{ran}");
}

#[trial]
fn who_waits_for_room_for_an_instance_goes_on_with_a_dispatcher_that_comes_back() {
    let site = Site::new();
    let _small = SmallDisk::mount(&site, "d", TINY_DISK);
    let mut dispatcher = site.dispatcher("d", &[]);
    let waits = dispatcher.access().start("submit", &submit_few("1-20"));
    waits.wait_for("waiting: the dispatcher has no room for more: its disk at ");
    drop(dispatcher.kill());
    waits.wait_for("trying again for");
    dispatcher.start();
    SmallDisk::resize(&site, "d", DISK);
    let _executor = dispatcher.executor("one", &["--slots", "3"]);
    let ran = waits.finish().exits(0);
    assert_eq!(ran.sorted().len(), 20, "{ran}");
}

#[trial]
fn a_disk_that_others_fill_stops_no_destroy_and_goes_on_by_itself() {
    let site = Site::new();
    let _small = SmallDisk::mount(&site, "d", DISK);
    let dispatcher = site.dispatcher("d", &[]);
    let _executor = dispatcher.executor("one", &["--slots", "2"]);
    let access = dispatcher.access();
    let kept = access.submit(&["--range", "1-50", "--", "echo"]);
    access.run("wait", &[&kept]).exits(0);
    // Again and again, what the journal gave up included.
    for round in 0..4 {
        let over = access.submit(&["--range", "1-5", "--", "echo"]);
        access.run("wait", &[&over]).exits(0);
        let filler = site.path(format!("d/filler-{round}"));
        assert!(std::fs::write(&filler, vec![0; FILL_BYTES]).is_err(), "there is room");
        access.run("destroy", &[&over]).exits(0);
        let waits = access.start("submit", &submit_few("1-5"));
        std::fs::remove_file(&filler).unwrap();
        assert_eq!(waits.finish().exits(0).sorted().len(), 5);
    }
    assert_eq!(access.run("results", &[&kept]).exits(0).sorted().len(), 50);
}
