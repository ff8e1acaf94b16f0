//! Work that is done side by side, and whose results are taken in order.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Lets the threads that have done the pieces of a work hand over what they have
/// in the order of its pieces. So no more than a piece for each thread waits.
#[derive(Debug)]
pub(crate) struct Turns<T, E> {
    state: Mutex<State<T, E>>,
    has_changed: Condvar,
}

#[derive(Debug)]
struct State<T, E> {
    next: u64,
    taker: T,
    failed: Option<E>,
    has_failed: bool,
}

impl<T, E> Turns<T, E> {
    pub(crate) fn new(taker: T) -> Turns<T, E> {
        let state = State { next: 0, taker, failed: None, has_failed: false };
        Turns { state: Mutex::new(state), has_changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<T, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is the turn of piece `number`, and has it taken. After a
    /// failure nothing is taken any more.
    pub(crate) fn take(&self, number: u64, take: impl FnOnce(&mut T) -> Result<(), E>) {
        let mut state = self.lock();
        while state.next != number && !state.has_failed {
            state = self.has_changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if !state.has_failed
            && let Err(error) = take(&mut state.taker)
        {
            (state.failed, state.has_failed) = (Some(error), true);
        }
        state.next += 1;
        drop(state);
        self.has_changed.notify_all();
    }

    /// For a thread that takes turns: if it ends by a panic, nothing waits for
    /// its turn any more.
    pub(crate) fn guard(&self) -> Guard<'_, T, E> {
        Guard(self)
    }

    /// Whether something failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.lock().has_failed
    }

    /// What failed, and whoever takes.
    pub(crate) fn into_inner(self) -> (T, Option<E>, bool) {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        (state.taker, state.failed, state.has_failed)
    }
}

/// See [`Turns::guard`].
#[derive(Debug)]
pub(crate) struct Guard<'a, T, E>(&'a Turns<T, E>);

impl<T, E> Drop for Guard<'_, T, E> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().has_failed = true;
            self.0.has_changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_taken_in_order() {
        let turns = Turns::<Vec<u64>, ()>::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let turns = &turns;
                scope.spawn(move || {
                    for number in (thread..400).step_by(4) {
                        turns.take(number, |taken| {
                            taken.push(number);
                            Ok(())
                        });
                    }
                });
            }
        });
        assert_eq!(turns.into_inner().0, (0..400).collect::<Vec<u64>>());
    }

    #[test]
    fn nothing_is_taken_after_a_failure() {
        let turns = Turns::new(0);
        turns.take(0, |taken| {
            *taken += 1;
            Err("full")
        });
        assert!(turns.has_failed());
        // Nor does anything wait for its turn.
        turns.take(7, |taken| {
            *taken += 1;
            Ok(())
        });
        assert_eq!(turns.into_inner(), (1, Some("full"), true));
    }

    #[test]
    fn nothing_waits_for_a_thread_that_has_ended() {
        let turns = Turns::<(), ()>::new(());
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let _guard = turns.guard();
                panic!("a defect");
            });
            turns.take(1, |()| Ok(()));
            assert!(thread.join().is_err());
        });
        assert_eq!(turns.into_inner(), ((), None, true));
    }
}
