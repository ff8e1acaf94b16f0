//! Containers that tasks run in. The shell that prepares a task ([`super::setup`]) chooses an
//! engine and starts the container with [`SCRIPT`]; the image, paths and variables' names are
//! its arguments, and no shell interprets them.
//!
//! Apptainer and Singularity take the shell's place: their containers are processes of the task
//! like others. A container of podman or docker is no child of the command that starts it. It
//! therefore has a cleaner, a process in a session of its own: when the shell is gone, however it
//! ended, the cleaner kills the container (see [`falkon_process::CLEANER_KEY_VARIABLE`]).

/// What a task's container shows of the node.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    /// The working directory; the shell's own by default.
    pub(super) folder: Option<Vec<u8>>,
    /// Paths of inputs, from the working directory. What they link to is shown, too.
    pub(super) inputs: Vec<Vec<u8>>,
    /// Paths of outputs, from the working directory. Their directories are shown.
    pub(super) outputs: Vec<Vec<u8>>,
    /// Names of variables that the task was given. Their values are in its environment alone, as
    /// everybody on the node can read arguments.
    pub(super) variables: Vec<Vec<u8>>,
}

impl Surroundings {
    /// The words for [`SCRIPT`], those that were `given` among them. The directory is the first
    /// of them, since the script compares paths with it.
    pub(super) fn words(&self, given: &[&Vec<u8>]) -> Vec<Vec<u8>> {
        let word = |name: &str, value: &[u8]| [name.as_bytes(), b"=", value].concat();
        let is_absolute = |folder: &&Vec<u8>| folder.starts_with(b"/");
        let folder = self.folder.iter().filter(is_absolute).map(|folder| word("folder", folder));
        let outputs = self.outputs.iter().map(|path| word("output", path));
        let inputs = self.inputs.iter().map(|path| word("input", path));
        let names = self.variables.iter().filter(|name| is_shell_name(name));
        let variables = names.map(|name| word("variable", name));
        let words =
            folder.chain(given.iter().map(|word| (*word).clone())).chain(outputs).chain(inputs);
        words.chain(variables).collect()
    }
}

/// Whether a shell takes this as the name of a variable.
fn is_shell_name(name: &[u8]) -> bool {
    name.first().is_some_and(|first| !first.is_ascii_digit())
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// Functions that choose an engine and run a command in a container. `falkon_contain` has the
/// number of words as its first argument, then the words, then the command.
pub(super) const SCRIPT: &[u8] = include_bytes!("container.sh");

#[cfg(test)]
mod tests;
