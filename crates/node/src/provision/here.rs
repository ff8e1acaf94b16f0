//! Executors of this machine: together they never offer more than it has.

use super::config::ConfigError;
use crate::lrm::Settings;

/// What can be shared out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machine {
    pub(super) cpus: u64,
    pub(super) memory_mib: u64,
}

impl Machine {
    /// This one, as far as this process may use it.
    pub(super) fn own() -> Machine {
        let info = rustix::system::sysinfo();
        let bytes = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
        let granted = crate::lrm::granted(|name| std::env::var(name).ok(), "").memory_bytes;
        Machine {
            cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
            memory_mib: bytes.min(granted.unwrap_or(u64::MAX)) >> 20,
        }
    }

    /// Gives each of so many executors its share of what is not set.
    ///
    /// # Errors
    /// What is set is more than there is.
    pub(super) fn share(self, settings: &mut Settings, nodes: u64) -> Result<(), ConfigError> {
        let nodes = nodes.max(1);
        let cpus = settings.cpus.map_or(self.cpus / nodes, u64::from);
        let memory_mib = settings.memory_mib.unwrap_or(self.memory_mib / nodes);
        for (what, each, all) in
            [("cpus", cpus, self.cpus), ("MiB of memory", memory_mib, self.memory_mib)]
        {
            if each == 0 || each.saturating_mul(nodes) > all {
                return Err(ConfigError::Machine { what, each, nodes, all });
            }
        }
        settings.cpus = u32::try_from(cpus).ok();
        settings.memory_mib = Some(memory_mib);
        if nodes > 1 {
            // Which of them would have which is nobody's to say.
            settings.gpus.get_or_insert(0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Machine;
    use crate::lrm::Settings;

    #[test]
    fn executors_of_one_machine_offer_no_more_than_it_has() {
        let machine = Machine { cpus: 6, memory_mib: 1000 };
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
