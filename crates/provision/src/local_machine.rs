//! Executors of this machine: together they never offer more than it has.

use crate::lrm::Settings;

/// The executors of a queue exceed this machine.
#[derive(Debug, thiserror::Error)]
#[error(
    "{nodes} nodes of {each} {what} are more than this machine has, which is {all}: choose fewer \
     or smaller ones"
)]
pub struct ShareError {
    /// The resource that is short.
    what: &'static str,
    /// How much each node is to have.
    each: u64,
    /// How many nodes.
    nodes: u64,
    /// How much there is.
    all: u64,
}

/// The resources that executors share.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalMachine {
    pub(super) cpus: u64,
    pub(super) memory_mib: u64,
}

impl LocalMachine {
    /// This machine, as far as this process may use it.
    pub(super) fn own() -> LocalMachine {
        let info = rustix::system::sysinfo();
        let bytes = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
        let granted = crate::lrm::granted(|name| std::env::var(name).ok(), "").memory_bytes;
        LocalMachine {
            cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
            memory_mib: bytes.min(granted.unwrap_or(u64::MAX)) >> 20,
        }
    }

    /// Gives each of `nodes` executors its share of the resources that are not
    /// set.
    ///
    /// # Errors
    /// The settings exceed the machine.
    pub(super) fn share(self, settings: &mut Settings, nodes: u64) -> Result<(), ShareError> {
        let nodes = nodes.max(1);
        let cpus = settings.cpus.map_or(self.cpus / nodes, u64::from);
        let memory_mib = settings.memory_mib.unwrap_or(self.memory_mib / nodes);
        for (what, each, all) in
            [("cpus", cpus, self.cpus), ("MiB of memory", memory_mib, self.memory_mib)]
        {
            if each == 0 || each.saturating_mul(nodes) > all {
                return Err(ShareError { what, each, nodes, all });
            }
        }
        settings.cpus = u32::try_from(cpus).ok();
        settings.memory_mib = Some(memory_mib);
        if nodes > 1 {
            // No setting says which executor would have which GPU.
            settings.gpus.get_or_insert(0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::LocalMachine;
    use crate::lrm::Settings;

    #[test]
    fn executors_of_one_machine_offer_no_more_than_it_has() {
        let machine = LocalMachine { cpus: 6, memory_mib: 1000 };
        for nodes in 0..9 {
            for cpus in [None, Some(1), Some(2), Some(6), Some(7), Some(u32::MAX)] {
                let mut settings = Settings { cpus, ..Settings::default() };
                let shared = machine.share(&mut settings, nodes);
                let all = u64::from(settings.cpus.unwrap_or(0)).saturating_mul(nodes.max(1));
                let memory = settings.memory_mib.unwrap_or(0).saturating_mul(nodes.max(1));
                assert_eq!(shared.is_ok(), all > 0 && all <= 6 && memory > 0, "{nodes} {cpus:?}");
                assert!(memory <= 1000);
            }
        }
    }
}
