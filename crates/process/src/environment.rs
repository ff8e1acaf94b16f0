//! The arguments, the environment and the possible files of a task's program.
//!
//! The part that all tasks share is prepared once; the rest is put together in memory that a slot
//! uses again and again, as the pointer arrays that `execve` takes.

use std::collections::HashSet;
use std::ffi::{CStr, CString, OsStr, c_char};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::host_protocol::{Garbled, LaunchRecord, Variable};
use super::{CLEANER_KEY_VARIABLE, TASK_KEY_VARIABLE};

/// Programs whose places on the search path a slot remembers.
const LOOKUPS_KEPT_MAX: usize = 8;

/// Where programs are looked for when there is no `PATH`, as in the C library.
const PATH_DEFAULT: &[u8] = b"/bin:/usr/bin";

/// The environment that every task inherits, read once when the host starts.
#[derive(Debug)]
pub(super) struct Inherited {
    /// `NAME=VALUE`, without [`TASK_KEY_VARIABLE`], which is set for each task.
    settings: Vec<CString>,
    path: Vec<u8>,
    /// `FALKON_TASK_KEY=INSTANCE:`.
    key_prefix: Vec<u8>,
    /// `FALKON_CLEANER_KEY=INSTANCE:`.
    cleaner_prefix: Vec<u8>,
}

impl Inherited {
    pub(super) fn read(instance: &OsStr) -> Inherited {
        let mut settings = Vec::new();
        let mut path = PATH_DEFAULT.to_vec();
        for (name, value) in std::env::vars_os() {
            if name == TASK_KEY_VARIABLE {
                continue;
            }
            if name == "PATH" {
                path = value.as_bytes().to_vec();
            }
            let mut setting = name.into_vec();
            setting.push(b'=');
            setting.extend_from_slice(value.as_bytes());
            // The environment came as C strings, so there is no NUL within.
            settings.extend(CString::new(setting));
        }
        let prefix = |name: &str| [name.as_bytes(), b"=", instance.as_bytes(), b":"].concat();
        let key_prefix = prefix(TASK_KEY_VARIABLE);
        let cleaner_prefix = prefix(CLEANER_KEY_VARIABLE);
        Inherited { settings, path, key_prefix, cleaner_prefix }
    }

    /// The beginning of the setting of [`TASK_KEY_VARIABLE`] in this host's tasks.
    pub(super) fn key_prefix(&self) -> &[u8] {
        &self.key_prefix
    }

    /// The beginning of the setting of [`CLEANER_KEY_VARIABLE`] of those that clean up after tasks.
    pub(super) fn cleaner_prefix(&self) -> &[u8] {
        &self.cleaner_prefix
    }

    /// The setting of [`TASK_KEY_VARIABLE`] for a task, with a NUL.
    pub(super) fn key_setting(&self, key: u64) -> Vec<u8> {
        let mut setting = self.key_prefix.clone();
        // Writing to a vector cannot fail.
        let _ = write!(setting, "{key}\0");
        setting
    }
}

/// The arguments of `execve` for one task. The pointers lead into the task's record, into
/// [`Inherited`] and into this value itself.
#[derive(Debug, Default)]
pub(super) struct Image {
    /// An entry for the shell, the arguments, a null pointer.
    argv: Vec<*const c_char>,
    /// The environment, a null pointer.
    envp: Vec<*const c_char>,
    key_setting: Vec<u8>,
    candidates: Vec<*const c_char>,
    lookups: Vec<Lookup>,
    /// The entry of `lookups` that `candidates` comes from.
    lookup: Option<usize>,
}

/// Where a program may be, and where it was the last time.
#[derive(Debug)]
struct Lookup {
    program: Vec<u8>,
    path: Vec<u8>,
    places: Vec<CString>,
    found: Option<usize>,
}

impl Image {
    /// Puts the image of a task together. It must not be used after the record that `order` was
    /// read from, or `inherited`, is gone.
    pub(super) fn prepare(
        &mut self,
        inherited: &Inherited,
        order: LaunchRecord<'_>,
    ) -> Result<(), Garbled> {
        let key = order.key;
        self.argv.clear();
        self.argv.push(std::ptr::null());
        let mut program: Option<&CStr> = None;
        let mut variables: Vec<Variable<'_>> = Vec::new();
        let mut without: Vec<&[u8]> = Vec::new();
        order.strings(
            |prefix| without.push(prefix),
            |argument| {
                program.get_or_insert(argument);
                self.argv.push(argument.as_ptr());
            },
            |variable| variables.push(variable),
        )?;
        let program = program.ok_or(Garbled)?;
        self.argv.push(std::ptr::null());

        let path = self.set_environment(inherited, &variables, &without);
        self.key_setting.clear();
        self.key_setting.extend_from_slice(&inherited.key_prefix);
        // Writing to a vector cannot fail.
        let _ = write!(self.key_setting, "{key}\0");
        self.envp.push(self.key_setting.as_ptr().cast());
        self.envp.push(std::ptr::null());
        self.find(program, path);
        Ok(())
    }

    /// Fills `envp` with the inherited settings, but for those whose names begin with one of
    /// `without`, and `variables`; returns the search path.
    fn set_environment<'a>(
        &mut self,
        inherited: &'a Inherited,
        variables: &[Variable<'a>],
        without: &[&[u8]],
    ) -> &'a [u8] {
        self.envp.clear();
        if variables.is_empty() && without.is_empty() {
            self.envp.extend(inherited.settings.iter().map(|setting| setting.as_ptr()));
            return &inherited.path;
        }
        let mut path = inherited.path.as_slice();
        let mut names = HashSet::from([TASK_KEY_VARIABLE.as_bytes()]);
        // From the back, so that of equal names the last is kept.
        for variable in variables.iter().rev() {
            if names.insert(variable.name) {
                self.envp.push(variable.setting.as_ptr());
                if variable.name == b"PATH" {
                    path = &variable.setting.to_bytes()["PATH=".len()..];
                }
            }
        }
        let inherited = inherited.settings.iter().filter(|setting| {
            let setting = setting.as_bytes();
            let name = setting.split(|&byte| byte == b'=').next();
            let is_left_out = without.iter().any(|prefix| setting.starts_with(prefix));
            !is_left_out && name.is_none_or(|name| !names.contains(name))
        });
        self.envp.extend(inherited.map(|setting| setting.as_ptr()));
        path
    }

    /// Fills `candidates` with the files that `program` may be, the most likely first.
    fn find(&mut self, program: &CStr, path: &[u8]) {
        self.candidates.clear();
        self.lookup = None;
        let name = program.to_bytes();
        if name.contains(&b'/') || name.is_empty() {
            return self.candidates.push(program.as_ptr());
        }
        let known = self.lookups.iter().position(|one| one.program == name && one.path == path);
        let at = known.unwrap_or_else(|| {
            if self.lookups.len() == LOOKUPS_KEPT_MAX {
                self.lookups.remove(0);
            }
            self.lookups.push(Lookup::new(name, path));
            self.lookups.len() - 1
        });
        self.lookup = Some(at);
        let lookup = &self.lookups[at];
        // Where it was the last time goes first; if it is no longer there, the whole path is
        // gone through as if nothing were known.
        let found = lookup.found.map(|place| lookup.places[place].as_ptr());
        self.candidates.extend(found);
        self.candidates.extend(lookup.places.iter().map(|place| place.as_ptr()));
    }

    /// Remembers which of the candidates was executed; `None`: none of them.
    pub(super) fn executed(&mut self, candidate: Option<usize>) {
        let Some(lookup) = self.lookup.and_then(|at| self.lookups.get_mut(at)) else { return };
        lookup.found = match (candidate, lookup.found) {
            (Some(0), Some(place)) => Some(place),
            (Some(candidate), Some(_)) => Some(candidate - 1),
            (candidate, _) => candidate,
        };
    }

    /// The arguments after one free entry in front, then a null pointer.
    pub(super) fn argv(&mut self) -> &mut [*const c_char] {
        &mut self.argv
    }

    pub(super) fn envp(&self) -> &[*const c_char] {
        &self.envp
    }

    pub(super) fn candidates(&self) -> &[*const c_char] {
        &self.candidates
    }
}

impl Lookup {
    fn new(program: &[u8], path: &[u8]) -> Lookup {
        let places = path.split(|&byte| byte == b':').filter_map(|directory| {
            let mut place = directory.to_vec();
            // An empty entry is the working directory.
            if !place.is_empty() {
                place.push(b'/');
            }
            place.extend_from_slice(program);
            // Both parts come from C strings, so there is no NUL within.
            CString::new(place).ok()
        });
        Lookup {
            program: program.to_vec(),
            path: path.to_vec(),
            places: places.collect(),
            found: None,
        }
    }
}
