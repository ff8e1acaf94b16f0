//! Data objects that tasks declare (`NAME=SOURCE`): what is wrong with them,
//! and what a submission says of them.

use super::args::PlanArgs;
use super::error::{ObjectError, PlanError};
use super::files;
use super::setup;
use super::source::ValueKind;
use super::sources::Sources;
use falkon_core::archive::split_member;
use falkon_core::data::declared::{Declared, Lists};
use falkon_core::data::object::{Object, ObjectId};
use falkon_core::task::{Kind, TaskClass};
use falkon_data::store::StoreUrl;
use falkon_net::ids::object_id;
use falkon_wire::command::{Command, CommandTemplate, Form, Piece, Text};
use falkon_wire::declared::{self, CACHE_SCHEME, is_inner_name, objects, written_folder};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Checks the declared objects of a task.
///
/// # Errors
/// Says what is wrong with which.
pub(crate) fn check(command: &Command, class: &TaskClass) -> Result<(), PlanError> {
    let kind = class.kind;
    let archives = usize::try_from(class.unpacks).unwrap_or(usize::MAX);
    let archives = &command.inputs[..archives.min(command.inputs.len())];
    if let Some(text) =
        archives.iter().find(|text| declared::Declared::read(text).object().is_none())
    {
        let text = String::from_utf8_lossy(text).into_owned();
        return Err(PlanError::Object(ObjectError::NoArchive(text)));
    }
    if !has_objects(command) {
        return Ok(());
    }
    let wrong = |error| Err(PlanError::Object(error));
    if command.cwd.is_some() {
        return wrong(ObjectError::WithFolder);
    }
    let is_builtin = !matches!(kind, Kind::Process | Kind::Function);
    if kind == Kind::Noop || (is_builtin && objects(&command.outputs).next().is_some()) {
        return wrong(ObjectError::Builtin);
    }
    let mut names: Vec<&[u8]> = Vec::new();
    let unpacked = archives.len();
    let read = objects(&command.inputs).enumerate();
    let read = read.map(|(place, object)| (object, false, place < unpacked));
    let written = objects(&command.outputs).map(|object| (object, true, false));
    for ((name, source), is_written, is_unpacked) in read.chain(written) {
        let shown = || String::from_utf8_lossy(name).into_owned();
        let folder = written_folder(name).filter(|_| is_written);
        if !is_inner_name(folder.unwrap_or(name)) {
            return wrong(ObjectError::Name(shown()));
        }
        if folder.is_some() && !source.ends_with(b".zip") {
            let target = String::from_utf8_lossy(source).into_owned();
            return wrong(ObjectError::NoFolderTarget { name: shown(), target });
        }
        if is_written && held_as(source).len() < source.len() {
            let target = String::from_utf8_lossy(source).into_owned();
            return wrong(ObjectError::CachedMember { name: shown(), target });
        }
        if source.is_empty() {
            return wrong(ObjectError::NoSource(shown()));
        }
        if source == CACHE_SCHEME {
            return wrong(ObjectError::NoKey(shown()));
        }
        let Ok(source) = std::str::from_utf8(source) else {
            return wrong(ObjectError::NotUtf8(shown()));
        };
        if !source.as_bytes().starts_with(CACHE_SCHEME) {
            // A relative path is as good here as any: where it is seen from
            // is told by whoever submits.
            match StoreUrl::parse_in(source, Path::new("/")) {
                Err(error) => return wrong(ObjectError::Place { name: shown(), error }),
                Ok(StoreUrl::Folder(_)) if !is_unpacked => {
                    let place = source.to_owned();
                    return wrong(ObjectError::Directory { name: shown(), place });
                }
                Ok(StoreUrl::Web(target)) if is_written => {
                    return wrong(ObjectError::ReadOnly { name: shown(), target });
                }
                Ok(StoreUrl::Member { archive, name }) if is_written => {
                    check_member(&shown, &archive, name)?;
                }
                Ok(_) => {}
            }
        }
        names.push(folder.unwrap_or(name));
    }
    check_names(names).map_err(PlanError::Object)
}

/// Whether a member of an archive can be written.
fn check_member(
    shown: &impl Fn() -> String,
    archive: &StoreUrl,
    member: String,
) -> Result<(), PlanError> {
    let error = match archive {
        StoreUrl::Posix(_) if is_inner_name(member.as_bytes()) => return Ok(()),
        StoreUrl::Posix(_) => ObjectError::Member { name: shown(), member },
        _ => ObjectError::ArchivePlace { name: shown(), archive: archive.to_string() },
    };
    Err(PlanError::Object(error))
}

/// Whether all names can stand side by side.
fn check_names(mut names: Vec<&[u8]>) -> Result<(), ObjectError> {
    let shown = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(ObjectError::Doubled(shown(pair[0])));
    }
    for name in &names {
        let slashes = (0..name.len()).filter(|at| name[*at] == b'/');
        for folder in slashes.map(|at| &name[..at]) {
            if names.binary_search(&folder).is_ok() {
                return Err(ObjectError::Within { file: shown(folder), inner: shown(name) });
            }
        }
    }
    Ok(())
}

/// Whether a task reads or writes data objects.
pub(crate) fn has_objects(command: &Command) -> bool {
    objects(&command.inputs).chain(objects(&command.outputs)).next().is_some()
}

/// Whether a task reads what another leaves in caches.
pub(crate) fn reads_caches(command: &Command) -> bool {
    objects(&command.inputs).any(|(_, source)| source.starts_with(CACHE_SCHEME))
}

/// What tells an object's source from others: paths are made absolute and
/// plain, so that two ways to write one file are one object.
pub(crate) fn source_key(source: &[u8], current_dir: &[u8]) -> Vec<u8> {
    if source.starts_with(CACHE_SCHEME) {
        return source.to_vec();
    }
    let base = Path::new(OsStr::from_bytes(current_dir));
    match std::str::from_utf8(source).map(|text| StoreUrl::parse_in(text, base)) {
        Ok(Ok(StoreUrl::Posix(path))) => {
            let path = files::normalized(current_dir, path.as_os_str().as_bytes());
            match str::from_utf8(&path).is_ok_and(|path| split_member(path).is_some()) {
                true => StoreUrl::Posix(files::as_path(&path).to_owned()).to_string().into(),
                false => path,
            }
        }
        Ok(Ok(StoreUrl::Folder(path))) => {
            let mut path = files::normalized(current_dir, path.as_os_str().as_bytes());
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            match str::from_utf8(&path).is_ok_and(|path| split_member(path).is_some()) {
                true => StoreUrl::Folder(files::as_path(&path).to_owned()).to_string().into(),
                false => path,
            }
        }
        Ok(Ok(StoreUrl::Member { archive, name })) if matches!(*archive, StoreUrl::Posix(_)) => {
            let archive = source_key(archive.to_string().as_bytes(), current_dir);
            [&archive, name.as_bytes()].join(&b'!')
        }
        Ok(Ok(_)) => source.to_vec(),
        // Texts that name no place are refused elsewhere.
        _ => files::normalized(current_dir, source),
    }
}

/// What caches hold of an object that lives in them alone: the archive of a member.
pub(crate) fn held_as(source: &[u8]) -> &[u8] {
    archive_of(source).filter(|_| source.starts_with(CACHE_SCHEME)).unwrap_or(source)
}

/// The archive that a source is a member of.
pub(crate) fn archive_of(source: &[u8]) -> Option<&[u8]> {
    let (archive, _) = split_member(str::from_utf8(source).ok()?)?;
    Some(archive.as_bytes())
}

/// A task with objects runs elsewhere than where it was written down: a
/// relative path of its program, or of the file it reads as standard input, is
/// taken from `current_dir`, unless it names an input.
pub(crate) fn make_absolute(command: &mut Command, current_dir: &[u8]) {
    if !has_objects(command) {
        return;
    }
    if command.call.is_none()
        && let own = setup::own_start(&command.argv)
        && let Some(program) = command.argv.get_mut(own)
        && program.contains(&b'/')
        && !objects(&command.inputs).any(|(name, _)| is_path_to(program, name))
    {
        *program = files::normalized(current_dir, program);
    }
    if let Some(stdin) = &mut command.stdin
        && !objects(&command.inputs).any(|(name, _)| is_path_to(stdin, name))
    {
        *stdin = files::normalized(current_dir, stdin);
    }
}

/// Whether `path`, seen from the sandbox, is the object called `name`, or in what
/// that is unpacked to.
fn is_path_to(path: &[u8], name: &[u8]) -> bool {
    let rest = path.strip_prefix(b"./").unwrap_or(path).strip_prefix(name);
    matches!(rest, Some([] | [b'/', ..]))
}

/// The sources whose values are inputs of their tasks: those of files with `--stage`, and those
/// of members of archives, which no program opens by their names, unless an input is given them.
///
/// # Errors
/// No source has files, and `--stage` is given.
pub(crate) fn staged(
    args: &PlanArgs,
    template: &CommandTemplate,
    sources: &Sources,
) -> Result<Vec<u32>, PlanError> {
    if !args.options.stage {
        let is_input = |number: u32| {
            let is_it =
                |piece: &Piece| matches!(piece, Piece::Value { source, .. } if *source == number);
            template.inputs.iter().flatten().any(is_it)
        };
        let members = (0u32..).zip(sources.kinds());
        let members =
            members.filter(|(number, kind)| *kind == ValueKind::Members && !is_input(*number));
        return Ok(members.map(|(number, _)| number).collect());
    }
    let files = (0u32..).zip(sources.kinds()).filter(|(_, kind)| *kind != ValueKind::Texts);
    let files: Vec<u32> = files.map(|(number, _)| number).collect();
    match files.is_empty() {
        true => Err(PlanError::Object(ObjectError::NothingToStage)),
        false => Ok(files),
    }
}

/// Stages the values of sources: each is an input under its base name, which the command sees
/// and the outputs have.
pub(crate) fn stage(template: &mut CommandTemplate, files: &[u32]) {
    let CommandTemplate { argv, env, stdin, outputs, .. } = template;
    let texts = argv.iter_mut().chain(env.iter_mut().map(|(_, value)| value)).chain(stdin);
    let texts = texts.chain(outputs);
    for piece in texts.flatten() {
        if let Piece::Value { source, form: form @ Form::Whole } = piece
            && files.contains(source)
        {
            *form = Form::Base;
        }
    }
    template.inputs.extend(files.iter().map(|&source| {
        let value = |form| Piece::Value { source, form };
        vec![value(Form::Base), Piece::Literal(b"=".to_vec()), value(Form::Whole)]
    }));
}

/// Whether a declaration with placeholders is one of a data object.
pub(crate) fn is_object(text: &Text) -> bool {
    let is_file = matches!(
        text.first(),
        Some(Piece::Literal(bytes)) if matches!(bytes.first(), Some(b'/' | b'.' | b'='))
    );
    let has_equals =
        |piece: &Piece| matches!(piece, Piece::Literal(bytes) if bytes.contains(&b'='));
    !is_file && text.iter().any(has_equals)
}

/// Whether tasks of a command with placeholders have data objects.
pub(crate) fn declares(template: &CommandTemplate) -> bool {
    template.inputs.iter().chain(&template.outputs).any(is_object)
}

/// As [`make_absolute`], for a command with placeholders.
pub(crate) fn make_template_absolute(template: &mut CommandTemplate, current_dir: &[u8]) {
    if !declares(template) {
        return;
    }
    let named = |text: &Text| {
        let plain = match text.as_slice() {
            [Piece::Literal(bytes), rest @ ..] => match bytes.strip_prefix(b"./") {
                Some(b"") => rest.to_vec(),
                Some(bytes) => [&[Piece::Literal(bytes.to_vec())], rest].concat(),
                None => text.clone(),
            },
            _ => text.clone(),
        };
        template.inputs.iter().any(|input| {
            let before: Option<Vec<Piece>> = before_equals(input);
            before.is_some_and(|name| name == plain || is_within(&plain, &name))
        })
    };
    let absolute = |text: &Text, only_paths: bool| -> Option<Text> {
        let Some(Piece::Literal(first)) = text.first() else { return None };
        let is_path = text
            .iter()
            .any(|piece| matches!(piece, Piece::Literal(bytes) if bytes.contains(&b'/')));
        if first.first() == Some(&b'/') || (only_paths && !is_path) || named(text) {
            return None;
        }
        let mut folder = current_dir.to_vec();
        folder.push(b'/');
        Some([&[Piece::Literal(folder)], text.as_slice()].concat())
    };
    let own = setup::own_start_of_texts(&template.argv);
    let program = template.argv.get(own).and_then(|text| absolute(text, true));
    let stdin = template.stdin.as_ref().and_then(|text| absolute(text, false));
    if let (Some(program), Some(place)) = (program, template.argv.get_mut(own)) {
        *place = program;
    }
    if let Some(stdin) = stdin {
        template.stdin = Some(stdin);
    }
}

/// Whether a path is in the folder of a name without placeholders: in what an
/// archive is unpacked to.
fn is_within(path: &[Piece], name: &[Piece]) -> bool {
    let ([Piece::Literal(path), ..], [Piece::Literal(name)]) = (path, name) else { return false };
    path.strip_prefix(name.as_slice()).is_some_and(|rest| rest.starts_with(b"/"))
}

/// The text before the first `=`.
fn before_equals(text: &Text) -> Option<Text> {
    let mut before = Text::new();
    for piece in text {
        if let Piece::Literal(bytes) = piece
            && let Some(at) = bytes.iter().position(|byte| *byte == b'=')
        {
            if at > 0 {
                before.push(Piece::Literal(bytes[..at].to_vec()));
            }
            return Some(before);
        }
        before.push(piece.clone());
    }
    None
}

/// What the version of an object begins with that a task of the plan writes:
/// the rest is drawn at random for each plan, as what it writes is not what
/// another wrote.
pub(crate) const MADE: &str = "made:";

/// The objects of the tasks of a submission, as they are put together.
#[derive(Debug, Default)]
pub(crate) struct ObjectsBuilder {
    numbers: HashMap<Vec<u8>, u32>,
    objects: Vec<Object>,
    /// The versions that members of archives in caches have.
    archives: HashMap<Vec<u8>, Arc<str>>,
    inputs: ListsBuilder,
    outputs: ListsBuilder,
}

#[derive(Debug, Default)]
struct ListsBuilder {
    items: Vec<u32>,
    ends: Vec<u32>,
}

impl ListsBuilder {
    fn end_task(&mut self) {
        self.ends.push(self.items.len() as u32);
    }

    /// Lists that are all alike are kept once.
    fn finish(self) -> Lists {
        let first = self.ends.first().map_or(0, |end| *end as usize);
        let alike = first * self.ends.len() == self.items.len()
            && (first == 0 || self.items.chunks(first).all(|task| task == &self.items[..first]));
        match alike {
            true => Lists::Same(self.items[..first].to_vec()),
            false => Lists::Each { items: Arc::new(self.items), ends: Arc::new(self.ends) },
        }
    }
}

impl ObjectsBuilder {
    /// Appends a task. Sources are seen from `current_dir`; `known` says what
    /// versions, and sizes, those have that no store has to be asked for.
    pub(crate) fn push(
        &mut self,
        command: &Command,
        current_dir: &[u8],
        known: impl Fn(&[u8]) -> Option<(Arc<str>, Option<u64>)>,
    ) {
        for (_, source) in objects(&command.inputs) {
            let number = self.number(source_key(source, current_dir), &known);
            self.inputs.items.push(number);
        }
        for (_, source) in objects(&command.outputs) {
            let number = self.number(source_key(source, current_dir), &known);
            self.outputs.items.push(number);
        }
        self.inputs.end_task();
        self.outputs.end_task();
    }

    fn number(
        &mut self,
        key: Vec<u8>,
        known: &impl Fn(&[u8]) -> Option<(Arc<str>, Option<u64>)>,
    ) -> u32 {
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = self.objects.len() as u32;
        let archive = held_as(&key);
        let (version, size) = match archive.len() < key.len() {
            true => (self.member_version(archive, known), None),
            false => known(&key).unwrap_or_default(),
        };
        self.objects.push(Object {
            id: ObjectId(0),
            url: String::from_utf8_lossy(&key).into(),
            version,
            size,
        });
        self.numbers.insert(key, number);
        number
    }

    /// The version of the members of an archive in caches.
    fn member_version(
        &mut self,
        archive: &[u8],
        known: &impl Fn(&[u8]) -> Option<(Arc<str>, Option<u64>)>,
    ) -> Arc<str> {
        if let Some(version) = self.archives.get(archive) {
            return Arc::clone(version);
        }
        let (version, _) = known(archive).unwrap_or_default();
        let id = object_id(&String::from_utf8_lossy(archive), &version);
        let version: Arc<str> = Object::member_version(id).into();
        self.archives.insert(archive.to_vec(), Arc::clone(&version));
        version
    }

    /// What the submission says of data; `None` if nothing. Objects have no
    /// ids yet.
    pub(crate) fn finish(self) -> Option<Declared> {
        (!self.objects.is_empty()).then(|| Declared {
            objects: Arc::new(self.objects),
            inputs: self.inputs.finish(),
            outputs: self.outputs.finish(),
        })
    }
}
