//! Tasks that run on several executors, and the processes that they start on other nodes.

use super::Tasks;
use super::ends::{ranks, used};
use crate::MemoryLimits;
use crate::gangs::{self, Asked, FromGangs, Measured};
use falkon_core::execute::Event;
use falkon_core::gang::{GangAction, GangKey};
use falkon_core::result::ResourceUsage;
use falkon_core::task::Resources;
use falkon_data::peer::remote::RemoteEnd;
use falkon_net::clock::Clock;
use falkon_process::{Ended, Launch, MemoryLimit, Outcome, Shortage, Stage};
use std::os::unix::ffi::OsStringExt;

/// A variable of a task's environment, and its value.
type Variable = (Vec<u8>, Vec<u8>);

/// What the command of a gang's task finds in its environment, and what it does not.
#[derive(Debug, Default)]
pub(super) struct GangEnvironment {
    pub(super) set: Vec<Variable>,
    pub(super) without: Vec<Vec<u8>>,
    /// The variables by which its ranks are told apart.
    pub(super) ranked_by: Vec<Vec<u8>>,
}

impl Tasks {
    /// Holds a gang, or ends it.
    pub(crate) fn act_on_gang(&mut self, action: GangAction, clock: &Clock) {
        match action {
            GangAction::Form { .. } => {
                let fetcher = self.objects.as_ref().and_then(|objects| objects.fetcher());
                for asked in self.gangs.form(action, fetcher) {
                    self.start_remote(asked);
                }
            }
            GangAction::Disband { key } => {
                self.kills.extend(self.gangs.disband(key));
                // Its task's end waits for nothing any more.
                let waiting = self.gathering.iter();
                let waiting = waiting.filter(|(_, (_, process))| process.gang == Some(key));
                for launch in waiting.map(|(launch, _)| *launch).collect::<Vec<_>>() {
                    self.gathered(launch, clock);
                }
                let released = self.gangs.release(key);
                self.gang_released(released);
            }
        }
    }

    fn gang_released(&mut self, released: Option<(GangKey, Option<ResourceUsage>)>) {
        if let Some((key, usage)) = released {
            self.events.push_back(Event::GangEnded { key, usage });
        }
    }

    /// The environment of a gang's task, which has these resources here.
    pub(super) fn gang_environment(
        &self,
        key: GangKey,
        resources: &Resources,
    ) -> Result<GangEnvironment, String> {
        let (variables, ranks) = self.gangs.environment(key)?;
        let mut set = variables.to_vec();
        set.extend(self.granted.threads(resources.cpus_milli, ranks));
        Ok(GangEnvironment { set, without: gangs::without(), ranked_by: gangs::ranked_by() })
    }

    /// Acts upon a message about gangs.
    pub(super) fn gang_said(&mut self, said: FromGangs, clock: &Clock) {
        match said {
            FromGangs::Start(asked) => self.start_remote(asked),
            FromGangs::Gathered(launch) => self.gathered(launch, clock),
            FromGangs::Unwanted(launch) => {
                self.kills.extend(self.gangs.unwanted(launch).map(|grace| (launch, grace)));
            }
        }
    }

    /// Starts a process that another process of its gang has asked for.
    pub(super) fn start_remote(&mut self, asked: Asked) {
        let (key, launch) = (asked.start.key, self.next_launch);
        let Some(remote) = self.gangs.start(asked, launch) else { return };
        self.next_launch += 1;
        let mut env = self.granted.environment(remote.resources);
        env.extend(self.granted.threads(remote.resources.cpus_milli, remote.ranks));
        env.extend(remote.variables.iter().cloned());
        let temporary = remote.temporary.map(|path| path.into_os_string().into_vec());
        env.extend(temporary.map(|path| ("TMPDIR".into(), path)));
        let mut set = |name: &str, value: String| env.push((name.into(), value.into_bytes()));
        set("FALKON_INSTANCE", key.instance.to_string());
        set("FALKON_TASK", key.task.to_string());
        set("FALKON_ATTEMPT", key.tries.attempt().to_string());
        env.extend(self.gpus.environment(&remote.grant.gpus));
        let bytes = remote.resources.memory_bytes;
        let memory = (bytes > 0 && self.memory_limits != MemoryLimits::Off).then_some(bytes);
        let in_group = self.memory_limits == MemoryLimits::Auto;
        self.launches.push_back(Launch {
            key: launch,
            argv: remote.argv,
            env,
            without: gangs::without(),
            ranked_by: gangs::ranked_by(),
            cpus: remote.grant.cpus.iter().map(|share| share.number).collect(),
            memory: memory.map(|bytes| MemoryLimit { bytes, in_group }),
            ..Launch::default()
        });
    }

    /// A launch has ended that may be a gang's; whether it is one.
    pub(super) fn remote_ended(&mut self, ended: &Ended) -> bool {
        let end = match (ended.shortage, ended.outcome) {
            (Some(Shortage::OverLimit { had_bytes }), _) => Err(format!(
                "it had {had_bytes} bytes of memory when it was ended, more than the task has on \
                 a node: --memory gives it more"
            )),
            (Some(Shortage::OfSystem), _) => Err("its node had no memory left".to_owned()),
            // Statuses and signals are small numbers.
            (None, Outcome::Exit(status)) => Ok(RemoteEnd::Exit(status as u8)),
            (None, Outcome::Signal(signal)) => Ok(RemoteEnd::Signal(signal as u8)),
            (None, Outcome::NotStarted { stage: Stage::Waiting, .. }) => {
                Err("it was ended before it began".to_owned())
            }
            (None, Outcome::NotStarted { errno, .. }) => {
                Err(format!("it cannot be started: {}", std::io::Error::from_raw_os_error(errno)))
            }
        };
        let (used, ranks) = (used(&ended.outcome, &ended.usage), ranks(&ended.ranks));
        self.remote_over(ended.key, end, Measured { used, ranks, is_lost: false })
    }

    /// A launch is over that may be a gang's; whether it is one.
    fn remote_over(
        &mut self,
        launch: u64,
        end: Result<RemoteEnd, String>,
        measured: Measured,
    ) -> bool {
        let Some(released) = self.gangs.ended(launch, end, measured) else { return false };
        self.gang_released(released);
        true
    }

    /// As [`Self::remote_over`], for one that never ran.
    pub(super) fn remote_unsent(&mut self, launch: u64, reason: &str) -> bool {
        self.remote_over(launch, Err(reason.to_owned()), Measured::default())
    }

    /// As [`Self::remote_over`], for one whose end nobody knows.
    pub(super) fn remote_lost(&mut self, launch: u64, reason: &str) -> bool {
        let measured = Measured { is_lost: true, ..Measured::default() };
        self.remote_over(launch, Err(reason.to_owned()), measured)
    }

    /// What the gang used is known as far as it can be whose task's command was this launch.
    fn gathered(&mut self, launch: u64, clock: &Clock) {
        let Some((ended, process)) = self.gathering.remove(&launch) else { return };
        if let Some(event) = self.process_ended(ended, process, clock) {
            self.events.push_back(event);
        }
    }
}
