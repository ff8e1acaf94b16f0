//! The configuration file, `falkon.toml`: values for options that a command
//! line leaves out.
//!
//! A table is named as a command (`[executor]`, `[data.broadcast]`), a key as
//! an option without its dashes. What the command line says replaces it. The
//! file is checked by the parser of the command line, which alone knows what a
//! value may be.

use crate::exit::Exit;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Args, Command, Subcommand};
use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Bytes of a configuration file at most.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Names another file than the usual ones; if empty, no file is read.
const VARIABLE: &str = "FALKON_CONFIG";

/// `falkon config`
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand, Debug)]
enum ConfigCommand {
    /// Check configuration files: each option and each value
    Check {
        /// The files [default: those that commands read]
        files: Vec<PathBuf>,
    },
    /// Print the options that commands take from the configuration, and the files that they are from
    Show,
}

/// Why a configuration file is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The file is too large.
    #[error("the configuration {} has more than {CONFIG_BYTES_MAX} bytes", path.display())]
    Large {
        /// The file.
        path: PathBuf,
    },
    /// The file is not TOML.
    #[error("the configuration {} is not TOML: {error}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where, and what was expected.
        error: Box<toml::de::Error>,
    },
    /// A table is not named as a command.
    #[error("{}: [{table}]: there is no command falkon {}", path.display(), table.replace('.', " "))]
    Command {
        /// The file.
        path: PathBuf,
        /// The table.
        table: String,
    },
    /// A key is not an option.
    #[error("{}: [{table}] {key}: falkon {} has no option --{key}", path.display(), table.replace('.', " "))]
    Option {
        /// The file.
        path: PathBuf,
        /// The table.
        table: String,
        /// The key.
        key: String,
    },
    /// A value is of no use to the option.
    #[error("{}: [{table}] {key}: {error}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The table.
        table: String,
        /// The key.
        key: String,
        /// Why the option does not take the value.
        error: String,
    },
    /// A key stands outside of every table.
    #[error("{}: {key} stands before the first table; options stand in the table of a command, as [start] or [executor]", path.display())]
    Bare {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
    },
}

/// A value for an option, from a file.
#[derive(Debug, Clone)]
struct Setting {
    /// The names of the command, from the outermost.
    command: Vec<String>,
    /// The option, without its dashes.
    option: String,
    /// What the file says.
    value: Value,
    /// What the command line would say.
    words: Vec<String>,
    /// The file.
    path: PathBuf,
}

/// The command line, with the configuration's values as its defaults. The
/// command `config` itself takes none, so that it can speak of a file that is
/// wrong.
pub(crate) fn with_defaults(command: Command) -> Result<Command, ConfigError> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (file, name) = before_command(&arguments);
    let Some(name) = name else { return Ok(command) };
    if ["config", "help", "completions", "man"].contains(&name.as_str()) {
        return Ok(command);
    }
    let mut settings = Vec::new();
    for path in files(file) {
        let table = read(&path)?;
        // Other commands' tables may be those of a newer version.
        let own = table.into_iter().filter(|(key, value)| *key == name || !value.is_table());
        match settings_of(&command, &path, own.collect()) {
            (found, None) => settings.extend(found),
            (_, Some(error)) => return Err(error),
        }
    }
    Ok(settings.into_iter().fold(command, |command, setting| {
        set_default(command, &setting.command, &setting.option, setting.words)
    }))
}

/// `falkon config`
pub(crate) fn config(args: ConfigArgs, command: &Command, file: Option<PathBuf>) -> Exit {
    match args.command {
        ConfigCommand::Check { files: named } => {
            let paths = if named.is_empty() { files(file) } else { named };
            let mut exit = Exit::Success;
            let mut text = String::new();
            for path in paths {
                let mut errors = 0;
                let count = check(command, &path, |error| {
                    errors += 1;
                    exit = Exit::usage(error);
                });
                if errors == 0 {
                    // Writing to a string cannot fail.
                    let _ = writeln!(text, "{}: {count} options, no errors", path.display());
                }
            }
            crate::query::print(&text).unwrap_or(exit)
        }
        ConfigCommand::Show => show(command, files(file)),
    }
}

fn check(command: &Command, path: &Path, mut wrong: impl FnMut(ConfigError)) -> usize {
    let mut count = 0;
    let table = match read(path) {
        Ok(table) => table,
        Err(error) => {
            wrong(error);
            return 0;
        }
    };
    // Each key by itself, so that all errors are shown.
    let mut todo: Vec<(Vec<String>, Table)> = vec![(Vec::new(), table)];
    while let Some((names, table)) = todo.pop() {
        for (key, value) in table {
            match value {
                Value::Table(inner) if !inner.is_empty() => {
                    let mut names = names.clone();
                    names.push(key);
                    todo.push((names, inner));
                }
                value => {
                    let one = Table::from_iter([(key, value)]);
                    let nested = names.iter().rev().fold(one, |inner, name| {
                        Table::from_iter([(name.clone(), Value::Table(inner))])
                    });
                    let (found, error) = settings_of(command, path, nested);
                    count += found.len();
                    if let Some(error) = error {
                        wrong(error);
                    }
                }
            }
        }
    }
    count
}

fn show(command: &Command, paths: Vec<PathBuf>) -> Exit {
    let mut settings: Vec<Setting> = Vec::new();
    for path in &paths {
        let found = match read(path) {
            Ok(table) => settings_of(command, path, table),
            Err(error) => return Exit::usage(error),
        };
        match found {
            (found, None) => {
                for new in found {
                    settings.retain(|old| old.command != new.command || old.option != new.option);
                    settings.push(new);
                }
            }
            (_, Some(error)) => return Exit::usage(error),
        }
    }
    settings.sort_by(|a, b| a.command.cmp(&b.command).then_with(|| a.option.cmp(&b.option)));
    let mut text = String::new();
    if paths.is_empty() {
        text.push_str("# no configuration: ");
        let usual = usual_files().iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        let _ = writeln!(text, "{} would be read", usual.join(" and "));
    }
    let mut table = None;
    for setting in &settings {
        if table != Some(&setting.command) {
            let gap = if table.is_some() { "\n" } else { "" };
            let _ = writeln!(text, "{gap}[{}]", setting.command.join("."));
            table = Some(&setting.command);
        }
        let (option, value, path) = (&setting.option, &setting.value, setting.path.display());
        let _ = writeln!(text, "{option} = {value}  # {path}");
    }
    crate::query::print(&text).unwrap_or(Exit::Success)
}

/// The file of `--config`, and the command's name.
fn before_command(arguments: &[OsString]) -> (Option<PathBuf>, Option<String>) {
    let mut file = None;
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        if text == "--config" {
            file = arguments.next().map(PathBuf::from);
        } else if let Some(path) = text.strip_prefix("--config=") {
            file = Some(PathBuf::from(path));
        } else if !text.starts_with('-') {
            return (file, Some(text.into_owned()));
        }
    }
    (file, None)
}

/// The files to read, from those that count least.
fn files(named: Option<PathBuf>) -> Vec<PathBuf> {
    if let Some(path) = named {
        return vec![path];
    }
    match std::env::var_os(VARIABLE) {
        Some(path) if path.is_empty() => Vec::new(),
        Some(path) => vec![path.into()],
        None => usual_files().into_iter().filter(|path| path.exists()).collect(),
    }
}

/// The machine's, and the user's.
fn usual_files() -> Vec<PathBuf> {
    let absolute = |name| {
        std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute())
    };
    let user =
        absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
    let user = user.map(|dir| dir.join("falkon/falkon.toml"));
    std::iter::once(PathBuf::from("/etc/falkon/falkon.toml")).chain(user).collect()
}

fn read(path: &Path) -> Result<Table, ConfigError> {
    use std::io::Read;
    let failed = |error| ConfigError::Read { path: path.to_owned(), error };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut text = String::new();
    let bytes = file.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if bytes as u64 > CONFIG_BYTES_MAX {
        return Err(ConfigError::Large { path: path.to_owned() });
    }
    text.parse()
        .map_err(|error| ConfigError::Syntax { path: path.to_owned(), error: Box::new(error) })
}

/// The settings of a file up to the first error, and that error.
fn settings_of(
    command: &Command,
    path: &Path,
    table: Table,
) -> (Vec<Setting>, Option<ConfigError>) {
    let mut settings = Vec::new();
    let error = collect(command, &mut Vec::new(), path, table, &mut settings).err();
    (settings, error)
}

fn collect(
    command: &Command,
    names: &mut Vec<String>,
    path: &Path,
    table: Table,
    settings: &mut Vec<Setting>,
) -> Result<(), ConfigError> {
    for (key, value) in table {
        let at = |key: &str| [names.as_slice(), &[key.to_owned()]].concat().join(".");
        match value {
            Value::Table(inner) => {
                let found = command.get_subcommands().find(|found| found.get_name() == key);
                let Some(found) = found else {
                    return Err(ConfigError::Command { path: path.to_owned(), table: at(&key) });
                };
                names.push(key);
                collect(found, names, path, inner, settings)?;
                names.pop();
            }
            _ if names.is_empty() => {
                return Err(ConfigError::Bare { path: path.to_owned(), key });
            }
            value => {
                let argument = command.get_arguments().find(|argument| {
                    argument.get_long() == Some(&key)
                        && !["help", "version"].contains(&key.as_str())
                });
                let Some(argument) = argument else {
                    let path = path.to_owned();
                    return Err(ConfigError::Option { path, table: names.join("."), key });
                };
                let words = words(argument, &value)
                    .and_then(|words| refused(command, argument, &words).map_or(Ok(words), Err));
                match words {
                    // `false`: as if the option were not there.
                    Ok(words) if words.is_empty() => {}
                    Ok(words) => settings.push(Setting {
                        command: names.clone(),
                        option: key,
                        value,
                        words,
                        path: path.to_owned(),
                    }),
                    Err(error) => {
                        let (path, table) = (path.to_owned(), names.join("."));
                        return Err(ConfigError::Value { path, table, key, error });
                    }
                }
            }
        }
    }
    Ok(())
}

/// The words that the command line would have for a value.
fn words(argument: &Arg, value: &Value) -> Result<Vec<String>, String> {
    let takes_value = argument.get_action().takes_values();
    match value {
        Value::Boolean(false) if !takes_value => Ok(Vec::new()),
        Value::Boolean(true) if !takes_value => Ok(vec!["true".to_owned()]),
        _ if !takes_value => Err("this option is true or false".to_owned()),
        Value::Array(values) => {
            let repeats = matches!(argument.get_action(), ArgAction::Append);
            if values.is_empty() || !repeats && values.len() > 1 {
                let count = values.len();
                return Err(format!("this option takes one value, and the list has {count}"));
            }
            values.iter().map(word).collect()
        }
        value => Ok(vec![word(value)?]),
    }
}

fn word(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(value) => Ok(value.to_string()),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => {
            Err(format!("a text or a number is expected, not a {}", value.type_str()))
        }
    }
}

/// What the parser of the command line says of these values, if it refuses them.
fn refused(command: &Command, argument: &Arg, values: &[String]) -> Option<String> {
    if !argument.get_action().takes_values() || values.is_empty() {
        return None;
    }
    // Long options have a name.
    let long = argument.get_long().unwrap_or_default();
    let words = values.iter().map(|value| format!("--{long}={value}"));
    let words = std::iter::once(command.get_name().to_owned()).chain(words);
    let error = command.clone().try_get_matches_from(words).err()?;
    match error.kind() {
        ErrorKind::ValueValidation
        | ErrorKind::InvalidValue
        | ErrorKind::InvalidUtf8
        | ErrorKind::TooManyValues
        | ErrorKind::TooFewValues
        | ErrorKind::WrongNumberOfValues => {
            let text = error.to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            // Usage and hints follow.
            Some(text.split("\n\nFor more").next().unwrap_or(text).trim_end().to_owned())
        }
        // Options that have to be there as well are of the command line.
        _ => None,
    }
}

fn set_default(command: Command, names: &[String], option: &str, values: Vec<String>) -> Command {
    match names {
        [] => {
            let id = command.get_arguments().find(|argument| argument.get_long() == Some(option));
            let Some(id) = id.map(|argument| argument.get_id().clone()) else { return command };
            command.mut_arg(id, |argument| argument.default_values(values).required(false))
        }
        [first, rest @ ..] => {
            command.mut_subcommand(first, |inner| set_default(inner, rest, option, values))
        }
    }
}
