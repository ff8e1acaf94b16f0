//! Modules, a conda or a virtual environment, and commands of the shell, which are prepared
//! before a task's command. A shell with [`PREPARE`] does it, in which nothing of the user's is:
//! that is in its arguments, and the task's own command, which takes the shell's place, follows.
//!
//! If the command runs in a container, modules are loaded outside, as they may bring the engine
//! that runs it, and a second shell inside prepares all else.

use super::container::{self, Surroundings};
use falkon_wire::command::Setup;

/// The shell that prepares.
const SHELL: &[u8] = b"/bin/sh";
/// The name that the shell has in its own messages.
const NAME: &[u8] = b"falkon";
/// Prepares one after another, in functions: what they run has arguments of its own.
const PREPARE: &[u8] = br#"falkon_failed() { echo "falkon: $1" >&2; return 1; }
falkon_prepare() {
  falkon_value=${1#*=}
  case $1 in
  module=*)
    if ! command -v module >/dev/null 2>&1; then
      for falkon_file in "${MODULESHOME:-/usr/share/modules}/init/sh" \
        "${LMOD_PKG:-/usr/share/lmod/lmod}/init/sh" /etc/profile.d/modules.sh \
        /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh; do
        if [ -r "$falkon_file" ]; then . "$falkon_file"; break; fi
      done
    fi
    module load "$falkon_value" || falkon_failed "cannot load the module $falkon_value"
    ;;
  conda=*)
    falkon_conda=${CONDA_EXE:-}
    if ! [ -x "$falkon_conda" ]; then falkon_conda=; fi
    for falkon_file in "$(command -v conda)" "$(command -v mamba)" "$(command -v micromamba)" \
      "${HOME:-}/miniforge3/bin/conda" "${HOME:-}/miniconda3/bin/conda" \
      "${HOME:-}/anaconda3/bin/conda" /opt/conda/bin/conda; do
      if [ -z "$falkon_conda" ] && [ -x "$falkon_file" ]; then falkon_conda=$falkon_file; fi
    done
    case $falkon_conda in
    '') falkon_failed "there is no conda for the environment $falkon_value"; return ;;
    *micromamba) falkon_code=$("$falkon_conda" shell activate --shell posix "$falkon_value") ;;
    *) falkon_code=$("$falkon_conda" shell.posix activate "$falkon_value") ;;
    esac || { falkon_failed "cannot activate the conda environment $falkon_value"; return; }
    eval "$falkon_code"
    ;;
  venv=*)
    if ! [ -x "$falkon_value/bin/python" ]; then
      falkon_failed "there is no virtual environment in $falkon_value"
      return
    fi
    VIRTUAL_ENV=$(cd "$falkon_value" && pwd)
    PATH=$VIRTUAL_ENV/bin:$PATH
    export VIRTUAL_ENV PATH
    unset PYTHONHOME
    ;;
  setup=*)
    eval "$falkon_value" || {
      falkon_status=$?
      falkon_failed "the command of --setup ended with exit status $falkon_status"
      return "$falkon_status"
    }
    ;;
  folder=* | container=* | bind=* | output=* | input=* | variable=*) ;;
  *) falkon_failed "this executor cannot prepare ${1%%=*}: use the release that submitted the task" ;;
  esac
}
falkon_prepare_all() {
  falkon_left=$1
  while [ "$falkon_left" -gt 0 ]; do
    shift
    falkon_prepare "$1" || return
    falkon_left=$((falkon_left - 1))
  done
}
falkon_prepare_all "$@" || exit
"#;
/// Runs the command in the shell's place.
const RUN: &[u8] = br#"shift $(($1 + 1))
exec "$@""#;
/// Runs the command in a container.
const CONTAIN: &[u8] = br#"falkon_contain "$@""#;

/// The words that run a command, after what it has prepared. `surroundings` is asked for if the
/// command runs in a container.
pub(super) fn in_shell(
    argv: Vec<Vec<u8>>,
    surroundings: impl FnOnce() -> Surroundings,
) -> Vec<Vec<u8>> {
    let Some(Setup { prepared, command }) = Setup::of(&argv) else { return argv };
    let begins = |word: &[u8], name: &[u8]| word.starts_with(name);
    if !prepared.iter().any(|word| begins(word, b"container=")) {
        let prepared: Vec<_> = prepared.iter().filter(|word| !begins(word, b"bind=")).collect();
        if prepared.is_empty() {
            return command.to_vec();
        }
        return shell(&[PREPARE, RUN], &prepared, command);
    }
    let is_outside = |word: &&Vec<u8>| {
        [&b"module="[..], b"container=", b"bind="].iter().any(|name| begins(word, name))
    };
    let (outside, inside): (Vec<_>, Vec<_>) = prepared.iter().partition(is_outside);
    let command = match inside.is_empty() {
        true => command.to_vec(),
        false => shell(&[PREPARE, RUN], &inside, command),
    };
    let outside = surroundings().words(&outside);
    let words: Vec<_> = outside.iter().collect();
    shell(&[PREPARE, container::SCRIPT, CONTAIN], &words, &command)
}

/// A shell that runs these parts of a script with the words and the command.
fn shell(script: &[&[u8]], words: &[&Vec<u8>], command: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let count = words.len().to_string().into_bytes();
    let head = [SHELL.to_vec(), b"-c".to_vec(), script.concat(), NAME.to_vec(), count];
    let words = words.iter().map(|word| (*word).clone());
    head.into_iter().chain(words).chain(command.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::process::{Command, Output};

    fn run(prepared: &[&str], command: &[&str], environment: &[(&str, &str)]) -> Output {
        let to_bytes = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let mut words = Setup::words(to_bytes(prepared));
        words.extend(to_bytes(command));
        let words = in_shell(words, Surroundings::default);
        let words: Vec<&OsStr> = words.iter().map(|word| OsStr::from_bytes(word)).collect();
        let environment = environment.iter().copied();
        Command::new(words[0]).args(&words[1..]).envs(environment).output().unwrap()
    }

    fn printed(output: &Output) -> String {
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout.clone()).unwrap()
    }

    #[test]
    fn a_command_that_prepares_nothing_is_as_it_was() {
        let plain = vec![b"echo".to_vec(), b"@setup".to_vec()];
        assert_eq!(in_shell(plain.clone(), Surroundings::default), plain);
    }

    #[test]
    fn a_command_has_its_own_words_and_what_was_exported() {
        let awkward = ["a b", "", "*", "$HOME", "'\"", "-n", "5=5"];
        let script = "printf '%s|' \"$X\" \"$@\"";
        let command = [&["sh", "-c", script, "name"][..], &awkward[..]].concat();
        let prepared = ["setup=set -- gone; X=\"it's\"; export X", "setup=X=$X=more"];
        let expected = format!("it's=more|{}|", awkward.join("|"));
        assert_eq!(printed(&run(&prepared, &command, &[])), expected);
    }

    #[test]
    fn what_fails_ends_the_task_with_its_status_and_says_so() {
        let output = run(&["setup=true", "setup=(exit 7)"], &["echo", "never"], &[]);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(7), &b""[..]));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, "falkon: the command of --setup ended with exit status 7\n");
        let output = run(&["venv=/none"], &["echo", "never"], &[]);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, "falkon: there is no virtual environment in /none\n");
    }

    /// A program that answers as conda does, since there is no package of it to install.
    #[test]
    fn a_conda_environment_is_activated_by_what_conda_prints() {
        let site = tempfile::tempdir().unwrap();
        let conda = site.path().join("conda");
        let text = "#!/bin/sh\n[ \"$1 $2\" = 'shell.posix activate' ] && [ \"$3\" != bad ] && \
                    echo \"export CONDA_PREFIX='/envs/$3'\"\n";
        // Another process writes it: a process that a test beside this one starts meanwhile
        // would hold it open for writing, and nobody could run it.
        let write = ["-c", "printf %s \"$1\" > \"$2\" && chmod +x \"$2\"", "sh", text];
        assert!(Command::new("sh").args(write).arg(&conda).status().unwrap().success());
        let environment = [("CONDA_EXE", conda.to_str().unwrap())];
        let command = ["sh", "-c", "echo $CONDA_PREFIX"];
        assert_eq!(printed(&run(&["conda=dock"], &command, &environment)), "/envs/dock\n");
        let output = run(&["conda=bad"], &command, &environment);
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, "falkon: cannot activate the conda environment bad\n");
    }
}
