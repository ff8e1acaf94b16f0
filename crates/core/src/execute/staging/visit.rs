//! Objects that somebody puts into the cache by hand, or drops from it.

use super::{Data, Executor};
use crate::data::object::{Object, ObjectId};
use crate::data::stage::{self, CacheState, Changes, Requester, StageError};
use crate::encoded::object_bytes_max;
use crate::execute::Action;
use crate::limits::{CACHE_STATE_MICROS, UPDATE_NAMED_BYTES_MAX, URL_BYTES_MAX, VERSION_BYTES_MAX};
use crate::task::Time;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What somebody wants who is no executor. The shell numbers visits, and uses
/// no number again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Visit {
    /// To put an object here, of the size that it says. If there is room,
    /// [`stage::Action::Adopt`] is to bring it in: for [`Requester::Visit`].
    Put(Arc<Object>),
    /// To have an object dropped.
    Drop(ObjectId),
}

/// How a visit ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VisitEnd {
    /// The object is here.
    Held,
    /// The object is here no longer.
    Dropped,
    /// The object is not here.
    Gone,
    /// The object is here and stays, because something uses it.
    InUse,
    /// The object was not taken; why.
    Refused(String),
}

/// What visitors have to do with a cache.
#[derive(Debug, Default)]
pub(super) struct Visits {
    /// What is being put here.
    open: BTreeMap<u64, Arc<Object>>,
    /// What was put here, as far as it is held.
    placed: BTreeMap<ObjectId, Arc<Object>>,
    /// What the dispatcher is to be told the names of.
    to_name: VecDeque<Arc<Object>>,
    /// How the cache stood when that was last told.
    reported: Option<(Time, CacheState)>,
}

impl Visits {
    /// Adds what the dispatcher cannot know of changes that are to be told.
    /// Names that are too long for one message follow in the next.
    pub(super) fn complete(&mut self, changes: &mut Changes) {
        if changes.anew {
            self.to_name.clear();
        }
        if self.placed.is_empty() {
            return;
        }
        for object in &changes.removed {
            self.placed.remove(object);
        }
        let named = changes.added.iter().filter_map(|(object, _)| self.placed.get(object));
        self.to_name.extend(named.cloned());
        let mut bytes = 0;
        while let Some(object) = self.to_name.front() {
            bytes += object_bytes_max(object, 0);
            if bytes > UPDATE_NAMED_BYTES_MAX {
                break;
            }
            let named = self.to_name.pop_front();
            changes.named.extend(named.map(|object| (*object).clone()));
        }
    }

    /// How the cache stands, if it is to be reported: along with other news, or
    /// after a while.
    pub(super) fn state(
        &mut self,
        now: Time,
        state: CacheState,
        with_news: bool,
    ) -> Option<CacheState> {
        let is_due = self
            .reported
            .is_none_or(|(at, told)| told != state && now.since(at) >= CACHE_STATE_MICROS);
        (is_due || with_news).then(|| {
            self.reported = Some((now, state));
            state
        })
    }
}

impl Executor {
    /// This executor with what was in its cache before a restart, as far as
    /// somebody had put it there by hand: that has a key for its URL, and is
    /// known by its content.
    #[must_use]
    pub fn with_placed(mut self, reused: impl IntoIterator<Item = Object>) -> Executor {
        if let Some(data) = &mut self.data {
            let placed = reused.into_iter().filter(Object::is_placeable);
            data.visits.placed.extend(placed.map(|object| (object.id, Arc::new(object))));
        }
        self
    }

    /// Somebody wants something of the cache.
    pub(in crate::execute) fn visited(&mut self, visit: u64, what: Visit) {
        let now = self.now;
        let end = match &mut self.data {
            None => Some(VisitEnd::Refused("this executor has no cache".to_owned())),
            Some(data) => match what {
                Visit::Put(object) => data.take_in(now, visit, object),
                Visit::Drop(object) => Some(data.drop_object(now, object)),
            },
        };
        if let Some(end) = end {
            // What the stage does for it comes first.
            self.drain_stage();
            self.actions.push_back(Action::VisitEnded(visit, end));
        }
    }

    /// What was put here is held, or is not.
    pub(super) fn finish_put(&mut self, visit: u64, failure: Option<&StageError>) {
        let Some(data) = &mut self.data else { return };
        let Some(object) = data.visits.open.remove(&visit) else { return };
        let end = match failure {
            None => {
                data.visits.placed.insert(object.id, object);
                VisitEnd::Held
            }
            Some(error) => VisitEnd::Refused(error.to_string()),
        };
        self.actions.push_back(Action::VisitEnded(visit, end));
    }
}

impl Data {
    fn take_in(&mut self, now: Time, visit: u64, object: Arc<Object>) -> Option<VisitEnd> {
        if object.url.len() > URL_BYTES_MAX || object.version.len() > VERSION_BYTES_MAX {
            let error = format!(
                "its key is {} bytes, and at most {URL_BYTES_MAX} are kept",
                object.url.len()
            );
            return Some(VisitEnd::Refused(error));
        }
        let size = object.size.unwrap_or(0);
        if !self.stage.cache().holds(object.id) && self.stage.cache().available() < size {
            // It is not to wait for room: outputs of tasks would wait behind it.
            let error = match self.stage.cache().would_fit(&[size]) {
                Err(error) => error,
                Ok(()) => self.stage.cache().occupied(size),
            };
            return Some(VisitEnd::Refused(error.to_string()));
        }
        self.visits.open.insert(visit, object.clone());
        let requester = Requester::Visit(visit);
        self.stage.handle(now, stage::Event::Keep { requester, object, only_here: true });
        None
    }

    fn drop_object(&mut self, now: Time, object: ObjectId) -> VisitEnd {
        let Some(entry) = self.stage.cache().entry(object) else { return VisitEnd::Gone };
        if entry.pins > 0 || !entry.is_held {
            return VisitEnd::InUse;
        }
        self.stage.handle(now, stage::Event::Drop(vec![object]));
        self.visits.placed.remove(&object);
        VisitEnd::Dropped
    }
}
