//! Everything there is, and the loop that lets it happen.
//!
//! Each dispatcher has a client of its own and its share of the nodes: task
//! `t` of the workload is task `t / D` of client `t mod D`, and node `n`
//! belongs to dispatcher `n mod D`. Relays are dispatchers too, which follow
//! those that have clients, tier by tier; with them, node `n` belongs to relay
//! `n mod R` of the `R` of the lowest tier.

mod acts;
mod client;
mod clock;
mod collected;
mod connections;
mod disk;
mod dispatcher;
mod error;
mod faults;
mod journal;
mod lanes;
mod lrm;
mod node;
mod objects;
mod pages;
mod provision;
mod relay;
mod transfer;

pub use acts::Act;
pub use error::{SimError, Unfinished};

pub(crate) use connections::Way;
pub(crate) use dispatcher::Inbound;
pub(crate) use relay::Side;
pub(crate) use transfer::{Failure, TransferId};

use crate::event_queue::{Event, EventQueue};
use crate::figures::{Count, Disks, Figures, Occupied, Sample, Series, Spans};
use crate::ledger::Ledger;
use crate::rng::{Rng, fraction_of};
use crate::scenario::{Arriving, Scenario, Staging};
use crate::time::{Nanos, SECOND_NANOS};
use client::Client;
use collected::Handovers;
use dispatcher::Dispatching;
use error::Broken;
use falkon_core::data::stage::Usage;
use falkon_core::dispatch::Record;
use falkon_core::metrics;
use falkon_core::task::MILLI;
use node::Node;
use provision::Provisioning;
use relay::Relaying;
use std::rc::Rc;
use transfer::Transfers;

/// Streams of random numbers that must not depend on one another.
const SEED_FAULTS: u64 = 1;
const SEED_RUNS: u64 = 2;
const SEED_SLOW: u64 = 3;
const SEED_INPUTS: u64 = 4;
const SEED_LRM: u64 = 5;

/// Events between two looks of whoever watches a run.
const WATCH_EVENTS: u64 = 1 << 16;

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// The time on its clock.
    pub at: Nanos,
    /// Tasks of the scenario.
    pub tasks: u64,
    /// Results that clients have.
    pub delivered: u64,
}

/// Runs a scenario.
///
/// # Errors
/// The scenario makes no sense, is not over within its limit, or something
/// went wrong that never may.
pub fn run(scenario: &Scenario, seed: u64) -> Result<Figures, SimError> {
    run_watched(scenario, seed, &mut |_| {})
}

/// Runs a scenario, and says now and then how far it is.
///
/// # Errors
/// As [`run`].
pub fn run_watched(
    scenario: &Scenario,
    seed: u64,
    watch: &mut dyn FnMut(Standing),
) -> Result<Figures, SimError> {
    run_recorded(scenario, seed, watch, None)
}

/// The same, and has `record` take what the dispatcher did, of the last of several runs. Of
/// several dispatchers, it is the first.
///
/// # Errors
/// As [`run`].
pub fn run_recorded(
    scenario: &Scenario,
    seed: u64,
    watch: &mut dyn FnMut(Standing),
    record: Option<&mut dyn FnMut(Act)>,
) -> Result<Figures, SimError> {
    scenario.check().map_err(SimError::Scenario)?;
    let mut remembered = Vec::new();
    for _ in 0..scenario.earlier_runs {
        let world = World::after(remembered, scenario, seed);
        remembered = world.run(watch, None)?.remembered();
    }
    Ok(World::after(remembered, scenario, seed).run(watch, record)?.figures())
}

struct World<'a> {
    scenario: &'a Scenario,
    seed: u64,
    events: EventQueue,
    rng: Rng,
    /// Those of clients, and those of relays.
    dispatchers: Vec<Dispatching>,
    relays: Vec<Relaying>,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    ledgers: Vec<Ledger>,
    arriving: Arriving,
    staging: Option<Staging>,
    transfers: Transfers,
    provisioning: Option<Box<Provisioning>>,
    handovers: Handovers,
    next_incarnation: u64,
    measured: Measured,
    /// Clients whose tasks have not all ended.
    unfinished: u32,
}

/// What is counted on the way.
struct Measured {
    series: Series,
    response: Spans,
    wait: Spans,
    execute: Spans,
    deliver: Spans,
    done: u64,
    failed: u64,
    running: Occupied,
    nodes: Occupied,
    busy_nodes: Occupied,
    queue_peak: u64,
    messages: u64,
    message_bytes: u64,
    faults: u64,
    reads: Count,
    peer: Count,
    store: Count,
    disks: Disks,
    /// When something was last put into a cache.
    staged: Nanos,
    /// Files on the store.
    files: u64,
    /// Which objects have been read, and how many different ones.
    objects: Vec<bool>,
    different: u64,
    /// Slots times time in which tasks ran, in slot-nanoseconds.
    busy: u128,
    end: Nanos,
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, seed: u64) -> World<'a> {
        let shares = u64::from(scenario.dispatchers);
        let tasks = scenario.workload.tasks;
        let share = |at: u64| tasks / shares + u64::from(at < tasks % shares);
        let loses = scenario.provision.as_ref().is_some_and(crate::Provision::may_lose);
        let ends = scenario.nodes.iter().any(|group| group.until.is_some());
        let tries_again =
            scenario.workload.recorded.as_ref().is_some_and(|recorded| recorded.has_retries());
        let faulty = scenario.faults.any() || loses || ends || tries_again;
        let objects = scenario.workload.objects();
        let keeps_journal =
            scenario.faults.dispatcher_crash.is_some() || scenario.faults.disk_full.is_some();
        let keeps_notes = scenario.faults.relay_crash.is_some();
        let tree = scenario.tree();
        let mut nodes = Vec::with_capacity(scenario.nodes_count() as usize);
        for group in scenario.nodes.iter().map(|group| Rc::new(*group)) {
            for _ in 0..group.count {
                let number = nodes.len() as u64;
                let slow = fraction_of(seed ^ SEED_SLOW, number) < scenario.faults.slow_share;
                let factor = if slow { scenario.faults.slow_factor } else { 1.0 };
                let (host, client) = tree.of_node(number);
                let mut node = Node::new(number, (host, client), &group, group.speed / factor);
                let bytes = scenario.workload.inputs.map_or(0, |inputs| inputs.object_bytes);
                let memory = group.disk.and_then(|disk| disk.memory);
                node.pages = memory.map(|memory| Box::new(disk::Pages::new(&memory, bytes)));
                nodes.push(node);
            }
        }
        World {
            scenario,
            seed,
            events: EventQueue::default(),
            rng: Rng::new(seed ^ SEED_FAULTS),
            dispatchers: (0..tree.hosts())
                .map(|host| {
                    let is_relay = u64::from(host) >= shares;
                    let keeps = if is_relay { keeps_notes } else { keeps_journal };
                    Dispatching::new(keeps, scenario.results_bytes, seed)
                })
                .collect(),
            relays: (0..)
                .zip(&tree.above)
                .map(|(number, above)| {
                    let host = scenario.dispatchers + number;
                    Relaying::new(number, host, *above, keeps_notes)
                })
                .collect(),
            next_incarnation: nodes.len() as u64 + 1,
            transfers: Transfers::new(scenario),
            nodes,
            handovers: Handovers::default(),
            clients: (0..shares).map(|at| Client::new(share(at))).collect(),
            ledgers: (0..shares)
                .map(|at| Ledger::new(share(at), faulty, scenario.workload.speculate))
                .collect(),
            arriving: match &scenario.workload.recorded {
                Some(recorded) => Arriving::recorded(recorded),
                None => Arriving::new(&scenario.workload.arrivals, scenario.workload.from, tasks),
            },
            staging: (!scenario.workload.stages.is_empty())
                .then(|| Staging::new(&scenario.workload.stages)),
            provisioning: scenario
                .provision
                .as_ref()
                .map(|provision| Box::new(Provisioning::new(provision, scenario, seed))),
            measured: Measured {
                series: Series::new(),
                response: Spans::default(),
                wait: Spans::default(),
                execute: Spans::default(),
                deliver: Spans::default(),
                done: 0,
                failed: 0,
                running: Occupied::default(),
                nodes: Occupied::default(),
                busy_nodes: Occupied::default(),
                queue_peak: 0,
                messages: 0,
                message_bytes: 0,
                faults: 0,
                reads: Count::default(),
                peer: Count::default(),
                store: Count::default(),
                disks: Disks::default(),
                staged: Nanos(0),
                files: 0,
                objects: vec![false; objects as usize],
                different: 0,
                busy: 0,
                end: Nanos(0),
            },
            unfinished: scenario.dispatchers,
        }
    }

    /// A world whose dispatchers remember what those of an earlier one did, before
    /// anything has happened in it.
    fn after(remembered: Vec<Vec<Record>>, scenario: &'a Scenario, seed: u64) -> World<'a> {
        let mut world = World::new(scenario, seed);
        for (dispatcher, records) in world.dispatchers.iter_mut().zip(remembered) {
            for record in records {
                dispatcher.core.recover(record).expect("it follows from nothing before it");
            }
        }
        world.begin();
        world
    }

    /// What each dispatcher remembers of objects.
    fn remembered(&self) -> Vec<Vec<Record>> {
        let of = |dispatcher: &Dispatching| {
            let all = dispatcher.core.snapshot().into_iter();
            all.filter(|record| matches!(record, Record::Remembered(_))).collect()
        };
        self.dispatchers.iter().map(of).collect()
    }

    fn begin(&mut self) {
        if self.scenario.provision.is_some() {
            self.begin_provisioning();
        }
        let mut number = 0u32;
        let groups = self.scenario.nodes.iter().filter(|_| self.scenario.provision.is_none());
        for group in groups {
            for _ in 0..group.count {
                self.events.plan(group.from, Event::NodeConnects(number));
                if let Some(until) = group.until {
                    self.events.plan(until, Event::NodeKilled(number));
                }
                number += 1;
            }
        }
        for relay in 0..self.relays.len() as u32 {
            self.events.plan(Nanos(0), Event::RelayStarts(relay));
        }
        for client in 0..self.scenario.dispatchers {
            self.events.plan(Nanos(0), Event::ClientConnects(client));
        }
        self.plan_fault();
    }

    fn run(
        mut self,
        watch: &mut dyn FnMut(Standing),
        mut record: Option<&mut dyn FnMut(Act)>,
    ) -> Result<World<'a>, SimError> {
        if record.is_some() {
            let Dispatching { acts, core, .. } = &mut self.dispatchers[0];
            acts.begin(core.now(), core);
        }
        while self.unfinished > 0 {
            let Some(event) = self.events.next() else { return Err(self.unfinished()) };
            let now = self.events.now;
            if self.events.happened.is_multiple_of(WATCH_EVENTS) {
                let (tasks, delivered) = (self.scenario.workload.tasks, self.state().delivered);
                watch(Standing { at: now, tasks, delivered });
            }
            if now > self.scenario.limit {
                return Err(self.unfinished());
            }
            if self.measured.series.due() <= now {
                self.sample();
            }
            if let Err(Broken(what)) = self.happen(event) {
                return Err(SimError::Broken { at: now, seed: self.seed, what });
            }
            if let Some(record) = &mut record {
                self.dispatchers[0].acts.take().into_iter().for_each(record);
            }
            self.ask_next();
            // What happens at one time shares once.
            if self.events.next_at() != Some(now) {
                self.share_out_transfers();
            }
        }
        let at = self.events.now;
        for (client, ledger) in self.ledgers.iter().enumerate() {
            ledger.complete().map_err(|what| SimError::Broken {
                at,
                seed: self.seed,
                what: format!("client {client}: {what}"),
            })?;
        }
        Ok(self)
    }

    fn happen(&mut self, event: Event) -> Result<(), Broken> {
        match event {
            Event::AtDispatcher { dispatcher, inbound } => {
                self.arrive_at_dispatcher(dispatcher, inbound);
                Ok(())
            }
            Event::Round(dispatcher) => self.round(dispatcher),
            Event::DispatcherTimer(dispatcher) => {
                self.dispatcher_timer(dispatcher);
                Ok(())
            }
            Event::AtNode { node, connection, bytes } => self.node_hears(node, connection, &bytes),
            Event::NodeCut { node, connection } => self.node_cut(node, connection),
            Event::NodeConnects(node) => {
                self.node_connects(node);
                Ok(())
            }
            Event::NodeKilled(node) => self.node_killed(node),
            Event::NodeTimer(node) => self.node_timer(node),
            Event::TaskEnds { node, key } => self.task_ends(node, key),
            Event::DiskAnswers { node, key } => self.disk_answers(node, key),
            Event::DiskBack(node) => self.disk_back(node),
            Event::Unpacked { node, incarnation, unpack } => {
                self.has_unpacked(node, incarnation, unpack)
            }
            Event::MessageDeparts { dispatcher, connection, way } => {
                self.message_departs(dispatcher, connection, way);
                Ok(())
            }
            Event::TransferOpens(transfer) => {
                self.transfer_opens(transfer);
                Ok(())
            }
            Event::TransferGoesOn(transfer) => self.transfer_goes_on(transfer),
            Event::TransfersDue => self.transfers_due(),
            Event::PeerAsked(transfer) => self.peer_asked(transfer),
            Event::TransferFails(transfer, failure) => self.transfer_fails(transfer, failure),
            Event::Collects { node, incarnation, event } => {
                self.collects(node, incarnation, *event)
            }
            Event::PeerHungUp { node, incarnation, transfer } => {
                self.peer_hung_up(node, incarnation, transfer)
            }
            Event::AtRelay { relay, side, connection, bytes } => {
                self.relay_hears(relay, side, connection, &bytes)
            }
            Event::RelayStarts(relay) => self.relay_starts(relay),
            Event::RelayConnects(relay) => {
                self.relay_connects(relay);
                Ok(())
            }
            Event::RelayCut { relay, connection } => self.relay_cut(relay, connection),
            Event::RelayTimer(relay) => self.relay_timer(relay),
            Event::RelayLooks(relay) => {
                self.relay_looks(relay);
                Ok(())
            }
            Event::AtClient { client, connection, bytes } => {
                self.client_hears(client, connection, &bytes)
            }
            Event::ClientCut { client, connection } => {
                self.client_cut(client, connection);
                Ok(())
            }
            Event::ClientConnects(client) => {
                self.client_connects(client);
                Ok(())
            }
            Event::ClientSubmits(client) => self.client_submits(client),
            Event::Fault => self.fault(),
            Event::Provisioner(answer) => self.provisioner_hears(answer),
            Event::LrmLooks => self.lrm_looks(),
            Event::AllocationEnds(allocation) => self.allocation_ends(allocation),
        }
    }

    fn state(&self) -> Sample {
        let now = self.events.now;
        let Measured { running, nodes, busy_nodes, .. } = &self.measured;
        let mut state = Sample {
            at: now,
            running: running.count(),
            nodes: nodes.count(),
            busy_nodes: busy_nodes.count(),
            busy_slot_time: running.time(now),
            busy_node_time: busy_nodes.time(now),
            node_time: nodes.time(now),
            store_bytes: self.measured.store.bytes,
            peer_bytes: self.measured.peer.bytes,
            read_bytes: self.measured.reads.bytes,
            ..Sample::default()
        };
        for ledger in &self.ledgers {
            state.submitted += ledger.totals.submitted;
            state.queued += ledger.totals.submitted - ledger.totals.started;
            state.delivered += ledger.totals.delivered;
        }
        state
    }

    fn sample(&mut self) {
        let state = self.state();
        self.measured.series.take(self.events.now, state);
    }

    fn unfinished(&self) -> SimError {
        let state = self.state();
        SimError::Unfinished(Unfinished {
            at: self.events.now,
            tasks: self.scenario.workload.tasks,
            submitted: state.submitted,
            queued: state.queued,
            delivered: state.delivered,
            nodes: state.nodes,
        })
    }

    /// The number that a client's task has in the workload.
    fn workload_index(&self, client: u32, task: u64) -> u64 {
        task * u64::from(self.scenario.dispatchers) + u64::from(client)
    }

    /// The time that the tasks alone take: from the first arrival to the last
    /// one's end if slots are infinitely many; and on those that there are.
    fn ideal(&self) -> (Nanos, Nanos) {
        let workload = &self.scenario.workload;
        let speed = self.scenario.speed();
        if !workload.stages.is_empty() {
            let slots = self.scenario.slots();
            let of = |stage: &crate::Stage| stage.run.0.saturating_mul(stage.tasks.div_ceil(slots));
            let ideal = Nanos(workload.stages.iter().map(of).sum());
            return (Nanos(workload.stages.iter().map(|stage| stage.run.0).sum()), ideal);
        }
        let mut work = 0u128;
        let mut last_end = Nanos(0);
        let same = workload.recorded.is_none()
            && workload.wide.is_none()
            && matches!(workload.run, crate::Durations::Fixed(_));
        if same {
            work = u128::from(workload.run.mean().0) * u128::from(workload.tasks);
            let last = self.arriving.at(workload.tasks - 1);
            last_end = last.after(workload.run.mean());
        } else {
            // Of tasks that wait for others, when each ends at the earliest.
            let after = workload.needs().map(|needs| &needs.after);
            let after = after.filter(|lists| !lists.is_empty());
            let mut ends: Vec<Nanos> = Vec::new();
            for index in 0..workload.tasks {
                let run = workload.tries_of(self.seed ^ SEED_RUNS, index);
                work +=
                    u128::from(run.0) * u128::from(workload.milli_of(index)) / u128::from(MILLI);
                let mut begins = self.arriving.at(index);
                if let Some(after) = after {
                    let before = after.of(index).iter().map(|task| ends[*task as usize]);
                    begins = before.fold(begins, Nanos::max);
                    ends.push(begins.after(run));
                }
                last_end = last_end.max(begins.after(run));
            }
        }
        let arrivals = last_end.since(workload.from);
        let work_s = work as f64 / SECOND_NANOS as f64;
        let ideal = metrics::ideal_s(arrivals.seconds(), work_s, speed);
        (arrivals, Nanos::from_seconds(ideal))
    }

    fn figures(mut self) -> Figures {
        let end = self.measured.end.max(self.events.now);
        let state = self.state();
        let (arrivals, ideal) = self.ideal();
        let makespan = end.since(self.scenario.workload.from);
        let slots = self.scenario.slots();
        let pages = self.dispatchers.iter().map(|one| (one.pages.stored, one.pages.refused));
        let pages = pages.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let (clients, lent) = self.dispatchers.split_at(self.clients.len());
        let busiest = clients.iter().map(|one| one.busy.0).max().unwrap_or(0);
        let own = lent.iter().map(|one| one.busy).zip(&self.relays);
        let busiest_relay = own.map(|(own, relay)| own.max(relay.busy).0).max();
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 1.0 };
        let events = self.events.happened;
        let provisioned = self.provisioned(end);
        let per_node = slots as f64 / self.scenario.nodes_count() as f64;
        self.sample();
        let measured = self.measured;
        let local = measured.reads.without(measured.peer).without(measured.store);
        let run = metrics::Run {
            tasks: state.delivered,
            slots: slots as f64,
            makespan_s: makespan.seconds(),
            work_s: measured.busy as f64 / SECOND_NANOS as f64,
            arrivals_s: arrivals.seconds(),
        };
        // Nodes differ in speed: the ideal knows that.
        let efficiency = metrics::efficiency(ideal.seconds(), makespan.seconds());
        let (peer, store) = (measured.peer.into(), measured.store.into());
        Figures {
            done: measured.done,
            failed: measured.failed,
            runs: self.ledgers.iter().map(|ledger| ledger.totals.runs).sum(),
            slots,
            makespan,
            ideal,
            efficiency,
            speedup: efficiency * run.slots,
            slowdown: run.slowdown(),
            // Nodes on demand cost what they cost their scheduler's other users.
            cpu_s: provisioned.map_or(run.cpu_s(), |cost| cost.allocated_s * per_node),
            hits: metrics::HitRatios::of(&Usage { local: local.into(), peer, store }),
            utilization: run.utilization(),
            throughput_per_s: run.results_per_s(),
            response: measured.response.distribution(),
            wait: measured.wait.mean(),
            execute: measured.execute.mean(),
            deliver: measured.deliver.mean(),
            queue_peak: measured.queue_peak,
            messages: measured.messages,
            message_bytes: measured.message_bytes,
            events,
            faults: measured.faults,
            pages,
            dispatcher_busy: share(busiest as f64, end.0 as f64),
            relays: self.relays.len() as u64,
            relay_busy: busiest_relay.map_or(0.0, |busy| share(busy as f64, end.0 as f64)),
            reads: measured.reads,
            local,
            peer: measured.peer,
            store: measured.store,
            disks: measured.disks,
            files: measured.files,
            staged: measured.staged.since(self.scenario.workload.from),
            different_objects: measured.different,
            provisioned,
            trace: self.events.trace,
            series: measured.series.finish(end, state),
        }
    }
}
