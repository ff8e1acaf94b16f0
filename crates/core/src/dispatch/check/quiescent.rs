//! Invariants that hold once all that follows from an event has been done.

use super::{CheckError, ensure};
use crate::dispatch::Dispatcher;

impl Dispatcher {
    /// Executors are where they belong, and nothing runs for nobody.
    pub(super) fn check_quiescent(&self) -> Result<(), CheckError> {
        if !self.outbound.is_empty() || self.fleet.has_orders() || self.has_unplaced() {
            return Ok(());
        }
        self.fleet.check_quiescent()?;
        for instance in self.instances.values() {
            let is_over = instance.tasks.have_all_ended();
            let is_idle = instance.tasks.ready() == 0 && instance.tasks.assigned() == 0;
            ensure!(!is_over || is_idle, "instance {}: a task runs again for nobody", instance.id);
        }
        Ok(())
    }
}
