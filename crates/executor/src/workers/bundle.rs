//! Calls that are made one after another by one worker.

use super::program::PYTHON;
use super::protocol::Calls;
use falkon_core::execute::TaskKey;
use falkon_core::task::{InstanceId, TaskId, Time};
use falkon_wire::codec::{put_array, put_bytes};
use falkon_wire::command::{Command, Function};
use falkon_wire::declared::is_inner_name;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::hash::{Hash, Hasher};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The properties of a worker: it makes only calls that agree in these.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Home {
    pub(super) language: String,
    /// The instance of its calls: no other's meet what they leave in a worker.
    /// `None` if the workers of this executor are shared.
    pub(crate) instance: Option<InstanceId>,
    pub(super) cwd: Option<Vec<u8>>,
    pub(super) env: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) imports: Imports,
    /// The interpreter, if it is not the executor's own: of an archive that its calls
    /// find unpacked.
    pub(super) interpreter: Option<Vec<u8>>,
}

/// Names of modules that calls are expected to need, separated by commas, if their client says
/// so. Homes that differ in nothing else are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Imports(pub(super) Option<Vec<u8>>);

impl PartialEq for Imports {
    fn eq(&self, _: &Imports) -> bool {
        true
    }
}

impl Eq for Imports {}

impl Hash for Imports {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// The variable with which a client names [`Imports`].
const IMPORTS: &[u8] = b"FALKON_WORKER_IMPORTS";
/// The variable with which a client names the interpreter in the archive that a call
/// finds unpacked first.
const INTERPRETER: &[u8] = b"FALKON_WORKER_INTERPRETER";

impl Home {
    /// The home of a worker of an instance's command, with `more` variables; `tree` is
    /// the first archive that it finds unpacked.
    pub(crate) fn of(
        command: &Command,
        instance: Option<InstanceId>,
        more: Vec<(Vec<u8>, Vec<u8>)>,
        tree: Option<&Path>,
    ) -> Result<Home, String> {
        let call = command.call.as_ref().ok_or("the task names no function")?;
        if command.stdin.is_some() {
            return Err("a function has no standard input of its own".to_owned());
        }
        let mut env = command.env.clone();
        env.extend(more);
        let imports = env.iter().rposition(|(name, _)| name == IMPORTS);
        let imports = Imports(imports.map(|at| env.remove(at).1));
        let (language, cwd) = (call.function.language.clone(), command.cwd.clone());
        let interpreter = match env.iter().rposition(|(name, _)| name == INTERPRETER) {
            Some(_) if language != PYTHON => {
                return Err(format!("workers of {language} have no interpreter of their own"));
            }
            Some(at) => {
                let name = env.remove(at).1;
                Some(interpreter_in(tree, &name, &mut env)?)
            }
            None => None,
        };
        Ok(Home { language, instance, cwd, env, imports, interpreter })
    }
}

/// The interpreter of an environment, whose programs come first in `PATH`.
fn interpreter_in(
    tree: Option<&Path>,
    name: &[u8],
    env: &mut Vec<(Vec<u8>, Vec<u8>)>,
) -> Result<Vec<u8>, String> {
    let tree = tree.ok_or("the call names an interpreter in an archive, and unpacks none")?;
    let shown = String::from_utf8_lossy(name);
    if !is_inner_name(name) {
        return Err(format!("`{shown}` is no name of an interpreter inside an archive"));
    }
    let path = tree.join(OsStr::from_bytes(name));
    if !path.is_file() {
        return Err(format!(
            "the environment has no {shown}: pack it from inside its folder, as conda-pack and \
             venv-pack do"
        ));
    }
    let folder = path.parent().unwrap_or(tree);
    let given = env.iter().rfind(|(name, _)| name == b"PATH").map(|(_, value)| value.clone());
    let before = given.or_else(|| std::env::var_os("PATH").map(OsString::into_vec));
    let before = before.filter(|before| !before.is_empty());
    let folders = [Some(folder.as_os_str().as_bytes()), before.as_deref()];
    let folders: Vec<&[u8]> = folders.into_iter().flatten().collect();
    env.retain(|(name, _)| name != b"PATH");
    env.push((b"PATH".to_vec(), folders.join(&b':')));
    Ok(path.into_os_string().into_vec())
}

/// A call, ready to be made.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) home: Arc<Home>,
    pub(crate) function: Arc<Function>,
    pub(crate) payload: Cow<'a, [u8]>,
    /// Files that must be there when it has returned.
    pub(crate) outputs: Vec<PathBuf>,
}

/// The payload that passes `argv` as texts.
pub(crate) fn texts_payload(argv: &[Vec<u8>]) -> Vec<u8> {
    if argv.is_empty() {
        return Vec::new();
    }
    let mut payload = vec![b's'];
    put_array(&mut payload, argv.len());
    for text in argv {
        put_bytes(&mut payload, text);
    }
    payload
}

/// A payload with the directory of its call in front.
pub(crate) fn in_directory(directory: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(5 + directory.len() + payload.len());
    whole.push(b'd');
    // Paths are short.
    whole.extend((directory.len() as u32).to_le_bytes());
    whole.extend(directory);
    whole.extend(payload);
    whole
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Bundle {
    pub(super) home: Arc<Home>,
    /// Tasks in a row, whether or not they have ended: the place of the first
    /// one's call, and the task.
    runs: Vec<(u32, TaskKey)>,
    /// When a worker was given it.
    pub(super) since: Time,
    /// Calls that have ended: the first ones.
    pub(super) answered: u32,
    /// Calls that were not taken back.
    pub(super) live: u32,
    /// The functions, with the number of consecutive calls of each.
    functions: Vec<(u32, Arc<Function>)>,
    payloads: Vec<u8>,
    ends: Vec<u32>,
    outputs: Vec<Vec<PathBuf>>,
    /// The worker that has it.
    pub(super) worker: Option<u64>,
}

impl Bundle {
    pub(crate) fn new(key: TaskKey, call: Call<'_>) -> Bundle {
        let mut bundle = Bundle {
            home: call.home.clone(),
            runs: Vec::new(),
            since: Time::default(),
            answered: 0,
            live: 0,
            functions: Vec::new(),
            payloads: Vec::new(),
            ends: Vec::new(),
            outputs: Vec::new(),
            worker: None,
        };
        bundle.push(key, call);
        bundle
    }

    /// Adds the next call; `false`, unchanged, if it needs another worker.
    pub(crate) fn push(&mut self, key: TaskKey, call: Call<'_>) -> bool {
        if call.home != self.home {
            return false;
        }
        let Ok(end) = u32::try_from(self.payloads.len() + call.payload.len()) else { return false };
        let goes_on = self.runs.last().is_some_and(|(at, first)| {
            let next = first.task.0 + u64::from(self.live - at);
            (key.instance, key.task.0) == (first.instance, next)
        });
        if !goes_on {
            self.runs.push((self.live, key));
        }
        self.payloads.extend_from_slice(&call.payload);
        self.ends.push(end);
        match self.functions.last_mut() {
            Some((count, function)) if *function == call.function => *count += 1,
            _ => self.functions.push((1, call.function)),
        }
        if !call.outputs.is_empty() {
            self.outputs.resize(self.live as usize, Vec::new());
            self.outputs.push(call.outputs);
        }
        self.live += 1;
        true
    }

    /// The task of the call at `index`.
    pub(super) fn key(&self, index: u32) -> TaskKey {
        let (at, first) = self.run(index);
        let task = TaskId(first.task.0 + u64::from(index.saturating_sub(at)));
        TaskKey { instance: first.instance, task }
    }

    fn run(&self, index: u32) -> (u32, TaskKey) {
        let after = self.runs.partition_point(|(at, _)| *at <= index);
        self.runs[after.saturating_sub(1)]
    }

    /// Takes the calls from `most` on out, the last first: tasks in a row, and
    /// how many.
    pub(super) fn cut(&mut self, most: u32) -> Vec<(TaskKey, u64)> {
        let mut gone = Vec::new();
        while self.live > most {
            let (at, _) = self.run(self.live - 1);
            let from = at.max(most);
            gone.push((self.key(from), u64::from(self.live - from)));
            self.live = from;
        }
        gone
    }

    /// The place of a task's call among those that have not ended; `None` if
    /// it is not there.
    pub(super) fn index(&self, key: TaskKey) -> Option<u32> {
        let ends = self.runs.iter().skip(1).map(|(at, _)| *at).chain([self.live]);
        self.runs.iter().zip(ends).find_map(|((at, first), end)| {
            let offset = u32::try_from(key.task.0.checked_sub(first.task.0)?).ok()?;
            let index = at.checked_add(offset).filter(|index| *index < end.min(self.live))?;
            (key.instance == first.instance && index >= self.answered).then_some(index)
        })
    }

    /// The files that the call at `index` is to write.
    pub(super) fn outputs(&self, index: u32) -> &[PathBuf] {
        self.outputs.get(index as usize).map_or(&[], Vec::as_slice)
    }

    /// The calls as they are sent, by the worker's numbers for functions.
    pub(super) fn to_calls(&self, mut number: impl FnMut(&Arc<Function>) -> u32) -> Calls {
        let mut calls = Calls::default();
        let functions = self.functions.iter().flat_map(|(count, function)| {
            let number = number(function);
            (0..*count).map(move |_| number)
        });
        let mut start = 0;
        for (function, end) in functions.zip(&self.ends).take(self.live as usize) {
            calls.push(function, &self.payloads[start..*end as usize]);
            start = *end as usize;
        }
        calls
    }
}
