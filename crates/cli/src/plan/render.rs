//! A plan for people: labels and the dry run.

use super::shell::{self, quoted};
use super::{Body, Plan, options};
use crate::results::What;
use falkon_core::task::Kind;
use falkon_wire::command::{Command, Setup};
use std::io::{self, Write};

/// The longest label, in characters.
const LABEL_CHARS_MAX: usize = 60;
/// The longest command in a result, in characters.
const COMMAND_CHARS_MAX: usize = 4096;
/// How many dependencies a line of the dry run names.
const AFTER_NAMES_MAX: usize = 8;

impl Plan {
    /// A short text for the task at `position`: its name, if it has one, and
    /// its command. If that is too long to be shown whole, its values follow,
    /// because they say which task it is.
    pub(crate) fn label(&self, position: u64) -> String {
        // A command may have very many words, of which few are shown.
        let words = self.command(position).map(|mut command| {
            command.argv.truncate(LABEL_CHARS_MAX);
            shown(&command)
        });
        let text = match (self.name(position), words) {
            (Some(name), Some(words)) => format!("{name} ({words})"),
            (Some(name), None) => name.to_owned(),
            (None, words) => words.unwrap_or_default(),
        };
        let text = text.replace(char::is_control, " ");
        let cut = cut(&text, LABEL_CHARS_MAX);
        if cut == text {
            return text;
        }
        let values = self.values(position).iter().map(|value| quoted(value)).collect::<Vec<_>>();
        match values.is_empty() {
            true => cut,
            false => format!("{cut} [{}]", super::render::cut(&values.join(" "), LABEL_CHARS_MAX)),
        }
    }

    /// What the task at `position` is, for its result.
    pub(crate) fn what(&self, position: u64) -> What {
        let mut command = self.command(position).unwrap_or_default();
        if let Some(call) = &mut command.call {
            call.payload.clear();
        }
        // What is not shown need not be quoted.
        let mut left = COMMAND_CHARS_MAX;
        command.argv.retain_mut(|word| {
            let has_room = left > 0;
            word.truncate(left);
            left = left.saturating_sub(word.len() + 1);
            has_room
        });
        let names = match &*self.body {
            Body::Product(product) => product.names(),
            Body::Listed(_) => Vec::new(),
        };
        let command = cut(&words(&command), COMMAND_CHARS_MAX);
        What { command, values: names.into_iter().zip(self.values(position)).collect() }
    }

    /// The values that sources give to the task at `position`.
    pub(crate) fn values(&self, position: u64) -> Vec<Vec<u8>> {
        let Some(index) = self.checked_index(position) else { return Vec::new() };
        match &*self.body {
            Body::Product(product) => product.values(index),
            Body::Listed(_) => Vec::new(),
        }
    }

    /// Writes a line per task: number, name, the command as a shell takes it,
    /// and as a comment its class, declared files and dependencies.
    ///
    /// # Errors
    /// Writing fails.
    pub(crate) fn write_dry_run(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut line = String::new();
        for position in 0..self.count() {
            line.clear();
            self.put_line(position, &mut line);
            line.push('\n');
            out.write_all(line.as_bytes())?;
        }
        out.flush()
    }

    fn put_line(&self, position: u64, line: &mut String) {
        let Some(command) = self.command(position) else { return };
        line.push_str(&(self.index_of(position) + 1).to_string());
        line.push('\t');
        if let Some(name) = self.name(position) {
            line.push_str(&quoted(name.as_bytes()));
        }
        line.push('\t');
        line.push_str(&shell_line(&command));
        let mut notes = Vec::new();
        if let Some(class) = self.class(position) {
            notes.extend(options::notes(class));
            notes.extend(kind_note(class.kind));
        }
        let list =
            |paths: &[Vec<u8>]| paths.iter().map(|path| quoted(path)).collect::<Vec<_>>().join(" ");
        let unpacks = self.class(position).map_or(0, |class| class.unpacks);
        let unpacks = usize::try_from(unpacks).unwrap_or(usize::MAX).min(command.inputs.len());
        let (archives, inputs) = command.inputs.split_at(unpacks);
        for (verb, texts) in [("unpacks", archives), ("reads", inputs)] {
            if !texts.is_empty() {
                notes.push(format!("{verb} {}", list(texts)));
            }
        }
        if let Some(Setup { prepared, .. }) = Setup::of(&command.argv) {
            notes.push(format!("prepares {}", list(prepared)));
        }
        if !command.outputs.is_empty() {
            notes.push(format!("writes {}", list(&command.outputs)));
        }
        if let Some(streams) = &command.streams {
            notes.push(format!("prints into {}", quoted(streams)));
        }
        let after = self.after(position);
        if !after.is_empty() {
            let name = |on: &u64| match self.name(*on) {
                Some(name) => quoted(name.as_bytes()),
                None => format!("#{}", self.index_of(*on) + 1),
            };
            let mut names: Vec<String> = after.iter().take(AFTER_NAMES_MAX).map(name).collect();
            if let Some(more) = after.len().checked_sub(AFTER_NAMES_MAX).filter(|more| *more > 0) {
                names.push(format!("and {more} more"));
            }
            notes.push(format!("after {}", names.join(" ")));
        }
        if !notes.is_empty() {
            line.push_str("  # ");
            line.push_str(&notes.join("; "));
        }
    }
}

/// The kind of a class, if it is no process.
fn kind_note(kind: Kind) -> Option<String> {
    match kind {
        Kind::Process => None,
        Kind::Function => Some("function".to_owned()),
        Kind::Noop | Kind::Sleep => Some("builtin".to_owned()),
    }
}

/// `text`, or as much of it as so many characters hold.
fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some(_) => text.chars().take(chars_max - 1).chain(['…']).collect(),
    }
}

/// A command for people: a script as it was written, with the task's values.
fn shown(command: &Command) -> String {
    shell::script(Setup::own_words(&command.argv)).unwrap_or_else(|| words(command))
}

fn words(command: &Command) -> String {
    let argv = Setup::own_words(&command.argv);
    if let Some(script) = shell::script(argv) {
        return format!("sh -c {}", quoted(script.as_bytes()));
    }
    let mut words: Vec<String> = argv.iter().map(|word| quoted(word)).collect();
    if let Some(call) = &command.call {
        // The first byte of a payload says its form.
        let arguments = call.payload.get(1..).filter(|payload| !payload.is_empty());
        let name = quoted(&call.function.name);
        return [name]
            .into_iter()
            .chain(words)
            .chain(arguments.map(quoted))
            .collect::<Vec<_>>()
            .join(" ");
    }
    if let Some(program) = words.first_mut()
        && program.contains('=')
        && !program.contains('\'')
    {
        // A bare `A=B` in front would be an assignment.
        *program = format!("'{program}'");
    }
    words.join(" ")
}

/// A line that does in a shell what the task does.
fn shell_line(command: &Command) -> String {
    let mut line = String::new();
    for (name, value) in &command.env {
        line.push_str(&format!("{}={} ", quoted(name), quoted(value)));
    }
    if !line.is_empty() {
        // `env` takes names that a shell does not.
        line.insert_str(0, "env ");
    }
    line.push_str(&words(command));
    if let Some(stdin) = &command.stdin {
        line.push_str(&format!(" < {}", quoted(stdin)));
    }
    match &command.cwd {
        Some(cwd) => format!("(cd {} && {line})", quoted(cwd)),
        None => line,
    }
}
