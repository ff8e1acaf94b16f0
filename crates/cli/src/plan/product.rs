//! One command for every combination of the sources' values.

use super::args::{PlanArgs, TaskOptions};
use super::error::PlanError;
use super::graph::{Dependencies, GraphBuilder, Made};
use super::limits::{OUTPUT_TASKS_MAX, PLAN_TASKS_MAX};
use super::objects;
use super::one_word;
use super::placeholder::{compile, is_literal};
use super::shell;
use super::source::Name;
use super::sources::Sources;
use super::speculation;
use super::streams;
use super::{alternatives, gang};
use falkon_core::task::{Kind, Range, TaskClass};
use falkon_wire::command::{Command, CommandTemplate, Form, Piece, Template, Text};
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// How an input from the caches begins, after its name.
const CACHED: &[u8] = b"=cache:";

/// A command with placeholders, and what takes their places.
#[derive(Debug)]
pub(crate) struct Product {
    sources: Sources,
    /// The command; values are by source.
    pub(crate) template: CommandTemplate,
    /// The class of all tasks.
    pub(crate) class: TaskClass,
    /// How many tasks: the product of the sources' lengths.
    pub(crate) count: u64,
}

/// Dependencies of tasks, and the objects that they share with earlier runs.
#[derive(Debug, Default)]
pub(crate) struct Ties {
    /// Each task's dependencies.
    pub(crate) dependencies: Dependencies,
    /// Files and objects that tasks write.
    pub(crate) made: HashSet<Made>,
    /// Objects in caches that tasks read and none of them writes.
    pub(crate) held: BTreeSet<Vec<u8>>,
}

impl Product {
    /// The plan of `args`' command over `sources`.
    ///
    /// # Errors
    /// The command or an option is wrong, or there are too many tasks.
    pub(crate) fn new(args: &PlanArgs, sources: Sources) -> Result<Product, PlanError> {
        let count = sources
            .count()
            .filter(|count| *count <= PLAN_TASKS_MAX)
            .ok_or(PlanError::TooManyTasks)?;
        let (mut template, kind) = command(args, &sources.names())?;
        let staged = objects::staged(args, &template, &sources);
        objects::stage(&mut template, &staged?);
        let home = args.options.home.as_ref().map(|home| home.as_bytes());
        if template.cwd.is_none() && !objects::declares(&template) {
            template.cwd = home.map(|home| vec![Piece::Literal(home.to_vec())]);
        }
        sources.write_decimals(&mut template);
        let class = class(&args.options, kind);
        gang::check(&class, args.options.setup.is_contained())?;
        gang::check_disk(&class)?;
        alternatives::check(&class)?;
        let product = Product { sources, template, class, count };
        if let Some(command) = product.command(0) {
            objects::check(&command, &product.class)?;
            speculation::check(&command, &product.class)?;
        }
        if kind == Kind::Sleep {
            for index in [0, count.saturating_sub(1)] {
                let argv = product.command(index).map(|command| command.argv).unwrap_or_default();
                check_sleep(&argv)?;
            }
        }
        Ok(product)
    }

    /// The value of each source for the task at `index`, handed to `take`.
    fn with_values<R>(&self, index: u64, take: impl FnOnce(&[&[u8]]) -> R) -> Option<R> {
        if index >= self.count { None } else { self.sources.with_values(index, take) }
    }

    /// The row of the task at `index` appended to `out`, with its number from
    /// 1 as a last value if `numbered`.
    pub(crate) fn put_row(&self, index: u64, numbered: bool, out: &mut Vec<u8>) {
        let number = (index + 1).to_string();
        self.with_values(index, |values| match numbered {
            false => falkon_wire::command::pack_row(values, out),
            true => {
                let mut values = values.to_vec();
                values.push(number.as_bytes());
                falkon_wire::command::pack_row(&values, out);
            }
        });
    }

    /// The values of the task at `index`.
    pub(crate) fn values(&self, index: u64) -> Vec<Vec<u8>> {
        let shown = |values: &[&[u8]]| self.sources.shown(values);
        self.with_values(index, shown).unwrap_or_default()
    }

    /// The name of each source, or its number from 1.
    pub(crate) fn names(&self) -> Vec<String> {
        let name = |(number, name): (usize, Name)| {
            name.map(|name| String::from_utf8_lossy(&name).into_owned())
                .unwrap_or_else(|| number.to_string())
        };
        (1..).zip(self.sources.names()).map(name).collect()
    }

    /// The command of the task at `index`.
    pub(crate) fn command(&self, index: u64) -> Option<Command> {
        // The template was compiled for exactly these sources.
        self.with_values(index, |values| self.template.fill(values, index + 1).ok())?
    }

    /// The ranges, if there are only ranges: rows need not be stored.
    pub(crate) fn factors(&self) -> Option<Vec<Range>> {
        self.sources.factors()
    }

    /// Whether tasks read or write different data objects.
    pub(crate) fn has_varying_objects(&self) -> bool {
        let CommandTemplate { inputs, outputs, .. } = &self.template;
        inputs.iter().chain(outputs).any(|text| !is_literal(text))
    }

    /// Whether a task's number occurs in its command.
    pub(crate) fn is_numbered(&self) -> bool {
        let mut texts = texts(&self.template);
        texts.any(|text| text.contains(&Piece::Number))
    }

    /// The template for rows that carry the number as a last value.
    pub(crate) fn template_with_number_in_row(&self) -> Template {
        let source = u32::try_from(self.sources.len()).unwrap_or(u32::MAX);
        let text = |text: &Text| -> Text {
            text.iter()
                .map(|piece| match piece {
                    Piece::Number => Piece::Value { source, form: Form::Whole },
                    piece => piece.clone(),
                })
                .collect()
        };
        let all = |texts: &[Text]| texts.iter().map(text).collect();
        let CommandTemplate { argv, env, cwd, stdin, inputs, outputs, streams, call } =
            &self.template;
        Template::Command(CommandTemplate {
            argv: all(argv),
            env: env.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
            cwd: cwd.as_ref().map(text),
            stdin: stdin.as_ref().map(text),
            inputs: all(inputs),
            outputs: all(outputs),
            streams: streams.as_ref().map(text),
            call: call.clone(),
        })
    }

    /// Dependencies through declared files and objects, and which are written.
    ///
    /// # Errors
    /// Two tasks declare one output, or wait for each other, or there are too
    /// many to check.
    pub(crate) fn dependencies(
        &self,
        current_dir: &[u8],
        reads_held: bool,
    ) -> Result<Ties, PlanError> {
        let reads_cached = |text: &Text| {
            let cached = |bytes: &[u8]| bytes.windows(CACHED.len()).any(|part| part == CACHED);
            text.iter().any(|piece| matches!(piece, Piece::Literal(bytes) if cached(bytes)))
        };
        let count = match self.template.outputs.is_empty() {
            true if !self.template.inputs.iter().any(reads_cached) => {
                return Ok(Ties::default());
            }
            // Nobody writes what the first one reads, or all read the same.
            true if !reads_held || self.template.inputs.iter().all(is_literal) => 1,
            true => self.count,
            false => self.count,
        };
        if count > OUTPUT_TASKS_MAX {
            return Err(PlanError::TooManyOutputs { tasks: self.count });
        }
        let CommandTemplate { cwd, inputs, outputs, .. } = self.template.clone();
        let files = CommandTemplate { cwd, inputs, outputs, ..CommandTemplate::default() };
        let mut graph = GraphBuilder::new(current_dir).reading_held(reads_held);
        for index in 0..count {
            let filled =
                self.with_values(index, |values| files.fill(values, index + 1).ok()).flatten();
            if let Some(command) = filled {
                let Command { cwd, inputs, outputs, .. } = command;
                graph.files(index as u32, cwd.as_deref(), &inputs, &outputs);
            }
        }
        let (made, held) = (graph.made(), graph.held());
        let dependencies = graph.finish(self.count, |index| format!("#{}", index + 1))?;
        Ok(Ties { dependencies, made, held })
    }
}

/// All texts of a template.
fn texts(template: &CommandTemplate) -> impl Iterator<Item = &Text> {
    let CommandTemplate { argv, env, cwd, stdin, inputs, outputs, streams, call: _ } = template;
    argv.iter()
        .chain(env.iter().map(|(_, value)| value))
        .chain(cwd)
        .chain(stdin)
        .chain(inputs)
        .chain(outputs)
        .chain(streams)
}

/// The command of the command line as a template over sources of these names, and
/// what kind of task it is.
fn command(args: &PlanArgs, names: &[Name]) -> Result<(CommandTemplate, Kind), PlanError> {
    let function = super::call::function(args)?;
    let kind = match &function {
        Some(_) => Kind::Function,
        None => {
            let program = args.command().first().filter(|program| !program.is_empty());
            let program = program.ok_or(PlanError::NoCommand)?;
            if let [script] = args.command()
                && !args.options.shell
                && one_word::is_script(script)
            {
                let text = script.to_string_lossy().into_owned();
                return Err(PlanError::OneWord { text });
            }
            kind(program.as_bytes())?
        }
    };
    let mut template = options(&args.options, names)?;
    template.call = function;
    let passed = CommandTemplate {
        inputs: Vec::new(),
        outputs: Vec::new(),
        streams: None,
        ..template.clone()
    };
    // A data object is what the program sees of its value, be it read or written.
    let declared = template.inputs.iter().chain(&template.outputs);
    let staged = declared.filter(|text| objects::is_object(text));
    let seen = texts(&passed).chain(staged).any(|text| !is_literal(text));
    if args.options.shell {
        if kind != Kind::Process {
            let name = args.command()[0].to_string_lossy().into_owned();
            return Err(PlanError::BuiltinInShell { name });
        }
        let words: Vec<&[u8]> = args.command().iter().map(|word| word.as_bytes()).collect();
        template.argv.extend(shell::compile(&words.join(&b' '), names)?);
        return Ok((template, kind));
    }
    let own = args.command().iter().map(|word| compile(word.as_bytes(), names));
    let own = own.collect::<Result<Vec<_>, _>>()?;
    let seen = seen || own.iter().any(|text| !is_literal(text));
    let wants_values = match kind {
        Kind::Process | Kind::Function => true,
        Kind::Noop => false,
        Kind::Sleep => own.len() == 1,
    };
    if kind != Kind::Process {
        // Nothing is prepared for what is no program.
        template.argv.clear();
    }
    template.argv.extend(own);
    if !seen && wants_values {
        let sources = u32::try_from(names.len()).unwrap_or(u32::MAX);
        let value = |source| vec![Piece::Value { source, form: Form::Whole }];
        template.argv.extend((0..sources).map(value));
    }
    Ok((template, kind))
}

/// The template that options give; `argv` has what is prepared before the command.
///
/// # Errors
/// A placeholder names no source, or a variable has no name.
pub(crate) fn options(options: &TaskOptions, names: &[Name]) -> Result<CommandTemplate, PlanError> {
    let text = |word: &OsString| compile(word.as_bytes(), names);
    let texts = |words: &[OsString]| words.iter().map(text).collect::<Result<Vec<_>, _>>();
    let mut env: Vec<(Vec<u8>, Text)> = Vec::new();
    for variable in &options.env {
        let bytes = variable.as_bytes();
        let wrong = || PlanError::Env { text: variable.to_string_lossy().into_owned() };
        let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
            Some(at) if at > 0 => (bytes[..at].to_vec(), compile(&bytes[at + 1..], names)?),
            None if !bytes.is_empty() => {
                let Some(value) = std::env::var_os(variable) else {
                    return Err(PlanError::EnvUnset { name: variable.to_string_lossy().into() });
                };
                (bytes.to_vec(), vec![Piece::Literal(value.into_vec())])
            }
            Some(_) | None => return Err(wrong()),
        };
        // The last of several values counts, as for `env`.
        env.retain(|(other, _)| *other != name);
        env.push((name, value));
    }
    let setup = options.setup.words().into_iter();
    Ok(CommandTemplate {
        argv: setup.map(|word| vec![Piece::Literal(word)]).collect(),
        env,
        cwd: options.cwd.as_ref().map(text).transpose()?,
        stdin: options.stdin.as_ref().map(text).transpose()?,
        // Archives come first: the class says how many they are.
        inputs: [texts(&options.unpack)?, texts(&options.input)?].concat(),
        outputs: texts(&options.output)?,
        streams: options.collect_streams.as_ref().map(|archive| streams::text(archive.as_bytes())),
        call: None,
    })
}

/// The kind of a task with this in the program's place.
///
/// # Errors
/// The name begins with `@` and is no builtin.
pub(crate) fn kind(program: &[u8]) -> Result<Kind, PlanError> {
    match program {
        b"@noop" => Ok(Kind::Noop),
        b"@sleep" => Ok(Kind::Sleep),
        [b'@', ..] => {
            Err(PlanError::UnknownBuiltin { name: String::from_utf8_lossy(program).into_owned() })
        }
        _ => Ok(Kind::Process),
    }
}

/// Checks the arguments of an `@sleep`: one finite number of seconds.
///
/// # Errors
/// The arguments are something else.
pub(crate) fn check_sleep(argv: &[Vec<u8>]) -> Result<(), PlanError> {
    let given = argv.get(1..).unwrap_or_default();
    let seconds = match given {
        [seconds] => std::str::from_utf8(seconds).ok().and_then(|text| text.parse::<f64>().ok()),
        _ => None,
    };
    if seconds.is_some_and(|seconds| seconds.is_finite() && seconds >= 0.0) {
        return Ok(());
    }
    let words: Vec<String> = given.iter().map(|word| shell::quoted(word)).collect();
    let given =
        if words.is_empty() { "nothing".to_owned() } else { format!("`{}`", words.join(" ")) };
    Err(PlanError::Sleep { given })
}

/// The class that options give to tasks of a kind.
pub(crate) fn class(options: &TaskOptions, kind: Kind) -> TaskClass {
    let mut class = TaskClass { kind, ..TaskClass::default() };
    options.class.put(&mut class);
    class.unpacks = u32::try_from(options.unpack.len()).unwrap_or(u32::MAX);
    class
}
