//! The options that say where values or tasks come from, and values that
//! follow the command.

use super::options::CLASS_FIELDS;
use super::range::{Numbers, range};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// One source of values, as it stands on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SourceArg {
    /// `--each`: patterns or names of files.
    Each(Vec<OsString>),
    /// `--each-line`, `::::`: a file, or `-`.
    Lines(OsString),
    /// `--rows`: a table, or `-`.
    Rows(OsString),
    /// `--range`.
    Range(Numbers),
    /// `--value`, `:::`.
    Values(Vec<OsString>),
}

impl SourceArg {
    /// The option that gives it.
    pub(crate) fn option(&self) -> &'static str {
        match self {
            SourceArg::Each(_) => "--each",
            SourceArg::Lines(_) => "--each-line",
            SourceArg::Rows(_) => "--rows",
            SourceArg::Range(_) => "--range",
            SourceArg::Values(_) => "--value",
        }
    }
}

/// A source in its place among the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    /// The source.
    pub(crate) arg: SourceArg,
    /// Whether its values go with those of the source before it, one to one (`:::+`).
    pub(crate) with_previous: bool,
}

impl From<SourceArg> for Given {
    fn from(arg: SourceArg) -> Given {
        Given { arg, with_previous: false }
    }
}

/// What stands between a command and values, and between values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Separator {
    /// `:::` and `:::+`.
    Values { with_previous: bool },
    /// `::::` and `::::+`.
    Files { with_previous: bool },
}

impl Separator {
    fn of(word: &OsStr) -> Option<Separator> {
        match word.as_bytes() {
            b":::" => Some(Separator::Values { with_previous: false }),
            b":::+" => Some(Separator::Values { with_previous: true }),
            b"::::" => Some(Separator::Files { with_previous: false }),
            b"::::+" => Some(Separator::Files { with_previous: true }),
            _ => None,
        }
    }
}

/// The words of a command line that are the command: those before values.
pub(crate) fn command_words(words: &[OsString]) -> &[OsString] {
    let end = words.iter().position(|word| Separator::of(word).is_some());
    &words[..end.unwrap_or(words.len())]
}

/// The sources that follow a command.
fn following<'a>(words: impl IntoIterator<Item = &'a OsString>) -> Vec<Given> {
    let mut words = words.into_iter().peekable();
    let mut given = Vec::new();
    while let Some(word) = words.next() {
        let Some(separator) = Separator::of(word) else { continue };
        let mut values = Vec::new();
        while let Some(value) = words.next_if(|word| Separator::of(word).is_none()) {
            values.push(value.clone());
        }
        match separator {
            Separator::Values { with_previous } => {
                given.push(Given { arg: SourceArg::Values(values), with_previous });
            }
            Separator::Files { with_previous } => given.extend(
                values.into_iter().map(|file| Given { arg: SourceArg::Lines(file), with_previous }),
            ),
        }
    }
    given
}

/// Where values or tasks come from.
#[derive(Debug, Clone, Default)]
pub(crate) struct SourceArgs {
    /// Sources in the order of the command line; the last varies fastest.
    pub(crate) sources: Vec<Given>,
    /// `--zip`: all sources go one to one.
    pub(crate) zip: bool,
    /// `--colsep`: what separates the columns of lines and of values.
    pub(crate) colsep: Option<OsString>,
    /// `--tasks`: a file of complete tasks, or `-`.
    pub(crate) tasks: Option<PathBuf>,
    /// `--workflow`: a WfFormat file.
    pub(crate) workflow: Option<PathBuf>,
}

/// A source of the words of an option.
type OfWords = fn(Vec<OsString>) -> SourceArg;

const SOURCES: &str = "Sources";

// Written by hand, because the order of different options matters.
impl Args for SourceArgs {
    fn augment_args(command: Command) -> Command {
        let source = |name: &'static str| Arg::new(name).long(name).help_heading(SOURCES);
        command
            .arg(
                source("each")
                    .value_name("GLOB")
                    .num_args(1..)
                    .action(ArgAction::Append)
                    .value_parser(value_parser!(OsString))
                    .help("A task per file: names or patterns (*, ?, [a-z], **), sorted")
                    .long_help(
                        "A task per file. Names and patterns (*, ?, [a-z], and ** for any \
                         folders) up to the next option are one source; quote a pattern to have \
                         it expanded by Falkon instead of by the shell. ARCHIVE.zip!PATTERN is a \
                         task per member of an archive, which is its input. Several sources, of \
                         any kind, combine: every value of one with every value of the others, the \
                         last changing fastest.",
                    ),
            )
            .arg(
                source("each-line")
                    .value_name("FILE")
                    .action(ArgAction::Append)
                    .value_parser(value_parser!(OsString))
                    .help("A task per line of FILE (`-`: standard input)")
                    .long_help(
                        "A task per line of FILE, exactly as it is, without its end (a line feed, \
                         or carriage return and line feed); `-` is standard input. Without any \
                         source, lines piped into standard input are the source if the command \
                         has a placeholder for them.",
                    ),
            )
            .arg(
                source("rows")
                    .value_name("FILE")
                    .action(ArgAction::Append)
                    .value_parser(value_parser!(OsString))
                    .help("A task per row of a table: CSV, TSV or JSON Lines (`-`: standard input)")
                    .long_help(
                        "A task per row of a table, whose columns have names: in CSV and TSV those \
                         of the first line, in JSON Lines those of the objects. {NAME} stands for \
                         the value of the column NAME, {NAME/} for its base name, and so on; {1}, \
                         {2}, … are the columns in order. The format is told by the extension \
                         (.csv, .tsv, .jsonl) or by the first line; `-` is standard input.",
                    ),
            )
            .arg(
                source("range")
                    .value_name("A-B[:STEP]")
                    .action(ArgAction::Append)
                    .allow_hyphen_values(true)
                    .value_parser(range)
                    .help("A task per number from A to B, both included")
                    .long_help(
                        "A task per number from A to B, both included, in steps of STEP (1 by \
                         default): 1-100, 0-90:10, 10-1:-1, -5-5. Numbers may be decimals, which \
                         are exact: 0.1-0.9:0.1. If A or B has leading zeros, all numbers are as \
                         long as the longer of the two: 001-100. Ranges cost nothing, whatever \
                         their length.",
                    ),
            )
            .arg(
                source("value")
                    .value_name("VALUE")
                    .num_args(1..)
                    .allow_negative_numbers(true)
                    .action(ArgAction::Append)
                    .value_parser(value_parser!(OsString))
                    .help("A task per value: all words up to the next option (also: ::: VALUE…)")
                    .long_help(
                        "A task per value. All words up to the next option are one source. The \
                         same values may follow the command, as with GNU parallel: \
                         `falkon run echo {} ::: a b c`.",
                    ),
            )
            .arg(
                source("zip")
                    .action(ArgAction::SetTrue)
                    .help("Combine sources one to one, instead of every value with every other")
                    .long_help(
                        "Combine sources one to one: the first values of all, then the second \
                         ones, … All must have equally many. `:::+ VALUE…` after the command \
                         combines two sources so, and leaves out values of the longer one.",
                    ),
            )
            .arg(
                source("colsep")
                    .value_name("SEPARATOR")
                    .value_parser(value_parser!(OsString))
                    .help("Split lines and values into columns: {1}, {2}, …")
                    .long_help(
                        "Split the lines of --each-line (also of standard input, and ::::) and \
                         the values of --value (also :::) at each SEPARATOR, such as `,` or `\\t` (a \
                         tab). Each column is a source of its own, {1}, {2}, …, and the columns of \
                         a line stay together.",
                    ),
            )
            .arg(
                source("tasks")
                    .value_name("FILE")
                    .value_parser(value_parser!(PathBuf))
                    .help("A list of tasks, JSON Lines or TOML (`-`: standard input)")
                    .long_help(format!(
                        "A list of complete tasks: JSON Lines (one object per line) or TOML \
                         ([[task]] tables), told apart by the extension .toml or the contents; \
                         `-` is standard input. Fields: id, command (a program, or a list with \
                         its arguments), args, or for a function call (\"module:function\"), \
                         args (any values), kwargs, language; shell, env, container, cwd, stdin, \
                         inputs, unpack, outputs, collect_streams, after (ids), {}. A task runs \
                         after the tasks that it names in `after` and those whose outputs are its inputs. Options of the command \
                         line are defaults for the tasks.",
                        CLASS_FIELDS.join(", ")
                    )),
            )
            .arg(
                source("workflow")
                    .value_name("FILE")
                    .value_parser(value_parser!(PathBuf))
                    .help("A workflow in WfFormat 1.5 or 1.6 (WfCommons JSON)")
                    .long_help(
                        "A workflow in WfFormat 1.5 or 1.6 (WfCommons JSON). Its commands run in \
                         the file's folder, or in that of --cwd. Options of the command line \
                         override recorded values of the file.",
                    ),
            )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SourceArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SourceArgs, clap::Error> {
        let mut placed: Vec<(usize, SourceArg)> = Vec::new();
        let lists: [(&str, OfWords); 2] = [("each", SourceArg::Each), ("value", SourceArg::Values)];
        for (name, source) in lists {
            let mut indices = matches.indices_of(name).into_iter().flatten();
            for words in matches.get_occurrences::<OsString>(name).into_iter().flatten() {
                let words: Vec<OsString> = words.cloned().collect();
                let places: Vec<usize> = indices.by_ref().take(words.len()).collect();
                placed.push((places.first().copied().unwrap_or(0), source(words)));
            }
        }
        let files = matches.get_many::<OsString>("each-line").into_iter().flatten();
        let indices = matches.indices_of("each-line").into_iter().flatten();
        placed.extend(indices.zip(files.cloned().map(SourceArg::Lines)));
        let files = matches.get_many::<OsString>("rows").into_iter().flatten();
        let indices = matches.indices_of("rows").into_iter().flatten();
        placed.extend(indices.zip(files.cloned().map(SourceArg::Rows)));
        let ranges = matches.get_many::<Numbers>("range").into_iter().flatten();
        let indices = matches.indices_of("range").into_iter().flatten();
        placed.extend(indices.zip(ranges.copied().map(SourceArg::Range)));
        placed.sort_by_key(|(place, _)| *place);
        let mut sources: Vec<Given> = placed.into_iter().map(|(_, source)| source.into()).collect();
        let words = matches.try_get_many::<OsString>("words").ok().flatten();
        sources.extend(following(words.into_iter().flatten()));
        Ok(SourceArgs {
            sources,
            zip: matches.get_flag("zip"),
            colsep: matches.get_one::<OsString>("colsep").cloned(),
            tasks: matches.get_one::<PathBuf>("tasks").cloned(),
            workflow: matches.get_one::<PathBuf>("workflow").cloned(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
