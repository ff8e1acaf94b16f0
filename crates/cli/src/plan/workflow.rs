//! Workflows in WfFormat 1.5 and 1.6, the JSON of the WfCommons project.
//!
//! `workflow.specification.tasks` gives the graph and the files,
//! `workflow.execution.tasks` the commands; they are joined by id. An argument
//! such as `--cpu-work 100` is a flag and its value: one that begins with `-` is
//! split at its first space, as the project's own translators do.

use super::args::TaskOptions;
use super::error::{PlanError, WorkflowError};
use super::graph::GraphBuilder;
use super::listed::ListBuilder;
use super::options::{ClassOptions, Cpus, Estimate, Priority};
use super::product::{self, check_sleep, kind};
use super::quantity::{cpus_to_milli, seconds_to_micros};
use super::speculation;
use super::texts::{Text, json_message};
use super::{alternatives, gang};
use falkon_core::task::{Kind, TaskClass};
use falkon_wire::command::{Command, CommandTemplate, Setup};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};

/// The largest workflow file, in bytes; it must be held whole.
pub(crate) const WORKFLOW_BYTES_MAX: u64 = 1 << 30;
/// The versions that are read.
const VERSIONS: [&str; 2] = ["1.5", "1.6"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Instance<'a> {
    #[serde(borrow)]
    workflow: Workflow<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Versioned {
    schema_version: Option<String>,
}

#[derive(Deserialize)]
struct Workflow<'a> {
    #[serde(borrow)]
    specification: Specification<'a>,
    #[serde(borrow)]
    execution: Option<Execution<'a>>,
}

#[derive(Deserialize)]
struct Specification<'a> {
    #[serde(borrow)]
    tasks: Vec<Specified<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Specified<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow, default)]
    parents: Vec<Text<'a>>,
    #[serde(borrow, default)]
    children: Vec<Text<'a>>,
    #[serde(borrow, default)]
    input_files: Vec<Text<'a>>,
    #[serde(borrow, default)]
    output_files: Vec<Text<'a>>,
}

#[derive(Deserialize)]
struct Execution<'a> {
    #[serde(borrow)]
    tasks: Vec<Executed<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Executed<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    command: Option<Program<'a>>,
    #[serde(default)]
    runtime_in_seconds: f64,
    core_count: Option<f64>,
    priority: Option<f64>,
}

#[derive(Deserialize)]
struct Program<'a> {
    #[serde(borrow)]
    program: Option<Text<'a>>,
    #[serde(borrow, default)]
    arguments: Vec<Text<'a>>,
}

/// Reads a workflow into `list` and `graph`. Commands run in `folder` unless
/// `options` name another; options come before what the file says, because
/// that was recorded on some other machine.
///
/// # Errors
/// The file is no sound workflow of a known version, or an option is wrong.
pub(crate) fn read(
    bytes: &[u8],
    name: &str,
    folder: &[u8],
    options: &TaskOptions,
    list: &mut ListBuilder,
    graph: &mut GraphBuilder,
) -> Result<(), PlanError> {
    let wrong = |source| PlanError::Workflow { path: name.to_owned(), source };
    let workflow = parse(bytes).map_err(wrong)?;
    let execution = workflow.execution.ok_or(WorkflowError::NoExecution).map_err(wrong)?;
    let tasks = workflow.specification.tasks;
    let executed = check(&tasks, &execution.tasks).map_err(wrong)?;
    let template = product::options(options, &[])?;
    for (index, task) in tasks.iter().enumerate() {
        let entry = executed.get(task.id.bytes()).copied();
        let mut command =
            command(task, entry, &template, folder, index as u64 + 1).map_err(wrong)?;
        let kind = checked_kind(&mut command, task).map_err(wrong)?;
        let number = u32::try_from(index).map_err(|_| PlanError::TooManyTasks)?;
        graph.name(number, task.id.bytes())?;
        for parent in &task.parents {
            graph.after(number, parent.bytes());
        }
        graph.files(number, command.cwd.as_deref(), &command.inputs, &command.outputs);
        let class = class(options, kind, entry);
        gang::check(&class, options.setup.is_contained())?;
        gang::check_disk(&class)?;
        alternatives::check(&class)?;
        speculation::check(&command, &class)?;
        list.push(&command, task.id.bytes(), class)?;
    }
    Ok(())
}

fn parse(bytes: &[u8]) -> Result<Workflow<'_>, WorkflowError> {
    let json = |error: serde_json::Error| WorkflowError::Json {
        line: error.line() as u64,
        column: error.column().max(1) as u64,
        message: json_message(&error),
    };
    let version = serde_json::from_slice::<Versioned>(bytes).map_err(json)?.schema_version;
    if !version.as_deref().is_some_and(|version| VERSIONS.contains(&version)) {
        return Err(WorkflowError::Version(version));
    }
    serde_json::from_slice::<Instance<'_>>(bytes).map_err(json).map(|instance| instance.workflow)
}

/// Checks that all ids are there once and that parents and children agree;
/// returns the execution's entries by id.
fn check<'t, 'a>(
    tasks: &'t [Specified<'a>],
    executed: &'t [Executed<'a>],
) -> Result<HashMap<&'t [u8], &'t Executed<'a>>, WorkflowError> {
    let shown = |id: &Text<'_>| id.0.clone().into_owned();
    let mut ids: HashSet<&[u8]> = HashSet::with_capacity(tasks.len());
    let mut down: HashSet<(&[u8], &[u8])> = HashSet::new();
    let mut up: HashSet<(&[u8], &[u8])> = HashSet::new();
    for task in tasks {
        if !ids.insert(task.id.bytes()) {
            return Err(WorkflowError::Doubled { part: "specification", task: shown(&task.id) });
        }
        down.extend(task.children.iter().map(|child| (task.id.bytes(), child.bytes())));
        up.extend(task.parents.iter().map(|parent| (parent.bytes(), task.id.bytes())));
    }
    for task in tasks {
        for other in task.parents.iter().chain(&task.children) {
            if !ids.contains(other.bytes()) {
                let place = format!("task `{}`", task.id.0);
                return Err(WorkflowError::Unknown { place, task: shown(other) });
            }
        }
        for parent in &task.parents {
            if !down.contains(&(parent.bytes(), task.id.bytes())) {
                let (parent, child) = (shown(parent), shown(&task.id));
                return Err(WorkflowError::Disagree { parent, child, parent_silent: true });
            }
        }
        for child in &task.children {
            if !up.contains(&(task.id.bytes(), child.bytes())) {
                let (parent, child) = (shown(&task.id), shown(child));
                return Err(WorkflowError::Disagree { parent, child, parent_silent: false });
            }
        }
    }
    let mut entries = HashMap::with_capacity(executed.len());
    for entry in executed {
        if !ids.contains(entry.id.bytes()) {
            let place = "`execution.tasks`".to_owned();
            return Err(WorkflowError::Unknown { place, task: shown(&entry.id) });
        }
        if entries.insert(entry.id.bytes(), entry).is_some() {
            return Err(WorkflowError::Doubled { part: "execution", task: shown(&entry.id) });
        }
    }
    Ok(entries)
}

fn command(
    task: &Specified<'_>,
    entry: Option<&Executed<'_>>,
    template: &CommandTemplate,
    folder: &[u8],
    number: u64,
) -> Result<Command, WorkflowError> {
    let given = entry.and_then(|entry| entry.command.as_ref());
    let program = given.and_then(|command| command.program.as_ref());
    let (Some(given), Some(program)) = (given, program.filter(|text| !text.bytes().is_empty()))
    else {
        return Err(WorkflowError::NoCommand { task: task.id.0.clone().into_owned() });
    };
    let mut command = template.fill(&[], number).unwrap_or_default();
    command.argv.push(program.bytes().to_vec());
    for argument in &given.arguments {
        let parts = if argument.bytes().starts_with(b"-") { 2 } else { 1 };
        let words = argument.bytes().splitn(parts, |byte| *byte == b' ');
        command.argv.extend(words.map(<[u8]>::to_vec));
    }
    command.cwd.get_or_insert_with(|| folder.to_vec());
    command.inputs.extend(task.input_files.iter().map(|file| file.bytes().to_vec()));
    command.outputs.extend(task.output_files.iter().map(|file| file.bytes().to_vec()));
    Ok(command)
}

fn checked_kind(command: &mut Command, task: &Specified<'_>) -> Result<Kind, WorkflowError> {
    let wrong = |error: PlanError| WorkflowError::Command {
        task: task.id.0.clone().into_owned(),
        message: error.to_string(),
    };
    let own = Setup::own_words(&command.argv).to_vec();
    let program = own.first().map_or(&b""[..], Vec::as_slice);
    let kind = kind(program).map_err(wrong)?;
    if kind == Kind::Sleep {
        check_sleep(&own).map_err(wrong)?;
    }
    if kind != Kind::Process {
        // Nothing is prepared for what is no program.
        command.argv = own;
    }
    Ok(kind)
}

/// The class of a task: what was recorded of it, unless the options say
/// otherwise.
fn class(options: &TaskOptions, kind: Kind, entry: Option<&Executed<'_>>) -> TaskClass {
    let mut class = TaskClass { kind, ..TaskClass::default() };
    if let Some(entry) = entry {
        // The memory recorded is what was used, not what was asked for.
        let recorded = ClassOptions {
            cpus: entry.core_count.and_then(cpus_to_milli).map(Cpus),
            priority: entry.priority.map(|priority| Priority(priority as i32)),
            runtime_estimate: seconds_to_micros(entry.runtime_in_seconds).map(Estimate),
            ..ClassOptions::default()
        };
        recorded.put(&mut class);
    }
    options.class.put(&mut class);
    class.unpacks = u32::try_from(options.unpack.len()).unwrap_or(u32::MAX);
    class
}

#[cfg(test)]
mod tests;
