//! Why a command line cannot be turned into tasks.

mod graph;
mod object;
mod table;
mod workflow;

pub(crate) use graph::GraphError;
pub(crate) use object::ObjectError;
pub(crate) use table::TableError;
pub(crate) use workflow::WorkflowError;

use super::limits::{OUTPUT_TASKS_MAX, VALUE_BYTES_MAX};
use std::fmt;
use std::io;

/// How many wrong lines of a task file are listed.
pub(crate) const LISTED_ERRORS_MAX: usize = 5;

/// Why a command line gives no plan. All of these are usage errors: nothing
/// has run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    /// There is nothing to run.
    #[error(
        "there is no command to run: write it after `--`, give --call a function, or name a list \
         of tasks with --tasks or --workflow"
    )]
    NoCommand,
    /// A task of a file has no command.
    #[error("the task has no command: give `command` a program")]
    EmptyCommand,
    /// A task of a file has an empty id.
    #[error("the task's id is empty: leave it out or give it one")]
    EmptyId,
    /// `--tasks` or `--workflow` together with something it excludes.
    #[error("{list} names a list of complete tasks and cannot be combined with {other}")]
    ListExcludes {
        /// `--tasks` or `--workflow`.
        list: &'static str,
        /// The option or argument beside it.
        other: &'static str,
    },
    /// Two sources read standard input.
    #[error("standard input (`-`) can be read only once, but two sources name it")]
    StdinTwice,
    /// A pattern matches no file.
    #[error("no file matches `{pattern}`")]
    NoMatch {
        /// The pattern.
        pattern: String,
    },
    /// A pattern, or a name, is that of no member.
    #[error("no member matches `{pattern}`: falkon archive ls lists them")]
    NoMember {
        /// The archive and the pattern.
        pattern: String,
    },
    /// An archive whose members are named cannot be read.
    #[error("{0}")]
    Archive(#[source] falkon_archive::ReadError),
    /// A pattern for members that is too long.
    #[error("a pattern for members has {bytes} bytes at most")]
    LongPattern {
        /// How many it may have.
        bytes: usize,
    },
    /// A member that matches cannot be an input.
    #[error("the member `{member}` of {archive} cannot be an input of a task: {reason}")]
    Member {
        /// The archive.
        archive: String,
        /// The member's name.
        member: String,
        /// Why not.
        reason: String,
    },
    /// A file named in full is not there.
    #[error(
        "no such file: `{path}`{}",
        if *.maybe_command { " (the command to run goes after `--`)" } else { "" }
    )]
    NoSuchFile {
        /// The name.
        path: String,
        /// No command was given, so it may have been meant as one.
        maybe_command: bool,
    },
    /// A file cannot be opened or read.
    #[error("cannot read `{path}`: {source}")]
    Read {
        /// The name.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// A folder where a file is expected.
    #[error("`{path}` is a directory, but a file is expected")]
    Directory {
        /// The name.
        path: String,
    },
    /// A source or list without a value.
    #[error("there is nothing in {name}")]
    EmptySource {
        /// The name.
        name: String,
    },
    /// A line with a NUL byte cannot be an argument.
    #[error(
        "line {line} of `{path}` has a NUL byte, which no argument can hold: separate values by \
         line feeds"
    )]
    NulByte {
        /// The file.
        path: String,
        /// The line, from 1.
        line: u64,
    },
    /// A line is longer than an argument may be.
    #[error("line {line} of `{path}` is longer than an argument can be ({VALUE_BYTES_MAX} bytes)")]
    LongLine {
        /// The file.
        path: String,
        /// The line, from 1.
        line: u64,
    },
    /// 65,536 values one after another take more than 4 GiB.
    #[error(
        "{name} has neighbouring entries of more than 4 GiB: pass names of files instead of \
         contents"
    )]
    TooManyBytes {
        /// The source.
        name: String,
    },
    /// The sources' product, or a list, has too many tasks.
    #[error("there would be too many tasks: leave out a source or split the run")]
    TooManyTasks,
    /// Tasks with declared outputs are too many to be checked.
    #[error(
        "{tasks} tasks with declared outputs are too many to check (at most {OUTPUT_TASKS_MAX}): \
         leave out --output or split the run"
    )]
    TooManyOutputs {
        /// How many tasks there would be.
        tasks: u64,
    },
    /// Lines of different numbers of columns.
    #[error("line {line} of {name} has {found} columns, and the first one has {columns}")]
    UnevenColumns {
        /// The source.
        name: String,
        /// The line, from 1.
        line: u64,
        /// How many it has.
        found: usize,
        /// How many the first one has.
        columns: usize,
    },
    /// A line of a table is wrong.
    #[error("line {line} of {name}: {error}")]
    Table {
        /// The file.
        name: String,
        /// The line, from 1.
        line: u64,
        /// Why the line cannot be read.
        error: TableError,
    },
    /// `--colsep` without a character.
    #[error("--colsep needs a character at which lines are split, such as `,` or `\\t`")]
    NoSeparator,
    /// `--zip` of sources of different lengths.
    #[error(
        "--zip combines values one to one, and one source has {first} and another {other}: give \
         all equally many (`:::+` leaves out the rest of the longer one)"
    )]
    UnevenZip {
        /// How many the first one has.
        first: u64,
        /// How many another has.
        other: u64,
    },
    /// A script where a program is expected.
    #[error(
        "`{text}` is one word, and there is no program of that name: did you mean --shell, which \
         runs it as a script? Otherwise write its words without quotes around all of them"
    )]
    OneWord {
        /// The word.
        text: String,
    },
    /// A placeholder names a source that is not there.
    #[error(fmt = write_no_such_source)]
    NoSuchSource {
        /// The text as it was written.
        placeholder: String,
        /// How many there are.
        sources: usize,
    },
    /// A placeholder stands in a here-document.
    #[error(
        "`{placeholder}` stands in a here-document, where it cannot be quoted safely: put it into \
         a variable first (value={placeholder})"
    )]
    HereDocument {
        /// The text as it was written.
        placeholder: String,
    },
    /// `@name` that is no builtin.
    #[error(
        "there is no builtin `{name}`, only @noop and @sleep; for a program of that name write \
         `./{name}`"
    )]
    UnknownBuiltin {
        /// The text as it was written.
        name: String,
    },
    /// A builtin with `--shell`.
    #[error("`{name}` is a builtin and does not run in a shell: leave out --shell")]
    BuiltinInShell {
        /// The builtin.
        name: String,
    },
    /// A task on several executors whose CPUs are to be found out.
    #[error(
        "--cpus auto is for tasks on one node: say how many CPUs a task with --nodes-per-task has \
         on each of its nodes, or leave --cpus out"
    )]
    GangCpus,
    /// A task on several executors whose memory is to be found out.
    #[error(
        "--memory auto is for tasks on one node: say how much memory a task with --nodes-per-task \
         has on each of its nodes, or leave --memory out"
    )]
    GangMemory,
    /// A task on several executors that claims disk space.
    #[error(
        "--disk is for tasks on one node: with --nodes-per-task, have the processes of a task use \
         the temporary directories of their nodes"
    )]
    GangDisk,
    /// More alternatives than a task has.
    #[error(
        "a task has at most {most} alternatives beside what it holds by preference, not {given}: \
         leave some --or out"
    )]
    ManyAlternatives {
        /// How many there are.
        given: usize,
        /// How many there may be.
        most: usize,
    },
    /// Two alternatives that are the same.
    #[error("two alternatives of a task are the same, {shown}: leave one --or out")]
    SameAlternative {
        /// Both.
        shown: String,
    },
    /// Alternatives beside something that says otherwise what a task holds.
    #[error(
        "--or is for tasks that say what they hold, and run once, on one node: leave out {other}"
    )]
    AlternativesWith {
        /// The option or field.
        other: &'static str,
    },
    /// A task on several executors in a container.
    #[error(
        "--container is for tasks on one node: with --nodes-per-task, start the processes of the \
         launcher in containers, as in `mpiexec apptainer exec IMAGE PROGRAM`"
    )]
    GangContainer,
    /// The image of a task's container, or a path that the container is to bind, is not valid.
    #[error(transparent)]
    Container(#[from] super::setup::ContainerError),
    /// `--speculate` beside something that two tries of a task cannot do at the same time.
    #[error(
        "--speculate runs a task that straggles a second time at the same time, on one other node: \
         leave out {other}"
    )]
    SpeculateWith {
        /// The option or field.
        other: &'static str,
    },
    /// `--speculate` with an output that two tries of a task would write to the same place.
    #[error(
        "--speculate is for outputs in stores: two tries of a task would both write `{output}`, \
         {place}; declare it as NAME=TARGET, where it appears as a whole, or leave out --speculate"
    )]
    SpeculateOutput {
        /// The output as it is declared.
        output: String,
        /// Where that is, for people.
        place: &'static str,
    },
    /// `@sleep` without one number of seconds.
    #[error("@sleep takes one number of seconds, such as `@sleep 0.5`, not {given}")]
    Sleep {
        /// The arguments it was given instead.
        given: String,
    },
    /// `--call` or `call` without the name of a function.
    #[error("`{text}` names no function: write MODULE:FUNCTION, or FILE.py:FUNCTION")]
    Call {
        /// The text it has instead.
        text: String,
    },
    /// A function beside something that only programs have.
    #[error("a function is called and not run: leave out {other}")]
    CallWith {
        /// The option or field.
        other: &'static str,
    },
    /// `kwargs` or `language` without a function.
    #[error("`{field}` is for functions: give `call` one, \"module:function\"")]
    NoCall {
        /// The field.
        field: &'static str,
    },
    /// A program's argument that is no text.
    #[error(
        "invalid argument: {shown}, expected a string without NUL or a number (other values are \
         for functions, with `call`)"
    )]
    Argument {
        /// The value it is instead.
        shown: String,
    },
    /// A source text is too long to be shipped.
    #[error(
        "`{path}` has more than {} MiB and cannot be shipped: name it as a module \
         (MODULE:FUNCTION)",
        .bytes_max >> 20
    )]
    LargeSource {
        /// The file.
        path: String,
        /// The limit in bytes.
        bytes_max: u64,
    },
    /// An `--env` that is not `NAME=VALUE`.
    #[error("`{text}` is not a variable: write --env NAME=VALUE, or --env NAME for its value here")]
    Env {
        /// The text as it was written.
        text: String,
    },
    /// An `--env NAME` that is not set here.
    #[error("the variable `{name}` is not set here: set it, or write --env {name}=VALUE")]
    EnvUnset {
        /// The variable.
        name: String,
    },
    /// A text file is not UTF-8.
    #[error("{path}:{line}:{column}: the text is not UTF-8")]
    NotUtf8 {
        /// The file.
        path: String,
        /// Line, from 1.
        line: u64,
        /// Column in bytes, from 1.
        column: u64,
    },
    /// A task file that is one JSON array.
    #[error(
        "`{path}` is one JSON array, but a task file has one JSON object per line: convert it with \
         `jq -c '.[]'`"
    )]
    JsonArray {
        /// The file.
        path: String,
    },
    /// A file is larger than one that must be held whole may be.
    #[error(
        "`{path}` is larger than {} MiB: write it as JSON Lines, which may be of any size",
        .bytes_max >> 20
    )]
    LargeFile {
        /// The file.
        path: String,
        /// The limit in bytes.
        bytes_max: u64,
    },
    /// Tasks of a file are wrong.
    #[error("{0}")]
    Tasks(TaskErrors),
    /// A workflow file is wrong.
    #[error("{path}: {source}")]
    Workflow {
        /// The file.
        path: String,
        /// How.
        source: WorkflowError,
    },
    /// A declared data object is wrong.
    #[error(transparent)]
    Object(ObjectError),
    /// The dependencies are wrong.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// Errors in a task file.
#[derive(Debug, Default)]
pub(crate) struct TaskErrors {
    /// The file.
    pub(crate) path: String,
    /// The first errors, in order.
    pub(crate) errors: Vec<TaskError>,
    /// How many more there are.
    pub(crate) more: u64,
}

/// One error in a task file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskError {
    /// Line, from 1.
    pub(crate) line: u64,
    /// Column in bytes, from 1.
    pub(crate) column: u64,
    /// The parser's message.
    pub(crate) message: String,
}

impl TaskErrors {
    /// Notes an error; only the first few are kept.
    pub(crate) fn push(&mut self, error: TaskError) {
        if self.errors.len() < LISTED_ERRORS_MAX {
            self.errors.push(error);
        } else {
            self.more += 1;
        }
    }
}

impl fmt::Display for TaskErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.errors.iter().enumerate() {
            let line_feed = if at == 0 { "" } else { "\n" };
            let TaskError { line, column, message } = error;
            write!(f, "{line_feed}{}:{line}:{column}: {message}", self.path)?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\n… and {more} more lines of {} are wrong", self.path),
        }
    }
}

fn write_no_such_source(
    placeholder: &str,
    sources: &usize,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    match sources {
        0 => write!(
            f,
            "`{placeholder}` stands for a source's value, but there is no source: give --each, \
             --each-line, --range, --value or --rows (in a task file braces are plain text)"
        ),
        1 => write!(f, "`{placeholder}` names a source that is not there: there is only 1"),
        sources => {
            write!(f, "`{placeholder}` names a source that is not there: there are {sources}")
        }
    }
}
