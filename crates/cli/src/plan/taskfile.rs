//! Task files: lists of complete tasks, as JSON Lines or TOML.

pub(crate) mod fields;

use super::args::TaskOptions;
use super::call;
use super::error::{PlanError, TaskError, TaskErrors};
use super::graph::GraphBuilder;
use super::listed::ListBuilder;
use super::objects;
use super::product::{self, check_sleep, kind};
use super::setup::{self, OPTIONS};
use super::shell;
use super::speculation;
use super::streams;
use super::texts::{Text, json_message};
use super::{alternatives, gang};
use falkon_core::task::{Kind, TaskClass};
use falkon_wire::command::{Call, Command, CommandTemplate};
use fields::TaskFields;
use serde::Deserialize;
use std::io::{BufRead, Read};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// The longest line of a task file, in bytes.
const LINE_BYTES_MAX: usize = 64 << 20;
/// The largest TOML file, in bytes; it must be held whole. JSON Lines may be
/// of any size.
const TOML_BYTES_MAX: u64 = 256 << 20;

/// Reads the tasks of a file into `list` and what they say about each other
/// into `graph`. `name` is the file's name, for its extension and messages.
///
/// # Errors
/// The file cannot be read, or tasks in it are wrong: the first few are named
/// with their places.
pub(crate) fn read(
    from: &mut dyn BufRead,
    name: &str,
    options: &TaskOptions,
    list: &mut ListBuilder,
    graph: &mut GraphBuilder,
) -> Result<(), PlanError> {
    let defaults = Defaults {
        template: product::options(options, &[])?,
        class: product::class(options, Kind::Process),
        shell: options.shell,
    };
    let errors = TaskErrors { path: name.to_owned(), ..TaskErrors::default() };
    let home = options.home.as_ref().map(|home| home.as_bytes().to_vec());
    let mut reader = Reader { defaults, home, list, graph, errors };
    let mut lines = Lines { from, name, line: Vec::new(), number: 0 };
    let mut passed = Vec::new();
    let mut is_toml = name.to_ascii_lowercase().ends_with(".toml");
    while !is_toml && lines.next()? {
        // The first line that says anything decides; what came before may
        // only matter to TOML, where lines count.
        match lines.line.trim_ascii_start().first() {
            None => passed.push(b'\n'),
            Some(b'{') => {
                reader.json_lines(&mut lines)?;
                return reader.finish();
            }
            Some(b'[') if is_json_array(&lines.line) => {
                return Err(PlanError::JsonArray { path: name.to_owned() });
            }
            Some(_) => {
                passed.extend_from_slice(&lines.line);
                is_toml = true;
            }
        }
    }
    if is_toml {
        let limit = TOML_BYTES_MAX + 1 - (passed.len() as u64).min(TOML_BYTES_MAX);
        (&mut *lines.from)
            .take(limit)
            .read_to_end(&mut passed)
            .map_err(|source| PlanError::Read { path: name.to_owned(), source })?;
        if passed.len() as u64 > TOML_BYTES_MAX {
            return Err(PlanError::LargeFile { path: name.to_owned(), bytes_max: TOML_BYTES_MAX });
        }
        reader.toml(&passed)?;
    }
    reader.finish()
}

/// Whether a line that begins with `[` is JSON and not a TOML table's head.
fn is_json_array(line: &[u8]) -> bool {
    let inner = line.trim_ascii_start().get(1..).unwrap_or_default().trim_ascii();
    matches!(inner.first(), None | Some(b'{' | b']'))
}

/// Lines of a file, one at a time in one buffer.
struct Lines<'a> {
    from: &'a mut dyn BufRead,
    name: &'a str,
    line: Vec<u8>,
    number: u64,
}

impl Lines<'_> {
    /// Reads the next line with its line feed; `false` at the end.
    fn next(&mut self) -> Result<bool, PlanError> {
        self.line.clear();
        self.number += 1;
        let read = (&mut *self.from)
            .take(LINE_BYTES_MAX as u64 + 1)
            .read_until(b'\n', &mut self.line)
            .map_err(|source| PlanError::Read { path: self.name.to_owned(), source })?;
        if read > LINE_BYTES_MAX {
            return Err(PlanError::LargeFile {
                path: format!("line {} of {}", self.number, self.name),
                bytes_max: LINE_BYTES_MAX as u64,
            });
        }
        Ok(read > 0)
    }
}

/// The command line's defaults for all tasks of the file.
struct Defaults {
    template: CommandTemplate,
    class: TaskClass,
    shell: bool,
}

struct Reader<'a> {
    defaults: Defaults,
    /// Where tasks run that are given no folder and need none.
    home: Option<Vec<u8>>,
    list: &'a mut ListBuilder,
    graph: &'a mut GraphBuilder,
    errors: TaskErrors,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TomlFile<'a> {
    #[serde(borrow, default)]
    task: Vec<toml::Spanned<TaskFields<'a>>>,
}

impl Reader<'_> {
    /// Reads JSON, a task a line, beginning with the line that is there.
    fn json_lines(&mut self, lines: &mut Lines<'_>) -> Result<(), PlanError> {
        loop {
            let line = lines.line.trim_ascii_end();
            if !line.is_empty() {
                match serde_json::from_slice::<TaskFields<'_>>(line) {
                    Ok(fields) => self.task(fields, lines.number, 1)?,
                    Err(error) => self.errors.push(json_error(&error, lines.number, line)),
                }
            }
            if !lines.next()? {
                return Ok(());
            }
        }
    }

    fn toml(&mut self, bytes: &[u8]) -> Result<(), PlanError> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let (line, column) = place(bytes, error.valid_up_to());
            PlanError::NotUtf8 { path: self.errors.path.clone(), line, column }
        })?;
        match toml::from_str::<TomlFile<'_>>(text) {
            Ok(file) => {
                for task in file.task {
                    let (line, column) = place(bytes, task.span().start);
                    self.task(task.into_inner(), line, column)?;
                }
            }
            Err(error) => {
                let (line, column) = place(bytes, error.span().map_or(0, |span| span.start));
                let message = error.message().replace('\n', ", ");
                self.errors.push(TaskError { line, column, message });
            }
        }
        Ok(())
    }

    /// Takes in one task. What is wrong with it is noted with its place; an
    /// error is one that ends the reading.
    fn task(&mut self, fields: TaskFields<'_>, line: u64, column: u64) -> Result<(), PlanError> {
        let task = self.list.len();
        if let Err(error) = self.try_task(fields, task) {
            if matches!(error, PlanError::TooManyTasks | PlanError::TooManyBytes { .. }) {
                return Err(error);
            }
            self.errors.push(TaskError { line, column, message: error.to_string() });
        }
        Ok(())
    }

    fn try_task(&mut self, fields: TaskFields<'_>, index: u64) -> Result<(), PlanError> {
        let task = u32::try_from(index).map_err(|_| PlanError::TooManyTasks)?;
        let id = fields.id.as_ref().map_or(&b""[..], |id| id.bytes());
        let (mut command, class) = self.defaults.apply(&fields, index)?;
        objects::check(&command, &class)?;
        objects::make_absolute(&mut command, self.graph.current_dir());
        streams::make_absolute(&mut command, self.graph.current_dir())
            .map_err(PlanError::Object)?;
        if command.cwd.is_none() && !objects::has_objects(&command) {
            command.cwd.clone_from(&self.home);
        }
        if fields.id.is_some() {
            self.graph.name(task, id)?;
        }
        for on in fields.after.iter().flatten() {
            self.graph.after(task, on.bytes());
        }
        self.graph.files(task, command.cwd.as_deref(), &command.inputs, &command.outputs);
        if !self.errors.errors.is_empty() {
            // The list is refused anyway: only look for further errors.
            return Ok(());
        }
        self.list.push(&command, id, class)
    }

    fn finish(self) -> Result<(), PlanError> {
        match self.errors.errors.is_empty() {
            true => Ok(()),
            false => Err(PlanError::Tasks(self.errors)),
        }
    }
}

impl Defaults {
    /// The command and class of a task whose number, from 0, is `index`.
    fn apply(
        &self,
        fields: &TaskFields<'_>,
        index: u64,
    ) -> Result<(Command, TaskClass), PlanError> {
        let mut command = self.template.fill(&[], index + 1).unwrap_or_default();
        if let Some(image) = &fields.container {
            if fields.call.is_some() {
                return Err(PlanError::CallWith { other: "`container`" });
            }
            command.argv = setup::with_container(&command.argv, image.bytes())?;
        }
        let kind = match &fields.call {
            Some(call) => {
                command.call = Some(self.call(fields, call)?);
                Kind::Function
            }
            None => self.program(fields, &mut command)?,
        };
        if fields.id.as_ref().is_some_and(|id| id.bytes().is_empty()) {
            return Err(PlanError::EmptyId);
        }
        for (name, value) in fields.env.iter().flat_map(|env| &env.0) {
            command.env.retain(|(other, _)| other != name.bytes());
            command.env.push((name.bytes().to_vec(), value.0.bytes().to_vec()));
        }
        let owned = |text: &Text<'_>| text.bytes().to_vec();
        let list = |texts: &Vec<Text<'_>>| texts.iter().map(owned).collect();
        command.cwd = fields.cwd.as_ref().map(owned).or(command.cwd);
        command.stdin = fields.stdin.as_ref().map(owned).or(command.stdin);
        // Archives come first: the class says how many they are.
        let archives = usize::try_from(self.class.unpacks).unwrap_or(usize::MAX);
        let inputs = command.inputs.split_off(archives.min(command.inputs.len()));
        command.inputs = fields.unpack.as_ref().map_or(command.inputs, list);
        let unpacks = u32::try_from(command.inputs.len()).unwrap_or(u32::MAX);
        command.inputs.extend(fields.inputs.as_ref().map_or(inputs, list));
        command.outputs = fields.outputs.as_ref().map_or(command.outputs, list);
        if let Some(archive) = &fields.collect_streams {
            command.streams = Some(streams::of_task(archive.bytes(), index + 1));
        }
        if kind == Kind::Function && !command.argv.is_empty() {
            return Err(PlanError::CallWith { other: OPTIONS });
        }
        if kind == Kind::Function && command.stdin.is_some() {
            return Err(PlanError::CallWith { other: "`stdin`" });
        }
        let class = TaskClass { unpacks, ..self.class(fields, kind) };
        gang::check(&class, setup::is_contained(&command.argv))?;
        gang::check_disk(&class)?;
        alternatives::check(&class)?;
        speculation::check(&command, &class)?;
        Ok((command, class))
    }

    /// The function that a task calls, and its arguments.
    fn call(&self, fields: &TaskFields<'_>, name: &Text<'_>) -> Result<Call, PlanError> {
        for (given, other) in [
            (fields.command.is_some(), "`command`"),
            (fields.shell.unwrap_or(self.shell), "`shell`"),
        ] {
            if given {
                return Err(PlanError::CallWith { other });
            }
        }
        let language = fields.language.as_ref().map_or(call::LANGUAGE_DEFAULT, |text| &text.0);
        let function = Arc::new(call::named(language, &name.0)?);
        let none = serde_json::Map::new();
        let args = fields.args.as_deref().unwrap_or_default();
        let payload = call::json_payload(args, fields.kwargs.as_ref().unwrap_or(&none));
        Ok(Call { function, payload })
    }

    /// Puts the program that a task runs into `command`; returns its kind.
    fn program(&self, fields: &TaskFields<'_>, command: &mut Command) -> Result<Kind, PlanError> {
        for (given, field) in
            [(fields.kwargs.is_some(), "kwargs"), (fields.language.is_some(), "language")]
        {
            if given {
                return Err(PlanError::NoCall { field });
            }
        }
        let mut words = Vec::new();
        for word in fields.command.iter().flat_map(|command| &command.0) {
            words.push(word.0.bytes().to_vec());
        }
        if words.first().is_none_or(Vec::is_empty) {
            return Err(PlanError::EmptyCommand);
        }
        let kind = kind(&words[0])?;
        let args = fields.args.iter().flatten().map(word).collect::<Result<Vec<_>, _>>()?;
        if fields.shell.unwrap_or(self.shell) {
            if kind != Kind::Process {
                let name = String::from_utf8_lossy(&words[0]).into_owned();
                return Err(PlanError::BuiltinInShell { name });
            }
            command.argv.extend(shell::command(words.join(&b' '), args));
            return Ok(kind);
        }
        words.extend(args);
        if kind == Kind::Sleep {
            check_sleep(&words)?;
        }
        if kind != Kind::Process {
            // Nothing is prepared for what is no program.
            command.argv.clear();
        }
        command.argv.extend(words);
        Ok(kind)
    }

    fn class(&self, fields: &TaskFields<'_>, kind: Kind) -> TaskClass {
        let mut class = TaskClass { kind, ..self.class.clone() };
        fields.class.put(&mut class);
        class
    }
}

/// A program's argument: text, or a number that is meant as text.
fn word(value: &serde_json::Value) -> Result<Vec<u8>, PlanError> {
    match value {
        serde_json::Value::String(text) if !text.contains('\0') => Ok(text.as_bytes().to_vec()),
        serde_json::Value::Number(number) => Ok(number.to_string().into_bytes()),
        other => Err(PlanError::Argument { shown: other.to_string() }),
    }
}

/// Line and column, from 1, of a byte.
pub(super) fn place(bytes: &[u8], offset: usize) -> (u64, u64) {
    let before = &bytes[..offset.min(bytes.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    (line, (before.len() - start) as u64 + 1)
}

fn json_error(error: &serde_json::Error, line: u64, text: &[u8]) -> TaskError {
    let mut message = match std::str::from_utf8(text) {
        Ok(_) => json_message(error),
        Err(_) => "the text is not UTF-8".to_owned(),
    };
    if error.is_eof() {
        message.push_str(" (a task file has one whole object per line)");
    }
    let column = match std::str::from_utf8(text) {
        Ok(_) => error.column().max(1) as u64,
        Err(error) => error.valid_up_to() as u64 + 1,
    };
    TaskError { line, column, message }
}

#[cfg(test)]
mod tests;
