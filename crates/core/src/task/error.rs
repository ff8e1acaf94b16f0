//! Why a submission is refused.

use std::fmt;

/// A part of a submission, as errors name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubmissionPart {
    /// The rows, one for each task.
    Rows,
    /// The tasks that runs of classes count.
    ClassedTasks,
    /// The names, one for each task.
    Names,
    /// The column of packed rows.
    RowColumn,
    /// A run of tasks of one class.
    ClassRun,
    /// The column of names.
    NameColumn,
    /// The place of a task that waits for others.
    DependencyOffset,
    /// A task among those that it waits for.
    DependencyOnItself,
    /// The custom resources of a class.
    CustomResources,
    /// The data objects and who reads and writes them.
    DataObjects,
    /// How many values a task takes.
    ValuesToTake,
    /// All of the submission.
    Tasks,
    /// The factors of computed rows.
    Ranges,
    /// The name of a custom resource.
    ResourceName,
    /// The name of a task.
    TaskName,
    /// The URL of a data object.
    ObjectUrl,
    /// The version of a data object.
    ObjectVersion,
    /// One task, with all that it reads and writes.
    TaskWithData,
    /// The task that is to run everywhere.
    Everywhere,
    /// How many executors run each task of a class together, and what these do.
    Nodes,
    /// A class of which tasks may run twice at the same time.
    Speculation,
    /// The disk space that tasks of a class claim.
    Disk,
    /// The alternatives of a class of tasks.
    Alternatives,
}

impl fmt::Display for SubmissionPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SubmissionPart::Rows => "rows",
            SubmissionPart::ClassedTasks => "classed tasks",
            SubmissionPart::Names => "names",
            SubmissionPart::RowColumn => "row column",
            SubmissionPart::ClassRun => "class run",
            SubmissionPart::NameColumn => "name column",
            SubmissionPart::DependencyOffset => "dependency offset",
            SubmissionPart::DependencyOnItself => "dependency of a task on itself",
            SubmissionPart::CustomResources => "list of custom resources",
            SubmissionPart::DataObjects => "list of data objects",
            SubmissionPart::ValuesToTake => "list of values to take",
            SubmissionPart::Tasks => "list of tasks",
            SubmissionPart::Ranges => "list of ranges",
            SubmissionPart::ResourceName => "name of a resource",
            SubmissionPart::TaskName => "name of a task",
            SubmissionPart::ObjectUrl => "URL of a data object",
            SubmissionPart::ObjectVersion => "version of a data object",
            SubmissionPart::TaskWithData => "task with its data objects",
            SubmissionPart::Everywhere => "task that is to run everywhere",
            SubmissionPart::Nodes => "class of tasks that run on several nodes",
            SubmissionPart::Speculation => {
                "class of tasks of which two tries may run at the same time"
            }
            SubmissionPart::Disk => "class of tasks that claim disk space",
            SubmissionPart::Alternatives => "list of alternatives of a class of tasks",
        })
    }
}

/// Why a submission is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmissionError {
    /// It has no tasks.
    #[error("the submission has no tasks")]
    Empty,
    /// Rows, class runs or names do not add up to `count`.
    #[error("the submission announces {expected} tasks but has {found} {what}")]
    CountMismatch {
        /// What does not add up.
        what: SubmissionPart,
        /// The tasks announced.
        expected: u64,
        /// The entries found.
        found: u64,
    },
    /// A class index, an offset or a column is out of its bounds.
    #[error("the submission has a malformed {0}")]
    Malformed(SubmissionPart),
    /// There are more task ids than 64 bits hold.
    #[error("the instance would have more than 2^63 tasks")]
    TooMany,
    /// A part is longer than what can be sent and kept of it.
    #[error(
        "the submission has a {what} of {bytes} bytes, and at most {bytes_max} can be sent and \
         kept"
    )]
    TooLong {
        /// Which part.
        what: SubmissionPart,
        /// Its length.
        bytes: u64,
        /// The longest there may be.
        bytes_max: u64,
    },
}
