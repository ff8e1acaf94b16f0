//! A dispatcher whose journal is on a small disk, after any history: what it
//! has can be destroyed while the disk is full, and it accepts work again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use falkon_core::dispatch::{InstanceOptions, Join, Lease, RequestError, Update};
use falkon_core::result::{Captured, Detail, Outcome, Report};
use falkon_core::task::{InstanceId, Range, Resources, Rows, Submission, TaskClass, TaskId, Time};
use falkon_dispatcher::journal::OpenError;
use falkon_dispatcher::pages::PageError;
use falkon_dispatcher::{DispatcherError, Handle, Options, Stopped, StoreError, StoreOptions};
use falkon_net::secure::{FrameReader, FrameWriter, Role, plain};
use falkon_trials::{skip, trial};
use falkon_wire::codec::Wire;
use falkon_wire::message::{FromClient, FromExecutor, Refusal, ToClient, ToExecutor};
use proptest::prelude::*;
use proptest::test_runner::Config;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

const PATIENCE: Duration = Duration::from_secs(120);
const RETRY: Duration = Duration::from_millis(20);
const SLOTS: u32 = 4;

/// A file system of a few MiB; it goes with the value.
struct Disk {
    at: tempfile::TempDir,
}

impl Disk {
    /// `None` without the right to mount one.
    fn mount(mebibytes: u64) -> Option<Disk> {
        let at = tempfile::tempdir().unwrap();
        let size = format!("size={mebibytes}m");
        let mount = ["-t", "tmpfs", "-o", &size, "none"];
        let done = Command::new("mount").args(mount).arg(at.path()).status();
        let may = rustix::process::geteuid().is_root() && done.is_ok_and(|status| status.success());
        may.then_some(Disk { at })
    }

    fn filler(&self) -> PathBuf {
        self.at.path().join("filler")
    }

    /// Others take all that is free but so much.
    fn fill(&self, leave_mebibytes: u64) {
        let free = rustix::fs::statvfs(self.at.path()).unwrap();
        let bytes = (free.f_bavail * free.f_frsize).saturating_sub(leave_mebibytes << 20);
        let mut filler = fs::File::options().append(true).create(true).open(self.filler()).unwrap();
        let _as_much_as_goes = filler.write_all(&vec![0; bytes as usize]);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.at.path()).status();
    }
}

/// One end of a connection, which speaks in messages.
struct Peer {
    reader: FrameReader,
    writer: FrameWriter,
}

impl Peer {
    fn connect(dispatcher: &Handle, role: Role) -> Peer {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (reader, writer) = plain(theirs);
        dispatcher.attach(role, "here", reader, writer);
        let (reader, writer) = plain(ours);
        Peer { reader, writer }
    }

    async fn say(&mut self, message: &impl Wire) {
        self.writer.queue_with(|out| message.encode(out)).unwrap();
        // A dispatcher that was stopped reads nothing more.
        let _ = self.writer.flush().await;
    }

    /// All that comes together; nothing when the connection has ended.
    async fn hear<M: Wire>(&mut self) -> Vec<M> {
        let Ok(Some(batch)) = self.reader.read_batch().await else { return Vec::new() };
        batch.map(|frame| M::from_bytes(frame).unwrap()).collect()
    }
}

/// How many tasks an executor has been given, and whether they may end.
#[derive(Debug, Clone)]
struct Gate {
    given: watch::Sender<u64>,
    open: watch::Sender<bool>,
}

impl Gate {
    fn new() -> Gate {
        Gate { given: watch::Sender::new(0), open: watch::Sender::new(true) }
    }
}

/// Ends all tasks that it is given, each with so much output, once the gate is
/// open.
async fn execute(mut peer: Peer, output_bytes: usize, gate: Gate) {
    let mut open = gate.open.subscribe();
    let join = Join {
        cache: Default::default(),
        lease: Lease::default(),
        gangs: Vec::new(),
        alternatives: Vec::new(),
        serves: None,
        incarnation: 1,
        name: "executor".to_owned(),
        capacity: Resources::cpus(SLOTS),
        held: Vec::new(),
        reports: Vec::new(),
    };
    peer.say(&FromExecutor::Join(join)).await;
    let stdout = Captured {
        head: vec![b'x'; output_bytes],
        total_bytes: output_bytes as u64,
        overflow: None,
        member: None,
    };
    let detail = Arc::new(Detail { stdout, ..Detail::default() });
    let mut number = 0;
    loop {
        let heard = peer.hear::<ToExecutor>().await;
        if heard.is_empty() {
            return;
        }
        for message in heard {
            let ToExecutor::Order(order) = message else { continue };
            for run in order.assign {
                gate.given.send_modify(|given| *given += run.count);
                for task in run.first.0..run.first.0 + run.count {
                    let _ = open.wait_for(|open| *open).await;
                    number += 1;
                    let report = Report {
                        instance: run.instance,
                        first: TaskId(task),
                        count: 1,
                        tries: run.tries,
                        outcome: Outcome::Exit(0),
                        started: Time(0),
                        ended: Time(0),
                        detail: Some(detail.clone()),
                    };
                    let update = Update { number, reports: vec![report], ..Update::default() };
                    peer.say(&FromExecutor::Update(update)).await;
                }
            }
        }
    }
}

struct World {
    journal: PathBuf,
    output_bytes: usize,
    dispatcher: Handle,
    stopped: oneshot::Receiver<Stopped>,
    client: Peer,
    requests: u64,
    gate: Gate,
    lines: watch::Receiver<Vec<String>>,
    /// Instances, with how many tasks were accepted.
    instances: Vec<(InstanceId, u64)>,
}

impl World {
    async fn start(journal: &Path, output_bytes: usize) -> World {
        let (log, lines) = watch::channel(Vec::new());
        let log: falkon_net::Log =
            Arc::new(move |line: &str| log.send_modify(|all| all.push(line.to_owned())));
        let start = || {
            let dir = journal.to_owned();
            let store = StoreOptions { dir, machine_durable: false, salvage: false };
            let (store, log) = (Some(store), log.clone());
            falkon_dispatcher::start(Options {
                store,
                pages: None,
                identity: None,
                events: None,
                keep_micros: None,
                collectors: None,
                control: None,
                log,
            })
        };
        let started = async {
            loop {
                // Threads of the one before may still be at its files.
                match start() {
                    Ok(started) => return started,
                    Err(DispatcherError::Store(
                        StoreError::Open(OpenError::Locked { .. })
                        | StoreError::Pages(PageError::Locked { .. }),
                    )) => {}
                    Err(error) => panic!("{error}"),
                }
                // It sleeps because a lock tells nobody when it is free.
                tokio::time::sleep(RETRY).await;
            }
        };
        let started = tokio::time::timeout(PATIENCE, started).await;
        let (dispatcher, stopped) = started.expect("the one before has ended");
        let (executor, gate) = (Peer::connect(&dispatcher, Role::Executor), Gate::new());
        tokio::spawn(execute(executor, output_bytes, gate.clone()));
        let client = Peer::connect(&dispatcher, Role::Owner);
        let journal = journal.to_owned();
        World {
            journal,
            output_bytes,
            dispatcher,
            stopped,
            client,
            requests: 0,
            gate,
            lines,
            instances: Vec::new(),
        }
    }

    /// Waits until the log says something.
    async fn wait_for(&mut self, text: &str) {
        let said = self.lines.wait_for(|lines| lines.iter().any(|line| line.contains(text)));
        let said = tokio::time::timeout(PATIENCE, said).await.is_ok();
        let lines = &*self.lines.borrow();
        assert!(said, "the log never says {text:?}: {lines:#?}");
    }

    async fn restart(&mut self) {
        self.dispatcher.stop().await;
        let _ = (&mut self.stopped).await;
        let instances = std::mem::take(&mut self.instances);
        *self = World { instances, ..World::start(&self.journal, self.output_bytes).await };
    }

    /// Asks, and waits for the answer.
    async fn ask(&mut self, message: impl FnOnce(u64) -> FromClient) -> ToClient {
        self.requests += 1;
        let request = self.requests;
        self.client.say(&message(request)).await;
        let answer = async {
            loop {
                let heard = self.client.hear::<ToClient>().await;
                assert!(!heard.is_empty(), "the connection has ended");
                let mine = heard.into_iter().find(|message| match message {
                    ToClient::Created { request: of, .. }
                    | ToClient::Accepted { request: of, .. }
                    | ToClient::Done { request: of }
                    | ToClient::Refused { request: of, .. } => *of == request,
                    _ => false,
                });
                if let Some(mine) = mine {
                    return mine;
                }
            }
        };
        let answered = tokio::time::timeout(PATIENCE, answer).await;
        answered.unwrap_or_else(|_| panic!("no answer comes: {:#?}", *self.lines.borrow()))
    }

    async fn create(&mut self) -> bool {
        let options = InstanceOptions { keep_results: true, ..InstanceOptions::default() };
        match self.ask(|request| FromClient::Create { request, options }).await {
            ToClient::Created { instance, .. } => {
                self.instances.push((instance, 0));
                true
            }
            refused => has_no_room(&refused),
        }
    }

    /// Submits tasks with a template that takes so many bytes.
    async fn submit(&mut self, at: usize, count: u64, bytes: usize) -> bool {
        let (instance, first) = self.instances[at];
        let submission = Submission {
            data: None,
            count,
            template: Arc::new(vec![at as u8; bytes]),
            rows: Rows::Computed { factors: vec![Range { start: 0, step: 1, count }], offset: 0 },
            classes: vec![TaskClass { resources: Resources::cpus(1), ..TaskClass::default() }],
            class_runs: vec![(count, 0)],
            names: None,
            after: Vec::new(),
            everywhere: None,
        };
        let first = TaskId(first);
        let submit =
            |request| FromClient::Submit { request, instance, first, client: 1, submission };
        match self.ask(submit).await {
            ToClient::Accepted { .. } => {
                self.instances[at].1 += count;
                true
            }
            refused => has_no_room(&refused),
        }
    }

    async fn destroy(&mut self, at: usize) {
        let (instance, _) = self.instances.remove(at);
        let answer = self.ask(|request| FromClient::Destroy { request, instance }).await;
        assert!(matches!(answer, ToClient::Done { .. }), "{answer:?}");
    }
}

/// False for a refusal for want of room; any other is none that may come.
fn has_no_room(answer: &ToClient) -> bool {
    let is_for_room = matches!(
        answer,
        ToClient::Refused { reason: Refusal::Request(RequestError::NoRoom { .. }), .. }
    );
    assert!(is_for_room, "{answer:?}");
    false
}

#[derive(Debug, Clone)]
enum Step {
    Create,
    Submit {
        at: prop::sample::Index,
        count: u64,
        bytes: usize,
    },
    Destroy(prop::sample::Index),
    /// Others fill the disk but for so many MiB.
    Fill(u64),
    Empty,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        2 => Just(Step::Create),
        8 => (index(), 1..40u64, 0..3_000_000usize)
            .prop_map(|(at, count, bytes)| Step::Submit { at, count, bytes }),
        1 => index().prop_map(Step::Destroy),
        1 => (0..20u64).prop_map(Step::Fill),
        1 => Just(Step::Empty),
        1 => Just(Step::Restart),
    ]
}

async fn play(disk: &Disk, output_bytes: usize, steps: Vec<Step>) {
    let mut world = World::start(&disk.at.path().join("journal"), output_bytes).await;
    let mut refused = 0;
    for step in steps {
        match step {
            Step::Create => refused += u32::from(!world.create().await),
            Step::Submit { at, count, bytes } if !world.instances.is_empty() => {
                let at = at.index(world.instances.len());
                refused += u32::from(!world.submit(at, count, bytes).await);
            }
            // What others take once more than that is theirs to give back.
            Step::Fill(leave) if !disk.filler().exists() => disk.fill(leave),
            Step::Destroy(at) if !world.instances.is_empty() && !disk.filler().exists() => {
                let at = at.index(world.instances.len());
                world.destroy(at).await;
            }
            Step::Empty => {
                let _ = fs::remove_file(disk.filler());
            }
            Step::Restart if !disk.filler().exists() => world.restart().await,
            _ => {}
        }
    }
    let _ = fs::remove_file(disk.filler());
    while !world.instances.is_empty() {
        world.destroy(0).await;
    }
    let accepted = async {
        let mut instances = 0;
        loop {
            if instances == 0 {
                instances += u32::from(world.create().await);
            } else if world.submit(0, 5, 1_000_000).await {
                break;
            }
            // It sleeps because a client asks again after a while, as after any refusal.
            tokio::time::sleep(RETRY).await;
        }
    };
    let accepted = tokio::time::timeout(PATIENCE, accepted).await;
    assert!(accepted.is_ok(), "nothing is accepted any more, after {refused} refusals");
}

#[trial]
fn whatever_has_filled_the_disk_all_can_be_destroyed_and_work_is_accepted_again() {
    if Disk::mount(1).is_none() {
        skip("only root can mount a small disk");
    }
    let history = (56..200u64, 0..400_000usize, prop::collection::vec(step(), 1..80));
    proptest!(Config { cases: 12, ..Config::default() }, |((mebibytes, output, steps) in history)| {
        let disk = Disk::mount(mebibytes).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play(&disk, output, steps));
    });
}

/// Output of a task: that of all that run is more than what the journal has set
/// aside.
const LONG_OUTPUT_BYTES: usize = 3_500_000;

#[trial]
fn a_snapshot_takes_the_place_of_records_for_which_there_is_no_room() {
    let Some(disk) = Disk::mount(128) else {
        skip("only root can mount a small disk");
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut world = World::start(&disk.at.path().join("journal"), LONG_OUTPUT_BYTES).await;
        world.gate.open.send_replace(false);
        assert!(world.create().await && world.create().await);
        let (gone, kept) = (world.instances[0].0, world.instances[1].0);
        // One run of tasks, which the executor is given together.
        assert!(world.submit(0, SLOTS.into(), 1_000).await && world.submit(1, 20, 1_000).await);
        let mut given = world.gate.given.subscribe();
        given.wait_for(|given| *given >= u64::from(SLOTS)).await.unwrap();
        disk.fill(0);
        // Results come for which there is no room, and then a destruction.
        world.gate.open.send_replace(true);
        world.wait_for("waiting until the journal can be written").await;
        world.destroy(0).await;
        world.wait_for("the journal can be written again").await;
        assert!(disk.filler().exists(), "nobody has made room");
        fs::remove_file(disk.filler()).unwrap();
        world.restart().await;
        // Destroyed instances are gone, and the rest is there.
        let seal = |instance| move |request| FromClient::Seal { request, instance };
        let answer = world.ask(seal(gone)).await;
        assert!(matches!(answer, ToClient::Refused { .. }), "{answer:?}");
        let answer = world.ask(seal(kept)).await;
        assert!(matches!(answer, ToClient::Done { .. }), "{answer:?}");
    });
}

#[trial]
fn a_snapshot_has_room_though_others_take_all_that_comes_free() {
    const INSTANCES: usize = 2000;
    const AT_ONCE: usize = 400;
    // Too small for blocks that are allocated ahead of the log.
    let Some(disk) = Disk::mount(72) else {
        skip("only root can mount a small disk");
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut world = World::start(&disk.at.path().join("journal"), 0).await;
        world.gate.open.send_replace(false);
        for _ in 0..INSTANCES {
            assert!(world.create().await);
        }
        for at in [0, AT_ONCE, 2 * AT_ONCE, INSTANCES - 1] {
            assert!(world.submit(at, 1, 1_000_000).await);
        }
        // Their ends take more blocks than the one that the log writes into.
        for _ in 0..(INSTANCES / AT_ONCE - 1) {
            disk.fill(0);
            for _ in 0..AT_ONCE {
                world.destroy(0).await;
            }
        }
        world.wait_for("waiting until the journal can be written").await;
        world.wait_for("the journal can be written again").await;
        disk.fill(0);
        world.restart().await;
        disk.fill(0);
        while !world.instances.is_empty() {
            world.destroy(0).await;
        }
        assert!(!world.create().await, "nobody has made room");
        fs::remove_file(disk.filler()).unwrap();
        let accepted = async {
            while !world.create().await {
                // It sleeps because a client asks again after a while, as after any refusal.
                tokio::time::sleep(RETRY).await;
            }
        };
        let accepted = tokio::time::timeout(PATIENCE, accepted).await;
        assert!(accepted.is_ok(), "nothing is accepted any more");
    });
}

fn main() -> std::process::ExitCode {
    falkon_trials::main()
}
