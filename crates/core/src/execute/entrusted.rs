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

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Entrusted {
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
        Entrusted { pacing: Pacing::new(delay_micros_max), ..Entrusted::default() }
    }

    /// Whether this executor keeps up, if it has something to say of that.
    pub(super) fn take_pace(&mut self) -> Option<Pace> {
        self.pacing.take_news()
    }

    /// Whether it has.
    pub(super) fn has_pace(&self) -> bool {
        self.pacing.has_news()
    }

    /// A session begins.
    pub(super) fn tell_anew(&mut self) {
        self.pacing.forget();
    }

    /// Whether nothing waits or is on its way.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.coming.is_empty()
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
            () if self.entrusted.waiting.len() >= COLLECT_OFFERED_ARCHIVES_MAX => {
                "too many others wait"
            }
            () => {
                let since = Time(self.now.0.saturating_sub(waited_micros));
                let is_urgent = waited_micros == WAITED_TOO_LONG;
                let one = Offer { archive, bytes, since, is_urgent };
                self.entrusted.waiting.push_back((offer, one));
                return self.accept_offers();
            }
        };
        self.answer_offer(offer, Err(error.to_owned()));
    }

    /// Has as much of what is offered come here as there is room for.
    pub(super) fn accept_offers(&mut self) {
        while let Some((_, first)) = self.entrusted.waiting.front() {
            let bytes = self.entrusted.coming_bytes.saturating_add(first.bytes);
            let is_alone = self.entrusted.coming.is_empty() && self.collecting.is_empty();
            if !is_alone && !self.collecting.has_room(bytes) {
                if !self.collecting.takes_room_of(first.bytes) {
                    return;
                }
                // What is staged here is written, and the next file's members come meanwhile.
                self.flush_collector();
                continue;
            }
            let Some((offer, one)) = self.entrusted.waiting.pop_front() else { return };
            let item = self.collecting.new_item();
            self.entrusted.coming_bytes = bytes;
            self.entrusted.coming.insert(offer, (item, one));
            self.entrusted.pacing.note(self.now, true);
            self.actions.push_back(Action::Collect(CollectAction::Accept { offer, item }));
        }
    }

    /// What was offered is staged, or is not.
    pub(super) fn received(&mut self, offer: OfferId, result: Result<u64, String>) {
        let Some((item, one)) = self.entrusted.coming.remove(&offer) else { return };
        self.entrusted.coming_bytes -= one.bytes;
        self.entrusted.pacing.note(self.now, !self.entrusted.coming.is_empty());
        let free = match result {
            Ok(free) => free,
            Err(error) => {
                self.answer_offer(offer, Err(error));
                return self.accept_offers();
            }
        };
        let owner = self.collecting.new_owner();
        self.entrusted.staged.insert(owner, offer);
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
        self.entrusted.waiting.retain(|(waiting, _)| *waiting != offer);
        let staged = self.entrusted.staged.iter();
        let found = staged.filter(|(_, staged)| **staged == offer).map(|(owner, _)| *owner).next();
        if let Some(owner) = found {
            self.entrusted.staged.remove(&owner);
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
        let Some(offer) = self.entrusted.staged.remove(&owner) else { return };
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
        for (offer, _) in std::mem::take(&mut self.entrusted.waiting) {
            self.answer_offer(offer, Err("the executor leaves".to_owned()));
        }
    }

    fn answer_offer(&mut self, offer: OfferId, result: Result<Arc<str>, String>) {
        self.actions.push_back(Action::Collect(CollectAction::Answer { offer, result }));
    }
}
