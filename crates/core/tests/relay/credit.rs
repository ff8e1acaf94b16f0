//! How much is sent to relays, what they say of themselves, and what comes back.

use crate::world::{SECOND, World};
use falkon_core::dispatch::{Assigned, BatchId, Held, Order, Prepare, Subtree};
use falkon_core::limits::{
    COALESCE_MICROS, NODE_CLASSES_MAX, PREFETCH_TASKS_MAX, RELAY_PREFETCH_TASKS_MAX,
    RELAY_UNMET_MICROS,
};
use falkon_core::provision::Waiting;
use falkon_core::relay::{Action, Event, Note, Relay};
use falkon_core::result::{Finished, Outcome, Tries};
use falkon_core::task::{
    ExecutorId, InstanceId, Kind, Range, Resources, Rows, TaskClass, TaskId, Time,
};
use std::sync::Arc;

fn sleep(cpus: u32, micros: u64) -> TaskClass {
    TaskClass {
        kind: Kind::Sleep,
        resources: Resources::cpus(cpus),
        estimate_micros: micros,
        ..TaskClass::default()
    }
}

#[test]
fn a_relay_lends_classes_of_nodes_at_each_tier() {
    let mut world = World::new(1);
    let site = world.site(0);
    let below = world.site(site);
    world.node(site, Resources::cpus(8));
    for _ in 0..3 {
        world.node(below, Resources::cpus(2));
    }
    world.run(SECOND);
    let views: Vec<_> = world.dispatcher(0).executor_views().collect();
    assert_eq!(views.len(), 1);
    assert_eq!(*views[0].capacity(), Resources::cpus(14));
    let subtree = views[0].subtree().unwrap();
    assert_eq!(subtree.node_count(), 4);
    assert_eq!(subtree.relays.len(), 2);
    let classes = subtree.nodes.iter().map(|class| (class.capacity.cpus_milli, class.count));
    assert_eq!(classes.collect::<Vec<_>>(), [(8000, 1), (2000, 3)]);
}

#[test]
fn a_task_that_fits_no_node_below_stays_above() {
    let mut world = World::new(1);
    let site = world.site(0);
    for _ in 0..4 {
        world.node(site, Resources::cpus(2));
    }
    world.run(SECOND);
    world.submit(1, sleep(3, SECOND));
    world.submit(20, sleep(2, SECOND));
    world.run(60 * SECOND);
    assert_eq!(world.results.len(), 20);
    assert!(!world.results.contains_key(&0));
    assert_eq!(world.relay(site).tasks(), 0);
    // It runs where a node comes that is large enough.
    world.node(site, Resources::cpus(4));
    world.run(10 * SECOND);
    assert_eq!(world.results[&0].outcome, Outcome::Exit(0));
}

#[test]
fn long_tasks_are_not_sent_beyond_the_room_below() {
    let mut world = World::new(1);
    let site = world.site(0);
    for _ in 0..4 {
        world.node(site, Resources::cpus(2));
    }
    world.run(SECOND);
    world.submit(100, sleep(1, 10 * SECOND));
    for _ in 0..100 {
        world.run(SECOND / 2);
        assert!(world.relay(site).tasks() <= 8 + 8, "{}", world.relay(site).tasks());
    }
}

#[test]
fn tasks_that_take_no_time_are_sent_for_each_node_below() {
    let ahead = |nodes: u32| {
        let mut world = World::new(1);
        let site = world.site(0);
        for _ in 0..nodes {
            world.node(site, Resources::cpus(1));
        }
        world.run(SECOND);
        world.submit(1 << 32, TaskClass { kind: Kind::Noop, ..TaskClass::default() });
        let mut most = 0;
        for _ in 0..100 {
            world.step(world.now + SECOND);
            let views = world.dispatcher(0).executor_views();
            most = views.map(|view| view.load().1).fold(most, u64::max);
        }
        most
    };
    assert_eq!(ahead(1), PREFETCH_TASKS_MAX);
    assert_eq!(ahead(8), 8 * PREFETCH_TASKS_MAX);
    assert_eq!(ahead(40), RELAY_PREFETCH_TASKS_MAX);
}

#[test]
fn what_a_relay_has_not_started_goes_to_a_cluster_that_is_idle() {
    let mut world = World::new(1);
    let slow = world.site(0);
    world.node(slow, Resources::cpus(64));
    world.run(SECOND);
    // Short tasks, as their user says, are sent ahead; then the nodes are gone.
    world.submit(1000, sleep(1, 20_000));
    world.run(5_000);
    let node = 0;
    world.kill_node(node);
    world.cut_node(node);
    let fast = world.site(0);
    world.node(fast, Resources::cpus(8));
    let until = world.now + 600 * SECOND;
    while world.results.len() < 1000 {
        assert!(world.step(until), "{} ended", world.results.len());
    }
}

#[test]
fn what_was_sent_ahead_to_nodes_goes_to_a_cluster_that_is_idle() {
    let mut world = World::new(1);
    let full = world.site(0);
    world.node(full, Resources::cpus(8));
    world.run(SECOND);
    world.submit(16, sleep(1, 2 * SECOND));
    world.run(SECOND / 2);
    assert_eq!(world.relay(full).tasks(), 16);
    let idle = world.site(0);
    world.node(idle, Resources::cpus(8));
    world.run(SECOND);
    assert_eq!((world.relay(full).tasks(), world.relay(idle).tasks()), (8, 8));
    // Nobody waits for another round of tasks.
    world.run(2 * SECOND);
    assert_eq!(world.results.len(), 16);
}

#[test]
fn long_tasks_that_were_sent_ahead_to_a_relay_that_is_gone_run_elsewhere() {
    let mut world = World::new(1);
    let gone = world.site(0);
    for _ in 0..400 {
        world.node(gone, Resources::cpus(1));
    }
    world.run(SECOND);
    world.submit(806, sleep(1, 3 * SECOND));
    world.run(4 * SECOND);
    assert_eq!(world.relay(gone).tasks(), 406, "six were sent ahead");
    world.kill_site(gone, 2 * SECOND);
    let idle = world.site(0);
    world.node(idle, Resources::cpus(8));
    world.run(SECOND);
    assert_eq!(world.relay(idle).tasks(), 6);
    // The others run below the relay while it is away, and those are not run there.
    world.run(4 * SECOND);
    assert_eq!((world.results.len(), world.starts), (806, 806));
}

#[test]
fn what_was_sent_ahead_to_a_relay_that_came_back_runs_elsewhere_when_it_goes_again() {
    let mut world = World::new(1);
    let gone = world.site(0);
    for _ in 0..400 {
        world.node(gone, Resources::cpus(1));
    }
    world.run(SECOND);
    world.submit(806, sleep(1, 3 * SECOND));
    world.run(4 * SECOND);
    assert_eq!(world.relay(gone).tasks(), 406, "six were sent ahead");
    world.cut_site(gone);
    world.run(SECOND);
    assert_eq!(world.relay(gone).tasks(), 406, "it came back before anybody had room");
    world.kill_site(gone, 2 * SECOND);
    let idle = world.site(0);
    world.node(idle, Resources::cpus(8));
    world.run(SECOND);
    assert_eq!(world.relay(idle).tasks(), 6);
}

#[test]
fn tasks_with_data_that_were_sent_ahead_to_a_relay_that_is_gone_run_elsewhere() {
    let mut world = World::new(1);
    let gone = world.site(0);
    world.ask_always();
    for _ in 0..4 {
        world.node(gone, Resources::cpus(1));
    }
    world.run(SECOND);
    world.submit_readers(sleep(1, 20 * SECOND), &[1, 2, 3, 4].repeat(3));
    world.run(22 * SECOND);
    assert_eq!(world.relay(gone).tasks(), 8, "one was sent ahead for each node");
    world.kill_site(gone, 2 * SECOND);
    let idle = world.site(0);
    for _ in 0..4 {
        world.node(idle, Resources::cpus(1));
    }
    world.run(SECOND);
    assert_eq!(world.relay(idle).tasks(), 4);
}

#[test]
fn a_relay_that_has_just_come_back_gives_back_what_others_have_room_for() {
    let mut world = World::new(1);
    let full = world.site(0);
    let nodes = [world.node(full, Resources::cpus(8)), world.node(full, Resources::cpus(8))];
    world.run(SECOND);
    world.submit(32, sleep(1, 2 * SECOND));
    world.run(SECOND / 2);
    assert_eq!(world.relay(full).tasks(), 32);
    // One of its nodes does not come back: it is waited for, while another cluster is idle.
    world.kill_node(nodes[1]);
    world.kill_site(full, SECOND / 10);
    let idle = world.site(0);
    world.node(idle, Resources::cpus(8));
    let until = world.now + 8 * SECOND;
    while world.relay(idle).tasks() == 0 {
        assert!(world.step(until), "what waits goes to nodes that are idle");
    }
}

#[test]
fn a_cluster_that_loses_its_nodes_gives_its_tasks_back() {
    let mut world = World::new(1);
    let site = world.site(0);
    let node = world.node(site, Resources::cpus(4));
    world.run(SECOND);
    world.submit(4, sleep(4, SECOND));
    world.run(SECOND / 2);
    // Nothing below is large enough any more.
    world.shrink_node(node, Resources::cpus(1));
    world.run(60 * SECOND);
    assert_eq!(world.relay(site).tasks(), 0);
    let other = world.site(0);
    world.node(other, Resources::cpus(4));
    world.run(60 * SECOND);
    assert_eq!(world.results.len(), 4);
}

#[test]
fn tasks_for_nodes_that_a_cluster_may_get_go_to_one_that_has_them() {
    for has_data in [false, true] {
        let mut world = World::new(1);
        let site = world.site(0);
        // Its nodes may be of any size, and so its dispatcher waits for one.
        world.dispatcher_mut(site).set_obtainable(vec![None]);
        let nodes = [4, 2, 2].map(|cpus| world.node(site, Resources::cpus(cpus)));
        world.run(SECOND);
        match has_data {
            true => world.submit_readers(sleep(4, SECOND), &[1, 2]),
            false => world.submit(2, sleep(4, SECOND)),
        }
        world.run(SECOND / 2);
        world.shrink_node(nodes[0], Resources::cpus(1));
        world.run(60 * SECOND);
        assert!(world.relay(site).tasks() > 0, "they wait for a node");
        let other = world.site(0);
        world.node(other, Resources::cpus(4));
        world.run(60 * SECOND);
        assert_eq!((world.relay(site).tasks(), world.results.len()), (0, 2), "{has_data}");
    }
}

#[test]
fn many_kinds_of_nodes_are_told_in_few_classes() {
    let mut world = World::new(1);
    let site = world.site(0);
    for cpus in 1..=100 {
        world.node(site, Resources::cpus(cpus));
    }
    world.run(SECOND);
    let view = world.dispatcher(0).executor_views().next().unwrap();
    let subtree = view.subtree().unwrap();
    assert_eq!(subtree.nodes.len(), NODE_CLASSES_MAX);
    assert_eq!(subtree.node_count(), 100);
    assert_eq!(subtree.nodes[0].capacity, Resources::cpus(100));
    // The smallest are counted as the smallest of them.
    let last = subtree.nodes.last().unwrap();
    assert_eq!((last.capacity.clone(), last.count), (Resources::cpus(1), 37));
}

/// What a relay does with an order, without its updates' numbers.
fn actions(relay: &mut Relay) -> Vec<Action> {
    std::iter::from_fn(|| relay.poll_action()).collect()
}

#[test]
fn a_recall_takes_back_what_waits_below_and_nothing_is_acknowledged_too_early() {
    let mut relay = Relay::new(1, 2, "relay".to_owned());
    let (now, above) = (Time(5 * SECOND), Time(7 * SECOND));
    relay.begin(InstanceId(3), 100);
    relay.handle(now, Event::Subtree(Subtree::default()));
    relay.handle(now, Event::Connected { above });
    let said = actions(&mut relay);
    assert!(
        matches!(&said[..], [Action::Join(_), Action::Update(first)] if first.subtree.is_some())
    );
    let held = |first, count| Held {
        instance: InstanceId(9),
        first: TaskId(first),
        count,
        tries: Tries::default(),
    };
    let classes = vec![TaskClass { retries: 3, ..sleep(1, 0) }];
    let prepare =
        Prepare { batch: BatchId(0), template: Arc::default(), classes, everywhere: None };
    let assigned = Assigned {
        batch: BatchId(0),
        instance: InstanceId(9),
        first: TaskId(40),
        count: 10,
        class: 0,
        tries: Tries::default(),
        rows: Rows::Computed { factors: vec![Range { start: 0, step: 1, count: 10 }], offset: 0 },
        data: None,
    };
    let order = Order { prepare: vec![prepare], assign: vec![assigned], ..Order::default() };
    relay.handle(now, Event::Order(order));
    let said = actions(&mut relay);
    let [Action::Note(notes), Action::Submit { first, submission }] = &said[..] else {
        panic!("{said:?}");
    };
    assert_eq!(notes[..], [Note::Sent { below: 100, held: held(40, 10) }]);
    assert_eq!((*first, submission.count, submission.classes[0].retries), (TaskId(100), 10, 0));
    relay.handle(now, Event::Accepted { count: 10 });

    relay.handle(now, Event::Order(Order { recall: 4, ..Order::default() }));
    assert_eq!(actions(&mut relay), [Action::Withdraw(4)]);
    relay.handle(now, Event::Withdrawn(vec![(106, 4)]));
    let said = actions(&mut relay);
    let [Action::Update(update)] = &said[..] else { panic!("{said:?}") };
    assert_eq!((&update.returned[..], update.recalled), (&[held(46, 4)][..], true));
    assert_eq!(relay.tasks(), 6);

    // Two end below; those that were withdrawn come as cancelled.
    let finished = |first, count, outcome, executor| Finished {
        first: TaskId(first),
        count,
        outcome,
        executor,
        attempts: 1,
        queued: now,
        dispatched: now,
        started: now,
        ended: now,
        detail: None,
    };
    let ended = finished(100, 2, Outcome::Exit(0), Some(ExecutorId(1)));
    let withdrawn = finished(106, 4, Outcome::Cancelled, None);
    let results = vec![ended, withdrawn];
    relay.handle(now, Event::Results { from: 7, results });
    let later = now.after(SECOND);
    relay.handle_timeout(later);
    let said = actions(&mut relay);
    let [Action::Update(update)] = &said[..] else { panic!("{said:?}") };
    assert_eq!(update.reports.len(), 1);
    let report = &update.reports[0];
    assert_eq!((report.first, report.count, report.ended), (TaskId(40), 2, above));
    assert!(update.returned.is_empty());
    // They may be forgotten below when the dispatcher above has them.
    let acknowledged = update.number;
    relay.handle(later, Event::Order(Order { acknowledged, ..Order::default() }));
    let gone = |below, count| Note::Gone { below, count };
    let notes = vec![gone(100, 2), gone(106, 4)];
    assert_eq!(actions(&mut relay), [Action::Note(notes), Action::Acknowledge(13)]);

    // Reports wait for those that may follow soon; the last of all waits for none.
    let results = vec![finished(102, 3, Outcome::Exit(0), Some(ExecutorId(1)))];
    relay.handle(later, Event::Results { from: 13, results });
    assert_eq!(actions(&mut relay), []);
    let held_until = later.after(COALESCE_MICROS);
    assert_eq!(relay.poll_timeout(), Some((held_until, "reports that follow")));
    let results = vec![finished(105, 1, Outcome::Exit(0), Some(ExecutorId(1)))];
    relay.handle(later, Event::Results { from: 16, results });
    let said = actions(&mut relay);
    let [Action::Update(update)] = &said[..] else { panic!("{said:?}") };
    assert_eq!(update.reports.iter().map(|report| report.count).sum::<u64>(), 4);
    assert_eq!(relay.tasks(), 0);
}

#[test]
fn classes_say_which_attempt_it_is_above() {
    let mut relay = Relay::new(1, 2, "relay".to_owned());
    relay.begin(InstanceId(3), 0);
    relay.handle(Time(1), Event::Subtree(Subtree::default()));
    relay.handle(Time(1), Event::Connected { above: Time(1) });
    actions(&mut relay);
    // One that was tried below another relay before.
    let class = TaskClass { attempts_before: 4, ..sleep(1, 0) };
    let classes = vec![class];
    let (batch, template) = (BatchId(0), Arc::default());
    let prepare = vec![Prepare { batch, template, classes, everywhere: None }];
    let range =
        |count| Rows::Computed { factors: vec![Range { start: 0, step: 1, count }], offset: 0 };
    let assigned = |first, failures| Assigned {
        batch,
        instance: InstanceId(9),
        first: TaskId(first),
        count: 1,
        class: 0,
        tries: Tries { failures, losses: 1 },
        rows: range(1),
        data: None,
    };
    let assign = vec![assigned(0, 0), assigned(1, 0), assigned(2, 2)];
    relay.handle(Time(2), Event::Order(Order { prepare, assign, ..Order::default() }));
    let submitted = actions(&mut relay).into_iter().filter_map(|action| match action {
        Action::Submit { submission, .. } => {
            Some((submission.count, submission.classes[0].attempts_before))
        }
        _ => None,
    });
    // Tasks that differ in that are no one submission.
    let submitted: Vec<(u64, u32)> = submitted.collect();
    assert!(submitted.iter().all(|(_, before)| [5, 7].contains(before)), "{submitted:?}");
    assert_eq!(submitted.iter().map(|(count, _)| count).sum::<u64>(), 3);
    assert_eq!(submitted.last(), Some(&(1, 7)));
}

/// What a site's provisioner is told: needs in CPUs, and how many tasks.
fn demand(world: &mut World, site: usize) -> Vec<(u32, u64)> {
    let now = Time(world.now);
    let demand = world.dispatcher_mut(site).demand(now);
    demand.waiting.iter().map(|one| (one.need.cpus_milli / 1000, one.tasks)).collect()
}

#[test]
fn demand_flows_down_to_where_nodes_can_be_got_until_they_are_there() {
    let mut world = World::new(1);
    let site = world.site(0);
    let below = world.site(site);
    let other = world.site(0);
    world.dispatcher_mut(below).set_obtainable(vec![Some(Resources::cpus(4))]);
    world.run(SECOND);
    world.submit(40, sleep(2, 50 * SECOND));
    world.submit(3, sleep(8, 50 * SECOND));
    world.run(5 * SECOND);
    assert_eq!(demand(&mut world, below), [(2, 40)]);
    assert_eq!(demand(&mut world, other), []);
    // A connection that is lost for a moment changes nothing.
    world.cut_site(below);
    world.cut_below(below, 0);
    world.run(100_000);
    assert_eq!(demand(&mut world, below), [(2, 40)]);
    world.run(5 * SECOND);
    assert_eq!(demand(&mut world, below), [(2, 40)]);
    for _ in 0..5 {
        world.node(below, Resources::cpus(4));
    }
    world.run(20 * SECOND);
    let left: u64 = demand(&mut world, below).iter().map(|(_, tasks)| tasks).sum();
    assert!((20..40).contains(&left), "{left} tasks wait");
    world.run(600 * SECOND);
    assert_eq!(world.results.len(), 40);
    assert_eq!(demand(&mut world, below), []);
    assert_eq!(demand(&mut world, 0), [(8, 3)]);
}

#[test]
fn demand_from_above_ends_when_the_dispatcher_there_was_away_for_long() {
    let mut relay = Relay::new(1, 2, "relay".to_owned());
    relay.begin(InstanceId(3), 0);
    let waiting = vec![Waiting {
        need: Resources::cpus(1),
        tasks: 9,
        estimate_micros: None,
        lasts_micros: 0,
        nodes: 1,
    }];
    let now = Time(SECOND);
    relay.handle(now, Event::Subtree(Subtree::default()));
    relay.handle(now, Event::Connected { above: now });
    let _ = actions(&mut relay);
    relay.handle(now, Event::Unmet(waiting.clone()));
    assert_eq!(actions(&mut relay), [Action::Unmet(waiting)]);
    relay.handle(now, Event::Disconnected);
    relay.handle_timeout(now.after(RELAY_UNMET_MICROS - 1));
    assert_eq!(actions(&mut relay), []);
    relay.handle_timeout(now.after(RELAY_UNMET_MICROS));
    assert_eq!(actions(&mut relay), [Action::Unmet(Vec::new())]);
    assert_eq!(relay.poll_timeout(), None);
}

#[test]
fn a_client_takes_back_what_no_executor_has() {
    let mut world = World::new(1);
    world.node(0, Resources::cpus(2));
    world.run(SECOND);
    world.submit(10, sleep(1, 100 * SECOND));
    world.run(SECOND);
    assert_eq!(world.withdraw(3), [(7, 3)]);
    assert_eq!(world.withdraw(100), [(2, 5)]);
    assert_eq!(world.withdraw(100), []);
    world.run(SECOND);
    assert_eq!(world.results.len(), 8);
    let counts = world.dispatcher(0).instance_views().next().unwrap().counts();
    assert_eq!((counts.cancelled, counts.dispatched, counts.ready), (8, 2, 0));
}

#[test]
fn what_a_cluster_has_not_started_goes_elsewhere_when_its_nodes_are_gone_for_good() {
    for seed in 0..8 {
        let mut world = World::new(seed);
        let (left, right) = (world.site(0), world.site(0));
        let nodes: Vec<usize> = (0..4).map(|_| world.node(left, Resources::cpus(2))).collect();
        world.node(right, Resources::cpus(8));
        world.run(SECOND);
        world.submit(200, sleep(1, 200_000));
        world.run(SECOND + seed * 50_000);
        nodes.into_iter().for_each(|node| world.remove_node(node));
        let until = world.now + 600 * SECOND;
        while world.results.len() < 200 {
            assert!(world.step(until), "seed {seed}: {} ended", world.results.len());
        }
    }
}
