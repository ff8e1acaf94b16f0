//! The ready queues of an instance, one for each need that its tasks have.

use super::check::{CheckError, ensure};
use super::instance::{QueueKey, ReadyQueue};
use super::likes::{Likes, Measured};
use super::needs::{Need, NeedId, Needs};
use super::rack::Rack;
use super::shelf::{Room, Shelf};
use crate::limits::{IDLE_NEEDS_MAX, INSTANCE_NEEDS_MAX, LOOK_NEEDS_MAX};
use crate::task::{InstanceId, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Queues up to which each is looked at in turn, rather than through an index.
const SCAN_QUEUES: usize = 4;

/// How tasks of a queue may be sent to an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// They take no time: they go ahead, and need no room.
    Timeless,
    /// They take time, and need room; if their run time is known they may go
    /// ahead of it.
    Timed,
}

/// What an executor can take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Takes<'a> {
    pub(super) free: Room<'a>,
    pub(super) capacity: Room<'a>,
    /// Instant tasks may be sent ahead.
    pub(super) instant: bool,
    /// Queues are to be met as well of which no task fits the free room.
    pub(super) wide: bool,
}

/// The queues of one instance. A queue is there while tasks of its need have
/// not ended, and for a while after, so that what was measured of them is not
/// forgotten between two tasks.
#[derive(Debug, Default)]
pub(super) struct Queues {
    all: Rack<ReadyQueue>,
    /// Run times of tasks that ask for about as much memory.
    likes: Likes,
    instant: Shelf,
    timed: Shelf,
    /// Queues that some executor may have room for, as nobody has looked; some
    /// of them may have emptied, or been looked at, since.
    open: Vec<QueueKey>,
    /// Queues that were found to fit nobody, and maybe have emptied since.
    blocked: Vec<QueueKey>,
    /// Queues without a task that has not ended, the oldest first.
    idle: VecDeque<QueueKey>,
    /// Queues of tasks that run on several executors each: searches for one executor do not
    /// meet them. Some may have emptied.
    gangs: BTreeSet<QueueKey>,
}

impl Queues {
    pub(super) fn find(&self, key: &QueueKey) -> Option<&ReadyQueue> {
        self.all.find(number_of(*key))
    }

    /// A queue to be changed. One that tasks were added to is to be listed
    /// afterwards.
    pub(super) fn find_mut(&mut self, key: &QueueKey) -> Option<&mut ReadyQueue> {
        self.all.find_mut(number_of(*key))
    }

    /// The same as [`Queues::find_mut`], with the run times of tasks like its own.
    pub(super) fn find_with_likes(
        &mut self,
        key: &QueueKey,
    ) -> Option<(&mut ReadyQueue, Measured)> {
        let queue = self.all.find_mut(number_of(*key))?;
        let measured = queue.measured.or(|| self.likes.measured(queue.like));
        Some((queue, measured))
    }

    /// Takes a run time of tasks of a queue into account.
    pub(super) fn measure(&mut self, key: &QueueKey, micros: u64, count: u64) {
        let Some(queue) = self.all.find_mut(number_of(*key)) else { return };
        queue.measure(micros, count);
        self.likes.measure(queue.like, micros, count);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (QueueKey, &ReadyQueue)> {
        self.all.iter().map(|(number, queue)| (key_at(number), queue))
    }

    /// Whether so many needs more are more than an instance may have at a time.
    pub(super) fn is_beyond(&self, more: usize) -> bool {
        self.all.len() - self.idle.len().min(self.all.len()) + more > INSTANCE_NEEDS_MAX
    }

    /// The number of a need that tasks have which have not ended yet.
    pub(super) fn hold(&mut self, needs: &mut Needs, need: &Need) -> NeedId {
        let id = needs.number(need);
        let likes = &mut self.likes;
        let queue = self.all.find_or_add(number_of(key_of(need, id)), || {
            needs.hold(id);
            ReadyQueue::new(likes.hold(need))
        });
        queue.users += 1;
        id
    }

    /// All tasks have ended that had this need once. Gives the queues that are
    /// gone for that.
    pub(super) fn let_go(&mut self, needs: &mut Needs, id: NeedId) -> Option<QueueKey> {
        let key = key_of(&needs[id], id);
        let queue = self.find_mut(&key)?;
        queue.users -= 1;
        if queue.users > 0 {
            return None;
        }
        if !queue.is_idle {
            queue.is_idle = true;
            self.idle.push_back(key);
        }
        if self.idle.len() <= IDLE_NEEDS_MAX {
            return None;
        }
        let oldest = self.idle.pop_front()?;
        let queue = self.find_mut(&oldest)?;
        queue.is_idle = false;
        if queue.users > 0 {
            return None;
        }
        debug_assert_eq!(queue.len, 0, "tasks that have ended are not ready");
        self.unlist(oldest);
        if let Some(queue) = self.all.remove(number_of(oldest)) {
            self.likes.let_go(queue.like);
        }
        needs.let_go(oldest.1);
        Some(oldest)
    }

    /// The instance is gone.
    pub(super) fn let_all_go(&mut self, needs: &mut Needs) {
        for ((_, need), _) in std::mem::take(self).iter() {
            needs.let_go(need);
        }
    }

    fn shelf(&mut self, pace: Pace) -> &mut Shelf {
        match pace {
            Pace::Timeless => &mut self.instant,
            Pace::Timed => &mut self.timed,
        }
    }

    /// Lists a queue that has tasks where searches find it.
    pub(super) fn list(&mut self, key: QueueKey, need: &Need) {
        let Some(queue) = self.all.find_mut(number_of(key)) else { return };
        if queue.len == 0 {
            return;
        }
        if need.is_gang() {
            self.gangs.insert(key);
            return;
        }
        if queue.plain_len() > 0 && queue.blocked_since.is_none() && !queue.is_open {
            queue.is_open = true;
            self.open.push(key);
        }
        let pace = queue.pace(need);
        let before = queue.listed.replace(pace);
        if before != Some(pace) {
            if let Some(before) = before {
                self.shelf(before).remove(key);
            }
            self.shelf(pace).insert(key, need);
        }
    }

    /// Takes a queue off its shelf.
    fn unlist(&mut self, key: QueueKey) {
        self.gangs.remove(&key);
        let Some(queue) = self.find_mut(&key) else { return };
        if let Some(pace) = queue.listed.take() {
            self.shelf(pace).remove(key);
        }
    }

    /// Whether some executor may still take a task of some queue.
    pub(super) fn has_open(&mut self) -> bool {
        while let Some(last) = self.open.last() {
            let queue = self.all.find_mut(number_of(*last));
            if let Some(queue) = queue {
                if queue.plain_len() > 0 && queue.blocked_since.is_none() {
                    return true;
                }
                queue.is_open = false;
            }
            self.open.pop();
        }
        false
    }

    /// The queues that some executor may still take tasks of, and maybe others.
    pub(super) fn open(&self) -> impl Iterator<Item = (QueueKey, &ReadyQueue)> {
        self.open.iter().filter_map(|key| Some((*key, self.find(key)?)))
    }

    /// The queues of tasks that run on several executors each, in their order.
    pub(super) fn gangs(&self) -> impl Iterator<Item = (QueueKey, &ReadyQueue)> {
        let found = self.gangs.iter().filter_map(|key| Some((*key, self.find(key)?)));
        found.filter(|(_, queue)| queue.len > 0)
    }

    /// The queue whose turn it is among the first few, if it waits for room:
    /// since when.
    pub(super) fn first_blocked(&self, needs: &Needs) -> Option<(QueueKey, Time)> {
        let few = self.iter().take(LOOK_NEEDS_MAX);
        let mut ready = few.filter(|(key, queue)| {
            let need = &needs[key.1];
            queue.plain_len() > 0 && !need.instant && !need.is_gang()
        });
        let (key, queue) = ready.next()?;
        Some((key, queue.blocked_since?))
    }

    /// Everybody with room was looked at: what is still ready fits nobody.
    pub(super) fn block(&mut self, now: Time) {
        for key in std::mem::take(&mut self.open) {
            let Some(queue) = self.all.find_mut(number_of(key)) else { continue };
            queue.is_open = false;
            if queue.len > 0 {
                queue.blocked_since.get_or_insert(now);
                if !std::mem::replace(&mut queue.was_blocked, true) {
                    self.blocked.push(key);
                }
            }
        }
    }

    /// Executors may have gained room while nobody looked here.
    pub(super) fn unblock(&mut self, needs: &Needs) {
        for key in std::mem::take(&mut self.blocked) {
            let Some(queue) = self.all.find_mut(number_of(key)) else { continue };
            queue.was_blocked = false;
            if queue.plain_len() > 0 {
                queue.blocked_since = None;
                self.list(key, &needs[key.1]);
            }
        }
    }

    /// The first queue after `after` of which an executor may take tasks, and
    /// its pace.
    pub(super) fn next(
        &mut self,
        after: Option<QueueKey>,
        takes: Takes<'_>,
        needs: &Needs,
    ) -> Option<(QueueKey, Pace)> {
        if self.all.len() <= SCAN_QUEUES {
            return self.iter().find_map(|(key, queue)| {
                if queue.len == 0 || after.is_some_and(|after| key <= after) {
                    return None;
                }
                let need = &needs[key.1];
                let pace = queue.pace(need);
                let fits = !need.is_gang() && takes.room_for(pace)?.fits(need);
                fits.then_some((key, pace))
            });
        }
        let mut first: Option<(QueueKey, Pace)> = None;
        for pace in [Pace::Timeless, Pace::Timed] {
            let Some(room) = takes.room_for(pace) else { continue };
            let shelf = match pace {
                Pace::Timeless => &mut self.instant,
                Pace::Timed => &mut self.timed,
            };
            let all = &self.all;
            let is_empty =
                |key: &QueueKey| all.find(number_of(*key)).is_none_or(|queue| queue.len == 0);
            let (found, gone) = shelf.first(after, room, needs, is_empty);
            gone.into_iter().for_each(|key| self.unlist(key));
            if let Some(key) = found.filter(|key| first.is_none_or(|(best, _)| *key < best)) {
                first = Some((key, pace));
            }
        }
        first
    }

    /// A queue that has tasks, and its pace.
    pub(super) fn pace_of(&self, key: QueueKey, needs: &Needs) -> Option<(QueueKey, Pace)> {
        let queue = self.find(&key).filter(|queue| queue.len > 0)?;
        Some((key, queue.pace(&needs[key.1])))
    }

    /// Each queue is listed where searches find it, and there alone.
    ///
    /// # Errors
    /// Says what does not hold.
    pub(super) fn check(&self, id: InstanceId, needs: &Needs) -> Result<(), CheckError> {
        let (open, blocked) = (counted(&self.open), counted(&self.blocked));
        let idle = counted(&self.idle);
        for (key, queue) in self.iter() {
            let need = &needs[key.1];
            ensure!(key == key_of(need, key.1), "instance {id}: queue {key:?} is misfiled");
            let is_gang = need.is_gang();
            let is_found = self.gangs.contains(&key) == is_gang || (is_gang && queue.len == 0);
            ensure!(is_found, "instance {id}: queue {key:?} is of gangs, or not");
            let is_listed = is_gang || queue.len == 0 || queue.listed == Some(queue.pace(need));
            ensure!(is_listed, "instance {id}: queue {key:?} is not found");
            for (pace, shelf) in [(Pace::Timeless, &self.instant), (Pace::Timed, &self.timed)] {
                let is_there = shelf.has(key) == (queue.listed == Some(pace));
                ensure!(is_there, "instance {id}: queue {key:?} is on another shelf");
            }
            let is_open =
                is_gang || queue.plain_len() == 0 || queue.blocked_since.is_some() || queue.is_open;
            ensure!(is_open, "instance {id}: queue {key:?} may fit somebody and is not open");
            let times = |listed: &BTreeMap<QueueKey, usize>| listed.get(&key).copied().unwrap_or(0);
            let is_open = times(&open) == usize::from(queue.is_open);
            ensure!(is_open, "instance {id}: queue {key:?} is open, or not");
            let is_blocked = times(&blocked) == usize::from(queue.was_blocked);
            ensure!(is_blocked, "instance {id}: queue {key:?} is blocked, or not");
            let is_idle = times(&idle) == usize::from(queue.is_idle);
            ensure!(is_idle, "instance {id}: queue {key:?} is to be forgotten, or not");
            ensure!(
                queue.users > 0 || queue.is_idle,
                "instance {id}: queue {key:?} stays for ever"
            );
        }
        let idle = self.idle.len();
        ensure!(idle <= IDLE_NEEDS_MAX, "instance {id}: {idle} queues without tasks are kept");
        Ok(())
    }

    /// How often batches use each need, for checks.
    pub(super) fn users(&self) -> impl Iterator<Item = (NeedId, u64)> {
        self.iter().map(|(key, queue)| (key.1, queue.users))
    }
}

/// How often each queue is listed.
fn counted<'a>(keys: impl IntoIterator<Item = &'a QueueKey>) -> BTreeMap<QueueKey, usize> {
    let mut counted = BTreeMap::new();
    keys.into_iter().for_each(|key| *counted.entry(*key).or_default() += 1);
    counted
}

impl<'a> Takes<'a> {
    /// What tasks of a queue must fit; `None` if none may be sent.
    fn room_for(self, pace: Pace) -> Option<Room<'a>> {
        match pace {
            Pace::Timeless => self.instant.then_some(self.capacity),
            Pace::Timed if self.wide => Some(self.capacity),
            Pace::Timed => Some(self.free),
        }
    }
}

pub(super) fn key_of(need: &Need, id: NeedId) -> QueueKey {
    (Reverse(need.priority), id)
}

/// The place of a queue among all of an instance: those of higher priority have
/// lower numbers.
fn number_of((Reverse(priority), need): QueueKey) -> u64 {
    let place = priority.cast_unsigned() ^ i32::MAX.cast_unsigned();
    (u64::from(place) << 32) | u64::from(need.0)
}

fn key_at(number: u64) -> QueueKey {
    let place = (number >> 32) as u32;
    (Reverse((place ^ i32::MAX.cast_unsigned()).cast_signed()), NeedId(number as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers order queues as their keys do.
    #[test]
    fn numbers_are_in_the_order_of_queues() {
        let priorities = [i32::MAX, 7, 1, 0, -1, -7, i32::MIN];
        let keys = priorities
            .into_iter()
            .flat_map(|priority| [0, 1, u32::MAX].map(|need| (Reverse(priority), NeedId(need))));
        let keys: Vec<QueueKey> = keys.collect();
        assert!(keys.is_sorted());
        assert!(keys.iter().map(|key| number_of(*key)).is_sorted());
        assert!(keys.iter().all(|key| key_at(number_of(*key)) == *key));
    }
}
