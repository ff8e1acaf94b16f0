//! The program, brought to nodes that do not have it.
//!
//! Where there is no home that all nodes share, the program is sent to a
//! directory of each node, under a name of its own for each allocation. The
//! script on the node takes it from there if it is nowhere else, once all of it
//! is there and it is its user's, and removes it in the end.

use super::command;
use super::driver::{Driver, LrmError};
use super::template::{Quoting, Template};
use std::path::{Path, PathBuf};

/// Where the program is put where nothing is said.
const DIR: &str = "/tmp";
/// How long a command that sends it may take.
const BRING_S_MAX: u64 = 600;

/// The program on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Brought {
    /// Where it is on the nodes.
    pub(super) to: PathBuf,
    /// How large it is.
    pub(super) bytes: u64,
}

impl Driver {
    /// Whether the program is to be sent to an allocation's nodes once they are
    /// there.
    #[must_use]
    pub fn brings(&self) -> bool {
        self.description().send.is_some() && self.settings().send.is_some()
    }

    /// Where the program is sent, if it is: by a command of its own, or by the
    /// one that submits.
    pub(super) fn brought(&self, allocation: u64) -> Option<Brought> {
        if !self.brings() && !self.description().submits("sent_binary") {
            return None;
        }
        let dir = self.settings().send.as_deref().unwrap_or(DIR);
        let to = Path::new(dir).join(format!("{}.bin", self.job_name(allocation)));
        // Without it there is nothing that could be sent.
        let bytes = std::fs::metadata(self.own_binary()).ok()?.len();
        Some(Brought { to, bytes })
    }

    /// Sends the program to the nodes of an allocation.
    ///
    /// # Errors
    /// The command cannot be made, or fails.
    pub async fn bring(&self, allocation: u64, job: &str) -> Result<(), LrmError> {
        let (Some(send), Some(brought)) = (&self.description().send, self.brought(allocation))
        else {
            return Ok(());
        };
        let mut values = self.values();
        values.set("job", job);
        values.set("sent_binary", brought.to.to_string_lossy());
        let words = super::driver::fill(&send.command, &values)?;
        let input = Template::new(&send.input)?.text(&values, Quoting::Shell)?;
        command::run(&words, &input, self.limit(BRING_S_MAX)).await?;
        Ok(())
    }
}
