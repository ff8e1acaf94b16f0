//! How often tasks were tried, and who has them, across restarts.

use falkon_core::dispatch::Record;
use falkon_core::result::Tries;
use falkon_core::task::{ExecutorId, InstanceId};
use std::collections::BTreeMap;

/// How tasks stand that were tried or are with an executor: how often they were
/// tried, and the executor's incarnation.
pub(crate) type Standing = BTreeMap<(InstanceId, u64), (Tries, Option<u64>)>;

/// How tasks stand according to a snapshot.
pub(crate) fn standing(snapshot: &[Record]) -> Standing {
    let mut incarnations: BTreeMap<ExecutorId, u64> = BTreeMap::new();
    let mut standing = Standing::new();
    for record in snapshot {
        match record {
            Record::ExecutorSeen { executor, incarnation, .. } => {
                incarnations.insert(*executor, *incarnation);
            }
            Record::Attempts { runs } => {
                for run in runs {
                    let executor = run.executor.map(|id| incarnations[&id]);
                    for task in run.first.0..run.first.0 + run.count {
                        standing.insert((run.instance, task), (run.tries, executor));
                    }
                }
            }
            _ => {}
        }
    }
    standing
}
