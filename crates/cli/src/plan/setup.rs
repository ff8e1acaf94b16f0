//! Options for modules, a conda or a virtual environment, and commands of the shell, which are
//! prepared before a task's command. Executors prepare them (`executor/src/tasks/setup.rs`).

use clap::Args;
use falkon_wire::command::{Piece, Setup, Text};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

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
}

impl SetupArgs {
    fn all(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        let modules = self.module.iter().map(|one| ("module", &**one));
        let conda = self.conda.iter().map(|one| ("conda", &**one));
        let venv = self.venv.iter().map(|one| ("venv", &**one));
        let setup = self.setup.iter().map(|one| ("setup", &**one));
        modules.chain(conda).chain(venv).chain(setup)
    }

    /// The option that is given, if one is.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let (what, _) = self.all().next()?;
        Some(match what {
            "module" => "--module",
            "conda" => "--conda",
            "venv" => "--venv",
            _ => "--setup",
        })
    }

    /// The words that come before a task's own command; none if nothing is prepared.
    pub(crate) fn words(&self) -> Vec<Vec<u8>> {
        let all = self.all();
        let what = all.map(|(what, value)| [what.as_bytes(), b"=", value.as_bytes()].concat());
        Setup::words(what.collect())
    }
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
