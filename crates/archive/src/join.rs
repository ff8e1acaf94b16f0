//! Joining archives without packing anything again.

use crate::part::Part;
use crate::set::Archive;
use crate::write::{Source, WriteError, Writer};
use std::path::Path;
use std::sync::Arc;

/// Adds all members of an archive, in order. Returns how many.
///
/// # Errors
/// If it cannot be read, or the set cannot be written.
pub fn join(writer: &mut Writer, path: &Path) -> Result<u64, WriteError> {
    let archive = Archive::open(path)?;
    let mut members = 0;
    for part in archive.parts() {
        // Threads read it, each at its own place.
        let shared = Arc::new(Part::open(part.path())?);
        for member in part.members() {
            let member = member?;
            let name = member.name.clone();
            writer.add(name, Source::Packed { part: Arc::clone(&shared), member })?;
            members += 1;
        }
    }
    Ok(members)
}
