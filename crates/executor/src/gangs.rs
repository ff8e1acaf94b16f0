//! Gangs of which this executor is a node: what processes of theirs find here, and those that
//! other processes of theirs have started here.

mod begin;
mod client;
mod environment;
mod hosts;
mod socket;
mod usage;

pub use begin::{REMOTE_ARGUMENT, remote_main};
pub use client::{GangError, ask};
pub use environment::{GANG_VARIABLE, RSH_PROGRAM};
pub(super) use environment::{ranked_by, without};

use begin::write_key;
use environment::Folder;
use falkon_core::execute::Grant;
use falkon_core::gang::{GangAction, GangKey, GangToken, GangUsage, Member, NodeUsed, RankUsage};
use falkon_core::result::ResourceUsage;
use falkon_core::task::{MILLI, Resources};
use falkon_data::peer::remote::{RemoteEnd, RemoteEnded, RemoteStart, Started};
use falkon_data::peer::{Fetcher, Peer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use socket::{KEY_BYTES, Nodes};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use usage::Gathering;

/// Processes of all gangs on one node, beside the tasks' commands: each holds one of the
/// connections that others fetch objects by, too.
const PROCESSES_MAX: usize = 512;

/// Processes that wait for their gang to be known here.
const WAITING_MAX: usize = 1024;

/// Messages that wait for the driver.
const MESSAGES_MAX: usize = 256;

/// How long a process that nobody wants any more may take to end, in milliseconds: a launcher's
/// proxy ends its ranks meanwhile.
const KILL_GRACE_MS: u64 = 2_000;

/// How long the end of a task's command, or of a node's last process, is held back for what
/// processes used that end with it, in milliseconds.
const GATHER_MS_MAX: u64 = KILL_GRACE_MS + 1_000;

/// How long it may take to read that a process has begun which has ended, in milliseconds.
const ARRIVAL_MS_MAX: u64 = 5_000;

/// A variable of a task's environment, and its value.
type Variable = (Vec<u8>, Vec<u8>);

/// Where it is reported that a process runs, or why it does not.
type Answer = oneshot::Sender<Result<Started, String>>;

/// A process that is asked for.
pub(super) struct Asked {
    pub(super) start: RemoteStart,
    pub(super) answer: Answer,
    /// Another node's process asks for it.
    pub(super) is_for_other: bool,
}

/// Messages for the driver.
pub(super) enum FromGangs {
    /// A process is to be started here.
    Start(Asked),
    /// Nobody wants the process of this launch any more.
    Unwanted(u64),
    /// What a gang used is known as far as it can be, for its task's command of this launch.
    Gathered(u64),
}

/// A process that has begun.
struct Arrived {
    pid: i32,
    pipes: [OwnedFd; 3],
}

/// The processes that are to begin, by their keys.
#[derive(Clone, Default)]
struct Keys(Arc<Mutex<HashMap<[u8; KEY_BYTES], oneshot::Sender<Arrived>>>>);

impl Keys {
    fn add(&self, key: [u8; KEY_BYTES], arrived: oneshot::Sender<Arrived>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, arrived);
    }

    fn take(&self, key: &[u8; KEY_BYTES]) -> Option<oneshot::Sender<Arrived>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key)
    }
}

/// The thread in which streams are carried, until this is dropped.
struct Carrier {
    runtime: tokio::runtime::Handle,
    _stop: oneshot::Sender<()>,
}

impl Carrier {
    fn start() -> std::io::Result<Carrier> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (say, said) = std::sync::mpsc::sync_channel(1);
        // The thread makes its runtime itself: where no thread can be started, there is none to
        // be dropped within the executor's own.
        std::thread::Builder::new().name("falkon-gangs".to_owned()).spawn(move || {
            match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => {
                    let _ = say.send(Ok(runtime.handle().clone()));
                    // The thread ends when the sender is gone.
                    let _ = runtime.block_on(stopped);
                    runtime.shutdown_background();
                }
                Err(error) => drop(say.send(Err(error))),
            }
        })?;
        let runtime = said.recv().map_err(std::io::Error::other)??;
        Ok(Carrier { runtime, _stop: stop })
    }
}

/// A gang that is held here.
struct Held {
    token: GangToken,
    resources: Resources,
    grant: Grant,
    /// How many processes launchers start on each node.
    ranks: u32,
    /// What its processes find in their environment, and where; or why there is none.
    place: Result<Place, String>,
    /// The launches of its processes.
    running: BTreeSet<u64>,
    used: Option<ResourceUsage>,
    index: u32,
    members: Arc<Vec<Member>>,
    /// Usage of the gang's processes on all nodes, as far as this node knows it.
    gathering: Gathering,
    is_over: bool,
}

/// Where a gang's processes reach this executor.
struct Place {
    folder: Folder,
    variables: Vec<Variable>,
    /// Others of its members are on this host.
    shares_host: bool,
    listening: AbortHandle,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// A process that was launched.
struct Launched {
    gang: GangKey,
    /// A process of another node has asked for it.
    is_for_other: bool,
    ended: oneshot::Sender<RemoteEnded>,
}

/// Measurements of a launch that has ended.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) used: Option<ResourceUsage>,
    pub(super) ranks: Vec<RankUsage>,
    /// It ran, and its usage is not known.
    pub(super) is_lost: bool,
}

/// A process that is ready to be launched.
pub(super) struct RemoteLaunch<'a> {
    pub(super) argv: Vec<Vec<u8>>,
    pub(super) variables: &'a [Variable],
    /// A directory for temporary files of its own.
    pub(super) temporary: Option<PathBuf>,
    pub(super) resources: &'a Resources,
    pub(super) grant: &'a Grant,
    pub(super) ranks: u32,
}

/// See the [module](self).
pub(super) struct Gangs {
    /// Where their directories are made.
    places: Vec<PathBuf>,
    carrier: Option<Carrier>,
    held: BTreeMap<GangKey, Held>,
    launched: HashMap<u64, Launched>,
    waiting: Vec<Asked>,
    keys: Keys,
    say: mpsc::Sender<FromGangs>,
    said: mpsc::Receiver<FromGangs>,
    unwanted: mpsc::UnboundedSender<u64>,
    given_up: mpsc::UnboundedReceiver<u64>,
}

impl Gangs {
    /// None yet; directories are made in one of `scratch` and the temporary directory.
    pub(super) fn new(scratch: &Path) -> Gangs {
        let (say, said) = mpsc::channel(MESSAGES_MAX);
        let (unwanted, given_up) = mpsc::unbounded_channel();
        Gangs {
            places: vec![scratch.to_owned(), std::env::temp_dir(), PathBuf::from("/tmp")],
            carrier: None,
            held: BTreeMap::new(),
            launched: HashMap::new(),
            waiting: Vec::new(),
            keys: Keys::default(),
            say,
            said,
            unwanted,
            given_up,
        }
    }

    /// Waits for a message.
    pub(super) async fn recv(&mut self) -> FromGangs {
        tokio::select! {
            Some(said) = self.said.recv() => said,
            Some(launch) = self.given_up.recv() => FromGangs::Unwanted(launch),
            else => std::future::pending().await,
        }
    }

    /// Holds a gang from now on. Returns the processes that waited for it.
    pub(super) fn form(&mut self, form: GangAction, fetcher: Option<Fetcher>) -> Vec<Asked> {
        let GangAction::Form { key, index, resources, grant, ranks_per_node, token, members } =
            form
        else {
            return Vec::new();
        };
        let ranks = match ranks_per_node {
            0 => (resources.cpus_milli / MILLI).max(1),
            ranks => ranks,
        };
        let gathering = Gathering::default();
        let place = self.make_place(key, (index, &gathering), (token, ranks), &members, fetcher);
        let held = Held {
            token,
            resources,
            grant,
            ranks,
            place,
            running: BTreeSet::new(),
            used: None,
            index,
            members,
            gathering,
            is_over: false,
        };
        self.held.insert(key, held);
        let (ready, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition(|asked| asked.start.key == key);
        self.waiting = waiting;
        ready
    }

    fn make_place(
        &mut self,
        key: GangKey,
        (index, gathering): (u32, &Gathering),
        (token, ranks): (GangToken, u32),
        members: &[Member],
        fetcher: Option<Fetcher>,
    ) -> Result<Place, String> {
        let failed =
            |error: std::io::Error| format!("cannot make the gang's directory and socket: {error}");
        let mut name = [0; 4];
        getrandom::fill(&mut name).map_err(|error| error.to_string())?;
        let name = format!("gang-{:08x}", u32::from_le_bytes(name));
        let places: Vec<&Path> = self.places.iter().map(PathBuf::as_path).collect();
        let folder = Folder::make(&places, &name).map_err(failed)?;
        let names = hosts::hosts(members.iter().map(|member| member.name.as_str()));
        let program = std::env::current_exe().map_err(failed)?;
        let variables = folder.fill(&names, ranks, &token, &program).map_err(failed)?;
        let peers = members.iter().map(|member| {
            let fingerprint = <[u8; 32]>::try_from(member.serves.fingerprint.as_slice()).ok();
            let address = member.serves.address.clone();
            (!address.is_empty()).then_some(Peer { address, fingerprint })
        });
        let nodes = Arc::new(Nodes {
            key,
            token,
            own: index as usize,
            hosts: names.into_iter().zip(peers).collect(),
            fetcher,
            keys: self.keys.clone(),
            say: self.say.clone(),
            gathering: gathering.clone(),
        });
        let carrier = match &self.carrier {
            Some(carrier) => carrier,
            None => self.carrier.insert(Carrier::start().map_err(failed)?),
        };
        let listener = std::os::unix::net::UnixListener::bind(folder.socket()).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let listening = carrier.runtime.spawn(async move {
            // Without a socket, who asks is refused by the system.
            if let Ok(listener) = UnixListener::from_std(listener) {
                socket::listen(listener, nodes).await;
            }
        });
        let shares_host = shares_host(index as usize, members);
        Ok(Place { folder, variables, shares_host, listening: listening.abort_handle() })
    }

    /// What a process of a gang finds in its environment, and how many launchers start on each
    /// node; or why it cannot run.
    pub(super) fn environment(&self, key: GangKey) -> Result<(&[Variable], u32), String> {
        let held = self.held.get(&key).ok_or("the executor does not hold the task's gang")?;
        let place = held.place.as_ref().map_err(Clone::clone)?;
        Ok((&place.variables, held.ranks))
    }

    /// A process is to be started. Says as what, if it is, under the key `launch`; it is
    /// answered for otherwise, or waits. `is_for_other` if another node has asked for it.
    pub(super) fn start(
        &mut self,
        Asked { start, answer, is_for_other }: Asked,
        launch: u64,
    ) -> Option<RemoteLaunch<'_>> {
        // Without a receiver, nobody waits any more.
        let refuse = |answer: Answer, reason: &str| drop(answer.send(Err(reason.to_owned())));
        let Some(held) = self.held.get_mut(&start.key) else {
            self.waiting.retain(|asked| !asked.answer.is_closed());
            match self.waiting.len() < WAITING_MAX {
                true => self.waiting.push(Asked { start, answer, is_for_other }),
                false => refuse(answer, "too many processes wait for their gangs there"),
            }
            return None;
        };
        if !start.is_proved(&held.token) {
            refuse(answer, "it was asked for without the gang's token");
            return None;
        }
        let (Some(carrier), Ok(place), false) = (&self.carrier, &held.place, held.is_over) else {
            let reason = held.place.as_ref().err();
            refuse(answer, reason.map_or("the gang is over", String::as_str));
            return None;
        };
        if self.launched.len() >= PROCESSES_MAX {
            refuse(answer, "too many processes of tasks on several nodes run there");
            return None;
        }
        let mut key = [0; KEY_BYTES];
        if let Err(error) = getrandom::fill(&mut key) {
            refuse(answer, &format!("no random numbers: {error}"));
            return None;
        }
        let (arrive, arrived) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        self.keys.add(key, arrive);
        held.running.insert(launch);
        held.gathering.started();
        let launched = Launched { gang: start.key, is_for_other, ended: end };
        self.launched.insert(launch, launched);
        let hold = Hold { launch, unwanted: self.unwanted.clone() };
        let expected = Expected { key, keys: self.keys.clone(), arrived };
        carrier.runtime.spawn(welcome(expected, ended, hold, answer));
        let shell = std::env::var_os("SHELL").filter(|shell| Path::new(shell).is_absolute());
        let text = |text: &str| text.as_bytes().to_vec();
        let argv = vec![
            text("/proc/self/exe"),
            text(REMOTE_ARGUMENT),
            place.folder.socket().into_os_string().into_vec(),
            text(&write_key(&key)),
            OsString::from_vec(start.folder).into_vec(),
            shell.map_or_else(|| text("/bin/sh"), |shell| shell.as_bytes().to_vec()),
            start.command,
        ];
        let (variables, resources) = (&place.variables, &held.resources);
        // Daemons of one job that share such files take each other's.
        let temporary = place.shares_host.then(|| place.folder.path().to_owned());
        let (grant, ranks) = (&held.grant, held.ranks);
        Some(RemoteLaunch { argv, variables, temporary, resources, grant, ranks })
    }

    /// Whether a process is still wanted that is about to be ended, and what it may take for it.
    pub(super) fn unwanted(&self, launch: u64) -> Option<Duration> {
        self.launched.contains_key(&launch).then_some(Duration::from_millis(KILL_GRACE_MS))
    }

    /// A launch has ended. False if it was none of a gang; else the gang is returned if that was
    /// the last of one that is over.
    pub(super) fn ended(
        &mut self,
        launch: u64,
        end: Result<RemoteEnd, String>,
        measured: Measured,
    ) -> Option<Option<(GangKey, Option<ResourceUsage>)>> {
        let Launched { gang, is_for_other, ended } = self.launched.remove(&launch)?;
        let Some(held) = self.held.get_mut(&gang) else {
            // Nobody may wait for it.
            let _ = ended.send(end.into());
            return Some(None);
        };
        held.running.remove(&launch);
        let Measured { used, ranks, is_lost } = measured;
        held.used = ResourceUsage::sum(held.used, used);
        if used.is_some() || is_lost {
            held.gathering.add(NodeUsed { index: held.index, used, is_missing: is_lost, ranks });
        }
        held.gathering.ended();
        // The first member keeps what it knows: it makes the result.
        let hands_over = is_for_other && held.index != 0;
        let gathering = held.gathering.clone();
        match &self.carrier {
            // What the last process here has asked for on other nodes ends with it.
            Some(carrier) if hands_over && held.running.is_empty() && gathering.is_open() => {
                carrier.runtime.spawn(async move {
                    let used = gathering.close(Duration::from_millis(GATHER_MS_MAX)).await;
                    let _ = ended.send(RemoteEnded { end, used });
                });
            }
            _ => {
                let used = if hands_over { gathering.take() } else { Vec::new() };
                let _ = ended.send(RemoteEnded { end, used });
            }
        }
        Some(self.release(gang))
    }

    /// The command of a gang's task has ended, as the end of a launch. Whether what the gang used
    /// is waited for: then [`FromGangs::Gathered`] follows.
    pub(super) fn gathers(&self, key: GangKey, launch: u64) -> bool {
        let Some(held) = self.held.get(&key).filter(|held| !held.is_over) else { return false };
        let Some(carrier) = &self.carrier else { return false };
        if !held.gathering.is_open() {
            return false;
        }
        let (gathering, say) = (held.gathering.clone(), self.say.clone());
        carrier.runtime.spawn(async move {
            gathering.closed(Duration::from_millis(GATHER_MS_MAX)).await;
            // Without a receiver, the executor ends.
            let _ = say.send(FromGangs::Gathered(launch)).await;
        });
        true
    }

    /// What a gang used in all and on each node, when its task's command has ended, which used
    /// `command`, with these ranks. Nothing is known if it never began.
    pub(super) fn usage(
        &self,
        key: GangKey,
        command: Option<ResourceUsage>,
        ranks: Vec<RankUsage>,
    ) -> (Option<ResourceUsage>, Option<Arc<GangUsage>>) {
        let (Some(held), Some(_)) = (self.held.get(&key), command) else { return (command, None) };
        let is_missing = !held.running.is_empty();
        held.gathering.add(NodeUsed { index: held.index, used: command, is_missing, ranks });
        let (all, nodes) = held.gathering.result(&held.members);
        (all, Some(Arc::new(nodes)))
    }

    /// A gang is over: says which launches are to be ended. It is released when they have.
    pub(super) fn disband(&mut self, key: GangKey) -> Vec<(u64, Duration)> {
        self.waiting.retain(|asked| asked.start.key != key);
        let Some(held) = self.held.get_mut(&key) else { return Vec::new() };
        held.is_over = true;
        let grace = Duration::from_millis(KILL_GRACE_MS);
        held.running.iter().map(|launch| (*launch, grace)).collect()
    }

    /// Releases a gang that is over and of which nothing runs; says what it used.
    pub(super) fn release(&mut self, key: GangKey) -> Option<(GangKey, Option<ResourceUsage>)> {
        let Some(held) = self.held.get(&key) else { return Some((key, None)) };
        if !held.is_over || !held.running.is_empty() {
            return None;
        }
        let used = self.held.remove(&key).and_then(|held| held.used);
        Some((key, used))
    }
}

/// Whether other members are on the host of the one at `own`, by where they listen.
fn shares_host(own: usize, members: &[Member]) -> bool {
    let host =
        |member: &Member| member.serves.address.rsplit_once(':').map(|(host, _)| host.to_owned());
    let own_host = members.get(own).and_then(host);
    let mut others = members.iter().enumerate().filter(|(at, _)| *at != own);
    own_host.is_some() && others.any(|(_, other)| host(other) == own_host)
}

/// Says that a process is not wanted any more, when it is dropped.
struct Hold {
    launch: u64,
    unwanted: mpsc::UnboundedSender<u64>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Without a receiver, the executor ends, and the process with it.
        let _ = self.unwanted.send(self.launch);
    }
}

/// A process that is to begin; nobody waits for it any more when this is dropped.
struct Expected {
    key: [u8; KEY_BYTES],
    keys: Keys,
    arrived: oneshot::Receiver<Arrived>,
}

impl Drop for Expected {
    fn drop(&mut self) {
        drop(self.keys.take(&self.key));
    }
}

/// Answers for a process when it has begun, or has ended without.
async fn welcome(
    mut expected: Expected,
    mut ended: oneshot::Receiver<RemoteEnded>,
    hold: Hold,
    mut answer: Answer,
) {
    let started = tokio::select! {
        arrived = &mut expected.arrived => arrived.ok().map(|arrived| (arrived, ended)),
        () = answer.closed() => return,
        end = &mut ended => match end {
            // What ended at once has said that it began, and that may not be read yet.
            Ok(ended @ RemoteEnded { end: Ok(_), .. }) => {
                let limit = Duration::from_millis(ARRIVAL_MS_MAX);
                let arrived = tokio::time::timeout(limit, &mut expected.arrived).await;
                let (say, said) = oneshot::channel();
                drop(say.send(ended));
                arrived.ok().and_then(Result::ok).map(|arrived| (arrived, said))
            }
            Ok(RemoteEnded { end: Err(reason), .. }) => {
                // Without a receiver, nobody wants to know.
                drop(answer.send(Err(reason)));
                return;
            }
            Err(_) => None,
        },
    };
    let started = match started {
        Some((Arrived { pid, pipes }, ended)) => {
            let signal = Box::new(signal_to(pid));
            Ok(Started { pipes, ended, signal, hold: Box::new(hold) })
        }
        None => Err("it ended before it began".to_owned()),
    };
    // Without a receiver, nobody wants it any more: to drop it says so.
    drop(answer.send(started));
}

/// Sends signals to the process group that a process leads, for as long as it has not ended.
fn signal_to(pid: i32) -> impl Fn(u8) + Send + Sync {
    let leader =
        Pid::from_raw(pid).and_then(|pid| Some((pid, pidfd_open(pid, PidfdFlags::empty()).ok()?)));
    move |number| {
        let Some((pid, pidfd)) = &leader else { return };
        let mut look = [PollFd::new(pidfd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let is_there = matches!(poll(&mut look, Some(&now)), Ok(0));
        if let (true, Some(signal)) = (is_there, Signal::from_named_raw(i32::from(number))) {
            // It may end just now, and its number is not in use again so soon.
            let _ = kill_process_group(*pid, signal);
        }
    }
}
