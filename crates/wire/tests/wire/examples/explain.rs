//! Why tasks wait, for all reasons that there are.

use super::{INSTANCE, resources};
use falkon_core::dispatch::{Explained, Obstacle, Offering};
use falkon_core::task::TaskId;

pub(super) fn all() -> Vec<Explained> {
    let name = || "node7:4711".to_owned();
    let taken = Offering {
        executors: 28,
        away: 1,
        leaving: 2,
        suspended: 3,
        drained: 7,
        short: 4,
        emptied: 5,
        full: 6,
    };
    let ready = vec![
        Obstacle::Restart { micros: 3_000_000, executors: 2 },
        Obstacle::Storage,
        Obstacle::Paused,
        Obstacle::Results { bytes: 1 << 30 },
        Obstacle::NoExecutor { away: 1 },
        Obstacle::Unoffered { need: resources(), cache: true, executors: 21 },
        Obstacle::Taken(taken),
        Obstacle::Own { executor: name(), connected: true },
        Obstacle::Emptied { executor: name() },
        Obstacle::Nodes { nodes: 32, need: resources(), offering: 7, executors: 21 },
        Obstacle::FewFree { nodes: 32, free: 7, kept: true, begins_micros: Some(90_000_000) },
        Obstacle::Data { holders: 9, some: vec![name()] },
        Obstacle::Behind { higher: 7, earlier: 90 },
        Obstacle::Turn { some: vec![INSTANCE], count: 3 },
        Obstacle::Quota { used_milli: 16_000, most_milli: 16_500 },
    ];
    let upstream = vec![Obstacle::Tasks { some: vec![TaskId(3), TaskId(4)], count: 20 }];
    vec![
        Explained { task: TaskId(10), count: 80, obstacles: ready },
        Explained { task: TaskId(90), count: 1, obstacles: upstream },
    ]
}
