//! The order in which the host sends its records to the executor.
//!
//! Each record wakes the executor, and every process behind it. So the end of a short task is held
//! back while its slot has more to do than the next task: it goes with the ends that follow, at the
//! latest after [`HELD_US_MAX`]. As soon as a slot begins with the last task that it has, or on
//! request, all that is held back is sent.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Results that wait to be sent; over this, slots wait before they take another task.
const OUTBOX_BYTES_MAX: usize = 64 << 20;

/// How long an end may be held back.
pub(super) const HELD_US_MAX: u64 = 4_000;

/// How long a task may have run for its end to be held back: with longer ones too few ends come
/// together to be worth it.
pub(super) const HELD_TASK_US_MAX: u64 = HELD_US_MAX / 2;

/// Results that may be held back.
const HELD_BYTES_MAX: usize = 64 << 10;

/// The records that wait to be sent. A thread that sends while no other one writes, writes until
/// all are sent.
#[derive(Debug)]
pub(super) struct Outbox {
    socket: UnixStream,
    state: Mutex<State>,
    room: Condvar,
}

#[derive(Debug, Default)]
struct State {
    bytes: Vec<u8>,
    writing: bool,
}

/// The treatment of an end that could be held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deferral {
    /// The end is the first one: its slot must send it in time.
    First,
    /// The end goes with others, whose time has begun.
    Behind,
    /// The end was sent, as there was too much.
    Not,
}

impl Outbox {
    pub(super) fn new(socket: UnixStream) -> Outbox {
        Outbox { socket, state: Mutex::default(), room: Condvar::new() }
    }

    /// Sends what `put` appends, with all that is held back, now or together with what another
    /// thread is sending.
    pub(super) fn send(&self, put: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.lock_with_room();
        put(&mut state.bytes);
        self.write(state);
    }

    /// Puts what `put` appends to what is to be sent soon.
    pub(super) fn hold(&self, put: impl FnOnce(&mut Vec<u8>)) -> Deferral {
        let mut state = self.lock_with_room();
        // While another thread writes, it takes along what comes.
        let first = state.bytes.is_empty() && !state.writing;
        put(&mut state.bytes);
        if state.bytes.len() > HELD_BYTES_MAX {
            self.write(state);
            return Deferral::Not;
        }
        if first { Deferral::First } else { Deferral::Behind }
    }

    /// Sends what is held back.
    pub(super) fn flush(&self) {
        self.write(self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_with_room(&self) -> MutexGuard<'_, State> {
        let full = |state: &mut State| state.bytes.len() > OUTBOX_BYTES_MAX;
        self.room.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner)
    }

    fn write<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        if state.writing {
            return;
        }
        state.writing = true;
        while !state.bytes.is_empty() {
            let bytes = std::mem::take(&mut state.bytes);
            drop(state);
            // Slots wait only for that much; otherwise the system call would be for nothing.
            if bytes.len() > OUTBOX_BYTES_MAX {
                self.room.notify_all();
            }
            // If the executor is gone, the reader has seen it too and the results are of no use.
            let _ = (&self.socket).write_all(&bytes);
            state = self.lock();
        }
        state.writing = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_is_held_back_goes_with_what_is_sent_and_is_never_too_much() {
        let (socket, mut other) = UnixStream::pair().unwrap();
        other.set_nonblocking(true).unwrap();
        let outbox = Outbox::new(socket);
        let mut received = || {
            let mut bytes = vec![0; 2 * HELD_BYTES_MAX];
            let count = other.read(&mut bytes).unwrap_or(0);
            bytes.truncate(count);
            bytes
        };
        assert_eq!(outbox.hold(|out| out.push(1)), Deferral::First);
        assert_eq!(outbox.hold(|out| out.push(2)), Deferral::Behind);
        assert!(received().is_empty());
        outbox.send(|out| out.push(3));
        assert_eq!(received(), [1, 2, 3]);
        assert_eq!(outbox.hold(|out| out.push(4)), Deferral::First);
        outbox.flush();
        assert_eq!(received(), [4]);
        outbox.flush();
        assert!(received().is_empty());
        assert_eq!(outbox.hold(|out| out.resize(HELD_BYTES_MAX, 5)), Deferral::First);
        assert!(received().is_empty());
        assert_eq!(outbox.hold(|out| out.push(5)), Deferral::Not);
        assert_eq!(received(), vec![5; HELD_BYTES_MAX + 1]);
    }
}
