//! The sources of one object, and which to ask next.

use super::event::FetchError;
use crate::data::limits::OBJECT_SOURCES_MAX;
use crate::data::object::{Object, Source, Sources};
use crate::task::ExecutorId;
use std::sync::Arc;

/// What limits count by: one peer, or one store for all its objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SourceKey {
    Own,
    Peer(ExecutorId),
    Store(Arc<str>),
    Dispatcher,
}

impl SourceKey {
    pub(super) fn of(source: Source, object: &Object) -> SourceKey {
        match source {
            Source::Own => SourceKey::Own,
            Source::Peer(executor) => SourceKey::Peer(executor),
            Source::Store => SourceKey::Store(Arc::from(object.store())),
            Source::Dispatcher => SourceKey::Dispatcher,
        }
    }
}

/// What is thought of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It can be asked.
    Open,
    /// It was busy.
    Busy,
    /// It is fetching the object itself.
    Coming,
    /// It could not be reached.
    Unreachable,
    /// It has not got it, or will not give it.
    Out,
    /// It gave something else: it is not asked for this object again.
    Wrong,
}

#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) source: Source,
    pub(super) standing: Standing,
    /// What it said last.
    pub(super) said: Option<FetchError>,
    /// Transfers from it that broke.
    failures: u32,
    /// It is sending.
    pub(super) in_use: bool,
    /// It is gone for good.
    is_gone: bool,
    /// It was named as one that is about to fetch the object itself.
    pub(super) is_reader: bool,
}

/// Which source to ask.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// This one.
    Ask(Source),
    /// One of these, when it is below its limit.
    Later(Vec<SourceKey>),
    /// None, but some are sending already.
    Sending,
    /// None but the store, and another is reading it there already.
    Coming,
    /// None: all were asked.
    None,
}

/// All sources of one object that are known, in the order of the hints.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    list: Vec<Candidate>,
}

impl Candidates {
    /// Adds what is not known, and believes peers again that had not got it.
    /// Returns whether there is anybody else to ask.
    ///
    /// `own` says that it is a member of an archive in the executor's own cache.
    pub(super) fn add(&mut self, sources: &Sources, own: bool) -> bool {
        let mut any = false;
        let own = own.then_some((Source::Own, false));
        let peers = sources.peers.iter().map(|peer| (Source::Peer(*peer), false));
        let store = sources.store.then_some((Source::Store, false));
        let forwarded = sources.forwarded.then_some((Source::Dispatcher, false));
        let coming = sources.coming.map(|peer| (Source::Peer(peer), true));
        // The store and the dispatcher always have their places, so that hints alone cannot
        // keep them out.
        let last = store.into_iter().chain(forwarded);
        for (source, is_reader) in own.into_iter().chain(last).chain(peers).chain(coming) {
            if let Some(known) = self.list.iter_mut().find(|known| known.source == source) {
                known.is_reader &= is_reader;
                let again = match known.standing {
                    Standing::Out => source != Source::Store,
                    Standing::Coming => !is_reader,
                    _ => false,
                };
                if again && !known.is_gone {
                    known.standing = Standing::Open;
                    any = true;
                }
            } else if self.list.len() < OBJECT_SOURCES_MAX {
                any = true;
                self.list.push(Candidate {
                    source,
                    standing: Standing::Open,
                    said: None,
                    failures: 0,
                    in_use: false,
                    is_gone: false,
                    is_reader,
                });
            }
        }
        any
    }

    pub(super) fn find(&mut self, source: Source) -> Option<&mut Candidate> {
        self.list.iter_mut().find(|candidate| candidate.source == source)
    }

    /// A new attempt: all may be asked but those that gave something else.
    pub(super) fn reopen(&mut self) {
        for candidate in &mut self.list {
            candidate.in_use = false;
            if candidate.standing != Standing::Wrong && !candidate.is_gone {
                candidate.standing = Standing::Open;
            }
        }
    }

    /// Those of this standing may be asked again.
    pub(super) fn reopen_if(&mut self, standing: Standing) {
        for candidate in self.list.iter_mut().filter(|one| one.standing == standing) {
            candidate.standing = Standing::Open;
        }
    }

    pub(super) fn any(&self, standing: Standing) -> bool {
        self.list.iter().any(|candidate| candidate.standing == standing)
    }

    /// What a source answered to a request.
    pub(super) fn answered(&mut self, source: Source, standing: Standing, said: FetchError) {
        let Some(candidate) = self.find(source) else { return };
        candidate.standing = if candidate.is_gone { Standing::Out } else { standing };
        candidate.said = Some(said);
        candidate.in_use = false;
        if standing == Standing::Unreachable {
            candidate.failures = candidate.failures.saturating_add(1);
        }
    }

    /// A peer is gone for good. Returns whether it was known.
    pub(super) fn gone(&mut self, peer: ExecutorId) -> bool {
        let Some(candidate) = self.find(Source::Peer(peer)) else { return false };
        candidate.is_gone = true;
        candidate.standing = Standing::Out;
        let said = FetchError::Unreachable("it is gone".to_owned());
        candidate.said.get_or_insert(said);
        true
    }

    /// A source that gave something else before is not asked.
    pub(super) fn bar(&mut self, source: Source) {
        if let Some(candidate) = self.find(source) {
            candidate.standing = Standing::Wrong;
            let said = "what it gave before was wrong".to_owned();
            candidate.said.get_or_insert(FetchError::Wrong(said));
        }
    }

    /// Whether the object is to come from one who has not got it either.
    pub(super) fn waits_for_another(&self) -> bool {
        self.list.iter().any(|one| match one.standing {
            Standing::Coming => true,
            Standing::Open if one.is_gone => false,
            Standing::Open => one.is_reader || one.said == Some(FetchError::Coming),
            _ => false,
        })
    }

    /// Peers that can be asked, or are sending, and hold the object.
    pub(super) fn open_peers(&self) -> usize {
        let open = |one: &&Candidate| {
            matches!(one.source, Source::Peer(_))
                && !one.is_reader
                && (one.in_use || one.standing == Standing::Open)
        };
        self.list.iter().filter(open).count()
    }

    /// The next to ask: peers that never broke, then the store or the dispatcher, then the
    /// other peers. The store is spared while peers send or are merely at a limit, or
    /// one is reading it.
    pub(super) fn choose(
        &self,
        key: impl Fn(Source) -> SourceKey,
        full: impl Fn(&SourceKey) -> bool,
    ) -> Choice {
        let sending = self.list.iter().any(|one| one.in_use);
        let order = |one: &&Candidate| match one.source {
            Source::Own => 0,
            Source::Peer(_) if one.failures == 0 => 0,
            Source::Store | Source::Dispatcher => 1,
            Source::Peer(_) => 2,
        };
        let open = |one: &&Candidate| one.standing == Standing::Open && !one.in_use;
        let class = self.list.iter().filter(open).map(|one| order(&one)).min();
        if sending && class.is_none_or(|class| class > 0) {
            return Choice::Sending;
        }
        if class.is_none_or(|class| class > 0) && self.any(Standing::Coming) {
            return Choice::Coming;
        }
        let Some(class) = class else { return Choice::None };
        let mut later = Vec::new();
        for one in self.list.iter().filter(open).filter(|one| order(one) == class) {
            let key = key(one.source);
            if !full(&key) {
                return Choice::Ask(one.source);
            }
            later.push(key);
        }
        Choice::Later(later)
    }

    /// One to ask beside others: a holder that never broke, or else the store.
    pub(super) fn spare(&self, may_be_asked: impl Fn(Source) -> bool) -> Option<Source> {
        let open = |one: &&Candidate| {
            let is_sound = one.source == Source::Store || (one.failures == 0 && !one.is_reader);
            is_sound && one.standing == Standing::Open && !one.in_use && may_be_asked(one.source)
        };
        // The store is listed first.
        let spare = self.list.iter().filter(open);
        spare.max_by_key(|one| one.source != Source::Store).map(|one| one.source)
    }

    /// Every source that was asked, and what it said.
    pub(super) fn tried(&self) -> Vec<(Source, FetchError)> {
        // The store is listed first here, and was asked last.
        let store = self.list.iter().filter(|one| one.source == Source::Store);
        let peers = self.list.iter().filter(|one| one.source != Source::Store);
        peers.chain(store).filter_map(|one| Some((one.source, one.said.clone()?))).collect()
    }
}
