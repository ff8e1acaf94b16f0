//! The progress line on a terminal.

use crate::fixture::{Running, Site};
use falkon_trials::trial;
use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::process::Stdio;

/// Both ends of a terminal: ours, and a program's.
fn terminal() -> (File, File) {
    let (mut ours, mut theirs) = (-1, -1);
    let size = libc::winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: The pointers are to live variables, or null where nothing is
    // wanted; the descriptors that come back belong to nobody else.
    unsafe {
        let (name, settings) = (std::ptr::null_mut(), std::ptr::null());
        let result = libc::openpty(&mut ours, &mut theirs, name, settings, &size);
        assert_eq!(result, 0, "no terminal");
        (File::from_raw_fd(ours), File::from_raw_fd(theirs))
    }
}

/// What `falkon` shows on a terminal.
fn shown(site: &Site, args: &[&str], code: i32) -> String {
    let (mut ours, theirs) = terminal();
    let mut command = site.falkon(args);
    command.env("TERM", "xterm").stdout(Stdio::null()).stderr(theirs);
    let running = Running::start_as_is(command);
    // The terminal ends when the last of its users has closed it: an error
    // says so, not an empty read.
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = ours.read(&mut chunk) {
        bytes.extend_from_slice(&chunk[..count]);
    }
    running.finish().exits(code);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[trial]
fn a_terminal_shows_progress_and_then_only_the_summary() {
    let site = Site::new();
    let args = ["run", "-j", "2", "--range", "1-40", "--", "sh", "-c", "sleep 0.02; test {} != 7"];
    let text = shown(&site, &args, 1);
    for part in ["/40", "dispatched", "left", "1 task failed:", "39 done, 1 failed"] {
        assert!(text.contains(part), "no {part:?} in {text:?}");
    }
    // Once the line is cleared, nothing of it stays behind the summary.
    let (_, summary) = text.split_once("1 task failed:").unwrap();
    assert!(!summary.contains("/40"), "{summary:?}");
    let quiet = [&["run", "--quiet"], &args[1..]].concat();
    assert_eq!(shown(&site, &quiet, 1), "");
}
