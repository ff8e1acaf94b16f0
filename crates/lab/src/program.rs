//! The program that is measured.

use std::path::PathBuf;

/// The variable that names it.
const VARIABLE: &str = "FALKON";

/// There is no program to measure.
#[derive(Debug, thiserror::Error)]
#[error("there is no {0}: build it with make, or name one with {VARIABLE}=PROGRAM")]
pub(crate) struct NoProgram(PathBuf);

/// Where `falkon` is: what `FALKON` names, else the one beside this program.
///
/// # Errors
/// It is not there.
pub(crate) fn falkon() -> Result<PathBuf, NoProgram> {
    let beside = || std::env::current_exe().unwrap_or_default().with_file_name("falkon");
    let path = std::env::var_os(VARIABLE).map_or_else(beside, PathBuf::from);
    if path.is_file() { Ok(path) } else { Err(NoProgram(path)) }
}
