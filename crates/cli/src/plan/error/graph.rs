//! Why the dependencies of a plan are refused.

use std::fmt;

/// Why a graph is refused. Tasks are named by their ids, or `#7` (from 1) if
/// they have none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GraphError {
    /// Two tasks have one id.
    #[error("tasks {} and {} both have the id `{id}`", .tasks.0, .tasks.1)]
    DoubledId {
        /// The id.
        id: String,
        /// The numbers of both tasks, from 1.
        tasks: (u64, u64),
    },
    /// Tasks wait for ids that nobody has: pairs of task and id.
    #[error(fmt = write_unknown_ids)]
    UnknownIds {
        /// The first of them.
        pairs: Vec<(String, String)>,
        /// How many more there are.
        more: u64,
    },
    /// Tasks wait for one another.
    #[error(fmt = write_cycle)]
    Cycle {
        /// The tasks; each waits for the next, and the last for the first.
        tasks: Vec<String>,
        /// How many tasks the cycle has; `tasks` may name fewer.
        length: u64,
    },
    /// Two tasks write one file.
    #[error("tasks `{}` and `{}` both declare the output `{path}`", .tasks.0, .tasks.1)]
    DoubledOutput {
        /// The file.
        path: String,
        /// Both tasks.
        tasks: (String, String),
    },
    /// A task reads from caches what no task writes there.
    #[error("task `{task}` reads `{read}`, but no other task writes it")]
    NotMade {
        /// The object that it reads.
        read: String,
        /// The task.
        task: String,
    },
    /// More than 2^32 tasks or dependencies.
    #[error("there are more than 4,294,967,295 tasks or dependencies: split the list")]
    TooLarge,
}

fn write_unknown_ids(
    pairs: &[(String, String)],
    more: &u64,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    for (at, (task, id)) in pairs.iter().enumerate() {
        let line_feed = if at == 0 { "" } else { "\n" };
        write!(f, "{line_feed}task `{task}` waits for `{id}`, but no task has that id")?;
    }
    match more {
        0 => Ok(()),
        more => write!(f, "\n… and {more} more unknown ids"),
    }
}

fn write_cycle(tasks: &[String], length: &u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "tasks wait for each other in a cycle: {}", tasks.join(" → "))?;
    if tasks.len() as u64 == *length {
        write!(f, " → {}", tasks.first().map_or("", String::as_str))
    } else {
        write!(f, " → … ({length} tasks)")
    }
}
