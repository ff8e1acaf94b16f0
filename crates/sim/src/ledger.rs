//! What is known of every task, checked at each step: nothing is lost, nothing
//! runs or ends twice unless something broke.

/// Runs of one task that are counted apart; more count as this many.
const RUNNING_MAX: u8 = 15;
const RUNNING: u8 = 0x0f;
const SUBMITTED: u8 = 0x10;
const STARTED: u8 = 0x20;
const DELIVERED: u8 = 0x40;
/// It ran to its end in a way that is final.
const ENDED: u8 = 0x80;

/// One client's tasks; a byte for each.
#[derive(Debug)]
pub(crate) struct Ledger {
    states: Vec<u8>,
    /// Tasks may be lost and run again.
    faulty: bool,
    /// Two tries of a task may run at the same time.
    speculates: bool,
    pub(crate) totals: Totals,
}

/// How many tasks have come how far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) submitted: u64,
    /// Started at least once.
    pub(crate) started: u64,
    pub(crate) delivered: u64,
    /// Runs that started.
    pub(crate) runs: u64,
}

impl Ledger {
    pub(crate) fn new(tasks: u64, faulty: bool, speculates: bool) -> Ledger {
        let (states, totals) = (vec![0; tasks as usize], Totals::default());
        Ledger { states, faulty, speculates, totals }
    }

    fn all(&mut self, first: u64, count: u64) -> Result<&mut [u8], String> {
        let end = first.saturating_add(count);
        let tasks = self.states.len();
        self.states
            .get_mut(first as usize..end as usize)
            .ok_or_else(|| format!("tasks {first} to {end} of {tasks} turn up"))
    }

    /// Tasks are submitted, perhaps again.
    pub(crate) fn submitted(&mut self, first: u64, count: u64) -> Result<(), String> {
        let mut new = 0;
        for state in self.all(first, count)? {
            new += u64::from(*state & SUBMITTED == 0);
            *state |= SUBMITTED;
        }
        self.totals.submitted += new;
        Ok(())
    }

    /// Tasks start to run.
    pub(crate) fn started(&mut self, first: u64, count: u64) -> Result<(), String> {
        let (faulty, speculates) = (self.faulty, self.speculates);
        let mut new = 0;
        for (at, state) in self.all(first, count)?.iter_mut().enumerate() {
            let task = first + at as u64;
            if *state & SUBMITTED == 0 {
                return Err(format!("task {task} starts before it is submitted"));
            }
            if !faulty && speculates && *state & RUNNING > 1 {
                return Err(format!("three tries of task {task} run at once, and nothing broke"));
            }
            if !faulty && !speculates && *state & STARTED != 0 {
                return Err(format!("task {task} starts twice, and nothing broke"));
            }
            new += u64::from(*state & STARTED == 0);
            let running = ((*state & RUNNING) + 1).min(RUNNING_MAX);
            *state = (*state & !RUNNING) | STARTED | running;
        }
        self.totals.started += new;
        self.totals.runs += count;
        Ok(())
    }

    /// Runs of tasks are over; `ran` says that they ran to their own end, and
    /// were not killed or lost with their node.
    pub(crate) fn stopped(&mut self, first: u64, count: u64, ran: bool) -> Result<(), String> {
        for (at, state) in self.all(first, count)?.iter_mut().enumerate() {
            if *state & RUNNING == 0 {
                return Err(format!("task {} stops, but does not run", first + at as u64));
            }
            *state -= 1;
            if ran {
                *state |= ENDED;
            }
        }
        Ok(())
    }

    /// A client has results; `succeeded` says that the tasks did.
    pub(crate) fn delivered(
        &mut self,
        first: u64,
        count: u64,
        succeeded: bool,
    ) -> Result<(), String> {
        for (at, state) in self.all(first, count)?.iter_mut().enumerate() {
            let task = first + at as u64;
            if *state & DELIVERED != 0 {
                return Err(format!("the result of task {task} is delivered twice"));
            }
            if succeeded && *state & ENDED == 0 {
                return Err(format!("task {task} is said to have succeeded, but never ended"));
            }
            *state |= DELIVERED;
        }
        self.totals.delivered += count;
        Ok(())
    }

    /// Every task has been submitted and delivered, and without faults none
    /// still runs.
    pub(crate) fn complete(&self) -> Result<(), String> {
        for (task, state) in self.states.iter().enumerate() {
            if *state & (SUBMITTED | DELIVERED) != SUBMITTED | DELIVERED {
                return Err(format!("task {task} is lost"));
            }
            // A try that is to be stopped may still run when the other one's result is there.
            if !self.faulty && !self.speculates && *state & RUNNING != 0 {
                return Err(format!("task {task} still runs after its result was delivered"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started() -> Ledger {
        let mut ledger = Ledger::new(3, false, false);
        ledger.submitted(0, 3).unwrap();
        ledger.started(0, 3).unwrap();
        ledger
    }

    #[test]
    fn what_goes_wrong_is_found() {
        let mut ledger = Ledger::new(3, false, false);
        assert!(ledger.submitted(2, 2).is_err());
        assert!(ledger.started(0, 1).unwrap_err().contains("before it is submitted"));
        assert!(started().started(1, 1).unwrap_err().contains("starts twice"));
        assert!(started().delivered(1, 1, true).unwrap_err().contains("never ended"));
        let mut ledger = started();
        ledger.stopped(0, 2, true).unwrap();
        assert!(ledger.stopped(0, 1, true).unwrap_err().contains("does not run"));
        ledger.delivered(0, 1, true).unwrap();
        assert!(ledger.delivered(0, 1, true).unwrap_err().contains("delivered twice"));
        assert!(ledger.complete().unwrap_err().contains("task 1 is lost"));
        ledger.delivered(1, 2, false).unwrap();
        assert!(ledger.complete().unwrap_err().contains("task 2 still runs"));
        ledger.stopped(2, 1, true).unwrap();
        assert_eq!(ledger.complete(), Ok(()));
    }
}
