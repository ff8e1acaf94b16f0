//! Tasks of which two tries may run at the same time.

use super::error::PlanError;
use falkon_core::archive::split_member;
use falkon_core::task::TaskClass;
use falkon_wire::command::Command;
use falkon_wire::declared::{CACHE_SCHEME, Declared};

/// Checks that two tries of a task may run at the same time, where that is asked for: what
/// they write, as far as it is declared, goes to stores, where it appears as a whole.
///
/// # Errors
/// The task runs on several nodes, or declares an output that both tries would write to the
/// same place.
pub(crate) fn check(command: &Command, class: &TaskClass) -> Result<(), PlanError> {
    if !class.speculate {
        return Ok(());
    }
    if class.is_gang() {
        return Err(PlanError::SpeculateWith { other: "--nodes-per-task" });
    }
    if command.streams.is_some() {
        return Err(PlanError::SpeculateWith { other: "--collect-streams" });
    }
    for output in &command.outputs {
        let place = match Declared::read(output).object() {
            None => "a file in the directory of all tasks",
            Some((_, target)) if target.starts_with(CACHE_SCHEME) => "an object in caches",
            Some((_, target)) if is_member(target) => "a member of an archive",
            Some(_) => continue,
        };
        let output = String::from_utf8_lossy(output).into_owned();
        return Err(PlanError::SpeculateOutput { output, place });
    }
    Ok(())
}

fn is_member(target: &[u8]) -> bool {
    std::str::from_utf8(target).is_ok_and(|target| split_member(target).is_some())
}
