//! The progress line on a terminal, and `falkon top`.

use crate::fixture::{Access, Gate, PATIENCE, Running, Site};
use falkon_trials::trial;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Both ends of a terminal: ours, and a program's. No other program that is started
/// meanwhile gets them: it would keep the terminal open.
fn terminal(columns: u16) -> (File, File) {
    let size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let mut name = [0; 64];
    // SAFETY: The descriptor belongs to nobody else, and is open as long as it is used; the
    // pointers are to live variables, and the name ends within its buffer if it was written.
    let (ours, name) = unsafe {
        let ours = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
        assert!(ours >= 0, "no terminal");
        let file = File::from_raw_fd(ours);
        assert_eq!((libc::grantpt(ours), libc::unlockpt(ours)), (0, 0), "no terminal");
        assert_eq!(libc::ptsname_r(ours, name.as_mut_ptr(), name.len()), 0, "no name");
        assert_eq!(libc::ioctl(ours, libc::TIOCSWINSZ, &size), 0, "no size");
        (file, CStr::from_ptr(name.as_ptr()))
    };
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_NOCTTY);
    (ours, options.open(OsStr::from_bytes(name.to_bytes())).unwrap())
}

/// What `falkon` shows on a terminal.
fn shown(site: &Site, args: &[&str], code: i32) -> String {
    let (mut ours, theirs) = terminal(100);
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

/// `falkon top` on a terminal of its own.
struct Top {
    running: Running,
    terminal: File,
    seen: vt100::Parser,
}

impl Top {
    fn start(access: &Access<'_>) -> Top {
        Top::of(access.command("top", &["--every", "100ms"]), 100)
    }

    /// A command on a terminal of 24 lines.
    fn of(mut command: Command, columns: u16) -> Top {
        let (ours, theirs) = terminal(columns);
        let input = theirs.try_clone().unwrap();
        command.env("TERM", "xterm").stdin(input).stdout(theirs).stderr(Stdio::piped());
        let running = Running::start_as_is(command);
        let [high, wide] = [24, columns].map(|size| NonZero::new(size).unwrap());
        Top { running, terminal: ours, seen: vt100::Parser::new(high, wide, 0) }
    }

    fn screen(&self) -> String {
        self.seen.screen().contents()
    }

    /// Reads on. Whether there was anything.
    #[track_caller]
    fn read(&mut self) -> bool {
        let limit = Timespec::try_from(PATIENCE).unwrap();
        let mut wanted = [PollFd::new(&self.terminal, PollFlags::IN)];
        let is_there = poll(&mut wanted, Some(&limit)).unwrap() > 0;
        assert!(is_there, "nothing is drawn any more:\n{}", self.screen());
        let mut chunk = [0; 4096];
        let count = self.terminal.read(&mut chunk).unwrap_or(0);
        self.seen.process(&chunk[..count]);
        count > 0
    }

    /// Reads until the screen is as it should be.
    #[track_caller]
    fn wait(&mut self, is_so: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(&self.screen()) {
            assert!(Instant::now() < deadline, "it is not so:\n{}", self.screen());
            assert!(self.read(), "it has ended:\n{}\n{}", self.screen(), self.running.said());
        }
    }

    fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    /// It ends, and leaves the terminal as it was.
    #[track_caller]
    fn ends(mut self, code: i32) {
        while self.read() {}
        self.running.finish().exits(code);
        let screen = self.seen.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor(), "{:?}", screen.contents());
    }
}

/// A run with a view, whose tasks wait for a gate.
fn watched(site: &Site, out: &str, gate: &Gate) -> Top {
    let script = format!("read line < {}; echo said", gate.path());
    let args = ["run", "--top", "-j", "2", "--out", out, "--range", "1-3", "--", "sh", "-c"];
    let mut command = site.falkon(args);
    command.arg(script);
    Top::of(command, 80)
}

#[trial]
fn a_run_has_the_view_of_top_until_it_ends_or_its_user_closes_it() {
    let site = Site::new();
    let mut gate = site.gate("gate");
    let mut top = watched(&site, "o", &gate);
    let parts = ["executors 1", "CPUs 2 of 2 in use", "running 2", "queued 1", "q quit"];
    top.wait(|screen| parts.iter().all(|part| screen.contains(part)));
    top.press("p");
    top.wait(|screen| screen.contains("instance 0 paused"));
    top.press("p");
    top.wait(|screen| screen.contains("instance 0 resumed"));
    gate.let_through(3);
    top.ends(0);
    assert_eq!(site.read("o/stdout"), "said\n".repeat(3));
    // Closed, it leaves the run alone; Ctrl-C is the run's.
    let mut top = watched(&site, "closed", &gate);
    top.wait(|screen| screen.contains("running 2"));
    top.press("q");
    top.running.wait_for("the view is closed, and the run goes on");
    gate.let_through(3);
    top.ends(0);
    let mut top = watched(&site, "interrupted", &gate);
    top.wait(|screen| screen.contains("running 2"));
    top.press("\x03");
    top.ends(1);
    // Nothing runs without a terminal.
    let refused = site.run(["run", "--top", "--out", "none", "--", "true"]).exits(2);
    refused.says_only(1, "--top needs a terminal");
    assert!(!site.path("none").exists());
}

#[trial]
fn top_shows_what_is_there_and_its_keys_act() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let executor = dispatcher.executor("worker", &["--slots", "2"]);
    access.run("drain", &["worker"]).exits(0);
    access.submit(&["--name", "sw\x1b[2Jeep", "--range", "1-1000000000", "--", "@noop"]);
    let mut top = Top::start(&access);
    let parts = ["sw [2Jeep", " 1000000000 ", "worker", "drained 0 of 2", "q quit"];
    top.wait(|screen| parts.iter().all(|part| screen.contains(part)));
    top.press("p");
    top.wait(|screen| {
        screen.contains("instance 0 paused") && screen.contains(" paused 1000000000 ")
    });
    top.press("w");
    top.wait(|screen| screen.contains("its instance is paused"));
    dispatcher.kill();
    top.wait(|screen| screen.starts_with("no answer, trying again: "));
    dispatcher.start();
    // The executor comes back a moment later.
    top.wait(|screen| screen.starts_with("falkon ") && screen.contains("drained 0 of 2"));
    top.press("\td");
    top.wait(|screen| screen.contains("gets tasks again"));
    top.running.signal(Signal::TERM);
    top.ends(0);
    // Observers look, and nothing else.
    let mut top = Top::start(&dispatcher.access_of("access-observer.json"));
    top.wait(|screen| screen.contains("worker"));
    top.press("p");
    top.wait(|screen| screen.contains("does not allow that"));
    top.press("\x03");
    top.ends(0);
    drop(executor);
}

#[trial]
fn top_refuses_what_is_no_terminal() {
    let site = Site::new();
    site.run(["top"]).exits(2).says_only(1, "needs a terminal; falkon status");
    let (_ours, theirs) = terminal(100);
    let mut command = site.falkon(["top"]);
    let input = theirs.try_clone().unwrap();
    command.env("TERM", "dumb").stdin(input).stdout(theirs).stderr(Stdio::piped());
    let ran = Running::start_as_is(command).finish().exits(2);
    ran.says_only(1, "a terminal of the kind TERM=\"dumb\"");
}
