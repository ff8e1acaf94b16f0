//! What a scheduler says of jobs, or does not: step by step.

use crate::steps::{QUEUE, Rig, SECOND, options, submit};
use falkon_core::provision::{
    About, Action, AllocationId, AllocationState, Event, Found, JobState, QueueId, QueueOptions,
};

const OTHER: QueueId = QueueId(2);

fn found(id: u64, nodes: u64, state: JobState, words: &str) -> Found {
    Found {
        queue: QUEUE,
        allocation: AllocationId(id),
        job: format!("job-{id}"),
        state,
        nodes,
        until: None,
        words: words.to_owned(),
    }
}

fn cancel(id: u64) -> Action {
    let job = Some(format!("job-{id}"));
    Action::Cancel { queue: QUEUE, allocation: AllocationId(id), job }
}

impl Rig {
    fn states(&mut self, found: Vec<Found>) -> Vec<Action> {
        self.say(Event::States { queue: QUEUE, found })
    }

    /// Lets time pass until the next query, and answers it.
    fn query(&mut self, found: Vec<Found>) -> Vec<Action> {
        let mut all = Vec::new();
        for _ in 0..10_000 {
            let (at, _) = self.machine.poll_timeout().expect("a query is to come");
            self.now = self.now.max(at);
            self.machine.handle_timeout(self.now);
            all.extend(self.actions());
            if all.contains(&Action::Query { queue: QUEUE }) {
                break;
            }
        }
        all.retain(|action| !matches!(action, Action::Query { .. }));
        all.extend(self.states(found));
        all.retain(|action| !matches!(action, Action::Query { .. }));
        all
    }

    /// Answers queries with nothing until it does that.
    #[track_caller]
    fn wait_for(&mut self, wanted: &Action) {
        let done = (0..1000).any(|_| self.query(Vec::new()).contains(wanted));
        assert!(done, "it does not do {wanted:?}");
    }

    fn about(&mut self, id: u64, about: About) -> Vec<Action> {
        self.say(Event::About { allocation: AllocationId(id), about })
    }

    /// How far an allocation is; `None` if it is not known.
    fn state(&self, id: u64) -> Option<AllocationState> {
        let mut views = self.machine.allocation_views();
        views.find(|view| view.id() == AllocationId(id)).map(|view| view.state())
    }
}

fn ask_about(id: u64) -> Action {
    let allocation = AllocationId(id);
    Action::AskAbout { queue: QUEUE, allocation, job: format!("job-{id}") }
}

#[test]
fn a_job_that_is_not_listed_is_asked_about_by_number_before_it_is_given_up() {
    let mut rig = Rig::new(options());
    assert_eq!(rig.demand(1), [submit(7, 1)]);
    rig.accept(7);
    let pending = || found(7, 1, JobState::Pending, "Priority");
    rig.query(vec![pending()]);
    assert_eq!(rig.query(Vec::new()), []);
    assert_eq!(rig.query(Vec::new()), [ask_about(7)]);
    // Nobody answers, and then it turns out to be there.
    rig.about(7, About::NoAnswer);
    assert_eq!(rig.state(7), Some(AllocationState::Pending));
    rig.wait_for(&ask_about(7));
    rig.about(7, About::Known(Box::new(pending())));
    assert_eq!(rig.state(7), Some(AllocationState::Pending));
    // Much later the scheduler denies it.
    rig.wait_for(&ask_about(7));
    rig.about(7, About::Gone);
    assert_eq!(rig.state(7), None);
    // The denial was wrong: it is taken back.
    rig.demand(0);
    rig.query(vec![pending()]);
    assert_eq!(rig.state(7), Some(AllocationState::Pending));
}

#[test]
fn a_job_that_was_to_end_is_cancelled_when_it_is_named_again() {
    let mut rig = Rig::new(options());
    rig.demand(1);
    rig.accept(7);
    rig.query(vec![found(7, 1, JobState::Pending, "")]);
    assert!(rig.say(Event::Drop { allocation: AllocationId(7) }).contains(&cancel(7)));
    rig.demand(0);
    rig.wait_for(&ask_about(7));
    rig.about(7, About::Gone);
    assert_eq!(rig.state(7), None);
    let again = rig.query(vec![found(7, 1, JobState::Pending, "")]);
    assert_eq!(again, [cancel(7)]);
}

#[test]
fn jobs_that_vanish_pause_no_queue_for_good() {
    let mut rig = Rig::new(options());
    rig.demand(1);
    for id in 7..13 {
        assert_eq!(rig.state(id), Some(AllocationState::Asking), "{id}");
        rig.accept(id);
        rig.query(vec![found(id, 1, JobState::Pending, "")]);
        rig.wait_for(&ask_about(id));
        rig.about(id, About::Gone);
        assert_eq!(rig.machine.queue_view(QUEUE).unwrap().paused(), None);
        for _ in 0..700 {
            if rig.state(id + 1).is_none() {
                rig.pass(1);
            }
        }
    }
}

#[test]
fn a_job_of_another_queue_is_nobodys_but_that_queues() {
    let mut rig = Rig::new(options());
    let added = rig.say(Event::Add { queue: OTHER, options: Box::new(options()) });
    assert_eq!(added, [Action::Query { queue: OTHER }]);
    let others = || Found { queue: OTHER, ..found(40, 2, JobState::Running, "") };
    rig.states(vec![others()]);
    assert_eq!(rig.state(40), None);
    // A queue that answers for another changes nothing either.
    rig.say(Event::States { queue: OTHER, found: vec![others()] });
    let queue = rig.machine.allocation_views().next().unwrap().queue();
    assert_eq!(queue, OTHER);
    let ended = Found { queue: OTHER, ..found(40, 2, JobState::Ended, "") };
    rig.states(vec![ended]);
    assert_eq!(rig.state(40), Some(AllocationState::Running));
    let removed = rig.say(Event::Remove { queue: QUEUE });
    assert_eq!(removed, [Action::Removed { queue: QUEUE }]);
}

#[test]
fn what_a_record_names_is_there_until_the_scheduler_denies_it_twice_and_by_number() {
    let mut machine = Rig::bare();
    machine.say(Event::Add { queue: QUEUE, options: Box::new(options()) });
    let recorded = vec![found(3, 4, JobState::Unknown, "")];
    machine.say(Event::Recovered { queue: QUEUE, found: recorded });
    // An answer without it makes nobody ask for its nodes a second time.
    machine.states(Vec::new());
    assert_eq!(machine.demand(4), []);
    machine.wait_for(&ask_about(3));
    let asked = machine.about(3, About::Gone);
    assert_eq!(asked, [submit(7, 4)]);
}

#[test]
fn what_somebody_holds_is_done_without_within_bounds_and_given_up_in_time() {
    let held_micros = Some(600 * SECOND);
    let mut rig = Rig::new(QueueOptions { held_micros, pending_max: 1, ..options() });
    assert_eq!(rig.demand(10), [submit(7, 10)]);
    let mut all = Vec::new();
    for id in 7..11 {
        rig.accept(id);
        all.push(found(id, 10, JobState::Held, "JobHeldAdmin"));
        let asked = rig.query(all.clone());
        assert_eq!(rig.state(id), Some(AllocationState::Held));
        // The first few are replaced; whoever holds all is not fed more.
        assert_eq!(asked, if id < 10 { vec![submit(id + 1, 10)] } else { Vec::new() });
    }
    let words = rig.machine.allocation_views().map(|view| view.words().to_owned());
    assert!(words.into_iter().all(|words| words == "JobHeldAdmin"));
    // One that is let go counts again: no more than the queue may have stays.
    all[0].state = JobState::Running;
    all[1].state = JobState::Pending;
    assert_eq!(rig.query(all.clone()), [cancel(8)]);
    let since = rig.now;
    assert!((0..1000).any(|_| rig.query(all.clone()).contains(&cancel(9))));
    assert!(rig.now.since(since) <= 610 * SECOND);
}

#[test]
fn what_can_never_start_is_asked_for_anew_with_fewer_nodes_and_then_refused() {
    let mut rig = Rig::new(QueueOptions { executors_max: 8, pending_max: 1, ..options() });
    assert_eq!(rig.demand(20), [submit(7, 8)]);
    for (id, nodes) in [(7, 8), (8, 4), (9, 2)] {
        rig.accept(id);
        let before = found(id, nodes, JobState::TooLarge, "PartitionNodeLimit");
        assert_eq!(rig.query(vec![before.clone()]), [cancel(id)]);
        let ended = Found { state: JobState::Ended, ..before };
        assert_eq!(rig.query(vec![ended]), [submit(id + 1, nodes / 2)]);
    }
    // No request is smaller: that is a refusal.
    rig.accept(10);
    let before = found(10, 1, JobState::TooLarge, "PartitionNodeLimit");
    assert_eq!(rig.query(vec![before.clone()]), [cancel(10)]);
    let ended = Found { state: JobState::Ended, ..before };
    assert_eq!(rig.query(vec![ended]), []);
    let view = rig.machine.queue_view(QUEUE).unwrap();
    assert_eq!(view.failures().0, 1);
    assert!(view.not_before() > rig.now);
}

#[test]
fn no_more_is_asked_for_than_there_is() {
    let mut rig = Rig::bare();
    let options = QueueOptions { tells_size: true, executors_max: 8, ..options() };
    let asked = rig.say(Event::Add { queue: QUEUE, options: Box::new(options) });
    assert_eq!(asked, [Action::Query { queue: QUEUE }, Action::AskSize { queue: QUEUE }]);
    rig.states(Vec::new());
    assert_eq!(rig.demand(100), []);
    let size = Event::Size { queue: QUEUE, nodes: Some(3), job_nodes: Some(2) };
    assert_eq!(rig.say(size), [submit(7, 2), submit(8, 1)]);
    assert_eq!(rig.machine.queue_view(QUEUE).unwrap().size(), Some(3));
    rig.accept(7);
    rig.accept(8);
    // A node goes down: what waits for it is asked for anew.
    let waiting = || vec![found(7, 2, JobState::Pending, ""), found(8, 1, JobState::Pending, "")];
    let asked = std::iter::from_fn(|| Some(rig.query(waiting()))).take(30);
    let mut asked = asked.flatten();
    assert!(asked.any(|action| action == Action::AskSize { queue: QUEUE }));
    let size = Event::Size { queue: QUEUE, nodes: Some(1), job_nodes: None };
    assert_eq!(rig.say(size), [cancel(7)]);
}

#[test]
fn who_does_not_say_how_large_he_is_is_asked_all_the_same() {
    let mut rig = Rig::bare();
    let options = QueueOptions { tells_size: true, ..options() };
    rig.say(Event::Add { queue: QUEUE, options: Box::new(options) });
    rig.states(Vec::new());
    assert_eq!(rig.demand(5), []);
    assert!(rig.pass(61).contains(&submit(7, 5)));
}
