//! The scheduler's answers about a job: from them follows whether the provisioner
//! must know the job.

use falkon_core::provision::JobState;
use falkon_core::provision::limits::{ABSENT_MICROS_MAX, MISSING_ANSWERS_MAX};
use falkon_core::task::Time;

#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Lists in a row that did not name it.
    misses: u32,
    /// Since when.
    since: Time,
    /// By which number the LRM can be asked about it.
    has_number: bool,
    /// The LRM said that it was gone, and has not named it since.
    is_denied: bool,
    /// Nothing that the provisioner has been told in this life is of it.
    is_new: bool,
    is_held: bool,
}

impl Told {
    /// Whether the provisioner need not know of it: the LRM denied it after
    /// lists had left it out, or lists left it out and nobody can be asked, or
    /// they did for so long; or it is from before a restart and was never named.
    pub(crate) fn may_be_unknown(&self, now: Time) -> bool {
        let is_missing = self.misses >= MISSING_ANSWERS_MAX;
        let is_old = now.since(self.since) >= ABSENT_MICROS_MAX;
        self.is_new || self.is_denied || is_missing && (!self.has_number || is_old)
    }

    /// Whether the LRM said that somebody holds it.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// The submission was answered.
    pub(crate) fn number(&mut self) {
        self.has_number = true;
    }

    /// A list names it.
    pub(crate) fn name(&mut self, state: JobState, is_empty: bool, is_asking: bool) {
        let was_unknown = self.is_new || self.is_denied;
        (self.misses, self.is_denied, self.is_new) = (0, false, false);
        self.has_number |= !is_asking;
        match state {
            JobState::Held => self.is_held = is_empty,
            JobState::Unknown => self.is_held &= !was_unknown,
            _ => self.is_held = false,
        }
    }

    /// A list does not name it.
    pub(crate) fn miss(&mut self, now: Time, counts: bool) {
        if !counts {
            self.misses = 0;
            return;
        }
        if self.misses == 0 {
            self.since = now;
        }
        self.misses += 1;
    }

    /// The LRM says, asked about it alone, that it is not there.
    pub(crate) fn deny(&mut self, is_empty: bool) {
        self.is_denied |= is_empty && self.misses >= MISSING_ANSWERS_MAX;
    }

    /// The LRM says, asked about it alone, that it is there.
    pub(crate) fn confirm(&mut self, now: Time, state: JobState) {
        self.since = now;
        self.is_held = state == JobState::Held;
    }

    /// An executor of it has come.
    pub(crate) fn join(&mut self) {
        self.misses = 0;
        self.is_held = false;
    }

    /// The provisioner starts anew; a record has it, perhaps with its number.
    pub(crate) fn restart(&mut self, recorded: Option<bool>) {
        *self = Told::default();
        self.is_new = recorded.is_none();
        self.has_number = recorded == Some(true);
    }
}
