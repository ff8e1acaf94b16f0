//! Templates: Python workers that have imported what calls are expected to need and make no calls
//! themselves. Other workers are copies of them ([`falkon_process::Source::Copy`]), and start in
//! milliseconds.
//!
//! A template is for workers of one working directory and one set of variables, whatever the
//! instance and the initializer: it runs neither calls nor initializers. A worker of which no copy
//! can be made is started as if there were no templates.
//!
//! Where a client has forked itself ([`falkon_process::Forked`]), its copy is the template of all
//! Python workers here, and only copies of it have what the client had: there is no other way to
//! start a worker, and none when that template has ended.

use super::bundle::{Home, Imports};
use super::worker::Worker;
use super::{START_CAPTURE_BYTES, WorkerError, Workers, program};
use falkon_process::{Ended, Launch, Outcome, Source, Stage};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Templates of an executor that are there at the same time.
const TEMPLATES_MAX: usize = 4;
/// Places that are remembered to have no template.
const BASES_MAX: usize = 256;
/// A template that was killed as often, or that crashes, is not started again.
const DEATHS_MAX: u32 = 3;
/// Workers that start before there are calls.
const WORKERS_AHEAD_MAX: usize = 4;
/// The variable that distinguishes workers with different initializers;
/// templates run none.
const INITIALIZER: &[u8] = b"FALKON_WORKER_INITIALIZER";

/// The properties that a template's workers share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Base {
    cwd: Option<Vec<u8>>,
    env: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Base {
    fn of(home: &Home) -> Base {
        let env = home.env.iter().filter(|(name, _)| name != INITIALIZER);
        Base { cwd: home.cwd.clone(), env: env.cloned().collect() }
    }
}

#[derive(Debug)]
enum State {
    /// The template runs; `used` is the number of its last use.
    Runs { key: u64, used: u64, deaths: u32 },
    /// The template has ended, and may be started again.
    Ended { deaths: u32 },
    /// No copy of it may be made.
    Unfit,
}

/// The copy of the client that workers are copies of.
#[derive(Debug, Clone, Copy)]
struct OfClient {
    key: u64,
    has_ended: bool,
}

/// The templates of an executor.
#[derive(Debug, Default)]
pub(super) struct Templates {
    states: HashMap<Base, State>,
    uses: u64,
    of_client: Option<OfClient>,
}

impl Templates {
    /// Whether this is the template that a client forked.
    pub(super) fn is_forked(&self, key: u64) -> bool {
        self.of_client.is_some_and(|one| one.key == key)
    }

    /// The template for workers of this kind, if it runs; `Err` if it is to be started, with the
    /// number of those that have died.
    fn find(&mut self, base: &Base) -> Result<Option<u64>, u32> {
        self.uses += 1;
        match self.states.get_mut(base) {
            Some(State::Runs { key, used, .. }) => {
                *used = self.uses;
                Ok(Some(*key))
            }
            Some(State::Ended { deaths }) => Err(*deaths),
            Some(State::Unfit) => Ok(None),
            None => Err(0),
        }
    }

    /// A template is started; returns one that is to make room for it.
    fn started(&mut self, base: Base, key: u64, deaths: u32) -> Option<u64> {
        if self.states.len() >= BASES_MAX {
            self.states.retain(|_, state| matches!(state, State::Runs { .. }));
        }
        self.states.insert(base, State::Runs { key, used: self.uses, deaths });
        let running = self.states.values().filter_map(|state| match state {
            State::Runs { key, used, .. } => Some((*used, *key)),
            State::Ended { .. } | State::Unfit => None,
        });
        let running: Vec<_> = running.collect();
        let oldest = running.iter().min().filter(|_| running.len() > TEMPLATES_MAX);
        oldest.map(|(_, key)| *key)
    }

    fn state(&mut self, key: u64) -> Option<&mut State> {
        self.states
            .values_mut()
            .find(|state| matches!(state, State::Runs { key: one, .. } if *one == key))
    }

    /// A process has ended; whether it was a template.
    pub(super) fn ended(&mut self, ended: &Ended) -> bool {
        if let Some(one) = self.of_client.as_mut().filter(|one| one.key == ended.key) {
            one.has_ended = true;
            return true;
        }
        let Some(state) = self.state(ended.key) else { return false };
        let State::Runs { deaths, .. } = *state else { return false };
        *state = match ended.outcome {
            // A module that it had imported was edited, or it was to make room.
            Outcome::Exit(0) => State::Ended { deaths },
            Outcome::Signal(_) if deaths < DEATHS_MAX => State::Ended { deaths: deaths + 1 },
            Outcome::NotStarted { .. } if deaths < DEATHS_MAX => {
                State::Ended { deaths: deaths + 1 }
            }
            _ => State::Unfit,
        };
        true
    }

    /// Gives up a template that does not answer.
    fn give_up(&mut self, key: u64) {
        if let Some(state) = self.state(key) {
            *state = State::Unfit;
        }
    }
}

impl Workers {
    /// The source of a worker's process for this home: a copy, if there is a
    /// template or is to be one.
    pub(super) fn source(&mut self, home: &Home, argv: &[Vec<u8>]) -> Result<Source, WorkerError> {
        // An environment of its own has other modules than a template imports.
        if home.language != program::PYTHON || home.interpreter.is_some() {
            return Ok(Source::Program);
        }
        match self.templates.of_client.filter(|_| home.cwd.is_none()) {
            Some(OfClient { has_ended: true, .. }) => return Err(WorkerError::ForkedEnded),
            Some(OfClient { key, .. }) => return Ok(Source::Copy { of: key }),
            None => {}
        }
        let Some(imports) = &home.imports.0 else { return Ok(Source::Program) };
        let base = Base::of(home);
        let deaths = match self.templates.find(&base) {
            Ok(Some(of)) => return Ok(Source::Copy { of }),
            Ok(None) => return Ok(Source::Program),
            Err(deaths) => deaths,
        };
        let key = self.next_worker;
        self.next_worker += 1;
        let mut env = base.env.clone();
        env.push((b"FALKON_WORKER_TEMPLATE".to_vec(), imports.clone()));
        self.launches.push(Launch {
            key,
            argv: argv.to_vec(),
            env,
            cwd: home.cwd.clone(),
            capture_bytes_max: START_CAPTURE_BYTES,
            source: Source::Template,
            ..Launch::default()
        });
        if let Some(oldest) = self.templates.started(base, key, deaths) {
            self.kills.push((oldest, Duration::ZERO));
        }
        Ok(Source::Copy { of: key })
    }

    /// Takes over the template that the client has forked.
    pub(super) fn adopt_forked(&mut self) {
        let key = self.next_worker;
        self.next_worker += 1;
        self.templates.of_client = Some(OfClient { key, has_ended: false });
        let argv = vec![program::PYTHON.as_bytes().to_vec()];
        self.launches.push(Launch { key, argv, source: Source::Forked, ..Launch::default() });
    }

    /// A worker's process has ended: starts it as a program if it is one of which no copy could
    /// be made, and returns whether it is.
    pub(super) fn start_uncopied(&mut self, ended: &Ended) -> bool {
        let Outcome::NotStarted { stage: Stage::Copy, errno } = ended.outcome else { return false };
        let Some(worker) = self.workers.get_mut(&ended.key) else { return false };
        let Source::Copy { of } = worker.source else { return false };
        if self.templates.is_forked(of) {
            return false;
        }
        worker.source = Source::Program;
        if errno == libc::ETIMEDOUT {
            self.templates.give_up(of);
            self.kills.push((of, Duration::ZERO));
        }
        if worker.retired {
            return false;
        }
        let launch = self.order(ended.key);
        self.launches.extend(launch);
        true
    }

    fn starts_ahead(&self) -> bool {
        self.options.foreseen.is_some() || self.templates.of_client.is_some()
    }

    /// Starts workers before there are calls, as the client of this executor will make some.
    pub(super) fn start_ahead(&mut self) -> Result<(), WorkerError> {
        if !self.starts_ahead() {
            return Ok(());
        }
        let imports = self.options.foreseen.clone();
        let home = Arc::new(Home {
            language: program::PYTHON.to_owned(),
            instance: None,
            cwd: None,
            env: Vec::new(),
            imports: Imports(imports.map(String::into_bytes)),
            interpreter: None,
        });
        for _ in 0..self.slots.min(WORKERS_AHEAD_MAX) {
            self.launch(&home)?;
        }
        Ok(())
    }

    /// Gives a worker that was started ahead to the calls of an instance; `is_fit` says which.
    pub(super) fn take_ahead(
        &mut self,
        home: &Arc<Home>,
        is_fit: impl Fn(&Worker) -> bool,
    ) -> Option<u64> {
        if self.options.shared || !self.starts_ahead() {
            return None;
        }
        let base = Base::of(home);
        let is_ahead = |worker: &Worker| {
            worker.home.instance.is_none()
                && worker.home.language == home.language
                && worker.home.interpreter == home.interpreter
                && Base::of(&worker.home) == base
                && is_fit(worker)
        };
        let (key, worker) = self.workers.iter_mut().find(|(_, worker)| is_ahead(worker))?;
        let before = std::mem::replace(&mut worker.home, home.clone());
        if let Some(idle) = self.idle.get_mut(&before) {
            idle.retain(|one| one != key);
        }
        Some(*key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use falkon_process::{Captured, Usage};

    fn base(name: u32) -> Base {
        Base { cwd: Some(name.to_string().into_bytes()), env: Vec::new() }
    }

    fn ended(key: u64, outcome: Outcome) -> Ended {
        let (stdout, stderr) = (Captured::default(), Captured::default());
        Ended {
            key,
            outcome,
            started: 0,
            ended: 0,
            stdout,
            stderr,
            usage: Usage::default(),
            shortage: None,
            ranks: Vec::new(),
        }
    }

    #[test]
    fn a_template_is_started_again_unless_it_is_unfit_or_dies_again_and_again() {
        let mut templates = Templates::default();
        assert_eq!(templates.find(&base(0)), Err(0));
        assert_eq!(templates.started(base(0), 7, 0), None);
        assert_eq!(templates.find(&base(0)), Ok(Some(7)));
        assert!(!templates.ended(&ended(8, Outcome::Exit(0))), "it is no template");
        // A module was edited: that is no death.
        assert!(templates.ended(&ended(7, Outcome::Exit(0))));
        assert!(!templates.ended(&ended(7, Outcome::Exit(0))), "it has ended before");
        assert_eq!(templates.find(&base(0)), Err(0));
        for deaths in 0..=DEATHS_MAX {
            assert_eq!(templates.find(&base(0)), Err(deaths));
            templates.started(base(0), 10 + u64::from(deaths), deaths);
            let died = ended(10 + u64::from(deaths), Outcome::Signal(libc::SIGKILL));
            assert!(templates.ended(&died));
        }
        assert_eq!(templates.find(&base(0)), Ok(None));
        templates.started(base(1), 20, 0);
        assert!(templates.ended(&ended(20, Outcome::Exit(3))));
        assert_eq!(templates.find(&base(1)), Ok(None), "no copy of it may be made");
        templates.started(base(2), 21, 0);
        templates.give_up(21);
        assert_eq!(templates.find(&base(2)), Ok(None));
    }

    #[test]
    fn the_one_used_longest_ago_makes_room_and_places_are_forgotten() {
        let mut templates = Templates::default();
        for name in 0..TEMPLATES_MAX as u32 {
            assert_eq!(templates.find(&base(name)), Err(0));
            assert_eq!(templates.started(base(name), u64::from(name), 0), None);
        }
        assert_eq!(templates.find(&base(0)), Ok(Some(0)));
        assert_eq!(templates.find(&base(99)), Err(0));
        assert_eq!(templates.started(base(99), 99, 0), Some(1));
        for name in 100..100 + 2 * BASES_MAX as u32 {
            templates.started(base(name), u64::from(name), 0);
            templates.give_up(u64::from(name));
            assert!(templates.states.len() <= BASES_MAX);
        }
        assert_eq!(templates.find(&base(99)), Ok(Some(99)), "those that run are kept");
    }
}
