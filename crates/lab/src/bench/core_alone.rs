//! The core without IO: a dispatcher and an executor in one thread, events and
//! actions handed over in memory.

use super::campaign::Load;
use super::error::BenchError;
use falkon_core::dispatch::{self, ConnectionId, Dispatcher, InstanceOptions, Join, Lease};
use falkon_core::execute::{self, Executor};
use falkon_core::result::Outcome;
use falkon_core::task::{InstanceId, Resources, Submission, TaskId, Time};
use std::time::Instant;

const CLIENT: ConnectionId = ConnectionId(0);
const EXECUTOR: ConnectionId = ConnectionId(1);

struct Pair {
    dispatcher: Dispatcher,
    executor: Executor,
    now: Time,
    results: u64,
}

/// No-op tasks per second.
pub(crate) fn rate(load: &Load) -> Result<f64, BenchError> {
    // What a client does is not the core's.
    let mut submissions: Vec<(u64, Submission)> = Vec::new();
    let mut first = 0;
    while first < load.tasks {
        let submission = load.submission(first);
        let count = submission.count;
        submissions.push((first, submission));
        first += count;
    }
    let mut pair = Pair {
        dispatcher: Dispatcher::new(),
        executor: Executor::new(1, "core".to_owned(), Resources::cpus(2)),
        now: Time(1),
        results: 0,
    };
    pair.say(dispatch::Event::Join {
        connection: EXECUTOR,
        join: Join {
            gangs: Vec::new(),
            alternatives: Vec::new(),
            serves: None,
            cache: Default::default(),
            lease: Lease::default(),
            incarnation: 1,
            name: "core".to_owned(),
            capacity: Resources::cpus(2),
            held: Vec::new(),
            reports: Vec::new(),
        },
    });
    pair.executor.handle(pair.now, execute::Event::Connected);
    pair.let_executor_act();
    let options = InstanceOptions { keep_results: false, ..InstanceOptions::default() };
    pair.say(dispatch::Event::Create { connection: CLIENT, request: 0, options });
    let instance = InstanceId(0);
    let subscribe =
        dispatch::Event::Subscribe { connection: CLIENT, request: 1, instance, from: 0 };
    pair.say(subscribe);
    let start = Instant::now();
    for (first, submission) in submissions {
        let first = TaskId(first);
        let connection = CLIENT;
        pair.say(dispatch::Event::Submit {
            client: 1,
            connection,
            request: 2,
            instance,
            first,
            submission,
        });
        pair.settle();
    }
    let seconds = start.elapsed().as_secs_f64();
    if pair.results != load.tasks {
        return Err(BenchError::Results { expected: load.tasks, done: pair.results });
    }
    Ok(load.tasks as f64 / seconds)
}

impl Pair {
    fn say(&mut self, event: dispatch::Event) {
        // The step of a shell's round on a busy machine.
        self.now = self.now.after(100);
        self.dispatcher.handle(self.now, event);
    }

    /// Hands everything over until nothing is left to do.
    fn settle(&mut self) {
        while self.let_dispatcher_act() | self.let_executor_act() {}
    }

    fn let_dispatcher_act(&mut self) -> bool {
        let mut any = false;
        while let Some(action) = self.dispatcher.poll_action() {
            match action {
                dispatch::Action::Order { order, .. } => {
                    any = true;
                    self.executor.handle(self.now, execute::Event::Order(order));
                }
                dispatch::Action::Deliver { connection, delivery } => {
                    any = true;
                    self.say(dispatch::Event::Written { connection, messages: 1 });
                    let results: u64 = delivery.results.iter().map(|run| run.count).sum();
                    self.results += results;
                    let (instance, upto) = (delivery.instance, delivery.from + results);
                    let connection = CLIENT;
                    self.say(dispatch::Event::Acknowledge { connection, instance, upto });
                }
                _ => {}
            }
        }
        any
    }

    fn let_executor_act(&mut self) -> bool {
        let mut any = false;
        while let Some(action) = self.executor.poll_action() {
            match action {
                // Joining is the caller's.
                execute::Action::Update(update) => {
                    any = true;
                    self.say(dispatch::Event::Update { connection: EXECUTOR, update });
                }
                execute::Action::Start(start) => {
                    any = true;
                    let (key, now) = (start.key, self.now);
                    let outcome = Outcome::Exit(0);
                    let ended = execute::Event::Ended {
                        key,
                        outcome,
                        started: now,
                        ended: now,
                        detail: None,
                    };
                    self.executor.handle(now, ended);
                }
                _ => {}
            }
        }
        any
    }
}
