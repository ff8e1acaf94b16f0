//! Why tasks wait.

use crate::fixture::{actions, array, executor};
use falkon_core::dispatch::{
    Action, ConnectionId, Dispatcher, Event, Explained, InstanceOptions, Join, Obstacle, Offering,
    Reply, RequestError,
};
use falkon_core::task::{
    After, ExecutorId, InstanceId, Resources, Submission, TaskClass, TaskId, Time,
};

const CLIENT: ConnectionId = ConnectionId(0);

struct World(Dispatcher);

impl World {
    /// A dispatcher with executors of so many CPUs each, named `e1` and so on.
    fn new(cpus: &[u32]) -> World {
        let mut world = World(Dispatcher::new());
        for (number, cpus) in (1..).zip(cpus) {
            let join = Join { name: format!("e{number}"), ..executor(number, *cpus) };
            world.handle(Event::Join { connection: ConnectionId(number), join });
        }
        world
    }

    fn handle(&mut self, event: Event) {
        self.0.handle(Time(1), event);
        actions(&mut self.0);
    }

    /// A new instance with these tasks.
    fn submit(&mut self, submissions: Vec<Submission>) -> InstanceId {
        let instance = self.0.next_instance();
        let options = InstanceOptions::default();
        self.handle(Event::Create { connection: CLIENT, request: 0, options });
        let mut first = 0;
        for submission in submissions {
            let count = submission.count;
            self.handle(Event::Submit {
                client: 1,
                connection: CLIENT,
                request: 1,
                instance,
                first: TaskId(first),
                submission,
            });
            first += count;
        }
        instance
    }

    fn obstacles(&mut self, instance: InstanceId, task: u64) -> Vec<Obstacle> {
        let explained = self.0.explain(instance, Some(TaskId(task)));
        explained.into_iter().flat_map(|one| one.obstacles).collect()
    }
}

/// Tasks that need so many CPUs, with a priority.
fn tasks(count: u64, cpus: u32, priority: i32) -> Submission {
    let resources = Resources::cpus(cpus);
    let class = TaskClass { resources, priority, ..TaskClass::default() };
    Submission { classes: vec![class], ..array(count) }
}

fn full(executors: u64) -> Obstacle {
    Obstacle::Taken(Offering { executors, full: executors, ..Offering::default() })
}

#[test]
fn a_task_waits_for_those_it_runs_after_and_only_for_those() {
    let mut world = World::new(&[1]);
    let after = After { offset: 2, tasks: vec![TaskId(0), TaskId(1)], takes: 0 };
    let id = world.submit(vec![Submission { after: vec![after], ..array(3) }]);
    let some = vec![TaskId(0), TaskId(1)];
    assert_eq!(world.obstacles(id, 2), [Obstacle::Tasks { some, count: 2 }]);
    assert_eq!(world.obstacles(id, 0), []);
    assert_eq!(world.obstacles(id, 1), [full(1)]);
}

#[test]
fn without_executors_tasks_wait_for_one() {
    let mut world = World::new(&[]);
    let id = world.submit(vec![array(5)]);
    assert_eq!(world.obstacles(id, 4)[0], Obstacle::NoExecutor { away: 0 });
    assert_eq!(world.0.explain(id, Some(TaskId(5))), []);
    assert_eq!(world.0.explain(InstanceId(77), None), []);
    let explained = world.0.explain(id, None);
    let obstacles = vec![Obstacle::NoExecutor { away: 0 }];
    assert_eq!(explained, [Explained { task: TaskId(0), count: 5, obstacles }]);
}

#[test]
fn what_no_executor_offers_is_named() {
    let mut world = World::new(&[2, 4]);
    let id = world.submit(vec![tasks(1, 8, 0)]);
    let need = Resources::cpus(8);
    assert_eq!(world.obstacles(id, 0), [Obstacle::Unoffered { need, cache: false, executors: 2 }]);
}

#[test]
fn executors_that_could_take_a_task_are_counted_by_what_keeps_them() {
    let mut world = World::new(&[1, 1, 2]);
    let id = world.submit(vec![array(4), array(1)]);
    assert_eq!(world.obstacles(id, 4), [full(3)]);
    world.handle(Event::Closed { connection: ConnectionId(1) });
    let away = Offering { executors: 3, away: 1, full: 2, ..Offering::default() };
    assert_eq!(world.obstacles(id, 4), [Obstacle::Taken(away)]);
}

#[test]
fn tasks_wait_behind_others_of_their_instance_and_their_instance_behind_others() {
    let mut world = World::new(&[1]);
    let first = world.submit(vec![tasks(100, 1, 0), tasks(7, 1, 5)]);
    // One of the first runs. Those with a priority go before the rest.
    assert_eq!(world.obstacles(first, 100), [full(1)]);
    assert_eq!(world.obstacles(first, 50), [full(1), Obstacle::Behind { higher: 7, earlier: 49 }]);
    // Who has received less goes first.
    let second = world.submit(vec![array(3)]);
    assert_eq!(world.obstacles(second, 0), [full(1)]);
    let turn = Obstacle::Turn { some: vec![second], count: 1 };
    assert_eq!(world.obstacles(first, 100), [full(1), turn]);
    // Who has more priority goes before those.
    let prioritize = |instance, priority| {
        let (connection, request) = (CLIENT, 3);
        Event::Prioritize { connection, request, instance, priority }
    };
    world.handle(prioritize(first, 1));
    assert_eq!(world.obstacles(first, 100), [full(1)]);
    let turn = Obstacle::Turn { some: vec![first], count: 1 };
    assert_eq!(world.obstacles(second, 0), [full(1), turn]);
    world.handle(prioritize(first, -1));
    assert_eq!(world.obstacles(second, 0), [full(1)]);
}

#[test]
fn what_is_paused_or_drained_waits_for_who_holds_it_up() {
    let mut world = World::new(&[1]);
    let executor = world.0.executor_views().next().unwrap().id();
    world.handle(Event::Drain { connection: CLIENT, request: 2, executor, is_drained: true });
    let id = world.submit(vec![tasks(3, 1, 0)]);
    let pause =
        |instance, is_paused| Event::Pause { connection: CLIENT, request: 3, instance, is_paused };
    world.handle(pause(id, true));
    let drained = Offering { executors: 1, drained: 1, ..Offering::default() };
    assert_eq!(world.obstacles(id, 0), [Obstacle::Paused, Obstacle::Taken(drained)]);
    world.handle(pause(id, false));
    assert_eq!(world.obstacles(id, 0), [Obstacle::Taken(drained)]);
    world.handle(Event::Drain { connection: CLIENT, request: 4, executor, is_drained: false });
    assert_eq!(world.obstacles(id, 0), []);
    assert_eq!(world.obstacles(id, 1), [full(1)]);
    for (instance, executor) in [(InstanceId(9), executor), (id, ExecutorId(9))] {
        let asked = [
            pause(instance, true),
            Event::Drain { connection: CLIENT, request: 5, executor, is_drained: true },
        ];
        for event in asked {
            world.0.handle(Time(1), event);
        }
        let replies: Vec<Reply> = actions(&mut world.0)
            .into_iter()
            .filter_map(|action| match action {
                Action::Reply { reply, .. } => Some(reply),
                _ => None,
            })
            .collect();
        let unknown = match instance == id {
            true => [Reply::Done, Reply::Refused(RequestError::NoExecutor(executor))],
            false => [Reply::Refused(RequestError::NoInstance(instance)), Reply::Done],
        };
        assert_eq!(replies, unknown);
    }
}
