//! Objects of caches as files, where this machine lets its user mount file systems.

use super::services::executor_with;
use crate::fixture::{Site, poll};
use falkon_trials::{skip, trial};
use rustix::process::Signal;
use std::time::Duration;

/// The exit status of what this machine cannot do.
const FAILURE: i32 = 3;

#[trial]
fn objects_are_files_under_their_keys() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let _executor = executor_with(&site, &dispatcher, "a", "64MiB");
    // Several blocks, and no two alike.
    let bytes: Vec<u8> = (0..2_500_001_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(site.path("large"), &bytes).unwrap();
    let small = site.write("small", "a few words");
    access.run_sub(&["data", "put"], &["--key", "deep/large", &site.text("large")]).exits(0);
    access.run_sub(&["data", "put"], &[&small]).exits(0);
    std::fs::create_dir(site.path("m")).unwrap();
    let mut running = access.start_sub(&["data", "mount"], &["m"]);
    let mut status = None;
    poll("a mount", || {
        status = running.ended_within(Duration::ZERO);
        status.is_some() || running.said().contains("objects are shown as files at")
    });
    match status {
        Some(status) if status.code() == Some(FAILURE) => skip(running.said()),
        Some(status) => panic!("{status}: {}", running.said()),
        None => {}
    }
    assert!(std::fs::read(site.path("m/deep/large")).unwrap() == bytes);
    assert_eq!(site.read("m/small"), "a few words");
    assert!(std::fs::write(site.path("m/small"), "others").is_err());
    running.signal(Signal::TERM);
    running.finish().exits(0).says("2 objects are shown as files");
    assert_eq!(std::fs::read_dir(site.path("m")).unwrap().count(), 0);
}
