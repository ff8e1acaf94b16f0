//! The executor's end: starting a host, sending launches, receiving ends, cleaning up.

use std::collections::HashSet;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream as BlockingStream;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::FdFlags;
use rustix::net::Shutdown;
use rustix::process::{Pid, Signal};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::host_protocol::{self, BUFFER_KEPT_BYTES_MAX, ForExecutor, Garbled, Incoming};
use super::{
    Ended, HOST_ARGUMENT, IN_FLIGHT_TASKS_MAX, Kill, Launch, START_MS_MAX, TASK_KEY_VARIABLE, Tail,
    Tailed, groups, orphans,
};

/// How long a new host may take until it answers.
const HOST_READY_MS_MAX: u64 = 10_000;

/// Pause before a full socket is tried again that the event loop cannot watch.
const FULL_RETRY: Duration = Duration::from_millis(10);

/// How long a host may take to end all tasks and itself before it is killed.
const HOST_STOP_MS_MAX: u64 = 10_000;

/// An executor's process host, see the [module](super).
#[derive(Debug)]
pub struct Host;

/// Our end of a socket, which does not block, and the host's.
fn socket_pair() -> Result<(BlockingStream, BlockingStream), HostError> {
    let (ours, theirs) = BlockingStream::pair().map_err(HostError::Prepare)?;
    ours.set_nonblocking(true).map_err(HostError::Prepare)?;
    Ok((ours, theirs))
}

impl Host {
    /// Starts a process host for this process: a child that executes this program again.
    ///
    /// The host inherits the environment, the working directory, the limits and standard error as
    /// they are now, and its tasks inherit them from it. This process becomes a reaper of orphans
    /// (`PR_SET_CHILD_SUBREAPER`), to be able to clean up after a host that was killed.
    ///
    /// Must be called within a tokio runtime with IO and time enabled.
    pub async fn start() -> Result<(HostSender, HostReceiver), HostError> {
        Host::start_within(Duration::from_millis(START_MS_MAX)).await
    }

    /// Starts a host with a limit (see [`Host::start`]). A task whose start hangs for longer than
    /// `limit` in the file system of its working directory, standard input or program has not been
    /// started (`ETIMEDOUT`).
    pub async fn start_within(limit: Duration) -> Result<(HostSender, HostReceiver), HostError> {
        let mut random = [0; 8];
        getrandom::fill(&mut random)
            .map_err(|error| HostError::Prepare(io::Error::other(error)))?;
        let instance = format!("{:016x}", u64::from_le_bytes(random));
        become_reaper()?;
        // Each direction has a socket: on one for both directions, a read would wake the thread
        // that waits at the other end, as there is room again to write.
        let (write, launches) = socket_pair()?;
        let (read, ends) = socket_pair()?;
        let child = Command::new("/proc/self/exe")
            .args([HOST_ARGUMENT, &instance, &limit.as_millis().to_string()])
            .stdin(OwnedFd::from(launches))
            .stdout(OwnedFd::from(ends))
            .spawn()
            .map_err(HostError::Spawn)?;
        Host::connect(Pid::from_child(&child), &instance, write, read).await
    }

    /// The same as [`Host::start`], with a host that is a child of this process already.
    pub async fn take_over(forked: Forked) -> Result<(HostSender, HostReceiver), HostError> {
        become_reaper()?;
        let Forked { pid, instance, write, read } = forked;
        Host::connect(pid, &instance, write, read).await
    }

    async fn connect(
        pid: Pid,
        instance: &str,
        write: BlockingStream,
        read: BlockingStream,
    ) -> Result<(HostSender, HostReceiver), HostError> {
        let control = [&write, &read].map(BlockingStream::try_clone);
        let [launching, ending] = control.map(|socket| socket.map_err(HostError::Prepare));
        let control = [OwnedFd::from(ending?), OwnedFd::from(launching?)];
        let read = UnixStream::from_std(read).map_err(HostError::Prepare)?;
        let shared = Arc::new(Shared {
            pid,
            control,
            instance: instance.to_owned(),
            key_prefix: format!("{TASK_KEY_VARIABLE}={instance}:").into_bytes(),
            in_flight: Mutex::default(),
            stopped: Mutex::default(),
        });
        let sender = HostSender { shared: Arc::clone(&shared), write, unsent: Vec::new(), sent: 0 };
        let mut receiver = HostReceiver {
            shared,
            read,
            incoming: Incoming::default(),
            tailed: Vec::new(),
            closed: false,
            stopping: None,
        };
        let limit = Duration::from_millis(HOST_READY_MS_MAX);
        match tokio::time::timeout(limit, receiver.ready()).await {
            Ok(true) => Ok((sender, receiver)),
            _ => Err(HostError::NotReady),
        }
    }
}

/// Has orphans become children of this process, to be able to clean up after a host that was
/// killed.
fn become_reaper() -> Result<(), HostError> {
    let own = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own))
        .map_err(|error| HostError::Prepare(error.into()))
}

/// A process host that was started before this program was executed, by the process that executed
/// it: it is a child of this process, and has a template as its child ([`Source::Forked`]).
///
/// [`Source::Forked`]: super::Source::Forked
#[derive(Debug)]
pub struct Forked {
    pid: Pid,
    instance: String,
    write: BlockingStream,
    read: BlockingStream,
}

impl Forked {
    /// Reads `PID:INSTANCE:FD:FD` as it stands on the command line: the host's process, what its
    /// tasks' keys start with, and the sockets to it and from it.
    ///
    /// Must be called before this process opens descriptors, at most once.
    ///
    /// # Errors
    /// The text, or what is at these descriptors.
    pub fn read(text: &str) -> Result<Forked, ForkedError> {
        let parts: Vec<&str> = text.split(':').collect();
        let [pid, instance, write, read] = parts[..] else { return Err(ForkedError::Text) };
        let pid = pid.parse().ok().and_then(Pid::from_raw).ok_or(ForkedError::Text)?;
        let socket = |fd: &str| {
            let fd = fd.parse().map_err(|_| ForkedError::Text)?;
            let socket = inherited(fd).map(BlockingStream::from).map_err(ForkedError::Socket)?;
            socket.peer_addr().map_err(ForkedError::Socket)?;
            socket.set_nonblocking(true).map_err(ForkedError::Socket)?;
            Ok(socket)
        };
        Ok(Forked {
            pid,
            instance: instance.to_owned(),
            write: socket(write)?,
            read: socket(read)?,
        })
    }
}

/// Why there is no [`Forked`] host.
#[derive(Debug, thiserror::Error)]
pub enum ForkedError {
    /// The description of the copy is malformed.
    #[error("--forked is for falkon's Python package: it takes PID:INSTANCE:FD:FD")]
    Text,
    /// The descriptor that it names is no socket to it.
    #[error("--forked names no socket: {0}")]
    Socket(#[source] io::Error),
}

/// Takes over a descriptor that this process was executed with, and keeps it from those that it
/// executes.
pub(super) fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    if fd <= 2 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: The command line names it, so it was open before this program's first instruction,
    // and nothing but this call takes such a descriptor over. If it is not open, the first use
    // below says so, and nothing is closed.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::fcntl_setfd(borrowed, FdFlags::CLOEXEC)?;
    // SAFETY: As above, and it is open.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The state that both halves share.
#[derive(Debug)]
struct Shared {
    pid: Pid,
    /// The sockets, to shut them down whatever the halves are doing: first the one that ends come
    /// over, as the host ends all tasks when the other one is closed.
    control: [OwnedFd; 2],
    instance: String,
    key_prefix: Vec<u8>,
    in_flight: Mutex<HashSet<u64>>,
    /// The host has ended, nothing of it is left, and it has been waited for.
    stopped: Mutex<bool>,
}

impl Shared {
    fn in_flight(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the host and all that its tasks left; waits for it. Does nothing the second time.
    fn stop(&self) {
        let mut stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *stopped, true) {
            return;
        }
        // The host takes the end of the stream as the word to stop.
        for socket in &self.control {
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
        let within = |ms| Instant::now() + Duration::from_millis(ms);
        if !orphans::wait_ended(self.pid, within(HOST_STOP_MS_MAX)) {
            let _ = rustix::process::kill_process(self.pid, Signal::KILL);
            orphans::wait_ended(self.pid, within(HOST_STOP_MS_MAX));
        }
        orphans::sweep(self.pid, &self.key_prefix);
        orphans::reap(self.pid, within(0));
        groups::clear(&self.instance);
    }
}

/// Sends tasks to a host. Dropping it, or the [`HostReceiver`], kills all tasks and waits until
/// nothing of them is left, which takes milliseconds unless a process hangs in the kernel.
#[derive(Debug)]
pub struct HostSender {
    shared: Arc<Shared>,
    /// The event loop knows of it only while it is full, or it would wake this process for each
    /// launch that the host reads.
    write: BlockingStream,
    /// Whole records; `sent` bytes of them have gone out.
    unsent: Vec<u8>,
    sent: usize,
}

impl HostSender {
    /// Sends a batch of tasks to be run, all at once: how many run at a time is up to the caller
    /// (and [`RUNNING_TASKS_MAX`](super::RUNNING_TASKS_MAX)).
    ///
    /// On an error none of the batch is launched. A host that is gone is not an error here: its
    /// tasks, and these, come back from [`HostReceiver::recv`] as lost. Cancel safe: the batch
    /// is launched in any case, at the latest with the next call.
    pub async fn launch(&mut self, batch: &[Launch]) -> Result<(), LaunchError> {
        {
            let mut in_flight = self.shared.in_flight();
            if in_flight.len() + batch.len() > IN_FLIGHT_TASKS_MAX {
                return Err(LaunchError::TooMany);
            }
            for (at, launch) in batch.iter().enumerate() {
                if !in_flight.insert(launch.key) {
                    for launch in &batch[..at] {
                        in_flight.remove(&launch.key);
                    }
                    return Err(LaunchError::KeyInUse { key: launch.key });
                }
            }
        }
        for launch in batch {
            host_protocol::put_launch(&mut self.unsent, launch);
        }
        self.flush().await;
        Ok(())
    }

    /// Ends a task: `SIGTERM` to its process group and, if it has not ended after `grace`,
    /// `SIGKILL`; a `grace` of zero is `SIGKILL` at once. A task that has ended, or whose end is
    /// on its way, is left alone. Cancel safe like [`Self::launch`].
    pub async fn kill(&mut self, key: u64, grace: Duration) {
        host_protocol::put_kill(&mut self.unsent, Kill { key, grace });
        self.flush().await;
    }

    /// Takes a task back that waits for another to end (or for a slot): it comes back as not
    /// started, with `ECANCELED`. A task that has started, or has ended, is left alone. Cancel safe
    /// like [`Self::launch`].
    pub async fn take_back(&mut self, key: u64) {
        host_protocol::put_take_back(&mut self.unsent, key);
        self.flush().await;
    }

    /// Asks what a task that was launched has written. The answer comes when it runs, from
    /// [`HostReceiver::take_tailed`]; none comes if it ends before. Cancel safe like
    /// [`Self::launch`].
    pub async fn tail(&mut self, tail: Tail) {
        host_protocol::put_tail(&mut self.unsent, &tail);
        self.flush().await;
    }

    async fn flush(&mut self) {
        while self.sent < self.unsent.len() {
            match (&self.write).write(&self.unsent[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match self.write.try_clone().and_then(UnixStream::from_std) {
                        Ok(full) => drop(full.writable().await),
                        // There is no descriptor or no memory to wait with.
                        Err(_) => tokio::time::sleep(FULL_RETRY).await,
                    }
                }
                // The host is gone; the receiver sees it too.
                Err(_) => break,
            }
        }
        self.unsent.clear();
        self.unsent.shrink_to(BUFFER_KEPT_BYTES_MAX);
        self.sent = 0;
    }
}

impl Drop for HostSender {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

/// Receives the ends of tasks from a host. Dropping it is as dropping the [`HostSender`].
#[derive(Debug)]
pub struct HostReceiver {
    shared: Arc<Shared>,
    read: UnixStream,
    incoming: Incoming,
    /// Answers to [`HostSender::tail`].
    tailed: Vec<Tailed>,
    closed: bool,
    /// The processes that the host left are being killed.
    stopping: Option<JoinHandle<()>>,
}

impl HostReceiver {
    /// Waits for at least one task to end, or one answer to [`HostSender::tail`], and appends all
    /// ends that are there to `ended`.
    ///
    /// When the host is gone, first what it still sent is returned; then everything that it left
    /// running is killed and waited for, by another thread as a process may hang in the kernel, and
    /// from then on this returns [`HostLost`]. Cancel safe.
    pub async fn recv(&mut self, ended: &mut Vec<Ended>) -> Result<(), HostLost> {
        let before = ended.len();
        loop {
            if self.take(ended).is_err() {
                self.closed = true;
            }
            if ended.len() > before || !self.tailed.is_empty() {
                return Ok(());
            }
            if self.closed {
                let shared = Arc::clone(&self.shared);
                let stop = || tokio::task::spawn_blocking(move || shared.stop());
                // A thread that does not start counts as one that has panicked: what is left is killed
                // when this is dropped.
                let _ = self.stopping.get_or_insert_with(stop).await;
                self.stopping = None;
                let mut keys: Vec<u64> = self.shared.in_flight().drain().collect();
                keys.sort_unstable();
                return Err(HostLost { keys });
            }
            self.fill().await;
        }
    }

    /// The answers to [`HostSender::tail`] that have come.
    pub fn take_tailed(&mut self) -> Vec<Tailed> {
        std::mem::take(&mut self.tailed)
    }

    /// Reads once, whatever is there.
    async fn fill(&mut self) {
        match self.read.read(self.incoming.room()).await {
            Ok(0) => self.closed = true,
            Ok(count) => self.incoming.filled(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.closed = true,
        }
    }

    fn take(&mut self, ended: &mut Vec<Ended>) -> Result<(), Garbled> {
        let mut in_flight = self.shared.in_flight();
        while let Some(record) = self.incoming.next()? {
            match host_protocol::read_for_executor(record)? {
                ForExecutor::Ended(one) if in_flight.remove(&one.key) => ended.push(one),
                ForExecutor::Tailed(one) => self.tailed.push(one),
                _ => return Err(Garbled),
            }
        }
        Ok(())
    }

    /// Waits until the host says that it is up; false if it ends or says something else.
    async fn ready(&mut self) -> bool {
        loop {
            match self.incoming.next().map(|record| record.map(host_protocol::read_for_executor)) {
                Ok(Some(record)) => return record == Ok(ForExecutor::Ready),
                Ok(None) if !self.closed => {}
                _ => return false,
            }
            self.fill().await;
        }
    }
}

impl Drop for HostReceiver {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

/// Why a process host could not be started.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The socket or another preparation failed.
    #[error("cannot prepare the process that runs tasks; check the limit on open files")]
    Prepare(#[source] io::Error),
    /// The program could not be executed again.
    #[error(
        "cannot start the process that runs tasks; check the limit on processes and that /proc is \
         mounted"
    )]
    Spawn(#[source] io::Error),
    /// The host was executed but did not answer; its standard error has the reason.
    #[error(
        "the process that runs tasks was started but did not answer; its message is on standard \
         error"
    )]
    NotReady,
}

/// Why a batch was not launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// A task with this key is with the host already, or is in the batch twice.
    #[error(
        "a task with the key {key} is already with the process host; use another key or wait for \
         its end"
    )]
    KeyInUse {
        /// The key.
        key: u64,
    },
    /// More than [`IN_FLIGHT_TASKS_MAX`] tasks would be with the host.
    #[error(
        "more than {IN_FLIGHT_TASKS_MAX} tasks would be with the process host; wait for some to \
         end"
    )]
    TooMany,
}

/// The process host is gone, and with it the tasks that were with it. Nothing of them runs any
/// more; start another host to go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the process that runs tasks has ended and {} tasks were lost with it; start another and run \
     them again",
    .keys.len()
)]
pub struct HostLost {
    /// The keys of the tasks that were launched and whose end was not received, ascending. Some
    /// may have ended before: the host tells of short tasks together, after 4 ms at the latest.
    pub keys: Vec<u64>,
}
