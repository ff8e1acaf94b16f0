//! Tasks that run on several executors together.

use super::error::PlanError;
use falkon_core::task::{AUTO_CPUS, AUTO_MEMORY, Kind, TaskClass};

/// Checks what a task asks for that runs on several executors.
///
/// # Errors
/// It is a call, runs in a container, or leaves its CPUs or its memory to the executors.
pub(crate) fn check(class: &TaskClass, is_contained: bool) -> Result<(), PlanError> {
    if !class.is_gang() {
        return Ok(());
    }
    if class.kind == Kind::Function {
        return Err(PlanError::CallWith { other: "--nodes-per-task" });
    }
    if is_contained {
        return Err(PlanError::GangContainer);
    }
    if class.resources.cpus_milli == AUTO_CPUS {
        return Err(PlanError::GangCpus);
    }
    if class.resources.memory_bytes == AUTO_MEMORY {
        return Err(PlanError::GangMemory);
    }
    if class.resources.disk_bytes() > 0 {
        return Err(PlanError::GangDisk);
    }
    Ok(())
}

/// Checks the disk space that a task claims.
///
/// # Errors
/// It is a call, which has no scratch directory.
pub(crate) fn check_disk(class: &TaskClass) -> Result<(), PlanError> {
    let claims_disk = class.requests().any(|request| request.disk_bytes() > 0);
    if class.kind == Kind::Function && claims_disk {
        return Err(PlanError::CallWith { other: "--disk" });
    }
    Ok(())
}
