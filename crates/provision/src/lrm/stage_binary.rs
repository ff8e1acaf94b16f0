//! The program, binary to nodes that do not have it.
//!
//! Where there is no home that all nodes share, the program is sent to a
//! directory of each node, under a name of its own for each allocation. The
//! script on the node takes it from there if it is nowhere else, once all of it
//! is there and it is its user's, and removes it in the end.

use super::command;
use super::driver::{Driver, LrmError};
use super::script::StagedBinary;
use super::template::{Quoting, Template};
use std::path::Path;

/// The default folder for the program.
const DIR: &str = "/tmp";
/// How long a command that sends it may take.
const STAGE_BINARY_S_MAX: u64 = 600;

impl Driver {
    /// Whether the program is to be sent to an allocation's nodes once they are
    /// there.
    #[must_use]
    pub(crate) fn stages_binary(&self) -> bool {
        self.description().send.is_some() && self.settings().send.is_some()
    }

    /// Where the program is sent, if it is: by a command of its own, or by the
    /// one that submits.
    pub(super) fn staged_binary(&self, allocation: u64) -> Option<StagedBinary> {
        if !self.stages_binary() && !self.description().submits("sent_binary") {
            return None;
        }
        let dir = self.settings().send.as_deref().unwrap_or(DIR);
        let to = Path::new(dir).join(format!("{}.bin", self.job_name(allocation)));
        // Without it there is nothing that could be sent.
        let bytes = std::fs::metadata(self.own_binary()).ok()?.len();
        Some(StagedBinary { to, bytes })
    }

    /// Sends the program to the nodes of an allocation.
    ///
    /// # Errors
    /// The command cannot be made, or fails.
    pub(crate) async fn stage_binary(&self, allocation: u64, job: &str) -> Result<(), LrmError> {
        let (Some(send), Some(binary)) = (&self.description().send, self.staged_binary(allocation))
        else {
            return Ok(());
        };
        let mut values = self.values();
        values.set("job", job);
        values.set("sent_binary", binary.to.to_string_lossy());
        let words = super::driver::fill(&send.command, &values)?;
        let input = Template::new(&send.input)?.text(&values, Quoting::Shell)?;
        command::run(&words, &input, self.limit(STAGE_BINARY_S_MAX)).await?;
        Ok(())
    }
}
