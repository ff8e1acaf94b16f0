//! What transfers bring: parts, failures, other versions, whole objects.

use super::event::{FetchError, FetchId, PartialId, WriteError};
use super::fetch::{Transfer, add};
use super::source::Standing;
use super::{Action, Requester, Stage, StageError, State};
use crate::data::cache::TierId;
use crate::data::limits::{DISK_FULL_TRIES_MAX, REDIRECTS_MAX};
use crate::data::object::{Object, ObjectId, Source, Sources};
use std::sync::Arc;

impl Stage {
    /// [`super::Event::Sized`].
    pub(super) fn sized(&mut self, fetch: FetchId, size: u64) {
        let Some(transfer) = self.transfers.get(&fetch) else { return };
        let (object, source) = (transfer.object, transfer.source);
        let Some(item) = self.items.get_mut(&object) else { return };
        match item.size {
            None => {
                item.size = Some(size);
                self.grow(object, size);
            }
            Some(known) if known != size => {
                self.end_transfer(fetch);
                self.wrong_length(object, source, size, known);
            }
            Some(_) => {}
        }
    }

    fn wrong_length(&mut self, object: ObjectId, source: Source, given: u64, expected: u64) {
        let what = FetchError::Wrong(format!("{given} bytes instead of {expected}"));
        self.distrust(object, source, what);
        self.restart(object, true);
    }

    /// [`super::Event::Arriving`].
    pub(super) fn arriving(&mut self, fetch: FetchId, until: u64) {
        let Some(object) = self.transfers.get(&fetch).map(|transfer| transfer.object) else {
            return;
        };
        let Some(item) = self.items.get_mut(&object).filter(|item| item.size.is_none()) else {
            return;
        };
        if until > item.least {
            item.least = until;
            self.grow(object, until);
        }
    }

    /// [`super::Event::Written`].
    pub(super) fn written(&mut self, fetch: FetchId, bytes: u64) {
        self.chunk_goes_on(fetch, bytes);
        let Some(transfer) = self.transfers.get_mut(&fetch) else { return };
        if bytes > transfer.written {
            let was_half_here = transfer.is_half_here();
            transfer.written = bytes;
            let (object, source) = (transfer.object, transfer.source);
            if transfer.tree.is_some() && !was_half_here && transfer.is_half_here() {
                self.hunger(object);
            }
            self.heard(object, source);
            self.serve_waiting(object);
        }
    }

    /// An object turns out to be this large at least. If there is no room for
    /// it where it is, those that wait for it wait for room again.
    fn grow(&mut self, object: ObjectId, size: u64) -> bool {
        match self.cache.grow(object, size) {
            Ok(evicted) => {
                self.evicted(evicted);
                true
            }
            Err(_) => {
                // Ask for more the next time, so that few tries are enough.
                let ample = size.saturating_mul(2);
                if let Some(item) = self.items.get_mut(&object)
                    && item.size.is_none()
                    && self.cache.would_fit(&[ample]).is_ok()
                {
                    item.least = ample;
                }
                for task in self.users(object, &[State::Staging]) {
                    self.put_back(task);
                }
                false
            }
        }
    }

    /// [`super::Event::Fetched`].
    pub(super) fn fetched(&mut self, fetch: FetchId, bytes: u64) {
        self.chunk_goes_on(fetch, bytes);
        let Some(transfer) = self.end_transfer(fetch) else { return };
        let Transfer { object, source, offset, length, .. } = transfer;
        self.headway(object, source, bytes, true);
        self.heard_parent(&transfer, false);
        let Some(item) = self.items.get_mut(&object) else { return };
        let until = offset.saturating_add(bytes);
        let expected = match length {
            Some(length) => offset.saturating_add(length),
            None => item.size.unwrap_or(until),
        };
        if until != expected {
            return self.wrong_length(object, source, bytes, expected - offset.min(expected));
        }
        if length.is_none() && item.size.is_none() {
            item.size = Some(until);
            if !self.grow(object, until) {
                return;
            }
        }
        self.serve_waiting(object);
        self.go_on(object);
    }

    /// Seals an object that is complete, else goes on.
    fn go_on(&mut self, object: ObjectId) {
        let Some(item) = self.items.get_mut(&object) else { return };
        let Some(making) = item.making.as_mut() else { return };
        let is_whole = !self.lending.has(object);
        if is_whole
            && making.pending.is_empty()
            && making.tail.is_none()
            && making.active.is_empty()
        {
            making.sealing = true;
            let (partial, tier) = (making.partial, making.tier);
            let (object, size) = (Arc::clone(&item.object), item.size.unwrap_or(0));
            self.actions.push_back(Action::Seal { partial, tier, object, size });
        } else {
            self.hunger(object);
        }
    }

    /// [`super::Event::FetchFailed`].
    pub(super) fn fetch_failed(&mut self, fetch: FetchId, bytes: u64, why: FetchError) {
        let Some(transfer) = self.end_transfer(fetch) else { return };
        let Transfer { object, source, offset, length, .. } = transfer;
        // What came may be of a version that nobody can name.
        let lasts = length.is_some() || !self.fleeting.contains(&object);
        self.headway(object, source, bytes, lasts);
        if let Some(tree) = transfer.tree {
            self.chunk_failed(&transfer, tree, &why);
        }
        let standing = match why {
            FetchError::Gone if self.may_come(object, source, false) => Standing::Coming,
            FetchError::Coming if self.may_come(object, source, true) => Standing::Coming,
            FetchError::Busy
                if self.is_reader(object, source) && self.may_come(object, source, true) =>
            {
                Standing::Coming
            }
            FetchError::Gone | FetchError::Refused(_) => Standing::Out,
            FetchError::Busy | FetchError::Coming => Standing::Busy,
            FetchError::Unreachable(_) => Standing::Unreachable,
            FetchError::Wrong(_) => {
                self.distrust(object, source, why);
                return self.restart(object, true);
            }
            FetchError::Changed(ref new) if source == Source::Store && new.id != object => {
                let new = Arc::clone(new);
                return self.redirect(object, &new);
            }
            FetchError::Changed(_) => Standing::Out,
            FetchError::NoMember(why) => return self.has_no_member(object, &why),
            FetchError::Write(error) => return self.disk_trouble(object, error),
        };
        let Some(item) = self.items.get_mut(&object) else { return };
        // A parent in a broadcast is no worse a source for that otherwise, and
        // neither is one that was asked to end.
        if transfer.tree.is_none() && !transfer.is_given_up {
            item.candidates.answered(source, standing, why);
        }
        let size = item.size;
        let Some(making) = item.making.as_mut() else { return };
        match (length, size) {
            (Some(length), _) => {
                let kept = bytes.min(length);
                making.pending.insert(offset + kept, length - kept);
            }
            (None, _) if !lasts || bytes == 0 => making.tail = Some(offset),
            (None, Some(size)) if offset.saturating_add(bytes) < size => {
                let from = offset + bytes;
                making.pending.insert(from, size - from);
            }
            (None, Some(_)) => making.tail = Some(offset),
            (None, None) => making.tail = Some(offset.saturating_add(bytes)),
        }
        self.go_on(object);
    }

    /// The archive of a member has none such.
    fn has_no_member(&mut self, object: ObjectId, why: &str) {
        let Some(url) = self.items.get(&object).map(|item| Arc::clone(&item.object.url)) else {
            return;
        };
        for task in self.users(object, &[State::Staging]) {
            let (url, why) = (Arc::clone(&url), why.to_owned());
            self.fail(task, StageError::NoMember { url, why });
        }
    }

    /// The source has another version: tasks that wait get that one.
    fn redirect(&mut self, old: ObjectId, new: &Arc<Object>) {
        if self.lending.has(old) {
            return self.share_is_lost(old);
        }
        let states = [State::Resolving, State::Waiting, State::Staging];
        for key in self.users(old, &states) {
            let Some(task) = self.tasks.get_mut(&key) else { continue };
            task.redirects += 1;
            if task.redirects > REDIRECTS_MAX {
                let times = task.redirects;
                let error = StageError::Changing { url: Arc::clone(&new.url), times };
                self.fail(key, error);
                continue;
            }
            let was_resolving = task.state == State::Resolving;
            if !was_resolving {
                self.withdraw(key);
            }
            self.replace_input(key, old, new);
            if !was_resolving {
                self.enqueue(key);
            }
        }
    }

    /// A task gets another object instead of one, if it still wants that.
    pub(super) fn replace_input(&mut self, key: Requester, old: ObjectId, new: &Arc<Object>) {
        let Some(task) = self.tasks.get_mut(&key) else { return };
        let mut wanted = task.inputs.iter_mut().filter(|input| input.object.id == old).peekable();
        if wanted.peek().is_none() {
            return;
        }
        // What is here already came as something that lasts, or is known.
        if new.is_unversioned() && !self.cache.holds(new.id) {
            self.fleeting.insert(new.id);
        }
        if old == new.id {
            return;
        }
        for input in wanted {
            input.object = Arc::clone(new);
        }
        self.use_item(key, new, &Sources { store: true, ..Sources::default() });
        self.leave_item(key, old);
    }

    /// [`super::Event::Sealed`].
    pub(super) fn sealed(&mut self, partial: PartialId, result: Result<(), WriteError>) {
        let Some(&object) = self.partials.get(&partial) else { return };
        let Some(item) = self.items.get_mut(&object) else { return };
        let Some(making) = item.making.as_mut().filter(|making| making.sealing) else { return };
        match result {
            Ok(()) => self.complete(object),
            Err(WriteError::Wrong(said)) => {
                let from: Vec<Source> = making.from.iter().copied().collect();
                making.single = true;
                // Of several, nobody knows which was wrong: one at a time will
                // tell.
                if let [source] = from[..] {
                    self.distrust(object, source, FetchError::Wrong(said));
                }
                if self.users(object, &[State::Staging]).is_empty() {
                    self.give_away(object);
                } else {
                    self.restart(object, false);
                }
            }
            Err(error) => {
                making.sealing = false;
                self.disk_trouble(object, error);
                self.give_away(object);
            }
        }
    }

    /// Ends what was only to be sealed for nobody, if it was.
    fn give_away(&mut self, object: ObjectId) {
        if self.users(object, &[State::Staging]).is_empty() {
            self.abandon(object);
            self.drop_item(object);
        }
    }

    /// An object has come whole.
    fn complete(&mut self, object: ObjectId) {
        let Some(item) = self.items.get_mut(&object) else { return };
        let size = item.size.unwrap_or(0);
        let Some(making) = item.making.take() else { return };
        self.partials.remove(&making.partial);
        // Room that was reserved and is not needed may do for somebody.
        self.dirty |= self.cache.entry(object).is_some_and(|entry| entry.size > size);
        match self.cache.commit(object, size, false) {
            Ok(evicted) => self.evicted(evicted),
            // It was grown before it was sealed, so there is room.
            Err(_) => return,
        }
        let mut usage = making.usage;
        let from_store = making.from.contains(&Source::Store);
        let is_fetched = !making.from.iter().eq([&Source::Own]);
        let count = if from_store { &mut usage.store } else { &mut usage.peer };
        count.objects += u64::from(is_fetched);
        for (total, part) in
            [(&mut self.totals.store, usage.store), (&mut self.totals.peer, usage.peer)]
        {
            total.objects += part.objects;
            add(&mut total.bytes, part.bytes);
        }
        if is_fetched
            && let Some(first) = self.users(object, &[State::Staging]).first()
            && let Some(task) = self.tasks.get_mut(first)
        {
            let mut inputs = task.inputs.iter_mut().filter(|input| input.object.id == object);
            if let Some(input) = inputs.next() {
                // Fetched twice for one task, it is still one object.
                if std::mem::replace(&mut input.charged, true) {
                    usage.store.objects = 0;
                    usage.peer.objects = 0;
                }
            }
            task.usage.store.objects += usage.store.objects;
            add(&mut task.usage.store.bytes, usage.store.bytes);
            task.usage.peer.objects += usage.peer.objects;
            add(&mut task.usage.peer.bytes, usage.peer.bytes);
        }
        self.here(object);
        self.drop_item(object);
    }

    /// An object is held from now on.
    pub(super) fn here(&mut self, object: ObjectId) {
        self.untold.insert(object);
        self.weigh(object);
        self.serve_waiting(object);
        // An output may have waited for just this; who waits for room has got
        // none.
        let idle = self.cache.entry(object).is_some_and(|entry| entry.pins == 0);
        self.dirty |= idle || !self.outputs.is_empty();
        let mut is_to_be_unpacked = false;
        for task in self.users(object, &[State::Staging]) {
            match self.is_complete(object, self.wants_unpacked(task, object)) {
                true => self.has_one_more(task),
                false => is_to_be_unpacked = true,
            }
        }
        if is_to_be_unpacked {
            self.make_tree(object);
        }
        self.sweep(object);
    }

    /// A file could not be written: those that wait for it wait for room
    /// again, a few times.
    fn disk_trouble(&mut self, object: ObjectId, error: WriteError) {
        let Some(item) = self.items.get(&object) else { return };
        let url = Arc::clone(&item.object.url);
        let tier: Option<TierId> = item.making.as_ref().map(|making| making.tier);
        for key in self.users(object, &[State::Staging]) {
            let Some(task) = self.tasks.get_mut(&key) else { continue };
            task.disk_full += 1;
            if task.disk_full > DISK_FULL_TRIES_MAX {
                let (url, error) = (Arc::clone(&url), error.clone());
                self.fail(key, StageError::Write { url, error });
            } else {
                self.put_back(key);
            }
        }
        if self.lending.has(object) {
            self.share_is_lost(object);
        }
        if let Some(tier) = tier.filter(|_| error == WriteError::Full) {
            self.full(tier);
        }
    }
}
