//! What the tests share: a place to work in, the program as a child process,
//! and waiting for things to happen.
//!
//! Every wait is for an event (output, the end of a process, a line through a
//! named pipe) and has a deadline; what makes no event is polled.

mod client;
mod daemons;
mod left;
mod library;
mod listen;
mod pipes;
mod ran;
mod running;
mod services;
mod watch;

pub(crate) use client::Client;
pub(crate) use daemons::{Daemons, poll_for};
pub(crate) use left::Left;
pub(crate) use library::{CLOCK, DEAD, STUCK};
pub(crate) use listen::{heard_along, listen_in};
pub(crate) use pipes::{Gate, Signals};
pub(crate) use ran::{Ran, indices, json_lines};
pub(crate) use running::Running;
pub(crate) use services::{Access, Dispatcher};
pub(crate) use watch::Watch;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long anything may take on a slow and busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Carried by every process that a test starts, and by their children.
pub(crate) const MARK_VARIABLE: &str = "FALKON_END_TO_END";

/// A directory of a test's own, in which its programs run.
#[derive(Debug)]
pub(crate) struct Site {
    dir: tempfile::TempDir,
    mark: String,
    variables: Vec<(String, String)>,
}

impl Site {
    pub(crate) fn new() -> Site {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = tempfile::Builder::new().prefix("falkon-test-").tempdir().unwrap();
        std::fs::create_dir(dir.path().join("tmp")).unwrap();
        let mark = format!("{}-{number}", std::process::id());
        Site { dir, mark, variables: Vec::new() }
    }

    /// Sets a variable for all programs that are started from now on.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.dir.path().join(name.as_ref())
    }

    /// A path as text, for command lines.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Writes a file and returns its path as text.
    pub(crate) fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), contents).unwrap();
        self.text(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        let bytes = std::fs::read(self.path(name)).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// A program that runs here, cut off from the user's own settings.
    pub(crate) fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.dir.path())
            .env_remove("FALKON_ACCESS")
            .env_remove("CUDA_VISIBLE_DEVICES")
            .env_remove("ROCR_VISIBLE_DEVICES")
            .env_remove("HIP_VISIBLE_DEVICES")
            .env("HOME", self.dir.path())
            .env("FALKON_CONFIG", "")
            .env("XDG_STATE_HOME", self.dir.path().join("state"))
            .env("TMPDIR", self.dir.path().join("tmp"))
            .env(MARK_VARIABLE, &self.mark)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// `falkon` with arguments.
    pub(crate) fn falkon<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_falkon"));
        command.args(args);
        command
    }

    /// Runs `falkon` to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ran {
        self.start(args).finish()
    }

    /// Runs `falkon` to its end, with `input` piped into it.
    pub(crate) fn run_with_input(&self, args: &[&str], input: &[u8]) -> Ran {
        let mut command = self.falkon(args);
        command.stdin(Stdio::piped());
        let mut running = Running::start(command);
        running.feed(input);
        running.finish()
    }

    /// Starts `falkon`.
    pub(crate) fn start<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Running {
        Running::start(self.falkon(args))
    }

    /// The processes that this test has started, directly or not.
    pub(crate) fn left(&self) -> Left<'_> {
        Left::new(&self.mark)
    }

    /// Watches a directory for files whose names hold `part`.
    pub(crate) fn watch(&self, dir: &str, part: &str) -> Watch {
        Watch::new(&self.path(dir), part)
    }

    /// A named pipe that tasks write lines to.
    pub(crate) fn signals(&self, name: &str) -> Signals {
        Signals::new(self.path(name))
    }

    /// A named pipe that tasks read a line from, to be held up until then.
    pub(crate) fn gate(&self, name: &str) -> Gate {
        Gate::new(self.path(name))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // A test that fails must not leave its processes to the others.
        self.left().kill();
    }
}

/// Waits for what makes no event: asks again and again, with short pauses.
#[track_caller]
pub(crate) fn poll(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        // It sleeps because nothing tells of what is asked for.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Numbers that look random and follow from a seed (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// From `FALKON_SEED`, else from the clock. The seed is printed, which the
    /// test harness shows if the test fails.
    pub(crate) fn seeded(what: &str) -> Random {
        let seed = match std::env::var("FALKON_SEED") {
            Ok(seed) => seed.parse().expect("FALKON_SEED is a number"),
            Err(_) => std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64,
        };
        println!("{what}: FALKON_SEED={seed}");
        Random(seed)
    }

    /// Others that follow from the same seed.
    pub(crate) fn lane(&self, number: u64) -> Random {
        let mut lane = Random(self.0 ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
        lane.next();
        lane
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Lets a random time go by: the moment at which something is killed.
    pub(crate) fn moment(&mut self, micros_max: u64) {
        // It sleeps because the moment is to be random; nothing is waited for.
        std::thread::sleep(Duration::from_micros(self.below(micros_max)));
    }
}
