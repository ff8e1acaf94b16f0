//! A task's command made ready to be launched: its directory, its files, its
//! environment.

use super::container::Surroundings;
use super::gangs::GangEnvironment;
use super::setup::in_shell;
use super::{Prepared, Process, Tasks};
use crate::MemoryLimits;
use crate::granted::alternative;
use crate::not_started::Reason;
use crate::objects::SandboxError;
use crate::sandboxes::Named;
use crate::watchdog::WaitPoint;
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::execute::{Start, StartData, TemplateId};
use falkon_core::result::Outcome;
use falkon_process::{Launch, MemoryLimit, Source, TASK_KEY_VARIABLE, Unchanged};
use falkon_wire::codec::Wire;
use falkon_wire::command::{Command, Template};
use falkon_wire::declared::{self, Declared, written_folder};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// A task that was not started.
pub(super) enum NotStarted {
    /// The task has ended: how, and why.
    Ended { outcome: Outcome, reason: Reason },
    /// An input is gone: it begins later.
    Lost(ObjectId),
}

impl From<String> for NotStarted {
    fn from(error: String) -> NotStarted {
        NotStarted::from(Reason::from(error))
    }
}

impl From<Reason> for NotStarted {
    fn from(reason: Reason) -> NotStarted {
        NotStarted::Ended { outcome: Outcome::NotRun, reason }
    }
}

/// The plain files among what is declared.
fn files(texts: &[Vec<u8>]) -> impl Iterator<Item = &[u8]> {
    texts.iter().filter_map(|text| match Declared::read(text) {
        Declared::File(path) => Some(path),
        Declared::Object { .. } => None,
    })
}

/// The paths of files among what is declared, from a command's folder.
fn paths<'a>(command: &'a Command, texts: &'a [Vec<u8>]) -> impl Iterator<Item = PathBuf> + 'a {
    let cwd = command.cwd.as_deref();
    let base = cwd.map_or(Path::new(""), |cwd| Path::new(OsStr::from_bytes(cwd)));
    files(texts).map(|file| base.join(OsStr::from_bytes(file)))
}

/// The files that must be there before a command runs.
pub(super) fn input_paths(command: &Command) -> Vec<PathBuf> {
    paths(command, &command.inputs).collect()
}

/// The files that must be there when it has run.
pub(super) fn output_paths(command: &Command) -> Vec<PathBuf> {
    paths(command, &command.outputs).collect()
}

/// A process that is ready to be launched, if its inputs are there.
pub(super) struct Draft {
    pub(super) command: Command,
    unchanged: Vec<Unchanged>,
    gang: GangEnvironment,
}

impl Tasks {
    /// Keeps a template.
    pub(crate) fn prepare(&mut self, template: TemplateId, bytes: &[u8]) {
        let decoded = Template::from_bytes(bytes)
            .map_err(|error| format!("the task's template cannot be read: {error}"))
            .map(|template| Prepared { template, home: OnceLock::new() });
        self.templates.insert(template, decoded);
    }

    /// No task will refer to this template any more.
    pub(crate) fn forget(&mut self, template: TemplateId) {
        self.templates.remove(&template);
    }

    /// Makes a process ready, with its directory if it has data objects.
    pub(super) fn draft(&mut self, start: &Start) -> Result<Draft, NotStarted> {
        let mut command = self.command(start, 0)?;
        let mut unchanged = Vec::new();
        let gang = match &start.gang {
            Some(gang) => self.gang_environment(gang.key, &start.class.resources)?,
            None => GangEnvironment::default(),
        };
        if let Some(data) = &start.data {
            let sandbox = self.make_sandbox(start, &command, data)?;
            command.cwd = Some(sandbox.into_os_string().into_vec());
            if let (Some(_), Some(objects)) = (start.after, &self.objects) {
                unchanged = objects.shared_inputs(start.key);
            }
        }
        Ok(Draft { command, unchanged, gang })
    }

    /// Hands a process over to be launched.
    ///
    /// # Errors
    /// Its scratch directory cannot be made.
    pub(super) fn launch_draft(&mut self, start: &Start, draft: Draft) -> Result<(), NotStarted> {
        let Draft { command, unchanged, gang } = draft;
        let launch_key = self.next_launch;
        self.next_launch += 1;
        let scratch = self.make_scratch(start, launch_key)?;
        let mut outputs = output_paths(&command);
        let base =
            command.cwd.as_deref().map_or(Path::new(""), |cwd| Path::new(OsStr::from_bytes(cwd)));
        let written = start.data.iter().flat_map(|data| data.outputs.iter().cloned());
        let objects: Vec<(PathBuf, Arc<Object>)> = declared::objects(&command.outputs)
            .map(|(name, _)| base.join(OsStr::from_bytes(name)))
            .zip(written)
            .collect();
        outputs.extend(objects.iter().map(|(path, _)| path.clone()));
        // Of equal names the last counts.
        let mut env = self.granted.environment(&start.class.resources);
        env.extend(gang.set);
        env.extend(scratch.default_environment());
        env.extend(command.env);
        env.extend(scratch.environment());
        let mut set = |name: &str, value: String| env.push((name.into(), value.into_bytes()));
        set("FALKON_INSTANCE", start.key.instance.to_string());
        set("FALKON_TASK", start.key.task.to_string());
        set("FALKON_ATTEMPT", start.attempt.to_string());
        env.extend(self.gpus.environment(&start.grant.gpus));
        env.extend(alternative(&start.class));
        let shown = |names: &mut dyn Iterator<Item = &[u8]>| names.map(<[u8]>::to_vec).collect();
        let objects_read = declared::objects(&command.inputs).map(|(name, _)| name);
        let argv = in_shell(command.argv, || Surroundings {
            folder: command.cwd.clone(),
            inputs: shown(&mut files(&command.inputs).chain(objects_read)),
            outputs: shown(&mut files(&command.outputs)),
            variables: shown(
                &mut env.iter().map(|(name, _)| &name[..]).chain([TASK_KEY_VARIABLE.as_bytes()]),
            ),
        });
        let (output, spill) = self.outputs.next();
        let spill = spill.into_os_string().into_vec();
        let after = self.launch_after(start);
        let memory_limit =
            start.class.memory_limit().filter(|_| self.memory_limits != MemoryLimits::Off);
        let in_group = self.memory_limits == MemoryLimits::Auto;
        self.launch_keys.insert(start.key, launch_key);
        self.processes.insert(
            launch_key,
            Process {
                key: start.key,
                output,
                after,
                outputs,
                objects,
                program: argv.first().cloned().unwrap_or_default(),
                cwd: command.cwd.clone(),
                stdin: command.stdin.clone(),
                memory_limit,
                disk: scratch.disk,
                gang: start.gang.as_ref().map(|gang| gang.key),
                again: (!unchanged.is_empty()).then(|| Box::new(start.clone())),
            },
        );
        self.launches.push_back(Launch {
            key: launch_key,
            after,
            argv,
            env,
            without: gang.without,
            ranked_by: gang.ranked_by,
            cwd: command.cwd,
            stdin: command.stdin,
            capture_bytes_max: self.capture_bytes_max,
            spill: Some(spill),
            unchanged,
            source: Source::Program,
            cpus: start.grant.cpus.iter().map(|share| share.number).collect(),
            memory: memory_limit.map(|bytes| MemoryLimit { bytes, in_group }),
        });
        Ok(())
    }

    /// Makes the directory of a task with data objects, its inputs in it.
    pub(super) fn make_sandbox(
        &mut self,
        start: &Start,
        command: &Command,
        data: &StartData,
    ) -> Result<PathBuf, NotStarted> {
        let Some(objects) = &mut self.objects else {
            return Err(NotStarted::from("this executor has no cache".to_owned()));
        };
        if command.cwd.is_some() {
            let error = "a task with data objects has a directory of its own, and no cwd";
            return Err(NotStarted::from(error.to_owned()));
        }
        let reads: Vec<&Object> = data.inputs.iter().map(|staged| &*staged.object).collect();
        let mut inputs = Vec::new();
        let names = names_of(&command.inputs, &reads, false).into_iter();
        for (name, staged) in names.zip(&data.inputs) {
            if !declared::is_inner_name(&name) {
                let name = String::from_utf8_lossy(&name);
                let error = format!("`{name}` is no name for a data object: it must be inside");
                return Err(NotStarted::from(error));
            }
            let object = staged.object.id;
            let (is_unpacked, is_mounted) = (staged.is_unpacked, staged.is_mounted);
            let name = PathBuf::from(OsString::from_vec(name));
            inputs.push(Named { name, object, is_unpacked, is_mounted });
        }
        let position = objects.position();
        let _at = position.at(WaitPoint::Sandboxes);
        let folder = objects.make_sandbox(start.key, &inputs).map_err(|error| match error {
            SandboxError::Lost(object) => NotStarted::Lost(object),
            SandboxError::Other(error) => {
                NotStarted::Ended { outcome: Outcome::NoInput, reason: error.into() }
            }
        })?;
        let writes: Vec<&Object> = data.outputs.iter().map(|object| &**object).collect();
        for name in names_of(&command.outputs, &writes, true) {
            let path = folder.join(OsStr::from_bytes(&name));
            let parent = match written_folder(&name) {
                Some(_) => Some(path.as_path()),
                None => path.parent().filter(|parent| *parent != folder),
            };
            if let Some(parent) = parent
                && let Err(error) = std::fs::create_dir_all(parent)
            {
                let error = format!("cannot create {}: {error}", parent.display());
                return Err(NotStarted::from(error));
            }
        }
        Ok(folder)
    }
}

/// The names of a task's data objects in its directory: those that its command
/// gives them; a call that gives none finds them by their places.
pub(super) fn names_of(texts: &[Vec<u8>], objects: &[&Object], is_written: bool) -> Vec<Vec<u8>> {
    let mut given = declared::objects(texts).map(|(name, _)| name.to_vec()).peekable();
    if given.peek().is_some() {
        return given.collect();
    }
    let by_place = objects.iter().enumerate();
    by_place.map(|(at, object)| declared::call_name(&object.url, at, is_written).into()).collect()
}
