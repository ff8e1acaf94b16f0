//! The records from the executor, and the slots that wait for them.
//!
//! Slots without a task wait here together. When the executor sends something, one of them is
//! woken, reads it, and runs the task itself: handing the task to another thread would cost one
//! more wake-up, which on a virtual machine takes as long as making a process does. While a
//! slot reads, the kernel wakes no other for the same bytes; what comes later wakes another slot.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::host_protocol::{Garbled, Incoming};

const SOCKET: u64 = 0;
const BELL: u64 = 1;

/// The socket wakes one waiting slot, and then none until [`Inbox::watch`].
const SOCKET_FLAGS: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ONESHOT);

/// Where slots wait.
#[derive(Debug)]
pub(super) struct Inbox {
    waiting: OwnedFd,
    reader: Mutex<Reader>,
    bell: OwnedFd,
}

#[derive(Debug)]
struct Reader {
    socket: UnixStream,
    incoming: Incoming,
}

/// Why a slot was woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Woken {
    /// The executor has sent something, or is gone: it is for this slot to [`Inbox::read`].
    Sent,
    /// [`Inbox::ring`] was called, or the system has no memory to wait.
    Rung,
    /// Nothing has happened for as long as it was to wait.
    Late,
}

/// The state of the stream behind the last record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// There may be more.
    More,
    /// The executor is gone.
    End,
}

impl Inbox {
    pub(super) fn new(socket: UnixStream) -> io::Result<Inbox> {
        let waiting = epoll::create(CreateFlags::CLOEXEC)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&waiting, &socket, EventData::new_u64(SOCKET), SOCKET_FLAGS)?;
        // Each ring is an edge, so the counter need not be read.
        let edges = EventFlags::IN | EventFlags::ET;
        epoll::add(&waiting, &bell, EventData::new_u64(BELL), edges)?;
        let reader = Mutex::new(Reader { socket, incoming: Incoming::default() });
        Ok(Inbox { waiting, reader, bell })
    }

    /// Waits for something to do, at most `limit`. Wakes one slot for each event.
    pub(super) fn wait(&self, limit: Option<Duration>) -> Woken {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut event = [const { MaybeUninit::<Event>::uninit() }];
        match epoll::wait(&self.waiting, &mut event, limit.as_ref()) {
            Ok(([], _)) => Woken::Late,
            Ok(([event, ..], _)) if event.data.u64() == SOCKET => Woken::Sent,
            _ => Woken::Rung,
        }
    }

    /// Wakes a waiting slot, or the next one that waits.
    pub(super) fn ring(&self) {
        // Only a counter at its end makes this fail, after longer than any machine lasts.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Reads once and passes on the records that are whole, for a slot that was woken by
    /// [`Woken::Sent`]. No other is until it calls [`Self::watch`].
    pub(super) fn read(
        &self,
        mut take: impl FnMut(&[u8]) -> Result<(), Garbled>,
    ) -> Result<Rest, Garbled> {
        // A panic aborts the host, so a poisoned lock is never met.
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let Reader { socket, incoming } = &mut *reader;
        // The executor's end alone decides whether this could wait.
        match rustix::net::recv(&*socket, incoming.room(), RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Ok(Rest::End),
            Ok((_, count)) => incoming.filled(count),
            Err(Errno::INTR | Errno::WOULDBLOCK) => {}
            Err(_) => return Ok(Rest::End),
        }
        while let Some(record) = incoming.next()? {
            take(record)?;
        }
        Ok(Rest::More)
    }

    /// From now on a slot is woken by records from the executor, unread ones included.
    pub(super) fn watch(&self) {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        // The socket has been there since this was made, which is all that could be wrong.
        let data = EventData::new_u64(SOCKET);
        let _ = epoll::modify(&self.waiting, &reader.socket, data, SOCKET_FLAGS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const SOON: Option<Duration> = Some(Duration::ZERO);

    #[test]
    fn one_slot_reads_and_the_next_is_woken_when_that_one_says_so() {
        let (socket, mut executor) = UnixStream::pair().unwrap();
        let inbox = Inbox::new(socket).unwrap();
        assert_eq!(inbox.wait(SOON), Woken::Late);
        executor.write_all(&[1, 0, 0, 0, 9, 2, 0, 0, 0, 8]).unwrap();
        assert_eq!(inbox.wait(None), Woken::Sent);
        assert_eq!(inbox.wait(SOON), Woken::Late, "one is reading");
        let mut records = Vec::new();
        let mut read = || {
            inbox.read(|record| {
                records.push(record.to_vec());
                Ok(())
            })
        };
        assert_eq!(read(), Ok(Rest::More));
        assert_eq!(read(), Ok(Rest::More), "nothing is there, and nobody waits for it");
        executor.write_all(&[7]).unwrap();
        assert_eq!(inbox.wait(SOON), Woken::Late);
        inbox.watch();
        assert_eq!(inbox.wait(SOON), Woken::Sent);
        assert_eq!(read(), Ok(Rest::More));
        drop(executor);
        inbox.watch();
        assert_eq!(inbox.wait(None), Woken::Sent);
        assert_eq!(read(), Ok(Rest::End));
        assert_eq!(records, [vec![9], vec![8, 7]]);
    }

    #[test]
    fn a_ring_wakes_one_slot_now_or_later() {
        let (socket, _executor) = UnixStream::pair().unwrap();
        let inbox = Inbox::new(socket).unwrap();
        for _ in 0..2 {
            inbox.ring();
            assert_eq!(inbox.wait(SOON), Woken::Rung);
            assert_eq!(inbox.wait(SOON), Woken::Late);
        }
    }
}
