//! Copies of processes that run.
//!
//! A *template* is a program that has done once what takes long, as imports of modules, and then
//! waits for orders at a socket that is its standard input. An order is one packet: settings
//! (`NAME=VALUE` and a NUL, for each), with three descriptors: what the copy writes to, twice, and
//! a pipe for its number. The template forks twice, so that the copy becomes a child of the host's
//! first thread, as all orphans of tasks do. Once that has happened the copy leads a process
//! group, dies with its parent, has the first setting (the one of its task) in its environment in
//! place of the template's, and writes its number to the pipe: 32 bits in the order of this
//! machine. A template that has ended, or that drops an order, closes the pipe.
//!
//! From there on a copy is a task like any other: its slot waits for it, and only its slot.
//!
//! A template need not have been started by the host. A client that is to be copied as it is forks
//! itself three times, each the child of the one before: the first executes `falkon pipe`, the
//! second executes the host, and the third is the template (`python/falkon/_fork.py`). So it is a
//! child of the host's first thread too. The host receives its number and the descriptor of the
//! socket on its command line, and adopts it when the executor launches [`Source::Forked`]: from
//! then on it is a task like any other as well.
//!
//! [`Source::Forked`]: super::Source::Forked

use std::collections::{HashMap, HashSet};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions};

use super::spawn::{Child, reap};
use super::{Outcome, Usage};

/// How long a template may take to answer an order; it does so when it has done what takes long.
pub(super) const ANSWER_MS_MAX: u64 = 30_000;

/// The templates that run, or are about to.
#[derive(Debug, Default)]
pub(super) struct Templates {
    sockets: HashMap<u64, (Arc<OwnedFd>, Option<OwnedFd>)>,
    /// The template that the host was started with, until it is launched.
    given: Option<Given>,
    /// The key that it was launched with.
    adopted: Option<(u64, Pid)>,
}

/// A template that is a child of the host's first thread from the start.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) pid: Pid,
    /// Where it takes orders.
    pub(super) orders: OwnedFd,
}

impl Given {
    /// Reads `PID:FD`, from the command line.
    pub(super) fn read(text: &str) -> Option<Given> {
        let (pid, fd) = text.split_once(':')?;
        let (pid, fd) = (Pid::from_raw(pid.parse().ok()?)?, fd.parse().ok()?);
        Some(Given { pid, orders: super::link::inherited(fd).ok()? })
    }
}

impl Templates {
    pub(super) fn new(given: Option<Given>) -> Templates {
        Templates { given, ..Templates::default() }
    }

    /// The template that the host was started with is launched: copies may be ordered from then
    /// on.
    pub(super) fn adopt(&mut self, key: u64) {
        if let Some(Given { pid, orders }) = self.given.take() {
            self.sockets.insert(key, (Arc::new(orders), None));
            self.adopted = Some((key, pid));
        }
    }

    /// The process of a template that was adopted.
    pub(super) fn adopted(&self, key: u64) -> Option<Pid> {
        self.adopted.filter(|(one, _)| *one == key).map(|(_, pid)| pid)
    }

    /// Makes the socket of a template before it is started: copies may be ordered from then on.
    pub(super) fn prepare(&mut self, key: u64) {
        let pair = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        );
        // Without one the template ends at once, and its copies have none.
        if let Ok((ours, theirs)) = pair {
            self.sockets.insert(key, (Arc::new(ours), Some(theirs)));
        }
    }

    /// The standard input of a template.
    pub(super) fn input(&mut self, key: u64) -> Option<OwnedFd> {
        self.sockets.get_mut(&key)?.1.take()
    }

    /// Where a template takes orders.
    pub(super) fn socket(&self, key: u64) -> Option<Arc<OwnedFd>> {
        self.sockets.get(&key).map(|(ours, _)| Arc::clone(ours))
    }

    /// A task has ended, which may have been a template.
    pub(super) fn ended(&mut self, key: u64) {
        self.sockets.remove(&key);
    }
}

/// Orders a copy with these settings.
pub(super) fn order(
    template: &OwnedFd,
    settings: &[u8],
    fds: [BorrowedFd<'_>; 3],
) -> Result<(), i32> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    // A template that is so far behind is not waited for.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = rustix::net::sendmsg(template, &[IoSlice::new(settings)], &mut ancillary, flags);
    sent.map(drop).map_err(rustix::io::Errno::raw_os_error)
}

/// The number of a copy, once its pipe has something to read.
pub(super) fn number(answer: BorrowedFd<'_>) -> Result<Pid, i32> {
    let mut number = [0; 4];
    match rustix::io::read(answer, &mut number) {
        Ok(4) => Pid::from_raw(i32::from_ne_bytes(number)).ok_or(libc::EPIPE),
        _ => Err(libc::EPIPE),
    }
}

/// The copies that slots wait for, or are about to: the janitor leaves them alone.
#[derive(Debug, Default)]
pub(super) struct Copies {
    awaited: Mutex<Awaited>,
}

#[derive(Debug, Default)]
struct Awaited {
    pids: HashSet<libc::pid_t>,
    /// Copies that were ordered and not adopted yet, whose numbers are unknown.
    ordered: usize,
}

/// The copies, for as long as none is adopted or waited for.
#[derive(Debug)]
pub(super) struct CopiesGuard<'a>(MutexGuard<'a, Awaited>);

impl CopiesGuard<'_> {
    /// Whether a slot waits for this process, or may be about to: a copy may have ended before
    /// its slot reads its number.
    pub(super) fn may_have(&self, pid: Pid) -> bool {
        self.is_any_ordered() || self.0.pids.contains(&pid.as_raw_nonzero().get())
    }

    /// Whether a copy was ordered that is not adopted yet.
    pub(super) fn is_any_ordered(&self) -> bool {
        self.0.ordered > 0
    }
}

/// A copy that was ordered. As long as there is one, the janitor waits for no process that has
/// ended.
#[derive(Debug)]
pub(super) struct Ordered<'a>(&'a Copies);

impl Ordered<'_> {
    /// Takes the copy over, which has answered with its number.
    pub(super) fn adopt(self, pid: Pid) -> Result<Child, i32> {
        self.0.adopt(pid)
    }
}

impl Drop for Ordered<'_> {
    fn drop(&mut self) {
        self.0.lock().ordered -= 1;
    }
}

impl Copies {
    /// The same state as with a copy; the copy is adopted later.
    pub(super) fn expecting(pid: Option<Pid>) -> Copies {
        let pids = pid.map(|pid| pid.as_raw_nonzero().get()).into_iter().collect();
        Copies { awaited: Mutex::new(Awaited { pids, ordered: 0 }) }
    }

    fn lock(&self) -> MutexGuard<'_, Awaited> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps copies from being adopted or waited for.
    pub(super) fn hold(&self) -> CopiesGuard<'_> {
        CopiesGuard(self.lock())
    }

    /// A copy is about to be ordered.
    pub(super) fn expect(&self) -> Ordered<'_> {
        self.lock().ordered += 1;
        Ordered(self)
    }

    /// Takes over a child of the host's first thread, which the janitor leaves alone.
    pub(super) fn adopt(&self, pid: Pid) -> Result<Child, i32> {
        let mut awaited = self.lock();
        let errno = rustix::io::Errno::raw_os_error;
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(errno)?;
        // The child of this process that has answered, as it has not been waited for.
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), look).map_err(errno)?;
        let pid = pid.as_raw_nonzero().get();
        awaited.pids.insert(pid);
        Ok(Child { pid, pidfd, is_copy: true })
    }

    /// Waits for a copy that has ended, or is about to.
    pub(super) fn reap(&self, child: &Child) -> (Outcome, Usage) {
        let mut awaited = self.lock();
        let reaped = reap(child);
        awaited.pids.remove(&child.pid);
        reaped
    }
}
