//! Tasks whose files are being looked at: inputs before they start, outputs
//! after they have ended, and what kept a program from being executed. The file
//! systems may never answer, so others look ([`Files`]) and the executor goes
//! on; a task whose files are not answered for ends and names the path.

use super::prepare::{Draft, NotStarted, input_paths};
use super::{Prepared, Tasks, Written};
use crate::files::{Files, Look, Unanswered};
use crate::not_started::{Failure, Reason};
use falkon_core::execute::{Event, Start, TaskKey};
use falkon_core::result::{Cause, Detail, Outcome};
use falkon_core::task::{Kind, TaskId, Time};
use falkon_net::clock::Clock;
use falkon_wire::command::Template;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The answers of the file systems.
enum Answer {
    /// Why the inputs of each task are not there, if so.
    Inputs(Vec<Result<(), Reason>>),
    /// The sizes of outputs, or the first that is missing.
    Outputs(Result<Vec<u64>, PathBuf>),
    /// Why a program was not executed.
    Reason(String),
}

/// A task, or calls one after another, before their start.
struct Starting {
    start: Start,
    /// The process, if it is one.
    draft: Option<Box<Draft>>,
    /// Whether the inputs are there, once that is known.
    inputs: Option<Vec<Result<(), Reason>>>,
    question: Option<u64>,
}

/// A task after its end.
struct Ending {
    event: Event,
    objects: Written,
    /// How it ended, for the message if an output is missing all the same.
    did: &'static str,
    failure: Option<Box<Failure>>,
}

enum Asked {
    Start(TaskKey),
    End(TaskKey),
}

/// See the [module](self).
pub(super) struct Checks {
    files: Files<Answer>,
    asked: HashMap<u64, Asked>,
    starts: BTreeMap<TaskKey, Starting>,
    /// Pairs of tasks, neither launched yet, of which the second comes after the
    /// first.
    behind: BTreeSet<(TaskKey, TaskKey)>,
    ends: BTreeMap<TaskKey, (u64, Ending)>,
    /// The log knows that a file system does not answer.
    complained: bool,
}

impl Checks {
    pub(super) fn new(limit: Duration) -> Checks {
        Checks {
            files: Files::new(limit),
            asked: HashMap::new(),
            starts: BTreeMap::new(),
            behind: BTreeSet::new(),
            ends: BTreeMap::new(),
            complained: false,
        }
    }

    /// Waits until the file systems say something. Cancel safe.
    pub(super) async fn recv(&mut self) {
        self.files.recv().await;
    }

    /// The time of the next call of [`Tasks::hear_files`] without a notice.
    pub(super) fn due(&self) -> Option<Instant> {
        self.files.due()
    }

    /// Hands over what was asked.
    pub(super) fn send(&mut self) {
        self.files.send();
    }

    /// Whether all that was asked is handed over.
    pub(super) fn has_sent(&self) -> bool {
        self.files.has_sent()
    }

    fn ask(&mut self, what: Asked, work: impl FnOnce(&Look) -> Answer + Send + 'static) -> u64 {
        let question = self.files.ask(work);
        self.asked.insert(question, what);
        question
    }

    fn forget(&mut self, question: u64) {
        self.files.forget(question);
        self.asked.remove(&question);
    }

    fn add_start(&mut self, start: Start, draft: Option<Draft>, inputs: Vec<Vec<PathBuf>>) {
        let key = start.key;
        let mut starting =
            Starting { start, draft: draft.map(Box::new), inputs: None, question: None };
        if inputs.iter().all(Vec::is_empty) {
            starting.inputs = Some(vec![Ok(()); inputs.len()]);
        } else {
            let work = move |look: &Look| Answer::Inputs(look_at_inputs(look, &inputs));
            starting.question = Some(self.ask(Asked::Start(key), work));
        }
        if let Some(before) = starting.start.after.filter(|before| self.starts.contains_key(before))
        {
            self.behind.insert((before, key));
        }
        self.starts.insert(key, starting);
    }

    /// Takes a task out that was not launched. What comes after it comes after
    /// the one before it; that may be nothing that is not launched.
    fn drop_start(&mut self, key: TaskKey) -> Option<(Starting, Vec<TaskKey>)> {
        let dropped = self.starts.remove(&key)?;
        if let Some(question) = dropped.question {
            self.forget(question);
        }
        let before = dropped.start.after;
        if let Some(before) = before {
            self.behind.remove(&(before, key));
        }
        let followers = self.followers(key);
        for &follower in &followers {
            self.behind.remove(&(key, follower));
            if let Some(one) = self.starts.get_mut(&follower) {
                one.start.after = before;
            }
            if let Some(before) = before.filter(|before| self.starts.contains_key(before)) {
                self.behind.insert((before, follower));
            }
        }
        Some((dropped, followers))
    }

    fn followers(&self, key: TaskKey) -> Vec<TaskKey> {
        let first = TaskKey { instance: falkon_core::task::InstanceId(0), task: TaskId(0) };
        let behind = self.behind.range((key, first)..).take_while(|(before, _)| *before == key);
        behind.map(|(_, follower)| *follower).collect()
    }

    /// Takes a task out that can be launched now, or has failed to.
    fn take_ready(&mut self, key: TaskKey) -> Option<Starting> {
        let one = self.starts.get(&key)?;
        let waits = one.start.after.is_some_and(|before| self.starts.contains_key(&before));
        if waits || one.inputs.is_none() { None } else { self.starts.remove(&key) }
    }
}

impl Tasks {
    /// Starts a process, at once if there is nothing to look at.
    pub(super) fn start_process(&mut self, start: Start, now: Time) {
        let draft = match self.draft(&start) {
            Ok(draft) => draft,
            Err(error) => return self.not_started(start, error, now),
        };
        let inputs = input_paths(&draft.command);
        let follows = start.after.is_some_and(|before| self.checks.starts.contains_key(&before));
        if inputs.is_empty() && !follows {
            if let Err(error) = self.launch_draft(&start, draft) {
                self.not_started(start, error, now);
            }
        } else {
            self.checks.add_start(start, Some(draft), vec![inputs]);
        }
    }

    /// The files that each call of `start` reads; nothing if none reads any.
    pub(super) fn inputs_of_calls(&self, start: &Start) -> Vec<Vec<PathBuf>> {
        if let Ok(Prepared { template: Template::Calls(command), .. }) = self.prepared(start)
            && command.inputs.is_empty()
        {
            return Vec::new();
        }
        let of = |start: &Start, at| {
            self.command(start, at).map_or_else(|_| Vec::new(), |command| input_paths(&command))
        };
        let mut inputs: Vec<Vec<PathBuf>> = (0..start.count).map(|at| of(start, at)).collect();
        for more in &start.more {
            let start = start.one_of(more);
            inputs.extend((0..start.count).map(|at| of(&start, at)));
        }
        inputs
    }

    /// Starts calls when it is known that their inputs are there.
    pub(super) fn start_checked_calls(&mut self, start: Start, inputs: Vec<Vec<PathBuf>>) {
        self.checks.add_start(start, None, inputs);
    }

    /// A task has ended well, if the files are there that it was to write.
    pub(super) fn see_outputs(
        &mut self,
        event: Event,
        did: &'static str,
        paths: Vec<PathBuf>,
        objects: Written,
    ) {
        let Event::Ended { key, .. } = event else { return };
        let ending = Ending { event, objects, did, failure: None };
        if let Some(store) = &self.objects
            && let Some(sizes) = store.sizes_of_plain(&paths)
        {
            return self.finish(key, ending, Ok(Answer::Outputs(Ok(sizes))));
        }
        let work = move |look: &Look| Answer::Outputs(look_at_outputs(look, &paths));
        let question = self.checks.ask(Asked::End(key), work);
        self.checks.ends.insert(key, (question, ending));
    }

    /// A program was not executed: why, is to be put into words.
    pub(super) fn explain(&mut self, event: Event, failure: Failure) {
        let Event::Ended { key, .. } = event else { return };
        let looked = failure.clone();
        let work = move |look: &Look| Answer::Reason(looked.explained(look).to_string());
        let question = self.checks.ask(Asked::End(key), work);
        let failure = Some(Box::new(failure));
        let ending = Ending { event, objects: Vec::new(), did: "", failure };
        self.checks.ends.insert(key, (question, ending));
    }

    /// Acts upon what file systems say, and upon their silence.
    pub(super) fn hear_files(&mut self, clock: &Clock) {
        for (question, answer) in self.checks.files.take(Instant::now()) {
            if let Err(why) = &answer {
                self.complain(why);
            } else {
                self.checks.complained = false;
            }
            match self.checks.asked.remove(&question) {
                Some(Asked::Start(key)) => self.inputs_seen(key, answer, clock),
                Some(Asked::End(key)) => self.end_seen(key, answer),
                None => {}
            }
        }
    }

    fn complain(&mut self, why: &Unanswered) {
        if !std::mem::replace(&mut self.checks.complained, true) {
            (self.log)(&why.to_string());
        }
    }

    fn inputs_seen(&mut self, key: TaskKey, answer: Result<Answer, Unanswered>, clock: &Clock) {
        let Some(one) = self.checks.starts.get_mut(&key) else { return };
        one.question = None;
        one.inputs = Some(match answer {
            Ok(Answer::Inputs(inputs)) => inputs,
            Ok(_) => Vec::new(),
            Err(why) => vec![Err(Reason {
                error: format!("cannot look at its inputs: {why}"),
                cause: Some(Cause::FileSystemSilent),
            })],
        });
        self.release(vec![key], clock);
    }

    /// Begins tasks that wait for nothing any more, and those behind them.
    fn release(&mut self, mut next: Vec<TaskKey>, clock: &Clock) {
        while let Some(key) = next.pop() {
            let Some(one) = self.checks.take_ready(key) else { continue };
            let followers = self.checks.followers(key);
            self.begin(one, clock);
            for follower in followers {
                self.checks.behind.remove(&(key, follower));
                next.push(follower);
            }
        }
    }

    /// Launches what has its inputs, and ends what has not.
    fn begin(&mut self, one: Starting, clock: &Clock) {
        let Starting { start, draft, inputs, .. } = one;
        let inputs = inputs.unwrap_or_default();
        let Some(draft) = draft else {
            self.start_calls(&start, Some(&inputs), clock);
            return;
        };
        match inputs.into_iter().find_map(Result::err) {
            None => {
                if let Err(error) = self.launch_draft(&start, *draft) {
                    self.not_started(start, error, clock.now());
                }
            }
            Some(reason) => self.not_started(start, NotStarted::from(reason), clock.now()),
        }
    }

    fn end_seen(&mut self, key: TaskKey, answer: Result<Answer, Unanswered>) {
        let Some((_, ending)) = self.checks.ends.remove(&key) else { return };
        self.finish(key, ending, answer);
    }

    /// Ends a task of whose files it is known how they are.
    fn finish(&mut self, key: TaskKey, ending: Ending, answer: Result<Answer, Unanswered>) {
        let Ending { mut event, objects, did, failure } = ending;
        let objects = match self.call_objects.remove(&key) {
            Some(written) => written,
            None => objects,
        };
        let cause = failure.as_ref().and_then(|failure| failure.error().cause());
        let fail = |event: &mut Event, why: Outcome, reason: String| {
            let Event::Ended { outcome, detail, .. } = event else { return };
            let mut said = detail.take().map_or_else(Detail::default, Arc::unwrap_or_clone);
            let rest = std::mem::replace(&mut said.error, reason);
            if !rest.is_empty() {
                said.error = format!("{}; {rest}", said.error);
            }
            said.cause = cause;
            *outcome = why;
            *detail = Some(Arc::new(said));
        };
        let next = self.events.len();
        let event = match (answer, failure) {
            (Ok(Answer::Outputs(Ok(mut sizes))), _) => {
                // Files stand before data objects.
                let sizes = sizes.split_off(sizes.len().saturating_sub(objects.len()));
                self.wrote(key, objects, sizes, event)
            }
            (Ok(Answer::Outputs(Err(path))), _) => {
                let error = format!("{did} but did not write its output {}", path.display());
                fail(&mut event, Outcome::NoOutput, error);
                Some(event)
            }
            (Ok(Answer::Reason(reason)), _) => {
                fail(&mut event, Outcome::NotRun, reason);
                Some(event)
            }
            (Err(why), Some(failure)) => {
                fail(&mut event, Outcome::NotRun, format!("{}; {why}", failure.error()));
                Some(event)
            }
            (Err(why), None) => {
                let error = format!("{did}, but whether it wrote its outputs is not known: {why}");
                fail(&mut event, Outcome::NoOutput, error);
                Some(event)
            }
            (Ok(Answer::Inputs(_)), _) => Some(event),
        };
        // The objects that it wrote come before its end.
        if let Some(event) = event {
            self.events.insert(next, event);
        }
    }

    /// Ends a task whose files are being looked at; whether there is one.
    pub(super) fn kill_checked(&mut self, key: TaskKey, clock: &Clock) -> bool {
        if let Some((question, ending)) = self.checks.ends.remove(&key) {
            self.checks.forget(question);
            self.call_objects.remove(&key);
            let mut event = ending.event;
            if let Event::Ended { outcome, .. } = &mut event {
                *outcome = Outcome::Signal(libc::SIGTERM);
            }
            self.events.push_back(event);
            return true;
        }
        if self.kill_checked_calls(key, clock) {
            return true;
        }
        let Some((dropped, followers)) = self.checks.drop_start(key) else { return false };
        match dropped.start.after {
            Some(_) => self.events.push_back(Event::TakenBack(key)),
            None => self.end(key, Outcome::Signal(libc::SIGTERM), clock.now(), String::new()),
        }
        self.release(followers, clock);
        true
    }

    /// A task whose inputs are being looked at is not to start; whether there
    /// is one.
    pub(super) fn take_back_checked(&mut self, key: TaskKey, clock: &Clock) -> bool {
        let Some((_, followers)) = self.checks.drop_start(key) else { return false };
        self.events.push_back(Event::TakenBack(key));
        self.release(followers, clock);
        true
    }

    /// Ends a call before its start. Calls behind it go back to the core, as
    /// they may be for another worker now.
    fn kill_checked_calls(&mut self, key: TaskKey, clock: &Clock) -> bool {
        let holds = |start: &Start| {
            start.class.kind == Kind::Function && calls(start).any(|call| call == key)
        };
        let found = self.checks.starts.iter().find(|(_, one)| holds(&one.start));
        let Some(first) = found.map(|(first, _)| *first) else { return false };
        let Some((dropped, _)) = self.checks.drop_start(first) else { return false };
        let calls: Vec<TaskKey> = calls(&dropped.start).collect();
        // The last first, so that none is behind one that is gone.
        for call in calls.into_iter().rev() {
            if call == key && call == first {
                self.end(key, Outcome::Signal(libc::SIGTERM), clock.now(), String::new());
            } else {
                self.events.push_back(Event::Returned { key: call, count: 1 });
            }
        }
        true
    }
}

/// The calls of a start, in their order.
fn calls(start: &Start) -> impl Iterator<Item = TaskKey> {
    let first = (start.key, start.count);
    let runs = std::iter::once(first).chain(start.more.iter().map(|more| (more.key, more.count)));
    runs.flat_map(|(key, count)| {
        (0..count).map(move |at| TaskKey { task: TaskId(key.task.0 + at), ..key })
    })
}

fn look_at_inputs(look: &Look, inputs: &[Vec<PathBuf>]) -> Vec<Result<(), Reason>> {
    let is_there = |path: &PathBuf| match look.metadata(path) {
        Ok(_) => Ok(()),
        Err(error) => Err(Reason {
            error: format!("the input {} cannot be read: {error}", path.display()),
            cause: Some(Cause::NoInputFile),
        }),
    };
    inputs.iter().map(|paths| paths.iter().try_for_each(is_there)).collect()
}

fn look_at_outputs(look: &Look, outputs: &[PathBuf]) -> Result<Vec<u64>, PathBuf> {
    let size = |path: &PathBuf| match look.metadata(path) {
        Ok(found) => Ok(found.len()),
        Err(_) => Err(path.clone()),
    };
    outputs.iter().map(size).collect()
}
