//! Why a command line cannot be turned into tasks.

use super::graph::GraphError;
use super::objects::ObjectError;
use super::workflow::WorkflowError;
use std::fmt;
use std::io;

/// How many wrong lines of a task file are listed.
pub(crate) const LISTED_ERRORS_MAX: usize = 5;

/// Why a command line gives no plan. All of these are usage errors: nothing
/// has run.
#[derive(Debug)]
pub(crate) enum PlanError {
    /// There is nothing to run.
    NoCommand,
    /// A task of a file has no command.
    EmptyCommand,
    /// A task of a file has an empty id.
    EmptyId,
    /// `--tasks` or `--workflow` together with something it excludes.
    ListExcludes {
        /// `--tasks` or `--workflow`.
        list: &'static str,
        /// What stands beside it.
        other: &'static str,
    },
    /// Two sources read standard input.
    StdinTwice,
    /// A pattern matches no file.
    NoMatch {
        /// The pattern.
        pattern: String,
    },
    /// A file named in full is not there.
    NoSuchFile {
        /// Its name.
        path: String,
        /// No command was given, so it may have been meant as one.
        maybe_command: bool,
    },
    /// A file cannot be opened or read.
    Read {
        /// Its name.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// A folder where a file is expected.
    Directory {
        /// Its name.
        path: String,
    },
    /// A source or list without a value.
    EmptySource {
        /// Its name.
        source: String,
    },
    /// A line with a NUL byte cannot be an argument.
    NulByte {
        /// The file.
        path: String,
        /// The line, from 1.
        line: u64,
    },
    /// A line is longer than an argument may be.
    LongLine {
        /// The file.
        path: String,
        /// The line, from 1.
        line: u64,
    },
    /// 65,536 values one after another take more than 4 GiB.
    TooManyBytes {
        /// The source.
        source: String,
    },
    /// The sources' product, or a list, has too many tasks.
    TooManyTasks,
    /// Tasks with declared outputs are too many to be checked.
    TooManyOutputs {
        /// How many tasks there would be.
        tasks: u64,
    },
    /// A placeholder names a source that is not there.
    NoSuchSource {
        /// As it was written.
        placeholder: String,
        /// How many there are.
        sources: usize,
    },
    /// A placeholder stands in a here-document.
    HereDocument {
        /// As it was written.
        placeholder: String,
    },
    /// `@name` that is no builtin.
    UnknownBuiltin {
        /// As it was written.
        name: String,
    },
    /// A builtin with `--shell`.
    BuiltinInShell {
        /// The builtin.
        name: String,
    },
    /// `@sleep` without one number of seconds.
    Sleep {
        /// What it was given instead.
        given: String,
    },
    /// `--call` or `call` without the name of a function.
    Call {
        /// What it has instead.
        text: String,
    },
    /// A function beside something that only programs have.
    CallWith {
        /// What that is.
        other: &'static str,
    },
    /// `kwargs` or `language` without a function.
    NoCall {
        /// The field.
        field: &'static str,
    },
    /// A program's argument that is no text.
    Argument {
        /// What it is instead.
        shown: String,
    },
    /// A source text is too long to be shipped.
    LargeSource {
        /// The file.
        path: String,
        /// The limit in bytes.
        bytes_max: u64,
    },
    /// An `--env` that is not `NAME=VALUE`.
    Env {
        /// As it was written.
        text: String,
    },
    /// A text file is not UTF-8.
    NotUtf8 {
        /// The file.
        path: String,
        /// Line, from 1.
        line: u64,
        /// Column in bytes, from 1.
        column: u64,
    },
    /// A task file that is one JSON array.
    JsonArray {
        /// The file.
        path: String,
    },
    /// A file is larger than one that must be held whole may be.
    LargeFile {
        /// The file.
        path: String,
        /// The limit in bytes.
        bytes_max: u64,
    },
    /// Tasks of a file are wrong.
    Tasks(TaskErrors),
    /// A workflow file is wrong.
    Workflow {
        /// The file.
        path: String,
        /// How.
        source: WorkflowError,
    },
    /// A declared data object is wrong.
    Object(ObjectError),
    /// The dependencies are wrong.
    Graph(GraphError),
}

/// What is wrong in a task file.
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
    /// What is wrong there, as the parser puts it.
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

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::NoCommand => write!(
                f,
                "there is no command to run: write it after `--`, give --call a function, or name a list of tasks \
                 with --tasks or --workflow"
            ),
            PlanError::ListExcludes { list, other } => write!(
                f,
                "{list} names a list of complete tasks and cannot be combined with {other}"
            ),
            PlanError::StdinTwice => {
                write!(f, "standard input (`-`) can be read only once, but two sources name it")
            }
            PlanError::NoMatch { pattern } => write!(f, "no file matches `{pattern}`"),
            PlanError::NoSuchFile { path, maybe_command } => {
                write!(f, "no such file: `{path}`")?;
                match maybe_command {
                    true => write!(f, " (the command to run goes after `--`)"),
                    false => Ok(()),
                }
            }
            PlanError::Read { path, source } => write!(f, "cannot read `{path}`: {source}"),
            PlanError::Directory { path } => {
                write!(f, "`{path}` is a directory, but a file is expected")
            }
            PlanError::EmptySource { source } => write!(f, "there is nothing in {source}"),
            PlanError::NulByte { path, line } => write!(
                f,
                "line {line} of `{path}` has a NUL byte, which no argument can hold: separate \
                 values by line feeds"
            ),
            PlanError::LongLine { path, line } => write!(
                f,
                "line {line} of `{path}` is longer than an argument can be ({} bytes)",
                super::source::VALUE_BYTES_MAX
            ),
            PlanError::TooManyBytes { source } => write!(
                f,
                "{source} has neighbouring entries of more than 4 GiB: pass names of files \
                 instead of contents"
            ),
            _ => self.fmt_command(f),
        }
    }
}

impl PlanError {
    /// The messages about commands and lists of tasks.
    fn fmt_command(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::TooManyTasks => {
                write!(f, "there would be too many tasks: leave out a source or split the run")
            }
            PlanError::TooManyOutputs { tasks } => write!(
                f,
                "{tasks} tasks with declared outputs are too many to check (at most {}): \
                 leave out --output or split the run",
                super::product::OUTPUT_TASKS_MAX
            ),
            PlanError::EmptyCommand => {
                write!(f, "the task has no command: give `command` a program")
            }
            PlanError::EmptyId => write!(f, "the task's id is empty: leave it out or give it one"),
            PlanError::NoSuchSource { placeholder, sources } => match sources {
                0 => write!(
                    f,
                    "`{placeholder}` stands for a source's value, but there is no source: give \
                     --each, --each-line or --range (in a task file braces are plain text)"
                ),
                1 => write!(f, "`{placeholder}` names a source that is not there: there is only 1"),
                sources => write!(
                    f,
                    "`{placeholder}` names a source that is not there: there are {sources}"
                ),
            },
            PlanError::HereDocument { placeholder } => write!(
                f,
                "`{placeholder}` stands in a here-document, where it cannot be quoted safely: \
                 put it into a variable first (value={placeholder})"
            ),
            PlanError::UnknownBuiltin { name } => write!(
                f,
                "there is no builtin `{name}`, only @noop and @sleep; for a program of that \
                 name write `./{name}`"
            ),
            PlanError::BuiltinInShell { name } => {
                write!(f, "`{name}` is a builtin and does not run in a shell: leave out --shell")
            }
            PlanError::Sleep { given } => {
                write!(f, "@sleep takes one number of seconds, such as `@sleep 0.5`, not {given}")
            }
            PlanError::Call { text } => {
                write!(f, "`{text}` names no function: write MODULE:FUNCTION, or FILE.py:FUNCTION")
            }
            PlanError::CallWith { other } => {
                write!(f, "a function is called and not run: leave out {other}")
            }
            PlanError::NoCall { field } => {
                write!(f, "`{field}` is for functions: give `call` one, \"module:function\"")
            }
            PlanError::Argument { shown } => write!(
                f,
                "invalid argument: {shown}, expected a string without NUL or a number \
                 (other values are for functions, with `call`)"
            ),
            PlanError::LargeSource { path, bytes_max } => write!(
                f,
                "`{path}` has more than {} MiB and cannot be shipped: name it as a module \
                 (MODULE:FUNCTION)",
                bytes_max >> 20
            ),
            PlanError::Env { text } => {
                write!(f, "`{text}` is not a variable: write --env NAME=VALUE")
            }
            PlanError::NotUtf8 { path, line, column } => {
                write!(f, "{path}:{line}:{column}: the text is not UTF-8")
            }
            PlanError::JsonArray { path } => write!(
                f,
                "`{path}` is one JSON array, but a task file has one JSON object per line: \
                 convert it with `jq -c '.[]'`"
            ),
            PlanError::LargeFile { path, bytes_max } => write!(
                f,
                "`{path}` is larger than {} MiB: write it as JSON Lines, which may be of any size",
                bytes_max >> 20
            ),
            PlanError::Tasks(errors) => write!(f, "{errors}"),
            PlanError::Workflow { path, source } => write!(f, "{path}: {source}"),
            PlanError::Object(error) => write!(f, "{error}"),
            PlanError::Graph(error) => write!(f, "{error}"),
            _ => write!(f, "the command line gives no plan"),
        }
    }
}

impl std::error::Error for PlanError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PlanError::Read { source, .. } => Some(source),
            PlanError::Workflow { source, .. } => Some(source),
            PlanError::Object(error) => Some(error),
            PlanError::Graph(error) => Some(error),
            _ => None,
        }
    }
}

impl From<GraphError> for PlanError {
    fn from(error: GraphError) -> PlanError {
        PlanError::Graph(error)
    }
}
