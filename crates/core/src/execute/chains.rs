//! Chains: processes that run, each with the started tasks that come after it,
//! one after the other, in its room.
//!
//! The *leader* of a chain runs; its *followers* wait. When the leader ends,
//! the first of them leads. A follower is *in doubt* once it was asked back or
//! killed, as the shell may have started it before the request arrives: until
//! the answer nothing more comes after it.

use super::{Executor, Queued, Running, TaskKey};
use crate::dispatch::CheckError;
use crate::dispatch::check::ensure;
use crate::limits::{AHEAD_CHAIN_TASKS_MAX, AHEAD_SEARCH_TASKS_MAX, AHEAD_WORK_MICROS};
use crate::task::Kind;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A chain of this executor. Numbers are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChainId(u64);

/// A follower's part in its chain.
#[derive(Debug)]
pub(super) struct Follower {
    chain: ChainId,
    /// What goes back into the queue.
    queued: Queued,
    /// Who asked it back, if anybody did.
    asked: Option<Asked>,
    is_killed: bool,
}

/// Who asked for a follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// There is room for it here.
    Here,
    /// The dispatcher, whose recall is not answered until this is settled.
    Dispatcher,
}

/// A leader's part in its chain.
#[derive(Debug)]
pub(super) struct Leader {
    chain: ChainId,
    /// If it was a follower until the one before it ended: as it may turn out
    /// that it was taken back before it started.
    followed: Option<Box<Follower>>,
}

impl Follower {
    /// Who asked it back, if anybody did.
    pub(super) fn asked(&self) -> Option<Asked> {
        self.asked
    }

    /// What goes back into the queue.
    pub(super) fn into_queued(self) -> Queued {
        self.queued
    }

    fn is_in_doubt(&self) -> bool {
        self.asked.is_some() || self.is_killed
    }
}

impl Leader {
    /// What goes back into the queue, if the shell took it back while it was a
    /// follower.
    pub(super) fn take_queued(&mut self) -> Option<Queued> {
        self.followed.take().map(|followed| followed.queued)
    }
}

#[derive(Debug)]
struct Chain {
    leader: TaskKey,
    followers: VecDeque<TaskKey>,
}

/// The dispatcher's recall is answered: nothing more is on its way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecallAnswered;

/// The chains of an executor.
#[derive(Debug, Default)]
pub(super) struct Chains {
    chains: BTreeMap<ChainId, Chain>,
    /// All of them, those with the fewest followers first.
    by_length: BTreeSet<(usize, TaskKey, ChainId)>,
    next: u64,
    followers: BTreeSet<TaskKey>,
    /// How many followers are in doubt.
    in_doubt: u64,
    /// How many of them the dispatcher has asked for.
    recalled: u64,
    /// The mean run time of processes here, the latest counting most.
    mean_micros: Option<u64>,
}

impl Chains {
    /// A process ran for so long.
    pub(super) fn note_run_time(&mut self, micros: u64) {
        self.mean_micros = Some(match self.mean_micros {
            None => micros,
            Some(mean) => mean - mean / 8 + micros / 8,
        });
    }

    /// How many tasks may come after each that runs: one, and more only if
    /// together they are little work, as none of them can start elsewhere
    /// without being taken back.
    fn depth(&self) -> usize {
        let Some(mean) = self.mean_micros else { return 1 };
        let depth = AHEAD_WORK_MICROS / mean.max(1);
        usize::try_from(depth).unwrap_or(usize::MAX).clamp(1, AHEAD_CHAIN_TASKS_MAX)
    }

    /// A process has its room, and leads a chain of its own.
    pub(super) fn lead(&mut self, leader: TaskKey) -> Leader {
        self.next += 1;
        let chain = ChainId(self.next);
        self.by_length.insert((0, leader, chain));
        self.chains.insert(chain, Chain { leader, followers: VecDeque::new() });
        Leader { chain, followed: None }
    }

    /// Chains that take another follower, the shortest first: leader, last task
    /// and number. While followers are in doubt, only chains without any: the
    /// shell would not know behind which task to put another.
    pub(super) fn open(&self) -> impl Iterator<Item = (TaskKey, TaskKey, ChainId)> {
        let depth = self.depth();
        self.by_length
            .iter()
            .take(AHEAD_SEARCH_TASKS_MAX)
            .take_while(move |(followers, ..)| *followers < depth)
            .filter(|(followers, ..)| *followers == 0 || self.in_doubt == 0)
            .map(|(_, leader, id)| {
                let last = self.chain(*id).followers.back();
                (*leader, last.copied().unwrap_or(*leader), *id)
            })
    }

    /// A task comes after the last of a chain.
    pub(super) fn follow(&mut self, id: ChainId, queued: Queued) -> Follower {
        let key = queued.key();
        self.followers.insert(key);
        self.change(id, |followers| followers.push_back(key));
        Follower { chain: id, queued, asked: None, is_killed: false }
    }

    /// A follower is asked back. Returns whether the shell is to be asked for
    /// it: it is asked once.
    pub(super) fn ask(&mut self, follower: &mut Follower, who: Asked) -> bool {
        self.in_doubt += u64::from(!follower.is_in_doubt());
        self.recalled += u64::from(who == Asked::Dispatcher);
        follower.asked.replace(who).is_none()
    }

    /// A follower is to be killed.
    pub(super) fn kill(&mut self, follower: &mut Follower) {
        self.in_doubt += u64::from(!follower.is_in_doubt());
        follower.is_killed = true;
    }

    /// A follower will not start: those behind it move up.
    pub(super) fn leave(&mut self, key: TaskKey, follower: &Follower) -> Option<RecallAnswered> {
        self.change(follower.chain, |followers| followers.retain(|other| *other != key));
        self.forget_follower(key, follower)
    }

    /// The leader of a chain has ended: the first follower has its room now, and
    /// leads; without one, the chain is over.
    pub(super) fn end(&mut self, leader: &Leader) -> Option<TaskKey> {
        let id = leader.chain;
        let chain = self.chain_mut(id);
        let before = (chain.followers.len(), chain.leader, id);
        let next = chain.followers.pop_front();
        match next {
            Some(next) => {
                chain.leader = next;
                let length = chain.followers.len();
                self.by_length.insert((length, next, id));
            }
            None => drop(self.chains.remove(&id)),
        }
        self.by_length.remove(&before);
        next
    }

    /// What the follower that [`Chains::end`] has named is from now on.
    pub(super) fn move_up(
        &mut self,
        key: TaskKey,
        follower: Box<Follower>,
    ) -> (Leader, Option<RecallAnswered>) {
        let answered = self.forget_follower(key, &follower);
        (Leader { chain: follower.chain, followed: Some(follower) }, answered)
    }

    /// All followers, in order.
    pub(super) fn followers(&self) -> impl DoubleEndedIterator<Item = TaskKey> + '_ {
        self.followers.iter().copied()
    }

    /// How many followers there are.
    pub(super) fn follower_count(&self) -> usize {
        self.followers.len()
    }

    /// Whether followers that the dispatcher has asked for are on their way.
    pub(super) fn is_recalling(&self) -> bool {
        self.recalled > 0
    }

    fn forget_follower(&mut self, key: TaskKey, follower: &Follower) -> Option<RecallAnswered> {
        self.followers.remove(&key);
        self.in_doubt -= u64::from(follower.is_in_doubt());
        if follower.asked != Some(Asked::Dispatcher) {
            return None;
        }
        self.recalled -= 1;
        (self.recalled == 0).then_some(RecallAnswered)
    }

    fn change(&mut self, id: ChainId, change: impl FnOnce(&mut VecDeque<TaskKey>)) {
        let chain = self.chain_mut(id);
        let (leader, before) = (chain.leader, chain.followers.len());
        change(&mut chain.followers);
        let after = chain.followers.len();
        self.by_length.remove(&(before, leader, id));
        self.by_length.insert((after, leader, id));
    }

    fn chain(&self, id: ChainId) -> &Chain {
        self.chains.get(&id).unwrap_or_else(|| panic!("chain {} is over", id.0))
    }

    fn chain_mut(&mut self, id: ChainId) -> &mut Chain {
        self.chains.get_mut(&id).unwrap_or_else(|| panic!("chain {} is over", id.0))
    }
}

impl Executor {
    /// Each process that runs leads a chain; each follower stands in one, behind
    /// a leader that holds what it needs.
    pub(super) fn check_chains(&self) -> Result<(), CheckError> {
        let chains = &self.chains;
        let (mut recalled, mut in_doubt, mut followers, mut leaders) = (0, 0, 0, 0);
        for (key, run) in self.running.iter() {
            let task = key.task;
            let is_process = run.class.kind == Kind::Process && run.gang.is_none();
            let linked = run.leader().is_some() || run.follower().is_some();
            ensure!(linked == is_process, "task {task} is in a chain, or is not");
            if let Some(leader) = run.leader() {
                let chain = chains.chains.get(&leader.chain);
                ensure!(chain.is_some_and(|chain| chain.leader == *key), "task {task} leads not");
                leaders += 1;
            }
            let Some(follower) = run.follower() else { continue };
            followers += 1;
            recalled += u64::from(follower.asked == Some(Asked::Dispatcher));
            in_doubt += u64::from(follower.is_in_doubt());
            ensure!(follower.is_killed == run.killed.is_some(), "task {task} is killed, or not");
            ensure!(run.deadline.is_none(), "task {task} has a deadline before it runs");
            let chain = chains.chains.get(&follower.chain);
            let chain = chain.filter(|chain| chain.followers.contains(key));
            let leader = chain.and_then(|chain| self.running.find(&chain.leader));
            let same = |leader: &Running| {
                leader.class.resources == run.class.resources && leader.grant == run.grant
            };
            ensure!(
                leader.is_some_and(|leader| same(leader)),
                "task {task} comes after nothing that is like it"
            );
            ensure!(chains.followers.contains(key), "task {task} follows in secret");
        }
        let listed: usize = chains.chains.values().map(|chain| chain.followers.len()).sum();
        ensure!(followers == listed, "{followers} tasks follow, and {listed} are listed");
        ensure!(followers == chains.followers.len(), "{followers} tasks follow, and others");
        ensure!(leaders == chains.chains.len(), "{leaders} chains are led, and others");
        let length = |(id, chain): (&ChainId, &Chain)| (chain.followers.len(), chain.leader, *id);
        let lengths: BTreeSet<_> = chains.chains.iter().map(length).collect();
        ensure!(lengths == chains.by_length, "a chain's length is miscounted");
        ensure!(in_doubt == chains.in_doubt, "{in_doubt} are in doubt, not {}", chains.in_doubt);
        ensure!(recalled == chains.recalled, "{recalled} are recalled, not {}", chains.recalled);
        Ok(())
    }
}
