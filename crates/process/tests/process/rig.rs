//! A host in a runtime, and questions about processes.

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use falkon_process::{Ended, Host, HostLost, HostReceiver, HostSender, Launch, Outcome};
use tokio::runtime::Runtime;

/// Whatever takes this long will not happen any more.
const GIVE_UP: Duration = Duration::from_secs(60);

pub(crate) struct Rig {
    pub(crate) runtime: Runtime,
    pub(crate) sender: HostSender,
    pub(crate) receiver: HostReceiver,
}

impl Rig {
    pub(crate) fn new() -> Rig {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (sender, receiver) = runtime.block_on(Host::start()).unwrap();
        Rig { runtime, sender, receiver }
    }

    pub(crate) fn launch(&mut self, batch: &[Launch]) {
        self.runtime.block_on(self.sender.launch(batch)).unwrap();
    }

    pub(crate) fn kill(&mut self, key: u64, grace: Duration) {
        self.runtime.block_on(self.sender.kill(key, grace));
    }

    pub(crate) fn recv(&mut self) -> Result<Vec<Ended>, HostLost> {
        let mut ended = Vec::new();
        let received =
            async { tokio::time::timeout(GIVE_UP, self.receiver.recv(&mut ended)).await };
        self.runtime.block_on(received).expect("no task has ended for a minute")?;
        Ok(ended)
    }

    /// Runs a batch to its end.
    pub(crate) fn run(&mut self, batch: &[Launch]) -> HashMap<u64, Ended> {
        self.launch(batch);
        let mut all = HashMap::new();
        while all.len() < batch.len() {
            for ended in self.recv().unwrap() {
                assert!(ended.started <= ended.ended);
                assert!(all.insert(ended.key, ended).is_none(), "a task came back twice");
            }
        }
        all
    }

    pub(crate) fn run_one(&mut self, launch: Launch) -> Ended {
        self.run(&[launch]).into_values().next().unwrap()
    }

    pub(crate) fn outcome(&mut self, launch: Launch) -> Outcome {
        self.run_one(launch).outcome
    }

    pub(crate) fn stdout(&mut self, launch: Launch) -> String {
        let ended = self.run_one(launch);
        assert_eq!(ended.outcome, Outcome::Exit(0), "{ended:?}");
        String::from_utf8(ended.stdout.head).unwrap()
    }
}

pub(crate) fn command<const N: usize>(argv: [&str; N]) -> Launch {
    let argv = argv.map(|argument| argument.as_bytes().to_vec()).to_vec();
    Launch { argv, capture_bytes_max: 65_536, ..Launch::default() }
}

pub(crate) fn shell(script: &str) -> Launch {
    command(["/bin/sh", "-c", script])
}

pub(crate) fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < GIVE_UP, "waited for a minute: {what}");
        std::thread::yield_now();
    }
}

/// A mark that only the processes of one test carry in their environment.
pub(crate) struct Mark(String);

impl Mark {
    pub(crate) fn new() -> Mark {
        let mut random = [0; 8];
        getrandom::fill(&mut random).unwrap();
        Mark(format!("{:x}", u64::from_le_bytes(random)))
    }

    pub(crate) fn named(name: &str) -> Mark {
        Mark(name.to_owned())
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    pub(crate) fn on(&self, mut launch: Launch) -> Launch {
        launch.env.push((b"FALKON_TEST_MARK".to_vec(), self.0.clone().into_bytes()));
        launch
    }

    /// The living processes that carry it.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let setting = format!("FALKON_TEST_MARK={}", self.0).into_bytes();
        let carries =
            |pid: &i32| environment(*pid).split(|&byte| byte == 0).any(|one| one == setting);
        all_processes().into_iter().filter(carries).collect()
    }

    pub(crate) fn wait_for(&self, count: usize) {
        until("tasks run", || self.processes().len() == count);
    }

    pub(crate) fn wait_gone(&self) {
        until("no process is left", || self.processes().is_empty());
    }
}

/// The environment of a process; empty if there is none that may be read. While the process executes another
/// program it reads as empty or cut short, so this waits until that has begun.
fn environment(pid: i32) -> Vec<u8> {
    let mut environment = Vec::new();
    until("a program has begun", || {
        let before = place(pid);
        let read = fs::read(format!("/proc/{pid}/environ"));
        let is_readable = read.is_ok();
        environment = read.unwrap_or_default();
        let Some((start, end)) = place(pid).filter(|_| is_readable) else { return true };
        before == Some((start, end)) && end > 0 && end - start == environment.len()
    });
    environment
}

/// The addresses between which a process has its environment, 0 while it executes a program; none
/// if it has ended or is a thread of the kernel.
fn place(pid: i32) -> Option<(usize, usize)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // From the 3rd field on, the state; the 23rd says how much memory it has.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or("0");
    let number = |at: usize| field(at).parse().unwrap_or(0);
    let has_memory = !matches!(field(3), "Z" | "X") && number(23) > 0;
    has_memory.then(|| (number(50), number(51)))
}

fn all_processes() -> Vec<i32> {
    let names = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).collect()
}

/// The living process host that is a child of `parent`.
pub(crate) fn host_of(parent: u32) -> i32 {
    let is_host = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let Some((start, rest)) = stat.rsplit_once(") ") else { return false };
        let mut rest = rest.split(' ');
        let (state, its_parent) = (rest.next(), rest.next());
        start.ends_with("(falkon-host")
            && state != Some("Z")
            && its_parent == Some(&parent.to_string())
    };
    all_processes().into_iter().find(is_host).expect("a process host")
}

pub(crate) fn send(pid: i32, signal: i32) {
    // SAFETY: A system call on plain values.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}
