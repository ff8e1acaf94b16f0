//! Relays below the dispatcher, each with executors of its own.

use super::{
    CONCENTRATOR_ARGUMENT, READY_LOOK_MS, READY_S_MAX, Services, Setup, children_of, security_name,
    spawn,
};
use crate::bench::error::BenchError;
use crate::program::falkon;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

/// Relays. They end when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Relays {
    processes: Vec<Child>,
}

impl Relays {
    /// Starts relays, which protect connections as the dispatcher does and have journals,
    /// and waits until executors can connect to all of them.
    pub(crate) async fn start(
        services: &Services,
        count: u32,
        setup: &Setup,
    ) -> Result<Relays, BenchError> {
        let mut relays = Relays::default();
        for number in 0..count {
            let upstream = services.scratch.path().join("dispatcher").join("access-executor.json");
            let arguments = vec![
                "relay".into(),
                "--upstream".into(),
                upstream.into_os_string(),
                "--listen".into(),
                "127.0.0.1:0".into(),
                "--dir".into(),
                dir_of(services, number).into_os_string(),
                "--security".into(),
                security_name(setup).into(),
            ];
            relays.processes.push(spawn(&services.scratch, &falkon()?, "relay", arguments)?);
        }
        let deadline = Instant::now() + Duration::from_secs(READY_S_MAX);
        while !(0..count).all(|number| access_of(services, number).exists()) {
            if Instant::now() > deadline {
                return Err(BenchError::Service { what: "relay", log: services.log("relay") });
            }
            tokio::time::sleep(Duration::from_millis(READY_LOOK_MS)).await;
        }
        Ok(relays)
    }

    /// The access file that the `number`-th process with executors takes: theirs in turn,
    /// or the dispatcher's where there is no relay.
    pub(crate) fn access_path(&self, services: &Services, number: u32) -> PathBuf {
        match self.processes.len() as u32 {
            0 => services.access_path(),
            relays => access_of(services, number % relays),
        }
    }

    /// Their processes, and those that hold their connections.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let of = |relay: &Child| {
            let concentrators = children_of(relay.id(), CONCENTRATOR_ARGUMENT);
            [relay.id()].into_iter().chain(concentrators)
        };
        self.processes.iter().flat_map(of).collect()
    }
}

impl Drop for Relays {
    fn drop(&mut self) {
        for process in &mut self.processes {
            super::end(process);
        }
    }
}

fn dir_of(services: &Services, number: u32) -> PathBuf {
    services.scratch.path().join(format!("relay-{number}"))
}

fn access_of(services: &Services, number: u32) -> PathBuf {
    dir_of(services, number).join("access-executor.json")
}
