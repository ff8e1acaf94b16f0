//! Why a workflow file is refused.

use std::fmt;

/// Why a workflow file is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WorkflowError {
    /// The file is not JSON of the right shape.
    #[error("line {line} column {column}: {message}")]
    Json {
        /// Line, from 1.
        line: u64,
        /// Column in bytes, from 1.
        column: u64,
        /// The parser's message.
        message: String,
    },
    /// Another version, or none.
    #[error(
        "this {}, but only 1.5 and 1.6 can be run (WfCommons has a script that converts older \
         files)",
        version(.0.as_deref())
    )]
    Version(Option<String>),
    /// The file has no `execution` part, so there are no commands.
    #[error("the workflow has no `execution` part, so its commands are unknown")]
    NoExecution,
    /// A task has no command.
    #[error(
        "task `{task}` has no command: its entry in `execution.tasks` must have `command.program`"
    )]
    NoCommand {
        /// The task's id.
        task: String,
    },
    /// A command is no builtin, or one with wrong arguments.
    #[error("task `{task}`: {message}")]
    Command {
        /// The task's id.
        task: String,
        /// The error.
        message: String,
    },
    /// Two entries have one id.
    #[error("two tasks of the {part} have the id `{task}`")]
    Doubled {
        /// `specification` or `execution`.
        part: &'static str,
        /// The id.
        task: String,
    },
    /// An id that no task of the specification has.
    #[error("{place} names `{task}`, but no task of the specification has that id")]
    Unknown {
        /// Where it stands.
        place: String,
        /// The id.
        task: String,
    },
    /// One task names another as parent, but is not its child, or the other
    /// way round.
    #[error(fmt = write_disagree)]
    Disagree {
        /// The parent.
        parent: String,
        /// The child.
        child: String,
        /// Whether it is the parent that does not know.
        parent_silent: bool,
    },
}

fn version(found: Option<&str>) -> String {
    match found {
        Some(version) => format!("is WfFormat {version}"),
        None => "has no `schemaVersion`".to_owned(),
    }
}

fn write_disagree(
    parent: &str,
    child: &str,
    parent_silent: &bool,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    if *parent_silent {
        write!(
            f,
            "task `{child}` has `{parent}` among its parents, but `{parent}` does not have it \
             among its children"
        )
    } else {
        write!(
            f,
            "task `{parent}` has `{child}` among its children, but `{child}` does not have it \
             among its parents"
        )
    }
}
