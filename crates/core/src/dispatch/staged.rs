//! Tasks that are staged, for relays: the dispatcher above is to know that such a task
//! holds no room any more, and that it holds some again where what it had staged is lost
//! with an executor. A relay asks, and is answered when there is something new since it
//! last was, over the same connection.

use super::fleet::InFlight;
use super::{ConnectionId, Dispatcher, Reply, RequestError};
use crate::limits::UPDATE_RUNS_MAX;
use crate::runset::RunSet;
use crate::task::InstanceId;
use std::collections::BTreeMap;

/// The staged tasks of one instance, as one connection knows them.
#[derive(Debug, Default)]
struct Reader {
    /// The request that waits for an answer.
    request: Option<u64>,
    /// Tasks that it was told to be staged, and that have not gone since.
    told: RunSet,
    /// Tasks that are staged, and that it was not told of.
    staged: RunSet,
    /// Tasks that it was told to be staged, and that no executor has staged any more:
    /// they have ended, or wait or run again.
    gone: RunSet,
}

impl Reader {
    fn stage(&mut self, first: u64, count: u64) {
        for (first, count) in self.gone.within(first, count) {
            self.gone.remove(first, count);
            self.told.insert(first, count);
        }
        for (first, count) in self.told.gaps(first, count) {
            self.staged.insert(first, count);
        }
    }

    fn unstage(&mut self, first: u64, count: u64) {
        self.staged.remove(first, count);
        for (first, count) in self.told.within(first, count) {
            self.told.remove(first, count);
            self.gone.insert(first, count);
        }
    }

    /// Takes the news: tasks that are staged, and tasks that are staged no longer and have
    /// not ended. News beyond a message follow with the next.
    fn take(&mut self, unended: impl Fn(u64, u64) -> Vec<(u64, u64)>) -> (Runs, Runs) {
        let gone = std::mem::take(&mut self.gone);
        let mut unstaged = Vec::new();
        for (first, count) in gone.iter() {
            for (first, count) in unended(first, count) {
                match unstaged.len() < UPDATE_RUNS_MAX / 2 {
                    true => unstaged.push((first, count)),
                    false => drop(self.gone.insert(first, count)),
                }
            }
        }
        let staged: Runs = self.staged.iter().take(UPDATE_RUNS_MAX / 2).collect();
        for (first, count) in &staged {
            self.staged.remove(*first, *count);
            self.told.insert(*first, *count);
        }
        (staged, unstaged)
    }
}

/// Runs of tasks, as (first, count).
type Runs = Vec<(u64, u64)>;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Staged {
    readers: BTreeMap<(InstanceId, ConnectionId), Reader>,
    /// Something is new, or is asked for.
    has_news: bool,
}

impl Staged {
    /// Tasks of an instance are staged.
    pub(super) fn note(&mut self, id: InstanceId, first: u64, count: u64) {
        self.each(id, |reader| reader.stage(first, count));
    }

    /// Tasks that an executor had are in its hands no longer, or are not staged there any
    /// more.
    pub(super) fn gone(&mut self, id: InstanceId, run: &InFlight) {
        if run.is_staged {
            self.each(id, |reader| reader.unstage(run.first, run.count));
        }
    }

    /// A connection is gone: it is told all anew.
    pub(super) fn close(&mut self, connection: ConnectionId) {
        self.readers.retain(|(_, reader), _| *reader != connection);
    }

    fn each(&mut self, id: InstanceId, change: impl Fn(&mut Reader)) {
        let all = (id, ConnectionId(0))..=(id, ConnectionId(u64::MAX));
        for (_, reader) in self.readers.range_mut(all) {
            change(reader);
            self.has_news = true;
        }
    }
}

impl Dispatcher {
    /// A relay asks which tasks of its instance are staged, or not any more, that it was
    /// not told of over this connection. It is answered when there are some.
    pub(super) fn await_staged(
        &mut self,
        connection: ConnectionId,
        request: u64,
        id: InstanceId,
    ) -> Result<(), RequestError> {
        self.attach(connection, id)?;
        let key = (id, connection);
        if !self.staged.readers.contains_key(&key) {
            let mut reader = Reader::default();
            let all = (id, 0)..=(id, u64::MAX);
            let runs = self.fleet.iter().flat_map(|executor| executor.in_flight.range(all.clone()));
            for (_, run) in runs.filter(|(_, run)| run.is_staged) {
                reader.staged.insert(run.first, run.count);
            }
            self.staged.readers.insert(key, reader);
        }
        let reader = self.staged.readers.get_mut(&key);
        let before = reader.and_then(|reader| reader.request.replace(request));
        if let Some(before) = before {
            self.reply(connection, before, Reply::Staged { staged: vec![], unstaged: vec![] });
        }
        self.staged.has_news = true;
        Ok(())
    }

    /// Answers relays that ask which tasks are staged, where there is something new.
    pub(super) fn tell_staged(&mut self) {
        if !std::mem::take(&mut self.staged.has_news) {
            return;
        }
        let mut gone = Vec::new();
        for ((id, connection), reader) in &mut self.staged.readers {
            let Some(instance) = self.instances.find_mut(id) else {
                gone.push((*id, *connection));
                continue;
            };
            let Some(request) = reader.request else { continue };
            let (staged, unstaged) =
                reader.take(|first, count| instance.tasks.unended(first, count));
            if !staged.is_empty() || !unstaged.is_empty() {
                reader.request = None;
                self.outbound.reply(*connection, request, Reply::Staged { staged, unstaged });
            }
        }
        for key in gone {
            self.staged.readers.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TASKS: u64 = 12;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        #[test]
        fn who_asks_at_any_time_knows_what_is_staged(
            steps in prop::collection::vec((0..TASKS, 0..5u8), 0..200)
        ) {
            let (mut reader, mut staged, mut ended) =
                (Reader::default(), RunSet::default(), RunSet::default());
            let mut known = RunSet::default();
            for (task, what) in steps {
                if ended.contains(task) {
                    continue;
                }
                match what {
                    0 | 1 => {
                        staged.insert(task, 1);
                        reader.stage(task, 1);
                    }
                    2 | 3 => {
                        if what == 3 {
                            ended.insert(task, 1);
                            // Its result says so.
                            known.remove(task, 1);
                        }
                        staged.remove(task, 1);
                        reader.unstage(task, 1);
                    }
                    _ => {
                        let (now, not) = reader.take(|first, count| ended.gaps(first, count));
                        for (first, count) in now {
                            prop_assert_eq!(known.insert(first, count), count);
                        }
                        for (first, count) in not {
                            prop_assert_eq!(known.remove(first, count), count);
                        }
                        prop_assert_eq!(&known, &staged);
                    }
                }
            }
        }
    }
}
