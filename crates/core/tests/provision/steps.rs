//! One thing at a time: these events, then exactly these actions.

use falkon_core::provision::{
    AcquireName, Action, AllocationId, AllocationState, Demand, Durations, Event, Found, JobState,
    Provisioner, QueueId, QueueOptions, Reason, ReleaseName, Submitted, Verdict, Waiting,
};
use falkon_core::task::{ExecutorId, Resources, Time};

pub(crate) const QUEUE: QueueId = QueueId(1);
pub(crate) const SECOND: u64 = 1_000_000;

pub(crate) fn options() -> QueueOptions {
    QueueOptions {
        executors_max: 10,
        release: ReleaseName::Idle,
        idle_micros: Some(15 * SECOND),
        walltime_micros: 0,
        ..QueueOptions::default()
    }
}

pub(crate) struct Rig {
    pub(crate) machine: Provisioner,
    pub(crate) now: Time,
}

impl Rig {
    /// No queue yet.
    pub(crate) fn bare() -> Rig {
        Rig { machine: Provisioner::new(AllocationId(7)), now: Time(0) }
    }

    /// A queue that was found empty.
    pub(crate) fn new(options: QueueOptions) -> Rig {
        let mut rig = Rig::bare();
        let added = rig.say(Event::Add { queue: QUEUE, options: Box::new(options) });
        assert_eq!(added, [Action::Query { queue: QUEUE }]);
        assert_eq!(rig.say(Event::States { queue: QUEUE, found: Vec::new() }), []);
        rig
    }

    /// What it does, but for the log.
    pub(crate) fn say(&mut self, event: Event) -> Vec<Action> {
        self.machine.handle(self.now, event);
        self.actions()
    }

    pub(crate) fn actions(&mut self) -> Vec<Action> {
        let actions = std::iter::from_fn(|| self.machine.poll_action());
        actions.filter(|action| !matches!(action, Action::Decided(_))).collect()
    }

    pub(crate) fn pass(&mut self, seconds: u64) -> Vec<Action> {
        let until = self.now.after(seconds * SECOND);
        let mut all = Vec::new();
        while let Some((at, _)) = self.machine.poll_timeout().filter(|(at, _)| *at <= until) {
            self.now = self.now.max(at);
            self.machine.handle_timeout(self.now);
            let mut actions = self.actions();
            if actions.contains(&Action::Query { queue: QUEUE }) {
                actions.extend(self.answer());
            }
            all.extend(actions);
        }
        self.now = until;
        all
    }

    /// The LRM knows of what was accepted.
    fn answer(&mut self) -> Vec<Action> {
        let known = self.machine.allocation_views().filter(|one| one.job().is_some());
        let found = known.map(|one| Found {
            queue: QUEUE,
            words: String::new(),
            allocation: one.id(),
            job: one.job().unwrap_or_default().to_owned(),
            state: match one.executors() {
                0 => JobState::Pending,
                _ => JobState::Running,
            },
            nodes: one.nodes(),
            until: None,
        });
        let found = found.collect();
        self.say(Event::States { queue: QUEUE, found })
    }

    pub(crate) fn demand(&mut self, tasks: u64) -> Vec<Action> {
        self.wide_demand(tasks, 1)
    }

    /// Tasks wait that each run on so many nodes.
    fn wide_demand(&mut self, tasks: u64, nodes: u32) -> Vec<Action> {
        let need = Resources::cpus(1);
        let waiting = vec![Waiting { need, tasks, estimate_micros: None, lasts_micros: 0, nodes }];
        let waiting = if tasks == 0 { Vec::new() } else { waiting };
        self.say(Event::Demand(Box::new(Demand { waiting, ..Demand::default() })))
    }

    pub(crate) fn accept(&mut self, id: u64) {
        let answer = Submitted::Accepted { job: format!("job-{id}") };
        let answer = Event::SubmitAnswer { allocation: AllocationId(id), answer };
        assert_eq!(self.say(answer), []);
    }

    pub(crate) fn join(&mut self, executor: u64, allocation: u64) -> Vec<Action> {
        let (executor, allocation) = (ExecutorId(executor), Some(AllocationId(allocation)));
        let capacity = Resources::cpus(1);
        self.say(Event::ExecutorJoined { executor, allocation, capacity, leaves_at: None })
    }
}

pub(crate) fn submit(id: u64, nodes: u64) -> Action {
    let allocation = AllocationId(id);
    Action::Submit { queue: QUEUE, allocation, nodes, walltime_micros: 0 }
}

#[test]
fn nothing_is_asked_before_a_query_was_answered() {
    let mut machine = Provisioner::new(AllocationId(7));
    let options = Box::new(options());
    machine.handle(Time(0), Event::Add { queue: QUEUE, options });
    let need = Resources::cpus(1);
    let waiting =
        vec![Waiting { need, tasks: 3, estimate_micros: None, lasts_micros: 0, nodes: 1 }];
    machine.handle(Time(0), Event::Demand(Box::new(Demand { waiting, ..Demand::default() })));
    assert_eq!(machine.poll_action(), Some(Action::Query { queue: QUEUE }));
    assert_eq!(machine.poll_action(), None);
    // What is found has a number that is not given again, and its nodes count.
    let (allocation, job, state) = (AllocationId(40), "4".to_owned(), JobState::Pending);
    let (queue, nodes, until, words) = (QUEUE, 2, None, String::new());
    let found = vec![Found { queue, allocation, job, state, nodes, until, words }];
    machine.handle(Time(5), Event::States { queue: QUEUE, found });
    let actions: Vec<Action> = std::iter::from_fn(|| machine.poll_action()).collect();
    assert!(actions.contains(&submit(41, 1)), "{actions:?}");
    let plan = machine.plan(Time(5));
    assert_eq!(plan.queues[0].requests, [0; 0]);
}

#[test]
fn tasks_on_several_nodes_are_asked_for_in_one_request() {
    // As many requests as there are nodes, but that a task takes four together.
    let acquire = AcquireName::OneAtATime;
    let mut rig = Rig::new(QueueOptions { acquire, ..options() });
    assert_eq!(rig.wide_demand(2, 4), [submit(7, 4), submit(8, 4)]);
    // Nodes that are to come are not asked for again, and fewer than a task takes are no use.
    let mut rig = Rig::new(options());
    assert_eq!(rig.wide_demand(1, 4), [submit(7, 4)]);
    rig.accept(7);
    assert_eq!(rig.wide_demand(1, 4), []);
    let mut rig = Rig::new(options());
    assert_eq!(rig.demand(2), [submit(7, 2)]);
    rig.accept(7);
    assert_eq!(rig.wide_demand(1, 4), [submit(8, 4)]);
    // More than a request may be for are never asked for.
    let mut rig = Rig::new(QueueOptions { request_nodes_max: 3, ..options() });
    assert_eq!(rig.wide_demand(1, 4), []);
    let plan = rig.machine.plan(rig.now);
    let unserved = plan.queues[0].unserved.as_ref().map(|(tasks, reason)| (*tasks, reason));
    let reason = unserved.map(|(tasks, reason)| (tasks, reason.to_string()));
    let text = "each runs on 4 nodes together, and a request is for 3 at most: allow more";
    assert_eq!(reason, Some((1, text.to_owned())));
}

#[test]
fn idle_executors_of_an_allocation_leave_together() {
    let mut rig = Rig::new(options());
    assert_eq!(rig.demand(2), [submit(7, 2)]);
    rig.accept(7);
    rig.join(1, 7);
    rig.join(2, 7);
    rig.demand(0);
    rig.say(Event::ExecutorBusy { executor: ExecutorId(2) });
    let released = |actions: &[Action]| {
        actions.iter().filter(|one| matches!(one, Action::Release { .. })).count()
    };
    assert_eq!(released(&rig.pass(60)), 0);
    let since = rig.now;
    rig.say(Event::ExecutorIdle { executor: ExecutorId(2), since });
    assert_eq!(released(&rig.pass(14)), 0);
    assert_eq!(released(&rig.pass(2)), 2);
}

#[test]
fn refusals_make_pauses_grow_and_then_pause_the_queue() {
    let mut rig = Rig::new(options());
    let mut asked = Vec::new();
    rig.demand(3);
    for id in 7..12 {
        asked.push(rig.now);
        let answer = Submitted::Refused { words: "invalid account".to_owned() };
        rig.say(Event::SubmitAnswer { allocation: AllocationId(id), answer });
        while rig.machine.allocation_views().next().is_none() && rig.now.0 < 4000 * SECOND {
            rig.pass(1);
        }
    }
    let gaps: Vec<u64> = asked.windows(2).map(|two| two[1].since(two[0]) / SECOND).collect();
    assert_eq!(gaps, [10, 20, 40, 80]);
    let view = rig.machine.queue_view(QUEUE).unwrap();
    assert_eq!(view.paused(), Some("invalid account"));
    assert!(rig.machine.plan(rig.now).queues[0].is_paused);
    assert!(rig.say(Event::Resume { queue: QUEUE }).contains(&submit(12, 3)));
}

#[test]
fn a_lost_answer_is_settled_by_queries() {
    let mut rig = Rig::new(options());
    rig.demand(1);
    rig.pass(121);
    let view = rig.machine.allocation_views().next().unwrap();
    assert_eq!(view.state(), AllocationState::Unsure);
    // It is not asked for again while nobody knows.
    let found = |state| Found {
        queue: QUEUE,
        words: String::new(),
        allocation: AllocationId(7),
        job: "9".to_owned(),
        state,
        nodes: 1,
        until: None,
    };
    let found = vec![found(JobState::Pending)];
    assert_eq!(rig.say(Event::States { queue: QUEUE, found }), []);
    let view = rig.machine.allocation_views().next().unwrap();
    assert_eq!((view.state(), view.job()), (AllocationState::Pending, Some("9")));
}

#[test]
fn somebodys_nodes_stay_whatever_the_demand() {
    let mut rig = Rig::new(options());
    let once = Event::Once { queue: QUEUE, nodes: 3, walltime_micros: 0 };
    assert_eq!(rig.say(once), [submit(7, 3)]);
    rig.accept(7);
    for executor in 0..3 {
        rig.join(executor, 7);
    }
    assert!(rig.pass(4000).iter().all(|action| matches!(action, Action::Query { .. })));
    let dropped = rig.say(Event::Drop { allocation: AllocationId(7) });
    let job = Some("job-7".to_owned());
    let cancel = Action::Cancel { queue: QUEUE, allocation: AllocationId(7), job };
    assert!(dropped.contains(&cancel), "{dropped:?}");
}

#[test]
fn stages_that_double_are_asked_for_ahead() {
    let options = QueueOptions { executors_max: 32, release: ReleaseName::Predictive, ..options() };
    let mut rig = Rig::new(options);
    let mut durations = Durations::default();
    durations.add(60 * SECOND, 1);
    let need = Resources::cpus(1);
    let mut demand = Demand { submitted: 1, ..Demand::default() };
    demand.waiting = vec![Waiting {
        need: need.clone(),
        tasks: 1,
        estimate_micros: None,
        lasts_micros: 0,
        nodes: 1,
    }];
    assert_eq!(rig.say(Event::Demand(Box::new(demand.clone()))), [submit(7, 1)]);
    rig.accept(7);
    rig.pass(30);
    rig.join(1, 7);
    rig.machine.handle(rig.now, Event::ExecutorBusy { executor: ExecutorId(1) });
    demand = Demand { submitted: 1, running: 1, ..Demand::default() };
    rig.say(Event::Demand(Box::new(demand)));
    rig.pass(60);
    // Two come when the first has ended: twice as many are to be expected then.
    let mut demand = Demand { submitted: 3, ended: 1, running: 1, durations, ..Demand::default() };
    demand.waiting = vec![Waiting {
        need,
        tasks: 1,
        estimate_micros: Some(60 * SECOND),
        lasts_micros: 0,
        nodes: 1,
    }];
    demand.running_until = Some(rig.now.after(60 * SECOND));
    demand.last_sent = Some(rig.now);
    assert_eq!(rig.say(Event::Demand(Box::new(demand.clone()))), [submit(8, 1)]);
    rig.accept(8);
    rig.pass(60);
    // The second of the two runs: in a minute there will be four, and two of
    // the nodes for them are there.
    demand.waiting.clear();
    demand.running_until = Some(rig.now.after(60 * SECOND));
    demand.last_sent = Some(rig.now);
    demand.ended = 2;
    let asked = rig.say(Event::Demand(Box::new(demand)));
    assert!(asked.contains(&submit(9, 2)), "{asked:?}");
}

#[test]
fn what_was_decided_can_be_read() {
    let verdict = Verdict::Ask { allocation: AllocationId(3), nodes: 4, walltime_micros: SECOND };
    assert_eq!(verdict.to_string(), "allocation 3: ask for 4 nodes for 1 s");
    let reason = Reason::Refused { times: 2, words: "no\n".to_owned() };
    assert_eq!(reason.to_string(), "refused 2 times in a row: no");
}

impl Rig {
    /// Tasks that wait, and what of the decisions is about tasks that nobody
    /// can serve.
    fn wait(&mut self, need: Resources, estimate_s: u64) -> (Vec<Action>, Vec<String>) {
        let (estimate_micros, lasts_micros) = (None, estimate_s * SECOND);
        let waiting = vec![Waiting { need, tasks: 3, estimate_micros, lasts_micros, nodes: 1 }];
        let demand = Demand { waiting, ..Demand::default() };
        self.machine.handle(self.now, Event::Demand(Box::new(demand)));
        let (mut actions, mut told) = (Vec::new(), Vec::new());
        while let Some(action) = self.machine.poll_action() {
            match action {
                Action::Decided(one) if matches!(one.verdict, Verdict::Unserved { .. }) => {
                    told.push(format!("{}: {}", one.verdict, one.reason));
                }
                Action::Decided(_) => {}
                other => actions.push(other),
            }
        }
        (actions, told)
    }
}

#[test]
fn tasks_that_no_node_stays_for_are_told_of_and_not_asked_for() {
    let walltime_micros = 600 * SECOND;
    let mut rig =
        Rig::new(QueueOptions { walltime_micros, leave_micros: 60 * SECOND, ..options() });
    let (actions, told) = rig.wait(Resources::cpus(1), 541);
    assert_eq!(actions, []);
    let words = "cannot serve 3 tasks that wait: expected to run for 541 s, and executors stay \
                 for 540 s: choose a longer walltime";
    assert_eq!(told, [words]);
    let plan = rig.machine.plan(rig.now);
    let (tasks, reason) = plan.queues[0].unserved.clone().unwrap();
    assert_eq!(format!("{}: {reason}", Verdict::Unserved { tasks }), words);
    // Once is enough, until much later.
    assert_eq!(rig.wait(Resources::cpus(1), 542).1, [""; 0]);
    rig.now = rig.now.after(3600 * SECOND);
    assert_eq!(rig.wait(Resources::cpus(1), 541).1.len(), 1);
    // What ends in time is asked for.
    let (actions, told) = rig.wait(Resources::cpus(1), 540);
    let allocation = AllocationId(7);
    let submit = Action::Submit { queue: QUEUE, allocation, nodes: 3, walltime_micros };
    assert_eq!(actions, [submit, Action::Query { queue: QUEUE }]);
    assert_eq!(told, [""; 0]);
    assert_eq!(rig.machine.plan(rig.now).queues[0].unserved, None);
}

#[test]
fn what_a_node_offers_may_be_anything_until_one_has_come() {
    let mut rig = Rig::new(options());
    let (actions, told) = rig.wait(Resources::cpus(4), 0);
    assert_eq!(actions, []);
    let words = "cannot serve 3 tasks that wait: 4 cpus are needed, and a node has 1 cpus";
    assert_eq!(told, [words]);

    let mut rig = Rig::new(QueueOptions { node_is_guess: true, ..options() });
    let (actions, told) = rig.wait(Resources::cpus(4), 0);
    assert_eq!(actions, [submit(7, 3)]);
    assert_eq!(told, [""; 0]);
    // Those that come are waited for, and when one has come it is known.
    assert_eq!(rig.wait(Resources::cpus(4), 0), (Vec::new(), Vec::new()));
    rig.accept(7);
    rig.join(1, 7);
    let plan = rig.machine.plan(rig.now);
    let (tasks, reason) = plan.queues[0].unserved.clone().unwrap();
    assert_eq!(format!("{}: {reason}", Verdict::Unserved { tasks }), words);
}

#[test]
fn a_strict_bound_holds_for_what_somebody_asks_for() {
    let mut rig = Rig::new(QueueOptions { max_is_strict: true, executors_max: 4, ..options() });
    let once = |nodes| Event::Once { queue: QUEUE, nodes, walltime_micros: 0 };
    assert_eq!(rig.say(once(5)), []);
    assert_eq!(rig.say(once(3)), [submit(7, 3)]);
    assert_eq!(rig.say(once(2)), []);
    assert_eq!(rig.demand(8), [submit(8, 1)]);
    assert_eq!(rig.say(once(1)), []);
}

#[test]
fn too_few_free_nodes_for_any_request_are_asked_about_again() {
    let acquire = AcquireName::Available;
    let mut rig = Rig::new(QueueOptions { acquire, request_nodes_min: 2, ..options() });
    assert_eq!(rig.demand(5), [Action::AskFree { queue: QUEUE }]);
    assert_eq!(rig.say(Event::Free { queue: QUEUE, nodes: Some(1) }), []);
    assert!(rig.pass(10).contains(&Action::AskFree { queue: QUEUE }));
    assert!(rig.say(Event::Free { queue: QUEUE, nodes: Some(3) }).contains(&submit(7, 3)));
}
