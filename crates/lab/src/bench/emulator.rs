//! `falkon-lab bench emulate`: many executors in one process, and processes full
//! of them.
//!
//! An emulated executor is a whole one (its own connection, handshake,
//! heartbeats and state), except that it is not alone in its process. Given
//! builtin tasks it starts no process host.

use super::error::BenchError;
use super::services::{EMULATOR, Relays, Services, end};
use clap::Args;
use falkon_cli::access::AccessArgs;
use falkon_cli::machine::hostname;
use falkon_core::task::Resources;
use falkon_data::overflow::OverflowDirectory;
use falkon_executor::{ExecutorError, Link, Options};
use falkon_net::client::Client;
use falkon_net::secure::AccessFile;
use falkon_wire::message::Status;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Descriptors that a process needs beside its connections: standard streams,
/// the event loop, the journal, a client.
const DESCRIPTORS_SPARE: u64 = 64;
/// How long emulated executors may take to join, for each thousand of them.
const JOIN_S_PER_THOUSAND_MAX: u64 = 10;
/// Executors that may be joining when another process of them starts, unless another number
/// is asked for.
pub(crate) const JOINING_MAX: u32 = 10_000;
/// Executors that are started before those that are connecting have a turn. Each of them is
/// meant to speak as soon as it is connected, as one that has a process of its own does.
const STARTED_AT_ONCE: u32 = 16;
/// Pause between two looks at how many have joined.
const JOIN_LOOK_MS: u64 = 200;
/// Listed executors for which it is once as long again.
const JOIN_LOOK_EXECUTORS: u64 = 10_000;
/// Where emulators' addresses begin: each process has one of its own, as if it
/// were a machine of its own. Connections from one address to one port of
/// another need different local ports, of which there are some 28,000, and those
/// of closed connections stay taken for a minute.
const SOURCE_FIRST: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 1);
/// Executors in one process for which local ports are found at once: more would
/// be looked for among many that are taken.
pub(crate) const SHARE_MAX: u32 = 10_000;

/// `falkon-lab bench emulate`
#[derive(Args, Debug)]
pub(crate) struct EmulateArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// Executors in this process
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    executors: u32,
    /// Slots of each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    slots: u32,
    /// Address of this machine to connect from [default: the system's choice]
    #[arg(long, value_name = "ADDRESS")]
    source: Option<IpAddr>,
}

/// Holds executors until this process is ended. They are meant for builtin
/// tasks: all of them share this process's scratch directory.
pub(crate) async fn emulate(args: &EmulateArgs) -> Result<(), BenchError> {
    falkon_cli::machine::raise_open_files();
    let access = args.access.load().map_err(BenchError::Access)?;
    let overflow = OverflowDirectory::create(&std::env::temp_dir())
        .map_err(BenchError::system("make a directory for long output"))?;
    let process = format!("{}:{}", hostname(), std::process::id());
    let mut running = JoinSet::new();
    // Dropping these would not make executors leave, but they are to be told
    // nothing.
    let mut leave = Vec::new();
    for number in 0..args.executors {
        let (leaves, leaving) = oneshot::channel();
        leave.push(leaves);
        running.spawn(falkon_executor::run(
            options(format!("{process}/{number}"), args.slots, &overflow),
            link(&access, args.source),
            leaving,
        ));
        if number % STARTED_AT_ONCE == STARTED_AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
    }
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(BenchError::Executor(error)),
            // An executor that panicked has said so.
            Err(_) => return Err(BenchError::Executor(ExecutorError::Over)),
        }
    }
    Ok(())
}

fn link(access: &AccessFile, source: Option<IpAddr>) -> Link {
    Link::Access { access: Box::new(access.clone()), source }
}

fn options(name: String, slots: u32, overflow: &OverflowDirectory) -> Options {
    Options::new(name, Resources::cpus(slots), std::env::temp_dir(), overflow.clone())
}

/// The most descriptors that one process may have here.
pub(crate) fn descriptors_max() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.maximum.unwrap_or(u64::MAX)
}

/// The most connections that one process may hold here.
pub(crate) fn connections_max() -> u64 {
    descriptors_max().saturating_sub(DESCRIPTORS_SPARE)
}

/// An address of this machine that no emulator has had.
fn next_source() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Ipv4Addr::from_bits(SOURCE_FIRST.to_bits().saturating_add(number))
}

/// Processes full of emulated executors. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Emulators {
    processes: Vec<Child>,
    /// From their start until all executors had joined, in seconds.
    pub(crate) joined_in: f64,
}

impl Emulators {
    /// Starts `executors` of them in `processes` processes, and waits until all
    /// have joined. The dispatcher must have no others.
    pub(crate) async fn start(
        services: &Services,
        client: &Client,
        shape: (u32, u32),
        slots: u32,
    ) -> Result<Emulators, BenchError> {
        Emulators::below(&Relays::default(), services, client, (shape, JOINING_MAX), slots).await
    }

    /// The same below relays, if there are any, so many joining at a time.
    pub(crate) async fn below(
        relays: &Relays,
        services: &Services,
        client: &Client,
        ((executors, processes), joining_max): ((u32, u32), u32),
        slots: u32,
    ) -> Result<Emulators, BenchError> {
        let start = Instant::now();
        let mut emulators = Emulators { processes: Vec::new(), joined_in: 0.0 };
        let allowed = (1 + u64::from(executors) / 1000) * JOIN_S_PER_THOUSAND_MAX;
        let deadline = start + Duration::from_secs(allowed);
        let mut started = 0;
        for number in 0..processes {
            let share = executors / processes + u32::from(number < executors % processes);
            if share == 0 {
                continue;
            }
            // Handshakes of more at a time than this machine keeps up with are given up
            // and begin again.
            let joined = u64::from(started).saturating_sub(joining_max.max(share).into());
            emulators.wait(joined, deadline, services, client).await?;
            started += share;
            let arguments = vec![
                "bench".into(),
                "emulate".into(),
                "--access".into(),
                relays.access_path(services, number).into_os_string(),
                "--executors".into(),
                share.to_string().into(),
                "--slots".into(),
                slots.to_string().into(),
                "--source".into(),
                next_source().to_string().into(),
            ];
            emulators.processes.push(services.spawn(EMULATOR, arguments)?);
        }
        emulators.wait(executors.into(), deadline, services, client).await?;
        emulators.joined_in = start.elapsed().as_secs_f64();
        Ok(emulators)
    }

    /// Waits until so many executors have joined.
    async fn wait(
        &mut self,
        joined: u64,
        deadline: Instant,
        services: &Services,
        client: &Client,
    ) -> Result<(), BenchError> {
        if joined == 0 {
            return Ok(());
        }
        loop {
            let status = client.status(None).await?;
            if nodes(&status) >= joined {
                return Ok(());
            }
            if Instant::now() > deadline || self.has_ended() {
                let log = services.log(EMULATOR);
                return Err(BenchError::Service { what: EMULATOR, log });
            }
            let listed = status.executors.len() as u64;
            let pause = JOIN_LOOK_MS * (1 + listed / JOIN_LOOK_EXECUTORS).min(5);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    fn has_ended(&mut self) -> bool {
        self.processes.iter_mut().any(|process| !matches!(process.try_wait(), Ok(None)))
    }

    /// Their process ids.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.processes.iter().map(Child::id)
    }

    /// Ends all, and waits until the dispatcher has given them up.
    pub(crate) async fn stop(self, client: &Client) -> Result<(), BenchError> {
        drop(self);
        while !client.status(None).await?.executors.is_empty() {
            tokio::time::sleep(Duration::from_millis(JOIN_LOOK_MS)).await;
        }
        Ok(())
    }
}

/// How many executors a dispatcher has, those below relays included.
pub(crate) async fn connected(client: &Client) -> Result<u64, BenchError> {
    Ok(nodes(&client.status(None).await?))
}

fn nodes(status: &Status) -> u64 {
    let connected = status.executors.iter().filter(|executor| executor.connected);
    connected.map(|executor| executor.nodes.unwrap_or(1)).sum()
}

impl Drop for Emulators {
    fn drop(&mut self) {
        for process in &mut self.processes {
            end(process);
        }
    }
}
