//! A client's shell: submits tasks as they arrive, takes in results.

use super::World;
use super::connections::{Turns, Way, Who, span_of};
use super::error::Broken;
use crate::event_queue::Event;
use crate::scenario::{TaskKind, Workload};
use crate::time::Nanos;
use falkon_core::data::declared::Declared;
use falkon_core::dispatch::{Delivery, InstanceOptions};
use falkon_core::result::{Finished, Status};
use falkon_core::task::{
    After, InstanceId, Kind, Range, Resources, Rows, Submission, TaskClass, TaskId,
};
use falkon_wire::codec::Wire;
use falkon_wire::command::{CommandTemplate, Form, Piece, Template};
use falkon_wire::message::{FromClient, ToClient};
use std::collections::VecDeque;
use std::sync::Arc;

/// Tasks that others wait for, and objects, of one submission: it has to fit into a message.
const SUBMISSION_ITEMS_MAX: usize = 1 << 16;

pub(super) struct Client {
    /// How many it has to submit.
    tasks: u64,
    connection: Option<u64>,
    /// Its link, for short messages.
    pub(super) turns: Turns,
    instance: Option<InstanceId>,
    next_request: u64,
    /// How many it has submitted.
    submitted: u64,
    /// Submissions that were not accepted yet: first task, how many.
    unaccepted: VecDeque<(u64, u64)>,
    /// How many results it has.
    received: u64,
    /// It is busy with results until then.
    busy_until: Nanos,
    has_begun: bool,
    /// It has been told that all its tasks have ended.
    is_complete: bool,
}

impl Client {
    pub(super) fn new(tasks: u64) -> Client {
        Client {
            tasks,
            connection: None,
            turns: Turns::default(),
            instance: None,
            next_request: 0,
            submitted: 0,
            unaccepted: VecDeque::new(),
            received: 0,
            busy_until: Nanos(0),
            has_begun: false,
            is_complete: false,
        }
    }

    fn request(&mut self) -> u64 {
        self.next_request += 1;
        self.next_request
    }
}

/// The kind by which the core knows a task.
pub(super) fn core_kind(kind: TaskKind) -> Kind {
    match kind {
        TaskKind::Noop => Kind::Noop,
        TaskKind::Sleep => Kind::Sleep,
        TaskKind::Compute => Kind::Process,
    }
}

fn submission(
    workload: &Workload,
    data: Option<Arc<Declared>>,
    first: u64,
    count: u64,
) -> Submission {
    let literal = |text: &str| vec![Piece::Literal(text.into())];
    let value = vec![Piece::Value { source: 0, form: Form::Whole }];
    let argv = match workload.kind {
        TaskKind::Noop => vec![literal("@noop")],
        TaskKind::Sleep => vec![literal("@sleep"), value],
        TaskKind::Compute => vec![literal("compute"), value],
    };
    let template = Template::Command(CommandTemplate { argv, ..CommandTemplate::default() });
    let (classes, class_runs) = classes(workload, first, count);
    let factor = Range { start: first as i64, step: 1, count };
    Submission {
        data,
        count,
        template: Arc::new(template.to_bytes()),
        rows: Rows::Computed { factors: vec![factor], offset: 0 },
        classes,
        class_runs,
        names: None,
        after: after(workload, first, count),
        everywhere: None,
    }
}

/// The classes of tasks: some run on several nodes, and recorded ones are tried as often as
/// they were.
fn classes(workload: &Workload, first: u64, count: u64) -> (Vec<TaskClass>, Vec<(u64, u32)>) {
    let mut classes: Vec<TaskClass> = Vec::new();
    let mut runs: Vec<(u64, u32)> = Vec::new();
    let mut add = |run: u64, class: TaskClass| {
        let of = classes.iter().position(|known| *known == class).unwrap_or_else(|| {
            classes.push(class);
            classes.len() - 1
        }) as u32;
        match runs.last_mut().filter(|(_, last)| *last == of) {
            Some((last, _)) => *last += run,
            None => runs.push((run, of)),
        }
    };
    let estimate = if workload.estimates { workload.run.mean().core().0 } else { 0 };
    let class = TaskClass {
        kind: core_kind(workload.kind),
        resources: Resources::cpus(1),
        retries: workload.retries,
        replicas: workload.replicas,
        estimate_micros: estimate,
        speculate: workload.speculate,
        unpacks: workload.inputs.filter(|one| one.unpack.is_some()).map_or(0, |one| one.per_task),
        ..TaskClass::default()
    };
    match (&workload.wide, &workload.recorded) {
        (Some(wide), _) => {
            for index in first..first + count {
                let nodes = if workload.width_of(index) > 1 { wide.nodes } else { 1 };
                add(1, TaskClass { nodes, ..class.clone() });
            }
        }
        (None, Some(recorded)) => {
            let mut at = first;
            for (run, retries) in recorded.failures(first, count) {
                for (run, reserved) in recorded.reserved(at, run) {
                    let (resources, nodes) = (reserved.resources(), reserved.nodes);
                    add(run, TaskClass { retries, resources, nodes, ..class.clone() });
                }
                at += run;
            }
        }
        (None, None) => add(count, class),
    }
    (classes, runs)
}

/// Dependencies of recorded tasks.
fn after(workload: &Workload, first: u64, count: u64) -> Vec<After> {
    let Some(needs) = workload.needs().filter(|needs| !needs.after.is_empty()) else {
        return Vec::new();
    };
    let of = |offset: u64| {
        let tasks: Vec<TaskId> =
            needs.after.of(first + offset).iter().copied().map(TaskId).collect();
        (!tasks.is_empty()).then_some(After { offset, tasks, takes: 0 })
    };
    (0..count).filter_map(of).collect()
}

impl World<'_> {
    pub(super) fn client_connects(&mut self, number: u32) {
        if self.clients[number as usize].connection.is_some() {
            return;
        }
        let Some(connection) = self.connect(number, Who::Client(number)) else {
            let at = self.reconnect_at(number);
            self.events.plan(at, Event::ClientConnects(number));
            return;
        };
        let now = self.events.now;
        let client = &mut self.clients[number as usize];
        client.connection = Some(connection);
        let request = client.request();
        let Some(instance) = client.instance else {
            let policy = self.scenario.workload.policy;
            let options =
                InstanceOptions { keep_results: false, policy, ..InstanceOptions::default() };
            self.ask(number, now, &FromClient::Create { request, options });
            return;
        };
        let from = client.received;
        let again: Vec<(u64, u64)> = client.unaccepted.iter().copied().collect();
        self.ask(number, now, &FromClient::Subscribe { request, instance, from });
        for (first, count) in again {
            self.submit(number, instance, first, count);
        }
        self.seal_if_all(number);
    }

    fn ask(&mut self, number: u32, departs: Nanos, message: &FromClient) {
        if let Some(connection) = self.clients[number as usize].connection {
            let bytes = message.to_bytes();
            let departs = departs.after(span_of(bytes.len(), self.scenario.client.bytes_per_s));
            self.send(number, connection, Way::Up, departs, bytes);
        }
    }

    fn submit(&mut self, number: u32, instance: InstanceId, first: u64, count: u64) {
        let request = self.clients[number as usize].request();
        let data = self.declared(number, first, count);
        let submission = submission(&self.scenario.workload, data, first, count);
        let first = TaskId(first);
        // The only one of its instance.
        let client = 1;
        let message = FromClient::Submit { request, instance, first, client, submission };
        self.ask(number, self.events.now, &message);
    }

    /// No more will come, once all have been submitted.
    fn seal_if_all(&mut self, number: u32) {
        let client = &mut self.clients[number as usize];
        let request = client.request();
        if client.submitted == client.tasks
            && let Some(instance) = client.instance
        {
            self.ask(number, self.events.now, &FromClient::Seal { request, instance });
        }
    }

    /// Submits what has arrived, and plans the next time.
    pub(super) fn client_submits(&mut self, number: u32) -> Result<(), Broken> {
        let now = self.events.now;
        let (first, tasks) = {
            let client = &self.clients[number as usize];
            (client.submitted, client.tasks)
        };
        let mut until = first;
        if let Some(staging) = &mut self.staging {
            let received = self.clients[number as usize].received;
            until = staging.ready(received, self.scenario.workload.from, now).min(tasks);
            let at = staging.began.last().copied().unwrap_or_default();
            if at > now {
                until = first;
                self.events.plan(at, Event::ClientSubmits(number));
            }
        }
        let mut items = 0;
        while self.staging.is_none() && until < tasks {
            items += self.scenario.workload.needs().map_or(0, |needs| needs.items(until));
            if items > SUBMISSION_ITEMS_MAX && until > first {
                self.events.plan(now, Event::ClientSubmits(number));
                break;
            }
            let at = self.arriving.at(self.workload_index(number, until));
            if at > now {
                let earliest = now.after(self.scenario.client.bundle);
                self.events.plan(at.max(earliest), Event::ClientSubmits(number));
                break;
            }
            until += 1;
        }
        if until > first {
            let count = until - first;
            self.ledgers[number as usize].submitted(first, count)?;
            let client = &mut self.clients[number as usize];
            client.submitted = until;
            client.unaccepted.push_back((first, count));
            if let Some(instance) = client.instance {
                self.submit(number, instance, first, count);
            }
            self.seal_if_all(number);
            self.measured.queue_peak = self.measured.queue_peak.max(self.state().queued);
        }
        Ok(())
    }

    pub(super) fn client_cut(&mut self, number: u32, connection: u64) {
        let client = &mut self.clients[number as usize];
        if client.connection != Some(connection) {
            return;
        }
        client.connection = None;
        let at = self.reconnect_at(number);
        self.close_at_dispatcher(number, connection, self.events.now);
        self.events.plan(at, Event::ClientConnects(number));
    }

    pub(super) fn client_hears(
        &mut self,
        number: u32,
        connection: u64,
        bytes: &[u8],
    ) -> Result<(), Broken> {
        let now = self.events.now;
        let client = &mut self.clients[number as usize];
        if client.connection != Some(connection) {
            return Ok(());
        }
        self.measured.messages += 1;
        self.measured.message_bytes += bytes.len() as u64;
        let message = ToClient::from_bytes(bytes)
            .map_err(|error| format!("a message to client {number} is no message: {error}"))?;
        let costs = self.scenario.client;
        let spent = costs.message.after(span_of(bytes.len(), costs.bytes_per_s));
        client.busy_until = client.busy_until.max(now).after(spent);
        match message {
            ToClient::Created { instance, .. } => {
                client.instance = Some(instance);
                let request = client.request();
                let ask = FromClient::Subscribe { request, instance, from: 0 };
                self.ask(number, now, &ask);
                if !std::mem::replace(&mut self.clients[number as usize].has_begun, true) {
                    self.events.plan(now, Event::ClientSubmits(number));
                }
                Ok(())
            }
            ToClient::Accepted { first, count, .. } => {
                client.unaccepted.retain(|one| *one != (first.0, count));
                Ok(())
            }
            ToClient::Done { .. } => Ok(()),
            ToClient::Results(delivery) => {
                let entries = delivery.results.len() as u64;
                client.busy_until = client.busy_until.after(Nanos(costs.entry.0 * entries));
                self.take_results(number, delivery)
            }
            ToClient::Refused { reason, .. } => {
                Err(Broken(format!("client {number} is refused: {reason}")))
            }
            other => Err(Broken(format!("client {number} is told {other:?}"))),
        }
    }

    fn take_results(&mut self, number: u32, delivery: Delivery) -> Result<(), Broken> {
        let client = &mut self.clients[number as usize];
        if delivery.from != client.received || Some(delivery.instance) != client.instance {
            let (from, received) = (delivery.from, client.received);
            let what = format!("results from {from} on follow {received} of client {number}");
            return Err(Broken(what));
        }
        let at = client.busy_until;
        for run in &delivery.results {
            client.received += run.count;
        }
        let (upto, instance) = (client.received, delivery.instance);
        for run in &delivery.results {
            let succeeded = run.outcome.status() == Status::Done;
            self.ledgers[number as usize].delivered(run.first.0, run.count, succeeded)?;
            self.measure(number, at, run, succeeded);
        }
        // A client that connects again is told again.
        let client = &mut self.clients[number as usize];
        if delivery.complete && !std::mem::replace(&mut client.is_complete, true) {
            self.unfinished -= 1;
            self.measured.end = self.measured.end.max(at);
        }
        if let Some(staging) = &self.staging
            && staging.began.len() < staging.stage_of(upto) + 1
        {
            self.events.plan(at, Event::ClientSubmits(number));
        }
        if upto > delivery.from {
            self.ask(number, at, &FromClient::Acknowledge { instance, upto });
        }
        Ok(())
    }

    fn measure(&mut self, number: u32, at: Nanos, run: &Finished, succeeded: bool) {
        let (started, ended) = (Nanos::of_core(run.started), Nanos::of_core(run.ended));
        for task in run.first.0..run.first.0 + run.count {
            let index = self.workload_index(number, task);
            let staged = self.staging.as_ref().map(|staging| staging.arrived(index));
            let arrived = staged.unwrap_or_else(|| self.arriving.at(index));
            self.measured.response.add(at.since(arrived));
            self.measured.wait.add(started.since(arrived));
            self.measured.execute.add(ended.since(started));
            self.measured.deliver.add(at.since(ended));
        }
        let count = if succeeded { &mut self.measured.done } else { &mut self.measured.failed };
        *count += run.count;
    }
}
