//! Alternatives: a class whose tasks may be placed in several ways, each a request for resources
//! of its own. The first that an executor has room for is chosen when a task is sent there.
//!
//! Executors know nothing of the choice. A submission's template is sent to them with the classes
//! of the submission and, behind these, one class for each alternative
//! ([`Submission::sent_classes`]). An assigned task names the class of its alternative.

use super::{Kind, Resources, Submission, TaskClass};
use crate::encoded::Encoded;
use crate::limits::ALTERNATIVES_MAX;

impl TaskClass {
    /// The requests for resources that each task may be placed with, the preferred first.
    pub fn requests(&self) -> impl Iterator<Item = &Resources> {
        std::iter::once(&self.resources).chain(&self.alternatives)
    }

    /// Whether its tasks have several alternatives.
    #[must_use]
    pub fn has_alternatives(&self) -> bool {
        !self.alternatives.is_empty()
    }

    /// Whether its tasks may have the alternatives that they do: each is another request, of
    /// known size, for one executor that the dispatcher chooses.
    fn has_sound_alternatives(&self) -> bool {
        if !self.has_alternatives() {
            return self.alternative as usize <= ALTERNATIVES_MAX;
        }
        let is_known = |request: &Resources| !request.are_automatic();
        let is_other =
            |(at, request)| self.requests().take(at).all(|before: &Resources| before != request);
        self.alternative == 0
            && self.alternatives.len() < ALTERNATIVES_MAX
            && self.kind != Kind::Noop
            && !self.is_gang()
            && !self.speculate
            && self.requests().all(is_known)
            && self.requests().enumerate().all(is_other)
    }

    /// The classes of its alternatives, as executors get them.
    fn alternative_classes(&self) -> impl Iterator<Item = TaskClass> {
        let requests = self.requests().filter(|_| self.has_alternatives());
        (1..).zip(requests).map(|(alternative, request)| {
            let (resources, alternatives) = (request.clone(), Vec::new());
            TaskClass { resources, alternatives, alternative, ..self.clone() }
        })
    }
}

impl Submission {
    /// Whether any of its tasks have several alternatives.
    #[must_use]
    pub fn has_alternatives(&self) -> bool {
        self.classes.iter().any(TaskClass::has_alternatives)
    }

    /// Whether its classes may have the alternatives that they do.
    pub(super) fn has_sound_alternatives(&self) -> bool {
        self.classes.iter().all(TaskClass::has_sound_alternatives)
            && (self.everywhere.is_none() || !self.has_alternatives())
    }

    /// The classes that executors get with its template: its own, and behind them those of the
    /// alternatives of each, in order.
    #[must_use]
    pub fn sent_classes(&self) -> Vec<TaskClass> {
        let mut classes = self.classes.clone();
        if self.has_alternatives() {
            classes.extend(self.classes.iter().flat_map(TaskClass::alternative_classes));
            classes.iter_mut().for_each(|class| class.alternatives = Vec::new());
        }
        classes
    }

    /// The most bytes that [`Submission::sent_classes`] takes beside the submission's own.
    pub(super) fn alternatives_bytes(&self) -> u64 {
        let classes = self.classes.iter().flat_map(TaskClass::alternative_classes);
        classes.map(|class| class.encoded_bytes()).sum()
    }
}
