//! The properties that distinguish one LRM from another, as data.
//!
//! A description is a TOML file; [`KINDS`] has those of this release. A site's
//! own may replace any field of one, or be a whole one: see
//! `docs/provisioning.md`.

use super::document::Document;
use super::job::State;
use super::template::{Quoting, Template, TemplateError, Values};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The descriptions that this release has, in the order in which they are
/// looked for.
pub const KINDS: [(&str, &str); 10] = [
    ("slurm", include_str!("kinds/slurm.toml")),
    ("flux", include_str!("kinds/flux.toml")),
    ("lsf", include_str!("kinds/lsf.toml")),
    ("gridengine", include_str!("kinds/gridengine.toml")),
    ("torque", include_str!("kinds/torque.toml")),
    ("pbs", include_str!("kinds/pbs.toml")),
    ("htcondor", include_str!("kinds/htcondor.toml")),
    ("kubernetes", include_str!("kinds/kubernetes.toml")),
    ("ssh", include_str!("kinds/ssh.toml")),
    ("local", include_str!("kinds/local.toml")),
];

/// How an LRM is spoken to.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// For people.
    pub title: String,
    /// Programs that are there where this LRM is; none if it is not to be
    /// found by itself.
    #[serde(default)]
    pub programs: Vec<String>,
    /// Settings without which nothing can be submitted.
    #[serde(default)]
    pub requires: Vec<String>,
    /// Settings of its own that it can do without.
    #[serde(default)]
    pub optional: Vec<String>,
    /// Settings of its own, with what they are where the queue does not say.
    #[serde(default)]
    pub defaults: BTreeMap<String, String>,
    /// A job has one node unless the queue's settings have this one.
    #[serde(default)]
    pub several_nodes_with: Option<String>,
    /// Only the executors themselves keep to `cpus`, `gpus` and `memory_mib`.
    #[serde(default)]
    pub executor_limits: bool,
    /// Jobs run on this very machine: all nodes share it.
    #[serde(default)]
    pub here: bool,
    /// A job has one node, whatever is set.
    #[serde(default)]
    pub one_node: bool,
    /// Nodes are given back only together, when the job ends.
    #[serde(default = "yes")]
    pub whole: bool,
    /// Executors get all CPUs of their nodes unless `cpus` says otherwise;
    /// where not, one CPU is asked for.
    #[serde(default)]
    pub whole_nodes: bool,
    /// How long a command may take, in seconds, before it is killed.
    #[serde(default)]
    pub timeout_s: Option<u64>,
    /// How a job is submitted.
    pub submit: Submit,
    /// How jobs are listed.
    pub query: Query,
    /// The words for states.
    #[serde(default)]
    pub states: States,
    /// How one job is asked about by its number, where lists may leave it out.
    #[serde(default)]
    pub about: Option<AboutJob>,
    /// How jobs are cancelled.
    pub cancel: Cancel,
    /// How free nodes are counted, if they can be.
    #[serde(default)]
    pub free: Option<Free>,
    /// How the nodes that there are at all are counted, if they can be.
    #[serde(default)]
    pub size: Option<Free>,
    /// How the program is sent to the nodes of a job that runs, if it can be.
    #[serde(default)]
    pub send: Option<Send>,
}

fn yes() -> bool {
    true
}

/// A word of a command, or several that belong together.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Word {
    /// An argument; left out if a placeholder in it has no value.
    One(String),
    /// Arguments that are left out together.
    Group(Vec<String>),
}

/// How a job is submitted.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Submit {
    /// The command.
    pub command: Vec<Word>,
    /// The bytes on its standard input.
    #[serde(default)]
    pub input: String,
    /// The reader of that input.
    #[serde(default)]
    pub quoting: Quoting,
    /// The value of `{{document}}`, as JSON.
    #[serde(default)]
    pub document: Document,
    /// Where the LRM's name for the job is in the command's output.
    #[serde(default)]
    pub job: Found,
    /// The messages of a failed command after which it is unknown whether the
    /// job was submitted, or after which a later retry may help.
    #[serde(default)]
    pub transient: Vec<String>,
    /// The messages of a failed command for a job of more nodes than a job may
    /// have.
    #[serde(default)]
    pub too_large: Vec<String>,
}

/// Where something is in a text: behind the first `after`, up to one of the
/// characters of `until` or a blank. If there is no `after`, at the beginning
/// of the last line that is not empty.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Found {
    /// The words before it.
    #[serde(default)]
    pub after: String,
    /// The characters that end it.
    #[serde(default)]
    pub until: String,
}

impl Found {
    /// Finds it.
    #[must_use]
    pub fn find<'a>(&self, text: &'a str) -> Option<&'a str> {
        let from = if self.after.is_empty() {
            text.lines().rev().find(|line| !line.trim().is_empty())?.trim_start()
        } else {
            text.split_once(&self.after)?.1
        };
        let ends = |c: char| c.is_whitespace() || self.until.contains(c);
        let found = from.split(ends).next()?;
        (!found.is_empty() && !found.chars().any(char::is_control)).then_some(found)
    }
}

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// A line per job, with columns.
    #[default]
    Columns,
    /// JSON.
    Json,
    /// XML.
    Xml,
}

/// A property of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Field {
    /// The LRM's name for it.
    Job,
    /// The name that it was submitted with.
    Name,
    /// The word for its state.
    State,
    /// Why it is in that state.
    Reason,
    /// The job's nodes.
    Nodes,
    /// How long it may still run.
    Left,
    /// A word that is among those for held jobs if the job is held.
    Hold,
}

/// Where something is in a row: the first of several places where there is
/// anything.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "OneOrMore")]
pub struct Places(Vec<String>);

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl From<OneOrMore> for Places {
    fn from(places: OneOrMore) -> Places {
        match places {
            OneOrMore::One(place) => Places(vec![place]),
            OneOrMore::More(places) => Places(places),
        }
    }
}

impl Places {
    /// The places.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// How jobs are listed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// The command; it lists all jobs of the user, or of the dispatcher.
    pub command: Vec<Word>,
    /// The bytes on its standard input.
    #[serde(default)]
    pub input: String,
    /// The form of its output.
    #[serde(default)]
    pub format: Format,
    /// Between columns; white space, if it is not said. The last column that
    /// is looked at may hold it.
    #[serde(default)]
    pub separator: Option<String>,
    /// Lines at the beginning that are no jobs.
    #[serde(default)]
    pub skip_lines: usize,
    /// JSON: the path of the array or object of jobs, names with points
    /// between. XML: the name of a job's element.
    #[serde(default)]
    pub rows: String,
    /// Where what is: the number of a column from 0, a path in a job's JSON, or
    /// the name of an element. A path is names with points between; `@key` is
    /// the job's own name in an object, `NAME=TEXT` in a path the item of an
    /// array whose NAME is TEXT, or NAME if it is TEXT, and `?` before a path
    /// stands for its last name, if there is anything at it.
    pub fields: BTreeMap<Field, Places>,
    /// A job has a row for each of its nodes.
    #[serde(default)]
    pub row_per_node: bool,
    /// A job has a row of its own, and then one for each of its parts. One that
    /// is over is over; how any other is its parts say, if there are any.
    #[serde(default)]
    pub has_parts: bool,
    /// The messages of a failed command when there are no jobs.
    #[serde(default)]
    pub empty: Vec<String>,
}

/// The words for states.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct States {
    /// The job waits for nodes.
    #[serde(default)]
    pub pending: Vec<String>,
    /// The job is held.
    #[serde(default)]
    pub held: Vec<String>,
    /// Parts of reasons with which a job that waits never starts, for it is for
    /// more nodes than one may have.
    #[serde(default)]
    pub too_large: Vec<String>,
    /// Parts of other reasons with which a job that waits never starts.
    #[serde(default)]
    pub never: Vec<String>,
    /// The job has nodes.
    #[serde(default)]
    pub running: Vec<String>,
    /// The job is over, or about to be.
    #[serde(default)]
    pub ended: Vec<String>,
    /// The job will never run, and never end by itself.
    #[serde(default)]
    pub dead: Vec<String>,
}

impl States {
    /// The state of a word: of all that the LRM says, or of its beginning.
    #[must_use]
    pub fn of(&self, said: &str) -> State {
        let first = said.split_whitespace().next().unwrap_or_default();
        let has = |words: &[String]| words.iter().any(|word| word == said || word == first);
        let all = [
            (&self.running, State::Running),
            (&self.pending, State::Pending),
            (&self.held, State::Held),
            (&self.ended, State::Ended),
            (&self.dead, State::Dead),
        ];
        all.into_iter().find(|(words, _)| has(words)).map_or(State::Unknown, |(_, state)| state)
    }

    /// The state of a waiting job, from its other properties.
    #[must_use]
    pub fn waiting(&self, hold: Option<&str>, reason: Option<&str>) -> State {
        let is_held = hold.is_some_and(|hold| self.held.iter().any(|word| word == hold));
        let says = |parts: &[String]| {
            // Schedulers give it in words alone.
            reason.is_some_and(|reason| parts.iter().any(|part| reason.contains(part.as_str())))
        };
        match () {
            () if is_held => State::Held,
            () if says(&self.too_large) => State::TooLarge,
            () if says(&self.never) => State::Never,
            () => State::Pending,
        }
    }
}

/// How one job, `{{job}}`, is asked about by its number. The answer is of the
/// query's form; without the job it says that there is none.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AboutJob {
    /// The command.
    pub command: Vec<Word>,
    /// The bytes on its standard input.
    #[serde(default)]
    pub input: String,
    /// The messages of a failed command when there is no such job.
    #[serde(default)]
    pub gone: Vec<String>,
    /// The command succeeds if there is such a job, and what it writes is of
    /// another form than the query's.
    #[serde(default)]
    pub is_plain: bool,
}

/// How jobs are cancelled.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// The command; `{{jobs}}` stands for the jobs.
    pub command: Vec<Word>,
    /// The bytes on its standard input.
    #[serde(default)]
    pub input: String,
    /// The messages of a failed command when a job is over already.
    #[serde(default)]
    pub gone: Vec<String>,
}

/// How nodes are counted: the numbers that the command writes, one at the
/// beginning of each line, are added up. Where the nodes that there are at all
/// are counted, a second number of a line bounds those of one job.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Free {
    /// The command.
    pub command: Vec<Word>,
    /// The bytes on its standard input.
    #[serde(default)]
    pub input: String,
}

/// How the program is sent to the nodes of the job `{{job}}`: from
/// `{{own_binary}}` here to `{{sent_binary}}` there.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Send {
    /// The command.
    pub command: Vec<Word>,
    /// The bytes on its standard input.
    #[serde(default)]
    pub input: String,
}

/// Why there is no such description.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// No LRM is known by that name.
    #[error("unknown batch scheduler `{0}`: choose {kinds}", kinds = kinds())]
    Kind(String),
    /// None of the known LRMs is installed here.
    #[error(
        "no batch scheduler was found here (its programs are not in PATH): name one of {}",
        kinds()
    )]
    NoneFound,
    /// The text is no description.
    #[error("description of {kind}: {why}")]
    Toml {
        /// The kind of the LRM.
        kind: String,
        /// The error.
        why: String,
    },
    /// A template in it is none.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A placeholder in it is not known.
    #[error(
        "there is no placeholder {{{{{0}}}}}; settings of the queue's own are placeholders too, \
         once they are set"
    )]
    Placeholder(String),
    /// The query has no field for a job's number, name or state.
    #[error("query.fields does not say where the {0:?} is")]
    Fields(Field),
}

fn kinds() -> String {
    KINDS.map(|(kind, _)| kind).join(", ")
}

impl Description {
    /// The description of `kind`, with what `site` says in the place of its
    /// own. A kind that is not known needs a site that says everything.
    ///
    /// # Errors
    /// The kind is not known, or the whole makes no description.
    pub fn of(kind: &str, site: &toml::Table) -> Result<Description, DescriptionError> {
        let wrong = |why: String| DescriptionError::Toml { kind: kind.to_owned(), why };
        let known = KINDS.iter().find(|(name, _)| *name == kind);
        let mut whole = match known {
            Some((_, text)) => {
                text.parse::<toml::Table>().map_err(|error| wrong(error.to_string()))?
            }
            None if site.contains_key("query") => toml::Table::new(),
            None => return Err(DescriptionError::Kind(kind.to_owned())),
        };
        overlay(&mut whole, site);
        let description: Description =
            whole.try_into().map_err(|error: toml::de::Error| wrong(error.to_string()))?;
        for field in [Field::Job, Field::Name, Field::State] {
            if !description.query.fields.contains_key(&field) {
                return Err(DescriptionError::Fields(field));
            }
        }
        Ok(description)
    }

    /// Whether what is submitted depends on a placeholder.
    #[must_use]
    pub fn submits(&self, name: &str) -> bool {
        let hole = format!("{{{{{name}}}}}");
        let words = self.submit.command.iter().flat_map(|word| match word {
            Word::One(word) => std::slice::from_ref(word),
            Word::Group(words) => words.as_slice(),
        });
        let document = self.submit.document.texts();
        words.chain([&self.submit.input]).chain(document).any(|text| text.contains(&hole))
    }

    /// Checks that everything in it can be filled with `values`.
    ///
    /// # Errors
    /// Names what cannot.
    pub fn check(&self, values: &Values) -> Result<(), DescriptionError> {
        let commands = [&self.submit.command, &self.query.command, &self.cancel.command];
        let free = self.free.iter().chain(&self.size).map(|free| &free.command);
        let about = self.about.iter().map(|about| &about.command);
        let send = self.send.iter().map(|send| &send.command);
        let words =
            commands.into_iter().chain(free).chain(about).chain(send).flatten().flat_map(|word| {
                match word {
                    Word::One(word) => std::slice::from_ref(word),
                    Word::Group(words) => words.as_slice(),
                }
            });
        let inputs = [&self.submit.input, &self.query.input, &self.cancel.input];
        let free = self.free.iter().chain(&self.size).map(|free| &free.input);
        let about = self.about.iter().map(|about| &about.input);
        let free = free.chain(about);
        let send = self.send.iter().map(|send| &send.input);
        let document = self.submit.document.texts();
        for text in words.chain(inputs).chain(free).chain(send).chain(document) {
            let template = Template::new(text)?;
            if let Some(unknown) = template.names().find(|name| !values.knows(name)) {
                return Err(DescriptionError::Placeholder(unknown.to_owned()));
            }
        }
        Ok(())
    }
}

/// Puts what `over` says in the place of what `under` says, table by table.
fn overlay(under: &mut toml::Table, over: &toml::Table) {
    for (key, value) in over {
        match (under.get_mut(key), value) {
            (Some(toml::Value::Table(under)), toml::Value::Table(over)) => overlay(under, over),
            _ => {
                under.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The kind of the LRM that is here: the first whose programs are all in
/// `path`, as the environment's `PATH` lists directories.
///
/// # Errors
/// None is.
pub fn detect(path: &std::ffi::OsStr) -> Result<&'static str, DescriptionError> {
    let dirs: Vec<PathBuf> = std::env::split_paths(path).collect();
    let is_there = |program: &String| dirs.iter().any(|dir| dir.join(program).is_file());
    for (kind, _) in KINDS {
        let description = Description::of(kind, &toml::Table::new())?;
        if !description.programs.is_empty() && description.programs.iter().all(is_there) {
            return Ok(kind);
        }
    }
    Err(DescriptionError::NoneFound)
}
