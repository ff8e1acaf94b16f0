//! Tasks that need no process: `@noop` and `@sleep`.

use super::{Prepared, Tasks};
use falkon_core::execute::Start;
use falkon_core::task::{Rows, Time};
use falkon_wire::codec::DecodeError;
use falkon_wire::command::{Command, Template};

/// Longest `@sleep`, so that times stay far from overflow.
const SLEEP_SECONDS_MAX: f64 = 1e9;

impl Tasks {
    /// A no-op still has to be a command.
    pub(super) fn check_rows(&self, start: &Start) -> Result<(), String> {
        let Some(Ok(Prepared { template: Template::Each, .. })) =
            self.templates.get(&start.template)
        else {
            return Ok(());
        };
        let missing = DecodeError::Invalid("row");
        let check = |at| match &*start.rows {
            Rows::Packed(packed) => {
                Command::check(packed.at(start.row + at).ok_or(missing.clone())?)
            }
            Rows::Computed { .. } => Err(missing.clone()),
        };
        (0..start.count)
            .try_for_each(check)
            .map_err(|error| format!("the task's command cannot be read: {error}"))
    }

    pub(super) fn sleep(&mut self, start: &Start, now: Time) -> Result<(), String> {
        let command = self.command(start, 0)?;
        let text = command.argv.get(1).map(|text| String::from_utf8_lossy(text).into_owned());
        let seconds = text
            .as_deref()
            .and_then(|text| text.trim().parse::<f64>().ok())
            .filter(|seconds| (0.0..=SLEEP_SECONDS_MAX).contains(seconds))
            .ok_or_else(|| {
                format!("@sleep takes a number of seconds, not {:?}", text.unwrap_or_default())
            })?;
        let until = now.after((seconds * 1e6) as u64);
        self.timers.insert((until, start.key));
        self.sleeping.insert(start.key, (now, until));
        Ok(())
    }
}
