//! What objects without a version are now: asked of the store at each use.

use super::event::{Action, FetchError};
use super::fetch::doubled;
use super::{Requester, Stage, StageError, State, Timer};
use crate::data::limits::{
    UNREACHABLE_PAUSE_MICROS, UNREACHABLE_PAUSE_MICROS_MAX, UNREACHABLE_PAUSES_MAX,
};
use crate::data::object::{Object, ObjectId, Source};
use std::collections::BTreeSet;
use std::sync::Arc;

/// One object that is being asked about.
#[derive(Debug)]
pub(super) struct Resolving {
    object: Arc<Object>,
    /// Who gets the answer.
    asked: BTreeSet<Requester>,
    /// Who came after it was asked for: the answer may be older than they are.
    next: BTreeSet<Requester>,
    in_flight: bool,
    pauses: u32,
}

impl Resolving {
    pub(super) fn forget(&mut self, key: Requester) {
        self.asked.remove(&key);
        self.next.remove(&key);
    }
}

impl Stage {
    /// A task needs to know what an object is.
    pub(super) fn ask_what_it_is(&mut self, key: Requester, object: &Arc<Object>) {
        let id = object.id;
        let known = self.resolving.contains_key(&id);
        let resolving = self.resolving.entry(id).or_insert_with(|| Resolving {
            object: Arc::clone(object),
            asked: BTreeSet::new(),
            next: BTreeSet::new(),
            in_flight: false,
            pauses: 0,
        });
        resolving.next.insert(key);
        if !known {
            self.resolve(id);
        }
    }

    /// Asks the store for all that want to know.
    pub(super) fn resolve(&mut self, object: ObjectId) {
        let Some(resolving) = self.resolving.get_mut(&object).filter(|it| !it.in_flight) else {
            return;
        };
        let next = std::mem::take(&mut resolving.next);
        resolving.asked.extend(next);
        if resolving.asked.is_empty() {
            self.resolving.remove(&object);
            return;
        }
        resolving.in_flight = true;
        self.actions.push_back(Action::Resolve(Arc::clone(&resolving.object)));
    }

    /// [`super::Event::Resolved`].
    pub(super) fn resolved(&mut self, object: ObjectId, now: Result<Arc<Object>, FetchError>) {
        let Some(resolving) = self.resolving.get_mut(&object).filter(|it| it.in_flight) else {
            return;
        };
        resolving.in_flight = false;
        let again = resolving.pauses < UNREACHABLE_PAUSES_MAX;
        let why = match now {
            Ok(new) | Err(FetchError::Changed(new)) => return self.has_become(object, &new),
            Err(FetchError::Busy | FetchError::Unreachable(_)) if again => {
                let pauses = resolving.pauses;
                resolving.pauses += 1;
                let pause = doubled(UNREACHABLE_PAUSE_MICROS, pauses, UNREACHABLE_PAUSE_MICROS_MAX);
                let at = self.jitter(pause);
                self.timers.insert((at, Timer::Resolve(object)));
                return;
            }
            Err(why) => why,
        };
        let url = Arc::clone(&resolving.object.url);
        resolving.pauses = 0;
        for key in std::mem::take(&mut resolving.asked) {
            let (url, tried) = (Arc::clone(&url), vec![(Source::Store, why.clone())]);
            self.fail(key, StageError::Unobtainable { object, url, tried });
        }
        self.resolve(object);
    }

    fn has_become(&mut self, old: ObjectId, new: &Arc<Object>) {
        let Some(resolving) = self.resolving.get_mut(&old) else { return };
        resolving.pauses = 0;
        let asked = std::mem::take(&mut resolving.asked);
        for key in asked {
            self.replace_input(key, old, new);
            let Some(task) = self.tasks.get_mut(&key) else { continue };
            task.unresolved = task.unresolved.saturating_sub(1);
            if task.unresolved == 0 && task.state == State::Resolving {
                self.enqueue(key);
            }
        }
        self.resolve(old);
    }
}
