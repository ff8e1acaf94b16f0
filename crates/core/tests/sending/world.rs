//! A dispatcher whose executors do what the test says.

use falkon_core::data::declared::{Declared, Serving};
use falkon_core::dispatch::{
    Action, ConnectionId, Dispatcher, Event, Held, InstanceOptions, Join, Lease, Order, Reply,
    Update,
};
use falkon_core::result::{Outcome, Report, Tries};
use falkon_core::task::{
    InstanceId, Packed, Range, Resources, Rows, Submission, TaskClass, TaskId, Time,
};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const CLIENT: ConnectionId = ConnectionId(u64::MAX);

pub(crate) fn cpus(count: u32) -> Resources {
    Resources { memory_bytes: 1 << 40, ..Resources::cpus(count) }
}

/// Tasks that need one CPU and are expected to run so long.
pub(crate) fn class(estimate_micros: u64) -> TaskClass {
    TaskClass { resources: Resources::cpus(1), estimate_micros, ..TaskClass::default() }
}

pub(crate) fn serving(address: u64) -> Option<Serving> {
    Some(Serving { address: format!("host:{address}"), fingerprint: Vec::new() })
}

#[derive(Default)]
pub(crate) struct World {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) now: u64,
    /// Updates of each executor, by its connection.
    updates: BTreeMap<u64, u64>,
    totals: BTreeMap<u64, u64>,
    requests: u64,
}

impl World {
    /// With so many instances.
    pub(crate) fn new(instances: u64) -> World {
        let mut world = World::default();
        (0..instances).for_each(|_| world.create(InstanceOptions::default()));
        world
    }

    pub(crate) fn create(&mut self, options: InstanceOptions) {
        self.requests += 1;
        let request = self.requests;
        self.handle(Event::Create { connection: CLIENT, request, options });
    }

    /// Takes an event in; its orders stay to be looked at.
    pub(crate) fn handle(&mut self, event: Event) {
        self.dispatcher.handle(Time(self.now), event);
    }

    /// The orders that are sent now.
    pub(crate) fn orders(&mut self) -> Vec<(u64, Order)> {
        let mut orders = Vec::new();
        while let Some(action) = self.dispatcher.poll_action() {
            match action {
                Action::Order { connection, order } => orders.push((connection.0, order)),
                Action::Reply { reply: Reply::Refused(error), .. } => panic!("{error}"),
                _ => {}
            }
        }
        self.dispatcher.check().expect("the dispatcher's books are in order");
        orders
    }

    /// How many tasks each executor is sent now.
    pub(crate) fn sent(&mut self) -> BTreeMap<u64, u64> {
        let mut sent = BTreeMap::new();
        for (to, order) in self.orders() {
            let tasks: u64 = order.assign.iter().map(|assigned| assigned.count).sum();
            if tasks > 0 {
                *sent.entry(to).or_default() += tasks;
            }
        }
        sent
    }

    pub(crate) fn join(&mut self, connection: u64, capacity: Resources) {
        self.join_with(connection, capacity, None, Lease::default());
    }

    pub(crate) fn join_with(
        &mut self,
        connection: u64,
        capacity: Resources,
        serves: Option<Serving>,
        lease: Lease,
    ) {
        let join = Join {
            incarnation: connection,
            name: connection.to_string(),
            capacity,
            held: Vec::new(),
            reports: Vec::new(),
            gangs: Vec::new(),
            alternatives: Vec::new(),
            serves,
            cache: Default::default(),
            lease,
        };
        self.handle(Event::Join { connection: ConnectionId(connection), join });
    }

    pub(crate) fn submit(&mut self, instance: u64, count: u64, class: TaskClass) {
        let factors = vec![Range { start: 0, step: 1, count }];
        self.submit_rows(instance, count, class, Rows::Computed { factors, offset: 0 }, None);
    }

    /// One task whose row has so many bytes.
    pub(crate) fn submit_long(&mut self, instance: u64, class: TaskClass, row_bytes: usize) {
        let (blob, ends) = (vec![7; row_bytes].into(), vec![row_bytes as u32].into());
        self.submit_rows(instance, 1, class, Rows::Packed(Packed { blob, ends }), None);
    }

    pub(crate) fn submit_rows(
        &mut self,
        instance: u64,
        count: u64,
        class: TaskClass,
        rows: Rows,
        data: Option<Arc<Declared>>,
    ) {
        let submission = Submission {
            data,
            count,
            template: Arc::default(),
            rows,
            classes: vec![class],
            class_runs: vec![(count, 0)],
            names: None,
            after: Vec::new(),
            everywhere: None,
        };
        let total = self.totals.entry(instance).or_default();
        let first = TaskId(*total);
        *total += count;
        self.requests += 1;
        let request = self.requests;
        let (connection, instance, client) = (CLIENT, InstanceId(instance), 1);
        self.handle(Event::Submit { connection, request, instance, first, client, submission });
    }

    pub(crate) fn update(&mut self, connection: u64, update: Update) {
        let number = self.updates.entry(connection).or_default();
        *number += 1;
        let update = Update { number: *number, ..update };
        self.handle(Event::Update { connection: ConnectionId(connection), update });
    }

    /// Tasks of an executor have ended after so long.
    pub(crate) fn end(&mut self, connection: u64, instance: u64, first: u64, micros: u64) {
        let report = ended(instance, first, self.now, micros);
        self.update(connection, Update { reports: vec![report], ..Update::default() });
    }

    pub(crate) fn give_back(&mut self, connection: u64, instance: u64, first: u64, count: u64) {
        let returned = match count {
            0 => Vec::new(),
            _ => vec![Held {
                instance: InstanceId(instance),
                first: TaskId(first),
                count,
                tries: Tries::default(),
            }],
        };
        self.update(connection, Update { returned, recalled: true, ..Update::default() });
    }

    /// Lets time pass until an event is due, up to `end`.
    pub(crate) fn pass_to(&mut self, end: u64) -> Vec<(u64, Order)> {
        let mut orders = self.orders();
        while let Some((at, _)) = self.dispatcher.poll_timeout().filter(|(at, _)| at.0 <= end) {
            self.now = self.now.max(at.0);
            self.dispatcher.handle_timeout(Time(self.now));
            orders.extend(self.orders());
        }
        self.now = end;
        orders
    }
}

pub(crate) fn ended(instance: u64, first: u64, now: u64, micros: u64) -> Report {
    Report {
        instance: InstanceId(instance),
        first: TaskId(first),
        count: 1,
        tries: Tries::default(),
        outcome: Outcome::Exit(0),
        started: Time(now.saturating_sub(micros)),
        ended: Time(now.saturating_sub(micros) + micros),
        detail: None,
    }
}
