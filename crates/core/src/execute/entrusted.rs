//! What other executors have staged and hand over, because this one collects for them:
//! it waits until there is room, is staged, and is written with what is staged here.

use super::collecting::SafeMembers;
use super::pace::Pacing;
use super::{Action, CollectAction, Executor};
use crate::archive::split_member;
use crate::collect::{self, ItemId, OwnerId, WAITED_TOO_LONG};
use crate::data::declared::Pace;
use crate::limits::{COLLECT_OFFERED_ARCHIVES_MAX, URL_BYTES_MAX};
use crate::task::Time;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What another executor hands over. Numbers are the shell's, and never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OfferId(pub u64);

/// An archive of outputs that another executor has.
#[derive(Debug)]
struct Offer {
    archive: Arc<str>,
    bytes: u64,
    /// Since when the oldest output waits.
    since: Time,
    /// It is of a cancelled task, and written at once.
    is_urgent: bool,
}

/// See the [module](self). Few executors collect for others: the rest take no room for it.
#[derive(Debug)]
pub(super) struct Entrusted {
    delay_micros_max: u64,
    begun: Option<Box<Begun>>,
}

/// What there is from the first offer on.
#[derive(Debug, Default)]
struct Begun {
    /// Those for which there is no room yet.
    waiting: VecDeque<(OfferId, Offer)>,
    /// Those on their way, each to its file.
    coming: BTreeMap<OfferId, (ItemId, Offer)>,
    coming_bytes: u64,
    /// Whether they come as fast as they are handed over.
    pacing: Pacing,
    /// Those that are staged.
    staged: BTreeMap<OwnerId, OfferId>,
}

impl Entrusted {
    /// Outputs wait for so long at most.
    pub(super) fn new(delay_micros_max: u64) -> Entrusted {
        Entrusted { delay_micros_max, begun: None }
    }

    fn begin(&mut self) -> &mut Begun {
        let pacing = || Pacing::new(self.delay_micros_max);
        self.begun.get_or_insert_with(|| Box::new(Begun { pacing: pacing(), ..Begun::default() }))
    }

    /// Whether this executor keeps up, if it has something to say of that.
    pub(super) fn take_pace(&mut self) -> Option<Pace> {
        self.begun.as_mut()?.pacing.take_news()
    }

    /// Whether it has.
    pub(super) fn has_pace(&self) -> bool {
        self.begun.as_ref().is_some_and(|begun| begun.pacing.has_news())
    }

    /// A session begins.
    pub(super) fn tell_anew(&mut self) {
        if let Some(begun) = &mut self.begun {
            begun.pacing.forget();
        }
    }

    /// Whether nothing waits or is on its way.
    pub(super) fn is_empty(&self) -> bool {
        let begun = self.begun.as_ref();
        begun.is_none_or(|begun| begun.waiting.is_empty() && begun.coming.is_empty())
    }
}

impl Executor {
    pub(super) fn offered(
        &mut self,
        offer: OfferId,
        archive: Arc<str>,
        bytes: u64,
        waited_micros: u64,
    ) {
        // A name of a member tells whether it could be that of an archive.
        let is_sound = archive.len() <= URL_BYTES_MAX
            && archive.starts_with('/')
            && split_member(&format!("{archive}!m")).is_some_and(|(found, _)| found == &*archive);
        let error = match () {
            () if self.is_leaving() => "the executor leaves",
            () if !is_sound => "it is for no archive that an executor writes",
            () if self.entrusted.begin().waiting.len() >= COLLECT_OFFERED_ARCHIVES_MAX => {
                "too many others wait"
            }
            () => {
                let since = Time(self.now.0.saturating_sub(waited_micros));
                let is_urgent = waited_micros == WAITED_TOO_LONG;
                let one = Offer { archive, bytes, since, is_urgent };
                self.entrusted.begin().waiting.push_back((offer, one));
                return self.accept_offers();
            }
        };
        self.answer_offer(offer, Err(error.to_owned()));
    }

    /// Has as much of what is offered come here as there is room for.
    pub(super) fn accept_offers(&mut self) {
        while let Some(begun) = &mut self.entrusted.begun
            && let Some((_, first)) = begun.waiting.front()
        {
            let bytes = begun.coming_bytes.saturating_add(first.bytes);
            let is_alone = begun.coming.is_empty() && self.collecting.is_empty();
            if !is_alone && !self.collecting.has_room(bytes) {
                if !self.collecting.takes_room_of(first.bytes) {
                    return;
                }
                // What is staged here is written, and the next file's members come meanwhile.
                self.flush_collector();
                continue;
            }
            let Some((offer, one)) = begun.waiting.pop_front() else { return };
            let item = self.collecting.new_item();
            begun.coming_bytes = bytes;
            begun.coming.insert(offer, (item, one));
            begun.pacing.note(self.now, true);
            self.actions.push_back(Action::Collect(CollectAction::Accept { offer, item }));
        }
    }

    /// What was offered is staged, or is not.
    pub(super) fn received(&mut self, offer: OfferId, result: Result<u64, String>) {
        let begun = self.entrusted.begin();
        let Some((item, one)) = begun.coming.remove(&offer) else { return };
        begun.coming_bytes -= one.bytes;
        begun.pacing.note(self.now, !begun.coming.is_empty());
        let free = match result {
            Ok(free) => free,
            Err(error) => {
                self.answer_offer(offer, Err(error));
                return self.accept_offers();
            }
        };
        let owner = self.collecting.new_owner();
        self.entrusted.begin().staged.insert(owner, offer);
        let Offer { archive, bytes, since, is_urgent } = one;
        let waited_micros = if is_urgent { WAITED_TOO_LONG } else { self.now.since(since) };
        self.handle_collector(collect::Event::Free(free));
        self.handle_collector(collect::Event::Entrusted {
            owner,
            item,
            archive,
            bytes,
            waited_micros,
        });
    }

    /// What was offered is not to be written, unless that is under way.
    pub(super) fn withdrawn(&mut self, offer: OfferId) {
        let begun = self.entrusted.begin();
        begun.waiting.retain(|(waiting, _)| *waiting != offer);
        let staged = begun.staged.iter();
        let found = staged.filter(|(_, staged)| **staged == offer).map(|(owner, _)| *owner).next();
        if let Some(owner) = found {
            begun.staged.remove(&owner);
            self.handle_collector(collect::Event::Withdrawn(owner));
        }
        self.startable = true;
    }

    /// What was entrusted is in its archive, or will not be.
    pub(super) fn end_entrusted(
        &mut self,
        owner: OwnerId,
        result: Result<SafeMembers, (String, bool)>,
    ) {
        let Some(offer) = self.entrusted.begin().staged.remove(&owner) else { return };
        let result = match result {
            Ok(members) => {
                members.into_iter().map(|(_, place)| place).next().ok_or_else(String::new)
            }
            Err((error, _)) => Err(error),
        };
        self.answer_offer(offer, result);
        self.startable = true;
    }

    /// This executor leaves: what has not come stays with those that have it.
    pub(super) fn refuse_offers(&mut self) {
        let waiting = self.entrusted.begun.as_mut().map(|begun| std::mem::take(&mut begun.waiting));
        for (offer, _) in waiting.into_iter().flatten() {
            self.answer_offer(offer, Err("the executor leaves".to_owned()));
        }
    }

    fn answer_offer(&mut self, offer: OfferId, result: Result<Arc<str>, String>) {
        self.actions.push_back(Action::Collect(CollectAction::Answer { offer, result }));
    }
}
