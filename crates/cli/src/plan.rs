//! From a command line to tasks: sources and placeholders, task files,
//! workflows.
//!
//! A [`Plan`] is what runs and what a dry run prints. It costs
//! - nothing per task for `--range`, however many there are;
//! - a value's bytes and four more for each value of `--each` and
//!   `--each-line`, and nothing per combination of several sources: rows are
//!   made when they are submitted;
//! - the encoded command, the name and eight bytes for each task of a task
//!   file or workflow (some 150 bytes for a command of six words with an input
//!   and an output), and four more with four per dependency if there are
//!   dependencies;
//! - while it is being made, some 50 bytes more for each id and declared file.

mod alternatives;
pub(crate) mod args;
mod call;
mod column;
mod error;
mod files;
mod gang;
mod graph;
mod identity;
mod limits;
mod listed;
mod members;
mod objects;
mod one_word;
mod options;
mod placeholder;
mod product;
pub(crate) mod quantity;
mod range;
mod recomputed;
mod render;
mod selection;
mod setup;
mod shell;
mod source;
mod source_args;
mod sources;
mod speculation;
mod streams;
mod submissions;
mod table;
mod taskfile;
mod texts;
mod workflow;

pub(crate) use args::PlanArgs;
pub(crate) use error::PlanError;
pub(crate) use files::{is_pattern, name_matches};
pub(crate) use identity::TaskFiles;
pub(crate) use placeholder::has_value;
pub(crate) use quantity::{
    capture_bytes, disk_bytes, duration_micros, memory_bytes, name, resource,
};
pub(crate) use shell::script;

use falkon_core::task::TaskClass;
use falkon_wire::codec::Wire;
use falkon_wire::command::{Command, Template};
use graph::{Dependencies, GraphBuilder, Made};
use listed::{ListBuilder, Listed};
use product::{Product, Ties};
use selection::Selection;
use source_args::{Given, SourceArg, SourceArgs};
use sources::Sources;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{BufRead, Read};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Inputs of a plan besides its arguments.
pub(crate) struct Surroundings<'a> {
    /// Standard input, for sources that are `-`.
    pub(crate) stdin: &'a mut dyn BufRead,
    /// Whether standard input is a pipe or file: its lines are a source if the
    /// command line has none, but has placeholders for values.
    pub(crate) stdin_is_piped: bool,
    /// The folder from which relative paths are seen, absolute.
    pub(crate) current_dir: &'a Path,
}

/// Tasks in order, checked: ids are unique, dependencies exist and have no
/// cycle, no two tasks declare one output.
///
/// A task has a *position* in this plan, from 0: it is the id it gets in a new
/// instance. It also has an *index*, its position in the plan that the command
/// line gives; the two differ only after [`Plan::select`], and what `{#}`
/// stands for is always the index and one.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    body: Arc<Body>,
    dependencies: Arc<Dependencies>,
    /// The encoded template of a product or list.
    template: Arc<Vec<u8>>,
    /// Facts about data objects, if tasks declare any.
    objects: Option<Arc<Objects>>,
    /// The selected part of the whole plan; `None` is all.
    selection: Option<Selection>,
    /// The folder from which relative paths are seen, absolute.
    current_dir: Arc<[u8]>,
}

/// Facts about data objects that a plan's tasks share.
#[derive(Debug)]
struct Objects {
    /// The folder from which relative sources are seen.
    current_dir: Vec<u8>,
    /// Files and objects that tasks write.
    made: HashSet<Made>,
    /// The version that this has.
    made_version: Arc<str>,
    /// Whether tasks read what others leave in caches.
    reads_caches: bool,
    /// Objects that tasks read and caches have already.
    held: BTreeSet<Vec<u8>>,
    /// Versions and sizes of objects in caches, once known.
    held_versions: OnceLock<HeldVersions>,
}

/// Of each URL of an object in caches, its version and its size.
pub(crate) type HeldVersions = HashMap<Vec<u8>, (Arc<str>, Option<u64>)>;

impl Objects {
    fn new(
        current_dir: Vec<u8>,
        made: HashSet<Made>,
        held: BTreeSet<Vec<u8>>,
        reads_caches: bool,
    ) -> Objects {
        let mut random = [0; 16];
        // Without randomness the time will do: it only has to differ from
        // other plans.
        if getrandom::fill(&mut random).is_err() {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            random = now.map_or(0, |now| now.as_nanos()).to_le_bytes();
        }
        let made_version = format!("{}{:032x}", objects::MADE, u128::from_le_bytes(random));
        Objects {
            current_dir,
            made,
            made_version: made_version.into(),
            reads_caches,
            held,
            held_versions: OnceLock::new(),
        }
    }

    /// What is known of an object before any store is asked: its version, and
    /// its size.
    fn known(&self, source: &[u8]) -> Option<(Arc<str>, Option<u64>)> {
        if graph::is_made(&self.made, source) {
            return Some((self.made_version.clone(), None));
        }
        self.held_versions.get().and_then(|held| held.get(source)).cloned()
    }
}

#[derive(Debug)]
enum Body {
    Product(Box<Product>),
    Listed(Listed),
}

impl Plan {
    /// The plan of a command line.
    ///
    /// # Errors
    /// Says what is wrong with it; nothing has run.
    pub(crate) fn new(args: &PlanArgs, surroundings: Surroundings<'_>) -> Result<Plan, PlanError> {
        check_combination(args)?;
        let current_dir = surroundings.current_dir.as_os_str().as_bytes().to_vec();
        if args.sources.tasks.is_some() || args.sources.workflow.is_some() {
            return Plan::from_list(args, surroundings);
        }
        if args.command().is_empty() && args.sources.sources.is_empty() && args.call.is_none() {
            return Err(PlanError::NoCommand);
        }
        let sources = Sources::read(args, surroundings)?;
        let mut product = Product::new(args, sources)?;
        objects::make_template_absolute(&mut product.template, &current_dir);
        streams::make_template_absolute(&mut product.template, &current_dir)
            .map_err(PlanError::Object)?;
        let reads_held = args.options.reads_held;
        let Ties { dependencies, made, held } = product.dependencies(&current_dir, reads_held)?;
        let template = Template::Command(product.template.clone()).to_bytes();
        let first = product.command(0).unwrap_or_default();
        let has_objects = objects::has_objects(&first);
        let reads_caches = objects::reads_caches(&first);
        let folder: Arc<[u8]> = current_dir.as_slice().into();
        Ok(Plan {
            body: Arc::new(Body::Product(Box::new(product))),
            dependencies: Arc::new(dependencies),
            template: Arc::new(template),
            objects: has_objects
                .then(|| Arc::new(Objects::new(current_dir, made, held, reads_caches))),
            selection: None,
            current_dir: folder,
        })
    }

    fn from_list(args: &PlanArgs, surroundings: Surroundings<'_>) -> Result<Plan, PlanError> {
        let current_dir = surroundings.current_dir;
        let mut list = ListBuilder::default();
        let mut graph = GraphBuilder::new(current_dir.as_os_str().as_bytes())
            .reading_held(args.options.reads_held);
        let options = &args.options;
        let shown;
        if let Some(path) = &args.sources.workflow {
            shown = path.display().to_string();
            let mut bytes = Vec::new();
            source::open(path)?
                .take(workflow::WORKFLOW_BYTES_MAX + 1)
                .read_to_end(&mut bytes)
                .map_err(|source| PlanError::Read { path: shown.clone(), source })?;
            if bytes.len() as u64 > workflow::WORKFLOW_BYTES_MAX {
                let bytes_max = workflow::WORKFLOW_BYTES_MAX;
                return Err(PlanError::LargeFile { path: shown, bytes_max });
            }
            let folder = files::folder_of(current_dir, path);
            let folder = folder.as_os_str().as_bytes();
            workflow::read(&bytes, &shown, folder, options, &mut list, &mut graph)?;
        } else {
            let path = args.sources.tasks.as_deref().unwrap_or(Path::new("-"));
            shown = path.display().to_string();
            match path == Path::new("-") {
                true => {
                    let name = "standard input";
                    taskfile::read(surroundings.stdin, name, options, &mut list, &mut graph)?;
                }
                false => {
                    let mut file = source::open(path)?;
                    taskfile::read(&mut file, &shown, options, &mut list, &mut graph)?;
                }
            }
        }
        let listed = list.finish();
        if listed.count == 0 {
            return Err(PlanError::EmptySource { name: format!("`{shown}`") });
        }
        let name = |index: u64| {
            let name = listed.find(index).and_then(|(chunk, offset)| chunk.name(offset));
            let name = name.map(|name| String::from_utf8_lossy(name).into_owned());
            name.unwrap_or_else(|| format!("#{}", index + 1))
        };
        let objects = listed.has_objects.then(|| {
            let current_dir = current_dir.as_os_str().as_bytes().to_vec();
            let reads_caches = graph.reads_caches();
            Arc::new(Objects::new(current_dir, graph.made(), graph.held(), reads_caches))
        });
        let dependencies = graph.finish(listed.count, name)?;
        Ok(Plan {
            body: Arc::new(Body::Listed(listed)),
            dependencies: Arc::new(dependencies),
            template: Arc::new(Template::Each.to_bytes()),
            objects,
            selection: None,
            current_dir: current_dir.as_os_str().as_bytes().into(),
        })
    }

    /// How many tasks.
    pub(crate) fn count(&self) -> u64 {
        self.selection.as_ref().map_or(self.whole_count(), Selection::len)
    }

    /// Whether tasks read what others leave in caches.
    pub(crate) fn reads_caches(&self) -> bool {
        self.objects.as_ref().is_some_and(|objects| objects.reads_caches)
    }

    /// The URLs of what tasks read that is in caches already.
    pub(crate) fn held(&self) -> impl Iterator<Item = &[u8]> {
        self.objects.iter().flat_map(|objects| objects.held.iter().map(Vec::as_slice))
    }

    /// Says which versions those have; once.
    pub(crate) fn set_held(&self, versions: HeldVersions) {
        if let Some(objects) = &self.objects {
            // A second look-up finds the same versions.
            let _ = objects.held_versions.set(versions);
        }
    }

    /// Whether any task reads or writes data objects.
    pub(crate) fn has_objects(&self) -> bool {
        self.objects.is_some()
    }

    /// Whether any task's output streams go to an archive.
    pub(crate) fn collects_streams(&self) -> bool {
        match &*self.body {
            Body::Product(product) => product.template.streams.is_some(),
            Body::Listed(listed) => listed.collects_streams,
        }
    }

    /// On how many nodes together the widest task runs.
    pub(crate) fn nodes_max(&self) -> u32 {
        let nodes = match &*self.body {
            Body::Product(product) => product.class.nodes,
            Body::Listed(listed) => {
                listed.classes.iter().map(|class| class.nodes).max().unwrap_or(1)
            }
        };
        nodes.max(1)
    }

    /// How many tasks the command line gives, selected or not.
    pub(crate) fn whole_count(&self) -> u64 {
        match &*self.body {
            Body::Product(product) => product.count,
            Body::Listed(listed) => listed.count,
        }
    }

    /// The index of the task at `position`, which must be below
    /// [`Plan::count`].
    pub(crate) fn index_of(&self, position: u64) -> u64 {
        match &self.selection {
            None => position,
            Some(selection) => selection.run_at(position).map_or(position, |(index, _)| index),
        }
    }

    /// The index of the task at `position`; `None` past the end.
    fn checked_index(&self, position: u64) -> Option<u64> {
        (position < self.count()).then(|| self.index_of(position))
    }

    /// The complete command of the task at `position`; `None` past the end.
    pub(crate) fn command(&self, position: u64) -> Option<Command> {
        let index = self.checked_index(position)?;
        match &*self.body {
            Body::Product(product) => product.command(index),
            Body::Listed(listed) => listed.command(index),
        }
    }

    /// The user's name for the task at `position`, if it has one.
    pub(crate) fn name(&self, position: u64) -> Option<&str> {
        let index = self.checked_index(position)?;
        let Body::Listed(listed) = &*self.body else { return None };
        let (chunk, offset) = listed.find(index)?;
        std::str::from_utf8(chunk.name(offset)?).ok()
    }

    /// The class of the task at `position`; `None` past the end.
    pub(crate) fn class(&self, position: u64) -> Option<&TaskClass> {
        let index = self.checked_index(position)?;
        match &*self.body {
            Body::Product(product) => Some(&product.class),
            Body::Listed(listed) => {
                let (chunk, offset) = listed.find(index)?;
                listed.classes.get(chunk.class(offset))
            }
        }
    }

    /// The positions of the tasks that the one at `position` waits for;
    /// those left out by [`Plan::select`] are not among them.
    pub(crate) fn after(&self, position: u64) -> Vec<u64> {
        if self.dependencies.is_empty() {
            return Vec::new();
        }
        let Some(index) = self.checked_index(position) else { return Vec::new() };
        let on = self.dependencies.of(index).iter().map(|on| u64::from(*on));
        match &self.selection {
            None => on.collect(),
            Some(selection) => on.filter_map(|on| selection.position_of(on)).collect(),
        }
    }

    /// This plan restricted to tasks whose *indices* are in `indices`, in the
    /// order they had. Dependencies on tasks left out are dropped.
    pub(crate) fn select(&self, indices: impl IntoIterator<Item = Range<u64>>) -> Plan {
        let selected = Selection::new(indices, self.whole_count());
        let selection = match &self.selection {
            None => selected,
            Some(before) => before.and(&selected),
        };
        Plan { selection: Some(selection), ..self.clone() }
    }
}

/// Refuses what cannot stand side by side.
fn check_combination(args: &PlanArgs) -> Result<(), PlanError> {
    let sources = &args.sources;
    let list = match (&sources.tasks, &sources.workflow) {
        (None, None) => None,
        (Some(_), None) => Some("--tasks"),
        (None, Some(_)) => Some("--workflow"),
        (Some(_), Some(_)) => {
            return Err(PlanError::ListExcludes { list: "--tasks", other: "--workflow" });
        }
    };
    let Some(list) = list else {
        let is_stdin = |given: &&Given| matches!(&given.arg, SourceArg::Lines(file) | SourceArg::Rows(file) if file == "-");
        let stdins = sources.sources.iter().filter(is_stdin);
        return if stdins.count() > 1 { Err(PlanError::StdinTwice) } else { Ok(()) };
    };
    let SourceArgs { sources, zip, colsep, .. } = sources;
    let other = match sources.first() {
        _ if !args.command().is_empty() => "a command",
        _ if args.call.is_some() => "--call",
        _ if list == "--workflow" && args.options.shell => "--shell",
        Some(given) => given.arg.option(),
        None if *zip => "--zip",
        None if colsep.is_some() => "--colsep",
        None => return Ok(()),
    };
    Err(PlanError::ListExcludes { list, other })
}

#[cfg(test)]
mod tests;
