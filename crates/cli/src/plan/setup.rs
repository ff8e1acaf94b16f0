//! Options for modules, a conda or a virtual environment, commands of the shell and a container,
//! which are prepared before a task's command. Executors prepare them
//! (`executor/src/tasks/setup.rs`).

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use falkon_wire::command::{Piece, Setup, Text};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// The options, for messages.
pub(super) const OPTIONS: &str = "--module, --conda, --venv, --setup, --container and --bind";

/// Options that prepare the environment of tasks that run programs.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct SetupArgs {
    /// Load an environment module before each task, where it runs; may be repeated
    ///
    /// As `module load NAME` does, with Environment Modules or Lmod.
    #[arg(long, value_name = "NAME")]
    module: Vec<OsString>,
    /// Activate a conda environment before each task, where it runs
    ///
    /// A name or a directory, as `conda activate` takes it. CONDA_EXE, the PATH and the usual
    /// places are searched for conda, mamba or micromamba.
    #[arg(long, value_name = "ENVIRONMENT")]
    conda: Option<OsString>,
    /// Activate a Python virtual environment before each task, where it runs
    ///
    /// DIR is relative to the task's directory: with --unpack env=venv/ it may be env.
    #[arg(long, value_name = "DIR")]
    venv: Option<OsString>,
    /// A command of the shell that runs before each task, where it runs; may be repeated
    ///
    /// The task has the variables that it exports. If it ends with another status than 0,
    /// the task ends with that.
    #[arg(long, value_name = "COMMAND")]
    setup: Vec<OsString>,
    /// Run each task in a container of this image
    ///
    /// A name, an address such as docker://NAME, or an image file of Apptainer. The first of
    /// apptainer, singularity, podman and docker on the task's node runs it; ENGINE:IMAGE names
    /// one. The container shows the task's directory, its inputs and its outputs, at the same
    /// paths. Modules are loaded outside; all else is prepared inside.
    #[arg(long, value_name = "IMAGE", value_parser = OsStringValueParser::new().try_map(image))]
    container: Option<OsString>,
    /// A directory or file that --container shows at the same path; may be repeated
    ///
    /// PATH is absolute. Tasks may write there, if the user may.
    #[arg(long, value_name = "PATH", value_parser = OsStringValueParser::new().try_map(shown))]
    bind: Vec<OsString>,
}

/// A value that no container can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ContainerError {
    /// It is no image.
    #[error(
        "`{}` is no image of a container: an image has a name, does not begin with - and has no \
         control characters",
        .0.escape_debug()
    )]
    Image(String),
    /// It is no path that can be shown.
    #[error(
        "`{}` cannot be shown in a container: give an absolute path other than /, without colons, \
         commas, double quotes and control characters",
        .0.escape_debug()
    )]
    Path(String),
}

/// The engines that `ENGINE:IMAGE` may name.
const ENGINES: [&[u8]; 4] = [b"apptainer", b"singularity", b"podman", b"docker"];

fn image(given: OsString) -> Result<OsString, ContainerError> {
    check_image(given.as_bytes()).map(|()| given)
}

/// Checks an image, which may name its engine.
fn check_image(given: &[u8]) -> Result<(), ContainerError> {
    let engine = ENGINES.iter().find_map(|engine| given.strip_prefix(*engine)?.strip_prefix(b":"));
    let is_bad = |image: &[u8]| {
        image.is_empty() || image.starts_with(b"-") || image.iter().any(u8::is_ascii_control)
    };
    match is_bad(given) || engine.is_some_and(is_bad) {
        true => Err(ContainerError::Image(String::from_utf8_lossy(given).into_owned())),
        false => Ok(()),
    }
}

fn shown(given: OsString) -> Result<OsString, ContainerError> {
    let path = given.as_bytes();
    let is_bad = |byte: &u8| byte.is_ascii_control() || b":,\"".contains(byte);
    let is_root = path.iter().all(|byte| *byte == b'/');
    match !path.starts_with(b"/") || is_root || path.iter().any(is_bad) {
        true => Err(ContainerError::Path(given.to_string_lossy().into_owned())),
        false => Ok(given),
    }
}

impl SetupArgs {
    fn all(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        let modules = self.module.iter().map(|one| ("module", &**one));
        let conda = self.conda.iter().map(|one| ("conda", &**one));
        let venv = self.venv.iter().map(|one| ("venv", &**one));
        let setup = self.setup.iter().map(|one| ("setup", &**one));
        let container = self.container.iter().map(|one| ("container", &**one));
        let bind = self.bind.iter().map(|one| ("bind", &**one));
        modules.chain(conda).chain(venv).chain(setup).chain(container).chain(bind)
    }

    /// The option that is given, if one is.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let (what, _) = self.all().next()?;
        Some(match what {
            "module" => "--module",
            "conda" => "--conda",
            "venv" => "--venv",
            "setup" => "--setup",
            "container" => "--container",
            _ => "--bind",
        })
    }

    /// Whether tasks run in a container.
    pub(super) fn is_contained(&self) -> bool {
        self.container.is_some()
    }

    /// The words that come before a task's own command; none if nothing is prepared.
    pub(crate) fn words(&self) -> Vec<Vec<u8>> {
        let all = self.all();
        let what = all.map(|(what, value)| [what.as_bytes(), b"=", value.as_bytes()].concat());
        Setup::words(what.collect())
    }
}

/// The words that say in which container a command runs.
const CONTAINER: &[u8] = b"container=";

/// Whether a command runs in a container.
pub(super) fn is_contained(argv: &[Vec<u8>]) -> bool {
    Setup::of(argv)
        .is_some_and(|setup| setup.prepared.iter().any(|word| word.starts_with(CONTAINER)))
}

/// The words for what these prepare, but in a container of another image, or in none if that is empty.
///
/// # Errors
/// It is no image.
pub(super) fn with_container(
    argv: &[Vec<u8>],
    image: &[u8],
) -> Result<Vec<Vec<u8>>, ContainerError> {
    let prepared = Setup::of(argv).map(|setup| setup.prepared).unwrap_or_default();
    let others = prepared.iter().filter(|word| !word.starts_with(CONTAINER)).cloned();
    let mut words: Vec<_> = others.collect();
    if !image.is_empty() {
        check_image(image)?;
        words.push([CONTAINER, image].concat());
    }
    Ok(Setup::words(words))
}

/// Where a command's own words begin.
pub(super) fn own_start(argv: &[Vec<u8>]) -> usize {
    argv.len() - Setup::own_words(argv).len()
}

/// The same, of a template.
pub(super) fn own_start_of_texts(argv: &[Text]) -> usize {
    let literals: Vec<Vec<u8>> = argv
        .iter()
        .map_while(|text| match &text[..] {
            [Piece::Literal(bytes)] => Some(bytes.clone()),
            _ => None,
        })
        .collect();
    own_start(&literals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_and_paths_are_checked() {
        let good = ["ubuntu:24.04", "docker://ubuntu", "./my image.sif", "podman:a", "$(id)", "a'"];
        for image in good {
            assert_eq!(check_image(image.as_bytes()), Ok(()), "{image}");
        }
        for image in ["", "-v/:/x", "podman:", "docker:--privileged", "a\nb", "a\0"] {
            let said = check_image(image.as_bytes()).unwrap_err().to_string();
            assert!(!said.contains('\n') && said.contains("is no image"), "{said}");
        }
        assert!(shown("/data/a b".into()).is_ok());
        for path in ["", "data", "/", "//", "/a:b", "/a,b", "/a\"b", "/a\nb"] {
            assert!(shown(path.into()).is_err(), "{path}");
        }
    }

    #[test]
    fn a_task_may_have_another_container_or_none() {
        let words = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let argv: Vec<Vec<u8>> = words("@setup 3 module=m container=a bind=/d");
        let other: Vec<Vec<u8>> = words("@setup 3 module=m bind=/d container=b");
        let none: Vec<Vec<u8>> = words("@setup 2 module=m bind=/d");
        assert!(is_contained(&argv) && is_contained(&other) && !is_contained(&none));
        assert_eq!(with_container(&argv, b"b"), Ok(other));
        assert_eq!(with_container(&argv, b""), Ok(none));
        assert_eq!(with_container(&[], b"b"), Ok(words("@setup 1 container=b")));
        assert_eq!(with_container(&[], b""), Ok(Vec::new()));
    }
}
