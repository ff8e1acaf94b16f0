//! A dispatcher and executors as processes of their own, started as a user
//! starts them, in a directory of their own.

mod relays;

pub(crate) use relays::Relays;

use super::emulator::connected;
use super::error::BenchError;
use super::processor;
use crate::program::falkon;
use clap::ValueEnum;
use falkon_cli::SecurityLevel;
use falkon_cli::access::connect;
use falkon_net::client::{Client, Deliveries};
use falkon_net::concentrator::CONCENTRATOR_ARGUMENT;
use falkon_net::secure::AccessFile;
use falkon_process::HOST_ARGUMENT;
use rustix::process::{Pid, Signal};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long services may take until they are ready.
const READY_S_MAX: u64 = 30;
/// Pause between two looks at whether they are.
const READY_LOOK_MS: u64 = 5;
/// How long they may take to end before they are killed.
const STOP_S_MAX: u64 = 10;
/// Bytes of a log that are shown when a service is not there.
const LOG_SHOWN_BYTES: usize = 2000;

/// All that takes part in a task, where this process is the client.
pub(crate) const PARTS: [&str; 4] = ["client", "dispatcher", "executor", "process host"];

/// A new directory, removed with everything in it when dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Result<Scratch, BenchError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("falkon-bench-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).map_err(BenchError::system("create a directory"))?;
        Ok(Scratch(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is in the temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What to start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) executors: u32,
    pub(crate) slots: u32,
    pub(crate) security: SecurityLevel,
    pub(crate) journal: bool,
    /// Processes that hold connections for the dispatcher, if their number is
    /// not its own choice.
    pub(crate) concentrators: Option<u32>,
    /// The executors are those of a relay, which lends them to the dispatcher.
    pub(crate) relay: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            executors: 0,
            slots: 0,
            security: SecurityLevel::None,
            journal: true,
            concentrators: None,
            relay: false,
        }
    }
}

/// Running services. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Services {
    /// Executors first: they leave before their dispatcher ends.
    children: Vec<(&'static str, Child)>,
    /// Whose the executors are, if they are not the dispatcher's.
    relays: Relays,
    /// What the dispatcher is started with once more, to go on.
    restart: Vec<OsString>,
    access: AccessFile,
    scratch: Scratch,
}

impl Services {
    /// Starts services, and waits until all executors have joined.
    pub(crate) async fn start(setup: &Setup) -> Result<Services, BenchError> {
        let scratch = Scratch::new()?;
        let dir = scratch.path().join("dispatcher");
        let access_path = dir.join("access.json");
        let mut arguments = vec![
            "start".into(),
            "--listen".into(),
            "127.0.0.1:0".into(),
            "--dir".into(),
            dir.clone().into_os_string(),
            "--security".into(),
            security_name(setup).into(),
        ];
        if !setup.journal {
            arguments.push("--no-journal".into());
        }
        if let Some(count) = setup.concentrators {
            arguments.extend(["--concentrators".into(), count.to_string().into()]);
        }
        // Whatever else it was started with is as it was the last time.
        let mut restart = vec!["start".into(), "--dir".into(), dir.into_os_string()];
        if let Some(count) = setup.concentrators {
            restart.extend(["--concentrators".into(), count.to_string().into()]);
        }
        let mut children =
            vec![("dispatcher", spawn(&scratch, &falkon()?, "dispatcher", arguments)?)];
        let log = |what| BenchError::Service { what, log: log_of(&scratch, what) };
        let deadline = Instant::now() + Duration::from_secs(READY_S_MAX);
        let access = loop {
            if let Ok(access) = AccessFile::load(&access_path) {
                break access;
            }
            if Instant::now() > deadline || has_ended(&mut children) {
                return Err(log("dispatcher"));
            }
            tokio::time::sleep(Duration::from_millis(READY_LOOK_MS)).await;
        };
        let relays = Relays::default();
        let mut services = Services { children, relays, restart, access, scratch };
        if setup.relay {
            services.relays = Relays::start(&services, 1, setup).await?;
        }
        services.add_executors(setup.executors, setup.slots).await?;
        Ok(services)
    }

    /// Starts executors, and waits until there are as many as were started.
    pub(crate) async fn add_executors(&mut self, count: u32, slots: u32) -> Result<(), BenchError> {
        for number in 0..count {
            let access = self.relays.access_path(self, number);
            let arguments = vec![
                "executor".into(),
                "--access".into(),
                access.into_os_string(),
                "--slots".into(),
                slots.to_string().into(),
                "--scratch".into(),
                self.scratch.path().join(format!("executor-{number}")).into_os_string(),
            ];
            let executor = spawn(&self.scratch, &falkon()?, "executor", arguments)?;
            self.children.insert(0, ("executor", executor));
        }
        let deadline = Instant::now() + Duration::from_secs(READY_S_MAX);
        let (client, _deliveries) = self.connect().await?;
        while connected(&client).await? < self.executor_pids().count() as u64 {
            if Instant::now() > deadline || has_ended(&mut self.children) {
                let log = log_of(&self.scratch, "executor");
                return Err(BenchError::Service { what: "executor", log });
            }
            tokio::time::sleep(Duration::from_millis(READY_LOOK_MS)).await;
        }
        Ok(())
    }

    /// Ends all executors.
    pub(crate) fn remove_executors(&mut self) {
        while self.children.len() > 1 {
            let (_, mut executor) = self.children.remove(0);
            end(&mut executor);
        }
    }

    /// Kills the dispatcher and starts it again, with the journal that it left.
    /// Waits until clients are let in.
    pub(crate) async fn kill_dispatcher(&mut self) -> Result<(Client, Deliveries), BenchError> {
        let Some((_, dispatcher)) = self.children.last_mut() else { return self.connect().await };
        // The kill can only fail if it has ended meanwhile.
        let _ = dispatcher.kill();
        let _ = dispatcher.wait();
        *dispatcher = spawn(&self.scratch, &falkon()?, "dispatcher", self.restart.clone())?;
        let deadline = Instant::now() + Duration::from_secs(READY_S_MAX);
        loop {
            match self.connect().await {
                Ok(connected) => return Ok(connected),
                Err(_) if Instant::now() < deadline && !has_ended(&mut self.children) => {}
                Err(_) => {
                    let log = log_of(&self.scratch, "dispatcher");
                    return Err(BenchError::Service { what: "dispatcher", log });
                }
            }
            tokio::time::sleep(Duration::from_millis(READY_LOOK_MS)).await;
        }
    }

    /// Processor time of the processes that hold connections for the
    /// dispatcher, in nanoseconds.
    pub(crate) fn concentrators_nanos(&self) -> u64 {
        self.concentrator_pids().into_iter().map(processor::of).sum()
    }

    /// A client's connection.
    pub(crate) async fn connect(&self) -> Result<(Client, Deliveries), BenchError> {
        Ok(connect(&self.access, None).await?)
    }

    /// Where the access file is.
    pub(crate) fn access_path(&self) -> PathBuf {
        self.scratch.path().join("dispatcher").join("access.json")
    }

    /// Starts this program once more, beside the services. Whoever does ends it.
    pub(crate) fn spawn(
        &self,
        what: &'static str,
        arguments: Vec<OsString>,
    ) -> Result<Child, BenchError> {
        spawn(&self.scratch, Path::new("/proc/self/exe"), what, arguments)
    }

    /// What services of one kind have logged.
    pub(crate) fn log(&self, what: &str) -> String {
        let path = self.scratch.path().join(format!("{what}.log"));
        String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
    }

    /// The executors' processes.
    pub(crate) fn executor_pids(&self) -> impl Iterator<Item = u32> {
        let executors = self.children.len().saturating_sub(1);
        self.children.iter().take(executors).map(|(_, child)| child.id())
    }

    /// The dispatcher's process.
    pub(crate) fn dispatcher_pid(&self) -> u32 {
        self.children.last().map_or(0, |(_, child)| child.id())
    }

    /// The processes that hold connections for the dispatcher.
    pub(crate) fn concentrator_pids(&self) -> Vec<u32> {
        children_of(self.dispatcher_pid(), CONCENTRATOR_ARGUMENT)
    }

    /// Processor time of the executors' process hosts, in nanoseconds. Tasks
    /// do not count.
    pub(crate) fn hosts_nanos(&self) -> u64 {
        self.host_pids().into_iter().map(processor::of).sum()
    }

    /// The executors' process hosts.
    pub(crate) fn host_pids(&self) -> Vec<u32> {
        self.executor_pids().flat_map(|pid| children_of(pid, HOST_ARGUMENT)).collect()
    }

    /// Processor time of all that takes part, in nanoseconds, in the order of
    /// [`PARTS`]. Tasks do not count.
    pub(crate) fn parts_nanos(&self) -> [u64; PARTS.len()] {
        [processor::own(), self.dispatcher_nanos(), self.executors_nanos(), self.hosts_nanos()]
    }

    /// Processor time of all executors, in nanoseconds.
    pub(crate) fn executors_nanos(&self) -> u64 {
        let executors = self.children.split_last().map_or(&[][..], |(_, executors)| executors);
        executors.iter().map(|(_, child)| processor::of(child.id())).sum()
    }

    /// Processor time of the dispatcher, in nanoseconds.
    pub(crate) fn dispatcher_nanos(&self) -> u64 {
        processor::of(self.dispatcher_pid())
    }

    /// Bytes that the journal takes on disk.
    pub(crate) fn journal_bytes(&self) -> u64 {
        let dir = self.scratch.path().join("dispatcher").join("journal");
        let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
        entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len()).sum()
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        self.remove_executors();
        drop(std::mem::take(&mut self.relays));
        for (_, child) in &mut self.children {
            end(child);
        }
    }
}

/// What `--security` takes.
fn security_name(setup: &Setup) -> String {
    let security = setup.security.to_possible_value();
    security.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Asks a service to end, and waits until it has.
pub(crate) fn end(child: &mut Child) {
    // One that has ended and was not waited for is still there to be asked.
    let _ = rustix::process::kill_process(Pid::from_child(child), Signal::TERM);
    let deadline = Instant::now() + Duration::from_secs(STOP_S_MAX);
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > deadline {
            // The kill can only fail if it has ended meanwhile.
            let _ = child.kill();
            let _ = child.wait();
            return;
        }
        std::thread::sleep(Duration::from_millis(READY_LOOK_MS));
    }
}

/// A process full of emulated executors.
pub(crate) const EMULATOR: &str = "emulator";
/// Memory of emulators comes in large pages: what it costs the system to hand out is no part of
/// what is measured.
const EMULATOR_MEMORY: &str = "glibc.malloc.hugetlb=1";

/// Starts a program whose log lies beside its services.
fn spawn(
    scratch: &Scratch,
    program: &Path,
    what: &'static str,
    arguments: Vec<OsString>,
) -> Result<Child, BenchError> {
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(scratch.path().join(format!("{what}.log")))
        .map_err(BenchError::system("create a log file"))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    if what == EMULATOR {
        command.env("GLIBC_TUNABLES", EMULATOR_MEMORY);
    }
    // SAFETY: Between fork and exec one system call on plain values is made.
    unsafe {
        command.pre_exec(|| {
            // What is measured must not outlive the measurement, however that
            // ends.
            let signal = libc::SIGTERM as libc::c_ulong;
            match libc::prctl(libc::PR_SET_PDEATHSIG, signal, 0, 0, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    command.spawn().map_err(BenchError::system("start a service"))
}

/// The children that the first thread of a process has started by executing
/// this program again with `argument`.
fn children_of(pid: u32, argument: &str) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let is_one = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(argument.as_bytes())
    };
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(is_one).collect()
}

fn has_ended(children: &mut [(&'static str, Child)]) -> bool {
    children.iter_mut().any(|(_, child)| !matches!(child.try_wait(), Ok(None)))
}

fn log_of(scratch: &Scratch, what: &str) -> String {
    let bytes = std::fs::read(scratch.path().join(format!("{what}.log"))).unwrap_or_default();
    let shown = &bytes[bytes.len().saturating_sub(LOG_SHOWN_BYTES)..];
    String::from_utf8_lossy(shown).into_owned()
}
