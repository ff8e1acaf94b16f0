//! Instances' shares of the executors: the processor time that each uses and has
//! used of late, which decides whose turn it is.
//!
//! Each instance has a level: the processor time that it was given of late,
//! half as much for each [`SHARE_HALF_MICROS`] that have passed since, and what
//! its tasks in flight are expected to take. The instance whose level is lowest
//! goes first. Thereby instances get the same processor time however long their
//! tasks are, and one that cannot use all executors goes first where it can run:
//! shares are max-min fair.
//!
//! A task in flight counts as long as such tasks have run, and
//! [`SHARE_MEMORY_MICROS`] where nobody knows or they run for longer: that is what
//! a slot that is held all the time comes to, so that instances with long tasks
//! share slots, and none takes all that come free. When the task ends, the time
//! that it ran takes that place, at most as long.
//!
//! An instance that comes anew begins where others are served. Who was idle has
//! no claim on the time that others used meanwhile.
//!
//! Where a dispatcher has users, levels of instances compare those of one user; users have
//! levels of their own ([`super::groups`]), which instances' shares are folded into.
//!
//! Somebody may give an instance a priority: then it goes before all of lower priority
//! that run where it runs, whatever their levels.
//!
//! The past is never written down again. What is added now counts more instead,
//! by a factor that doubles in the time that halves the past
//! (forward decay: Cormode et al., ICDE 2009), and the order of levels
//! changes only as they are added to. Only tasks in flight are to be counted
//! anew from time to time, those of instances whose turn it is.

use crate::limits::SHARE_HALF_MICROS;
use crate::task::{Time, UserId};
use std::cmp::Reverse;

/// How long what was used counts on average: a slot that is held for ever has
/// this much processor time in its instance's level. The half-life over ln 2.
pub(super) const SHARE_MEMORY_MICROS: u64 = SHARE_HALF_MICROS * 1_000 / 693;

/// In how many steps the past comes to count half.
const STEPS: u64 = 64;
/// Half-lives after which all levels are written down, so that they stay small.
const EPOCH_HALVES: u64 = 32;

/// An instance's place among the runnable ones: its priority, its level and, of those
/// whose level is the same, the one whose last turn is longest ago first.
pub(super) type TurnKey = (Reverse<i32>, u128, u64);

/// What an instance uses and has used, in thousandths of a processor times
/// microseconds.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// Who has more goes first.
    priority: i32,
    /// What its tasks in flight count.
    in_flight: u128,
    /// What those that ended count, times the factor of the time.
    received: u128,
    /// Its last turn.
    turn: u64,
    /// Its place among the runnable instances, if it is one of them.
    listed: Option<TurnKey>,
    /// The factor that its level was last listed with.
    listed_with: u128,
    /// Whose instance it is.
    user: UserId,
    /// What of it the user's level has.
    folded: Folded,
}

/// What a user's level has of an instance.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Folded {
    /// What its tasks in flight count.
    pub(super) in_flight: u128,
    /// What those that ended count, times the factors of their times.
    pub(super) received: u128,
    /// What its tasks in flight weigh.
    pub(super) usage: u128,
}

impl Share {
    /// Whose instance it is.
    pub(super) fn user(&self) -> UserId {
        self.user
    }

    /// It is a user's, and has used nothing yet.
    pub(super) fn give_to(&mut self, user: UserId) {
        self.user = user;
    }

    /// Folds into its user's level what has come since it was last folded, where its tasks in
    /// flight weigh `usage`: what the level had of it, and what it is to have.
    pub(super) fn fold(&mut self, usage: u128) -> (Folded, Folded) {
        let now = Folded { in_flight: self.in_flight, received: self.received, usage };
        (std::mem::replace(&mut self.folded, now), now)
    }

    /// What its user's level has of it.
    pub(super) fn folded(&self) -> Folded {
        self.folded
    }

    /// Its instance's priority, 0 unless somebody has set it.
    pub(super) fn priority(&self) -> i32 {
        self.priority
    }

    /// Sets the priority. Returns whether that changes anything.
    pub(super) fn prioritize(&mut self, priority: i32) -> bool {
        std::mem::replace(&mut self.priority, priority) != priority
    }

    /// Tasks that weigh so much are sent, each for about so long.
    pub(super) fn send(&mut self, weight: u128, counted_micros: u64) {
        let more = weight.saturating_mul(u128::from(counted_micros));
        self.in_flight = self.in_flight.saturating_add(more);
    }

    /// Tasks that were sent are in flight no longer.
    pub(super) fn take_back(&mut self, weight: u128, counted_micros: u64) {
        let less = weight.saturating_mul(u128::from(counted_micros));
        self.in_flight = self.in_flight.saturating_sub(less);
    }

    /// Tasks that were sent have run for so long each.
    pub(super) fn end(&mut self, weight: u128, counted_micros: u64, micros: u64, factor: u128) {
        self.take_back(weight, counted_micros);
        let micros = u128::from(micros.min(SHARE_MEMORY_MICROS));
        let more = weight.saturating_mul(micros).saturating_mul(factor);
        self.received = self.received.saturating_add(more);
    }

    /// It has ready tasks again, beside others that have received so much. It is
    /// not behind them, or it would have all that comes free until it was given
    /// as much.
    pub(super) fn come(&mut self, received: u128) {
        let more = received.saturating_sub(self.received);
        self.received = self.received.saturating_add(more);
        // Its user has received none of that.
        self.folded.received = self.folded.received.saturating_add(more);
    }

    /// It is its turn, the `turn`-th of all.
    pub(super) fn take_turn(&mut self, turn: u64) {
        self.turn = turn;
    }

    /// What it has received, as it counts now.
    pub(super) fn received(&self) -> u128 {
        self.received
    }

    /// Its place among the runnable instances, noted as listed.
    pub(super) fn list(&mut self, is_runnable: bool, factor: u128) -> Option<TurnKey> {
        if is_runnable {
            self.listed_with = factor;
        }
        self.listed = is_runnable.then(|| self.key());
        self.listed
    }

    /// Its place as it was last listed; `None` if it is not runnable.
    pub(super) fn listed(&self) -> Option<TurnKey> {
        self.listed
    }

    /// Its place as it was last listed, if nothing has changed but the time.
    pub(super) fn key(&self) -> TurnKey {
        (Reverse(self.priority), self.level(self.listed_with), self.turn)
    }

    /// Whether it is listed where it belongs at a time of this factor.
    pub(super) fn is_listed_with(&self, factor: u128) -> bool {
        self.listed_with == factor || self.in_flight == 0
    }

    fn level(&self, factor: u128) -> u128 {
        self.received.saturating_add(self.in_flight.saturating_mul(factor))
    }

    fn write_down(&mut self, halves: u32) {
        self.received = write_down(self.received, halves);
        self.folded.received = write_down(self.folded.received, halves);
    }
}

/// How long each of tasks counts in flight: as long as such tasks have run, else
/// as their user expects.
pub(super) fn counted_micros(measured: Option<u64>, expected: Option<u64>) -> u64 {
    measured.or(expected).unwrap_or(u64::MAX).min(SHARE_MEMORY_MICROS)
}

fn write_down(level: u128, halves: u32) -> u128 {
    level.checked_shr(halves).unwrap_or(0)
}

/// The factor of the time, and the number of the last turn.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Half-lives by which all levels have been written down.
    halves: u64,
    last: u64,
}

impl Turns {
    /// The factor by which processor time counts that is added at this time.
    pub(super) fn factor(&self, now: Time) -> u128 {
        let step = now.0 / (SHARE_HALF_MICROS / STEPS);
        let halves = (step / STEPS).saturating_sub(self.halves).min(2 * EPOCH_HALVES);
        u128::from(STEPS + step % STEPS) << halves
    }

    /// The number of the next turn.
    pub(super) fn take(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// By how many half-lives all levels are to be written down now, if they are.
    pub(super) fn due(&mut self, now: Time) -> Option<WriteDown> {
        let halves = now.0 / SHARE_HALF_MICROS;
        let over = halves.saturating_sub(self.halves);
        if over < EPOCH_HALVES {
            return None;
        }
        self.halves = halves;
        Some(WriteDown(u32::try_from(over).unwrap_or(u32::MAX)))
    }
}

/// The least that those had received whose turn it was of late.
#[derive(Debug, Default)]
pub(super) struct Least {
    /// The factor at the last turn.
    factor: u128,
    /// The least at that factor, and at the one before.
    at: u128,
    before: u128,
}

impl Least {
    /// It is the turn of one that has received so much.
    pub(super) fn note(&mut self, received: u128, factor: u128) {
        if self.factor != factor {
            self.factor = factor;
            self.before = std::mem::replace(&mut self.at, received);
        }
        self.at = self.at.min(received);
    }

    /// What those have received that are served now.
    pub(super) fn received(&self) -> u128 {
        self.at.min(self.before)
    }
}

/// All levels are to be divided by two to this power.
#[derive(Debug, Clone, Copy)]
pub(super) struct WriteDown(u32);

impl WriteDown {
    pub(super) fn share(self, share: &mut Share) {
        share.write_down(self.0);
    }

    pub(super) fn level(self, level: &mut u128) {
        *level = write_down(*level, self.0);
    }

    pub(super) fn least(self, least: &mut Least) {
        self.level(&mut least.at);
        self.level(&mut least.before);
    }
}
