//! Peers that say anything at all: neither machine panics, and its books stay
//! in order.

use crate::faults::cases;
use crate::sets::any_number;
use falkon_core::dispatch::{
    Action, Assigned, BatchId, ConnectionId, Dispatcher, Event, Held, InstanceOptions, Join, Lease,
    NodeClass, Order, Prepare, Record, Selection, Site, Standing, Subtree, Survey, Update,
};
use falkon_core::encoded::Encoded;
use falkon_core::execute;
use falkon_core::limits::{
    CAPTURE_BYTES_MAX, ERROR_BYTES_MAX, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, RECORD_RUNS_MAX,
    REPORT_BYTES_MAX, SUBMISSION_BYTES_MAX, URL_BYTES_MAX, VALUE_BYTES_MAX,
};
use falkon_core::provision::Waiting;
use falkon_core::relay;
use falkon_core::result::{Captured, Detail, Finished, Outcome, Overflow, Report, Tries};
use falkon_core::task::{
    After, ExecutorId, InstanceId, Kind, Packed, Range, Resources, Rows, Submission, TaskClass,
    TaskId, Time,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::Arc;

fn tries() -> impl Strategy<Value = Tries> {
    prop_oneof![
        3 => Just(Tries::default()),
        1 => (0..3u32, 0..3u32).prop_map(|(failures, losses)| Tries { failures, losses }),
        1 => Just(Tries { failures: u32::MAX, losses: u32::MAX }),
    ]
}

fn held() -> impl Strategy<Value = Held> {
    (0..3u64, any_number(), any_number(), tries()).prop_map(|(instance, first, count, tries)| {
        Held { instance: InstanceId(instance), first: TaskId(first), count, tries }
    })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        3 => Just(Outcome::Exit(0)),
        2 => Just(Outcome::Exit(1)),
        1 => Just(Outcome::Lost),
        1 => Just(Outcome::Cancelled),
        1 => Just(Outcome::UpstreamFailed(TaskId(u64::MAX))),
    ]
}

/// Lengths around a bound, and far beyond it.
fn length(bound: u64) -> impl Strategy<Value = usize> {
    let bound = usize::try_from(bound).expect("bounds are small");
    prop_oneof![6 => 0..9usize, 1 => bound - 1..bound + 2, 1 => Just(bound + (4 << 20))]
}

fn name() -> impl Strategy<Value = String> {
    length(NAME_BYTES_MAX as u64).prop_map(|length| "n".repeat(length))
}

fn captured() -> impl Strategy<Value = Captured> {
    let overflow =
        (0..3u64, any_number()).prop_map(|(incarnation, number)| Overflow { incarnation, number });
    let member = length(URL_BYTES_MAX as u64).prop_map(|length| "m".repeat(length).into());
    let parts = (length(CAPTURE_BYTES_MAX), prop::option::of(overflow), prop::option::of(member));
    parts.prop_map(|(head, overflow, member)| Captured {
        head: vec![b'x'; head],
        total_bytes: head as u64 / 2,
        overflow,
        member,
    })
}

fn detail() -> impl Strategy<Value = Arc<Detail>> {
    (length(VALUE_BYTES_MAX), length(ERROR_BYTES_MAX), captured(), captured()).prop_map(
        |(value, error, stdout, stderr)| {
            let value = vec![7; value];
            // Letters of two bytes: a text is not cut within one.
            let error = "\u{e9}".repeat(error.div_ceil(2));
            Arc::new(Detail { value, error, stdout, stderr, ..Detail::default() })
        },
    )
}

fn report() -> impl Strategy<Value = Report> {
    let small =
        vec(any::<u8>(), 0..9).prop_map(|value| Arc::new(Detail { value, ..Detail::default() }));
    let value = prop::option::of(prop_oneof![20 => small, 1 => detail()]);
    (held(), outcome(), any_number(), any_number(), value).prop_map(
        |(held, outcome, started, ended, detail)| Report {
            instance: held.instance,
            first: held.first,
            count: held.count,
            tries: held.tries,
            outcome,
            started: Time(started),
            ended: Time(ended),
            detail,
        },
    )
}

fn resources() -> impl Strategy<Value = Resources> {
    let custom = vec((prop_oneof![Just("a".to_owned()), Just("b".to_owned())], 0..3u64), 0..3);
    (prop_oneof![0..5000u32, any::<u32>()], 0..3u32, any_number(), custom).prop_map(
        |(cpus_milli, gpus, memory_bytes, custom)| Resources {
            cpus_milli,
            gpus,
            memory_bytes,
            custom,
        },
    )
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Process), Just(Kind::Noop), Just(Kind::Sleep)]
}

fn class() -> impl Strategy<Value = TaskClass> {
    (kind(), prop_oneof![Just(Resources::cpus(1)), resources()], 0..2u32, any_number()).prop_map(
        |(kind, resources, retries, timeout_micros)| TaskClass {
            kind,
            resources,
            retries,
            timeout_micros,
            ..TaskClass::default()
        },
    )
}

fn submission() -> impl Strategy<Value = Submission> {
    let count = prop_oneof![1..40u64, Just(1_000_000_000_000)];
    let (template, ranges) = (length(SUBMISSION_BYTES_MAX), length(20_000));
    (class(), count, template, ranges).prop_map(|(class, count, template, ranges)| {
        let mut factors = vec![Range { start: i64::MIN, step: i64::MIN, count: 1 }; ranges];
        factors.push(Range { start: 0, step: 1, count });
        Submission {
            data: None,
            count,
            template: Arc::new(vec![0; template]),
            rows: Rows::Computed { factors, offset: 0 },
            classes: vec![class],
            class_runs: vec![(count, 0)],
            names: None,
            after: Vec::new(),
            everywhere: None,
        }
    })
}

/// Tasks that want values of any others, which may be there, gone or to come.
fn taking() -> impl Strategy<Value = Submission> {
    let taken = vec(prop_oneof![0..60u64, any_number()], 0..6);
    (class(), vec((taken, any::<bool>()), 1..20)).prop_map(|(class, tasks)| {
        let mut rows = Packed::default();
        let count = tasks.len() as u64;
        let mut after = Vec::new();
        for (offset, (taken, takes)) in (0..count).zip(tasks) {
            assert!(rows.push(b"row"));
            let takes = if takes { taken.len() as u64 } else { taken.len() as u64 / 2 };
            after.push(After { offset, tasks: taken.into_iter().map(TaskId).collect(), takes });
        }
        Submission {
            data: None,
            count,
            template: Arc::default(),
            rows: Rows::Packed(rows),
            classes: vec![class],
            class_runs: vec![(count, 0)],
            names: None,
            after,
            everywhere: None,
        }
    })
}

fn event() -> impl Strategy<Value = Event> {
    let connection = (0..4u64).prop_map(ConnectionId);
    let instance = (0..3u64).prop_map(InstanceId);
    let request = 0u64;
    prop_oneof![
        1 => (connection.clone(), name()).prop_map(move |(connection, name)| Event::Create {
            connection,
            request,
            options: InstanceOptions { name, keep_results: connection.0 % 2 == 0, ..Default::default() },
        }),
        3 => (connection.clone(), instance.clone(), any_number(), prop_oneof![submission(), taking()]).prop_map(
            move |(connection, instance, first, submission)| Event::Submit {
                client: 1,
                connection,
                request,
                instance,
                first: TaskId(if first < 20 { 0 } else { first }),
                submission,
            }
        ),
        1 => (connection.clone(), instance.clone(), any_number()).prop_map(
            move |(connection, instance, from)| Event::Subscribe {
                connection,
                request,
                instance,
                from,
            }
        ),
        2 => (connection.clone(), instance.clone(), any_number()).prop_map(
            |(connection, instance, upto)| Event::Acknowledge { connection, instance, upto }
        ),
        1 => (connection.clone(), instance.clone(), vec((any_number(), any_number()), 0..4))
            .prop_map(move |(connection, instance, runs)| Event::Cancel {
                connection,
                request,
                instance,
                selection: Selection::Runs(runs),
            }),
        1 => (connection.clone(), instance.clone(), any_number()).prop_map(
            move |(connection, instance, count)| Event::Withdraw { connection, request, instance, count }
        ),
        1 => (connection.clone(), instance.clone()).prop_map(move |(connection, instance)| {
            Event::AwaitStaged { connection, request, instance }
        }),
        1 => (connection.clone(), instance.clone()).prop_map(move |(connection, instance)| {
            Event::Seal { connection, request, instance }
        }),
        1 => (connection.clone(), instance.clone(), any::<bool>()).prop_map(
            move |(connection, instance, is_paused)| Event::Pause { connection, request, instance, is_paused }
        ),
        1 => (connection.clone(), instance.clone(), any::<i32>()).prop_map(
            move |(connection, instance, priority)| Event::Prioritize { connection, request, instance, priority }
        ),
        1 => (connection.clone(), 0..4u64, any::<bool>()).prop_map(
            move |(connection, executor, is_drained)| Event::Drain {
                connection,
                request,
                executor: ExecutorId(executor),
                is_drained,
            }
        ),
        1 => (connection.clone(), instance).prop_map(move |(connection, instance)| {
            Event::Destroy { connection, request, instance }
        }),
        4 => ((connection.clone(), name()), 1..4u64, resources(), vec(held(), 0..4), vec(report(), 0..3))
            .prop_map(|((connection, name), incarnation, capacity, held, reports)| Event::Join {
                connection,
                join: Join { lease: Lease::default(), cache: Default::default(), gangs: Vec::new(), alternatives: Vec::new(), serves: None, incarnation, name, capacity, held, reports },
            }),
        8 => (connection.clone(), any_number(), vec(report(), 0..4), (vec(held(), 0..4), vec(held(), 0..4), vec(held(), 0..2)), 0..20u8, (runs(), subtree(), survey()))
            .prop_map(|(connection, number, reports, (returned, staged, unstaged), bits, (kept, subtree, survey))| Event::Update {
                connection,
                update: Update { cache: None, gangs: Vec::new(),
                    unwritten: None,
                    pace: None,
                    subtree,
                    survey,
                    kept,
                    number,
                    reports,
                    returned,
                    staged,
                    unstaged,
                    recalled: bits % 2 == 0,
                    leaving: bits == 1,
                },
            }),
        1 => (connection.clone(), resources(), any_number()).prop_map(|(connection, need, tasks)| {
            let one = Waiting { need, tasks, estimate_micros: Some(tasks), lasts_micros: tasks, nodes: 1 };
            Event::Unmet { connection, waiting: vec![one] }
        }),
        1 => connection.prop_map(|connection| Event::Closed { connection }),
    ]
}

/// What executors claim to be below them; most claim nothing.
fn subtree() -> impl Strategy<Value = Option<Box<Subtree>>> {
    let nodes = (resources(), any::<bool>(), any_number());
    let nodes =
        nodes.prop_map(|(capacity, has_cache, count)| NodeClass { capacity, has_cache, count });
    let obtainable = (vec(resources(), 0..2), any::<bool>());
    let subtree = (0..3u64, vec(0..4u64, 0..3), vec(nodes, 0..3), obtainable);
    let subtree = subtree.prop_map(|(process, relays, nodes, obtainable)| {
        let (obtainable, is_unknown_obtainable) = obtainable;
        Some(Box::new(Subtree { process, relays, nodes, obtainable, is_unknown_obtainable }))
    });
    prop_oneof![2 => Just(None), 1 => subtree]
}

/// Their claims of how these do; most claim nothing.
fn survey() -> impl Strategy<Value = Option<Box<Survey>>> {
    let relay = proptest::array::uniform7(any_number()).prop_map(|numbers| {
        let [depth, nodes, cpus_milli, used_milli, running, ahead, ended] = numbers;
        Standing {
            name: "é".repeat((depth % 200) as usize),
            depth,
            nodes,
            cpus_milli,
            used_milli,
            running,
            ahead,
            ended,
            away_micros: Some(nodes),
        }
    });
    let site = (any_number(), resources());
    let site = site.prop_map(|(held, node)| Site { held, node, ..Site::default() });
    let survey = (vec(relay, 0..3), vec(site, 0..2));
    let survey = survey.prop_map(|(relays, sites)| Some(Box::new(Survey { relays, sites })));
    prop_oneof![2 => Just(None), 1 => survey]
}

/// Runs of any numbers.
fn runs() -> impl Strategy<Value = Vec<(u64, u64)>> {
    vec((any_number(), any_number()), 0..4)
}

fn order() -> impl Strategy<Value = Order> {
    let batch = (0..3u64).prop_map(BatchId);
    let prepare = (batch.clone(), vec(class(), 0..3), any::<bool>());
    let prepare = prepare.prop_map(|(batch, classes, is_everywhere)| Prepare {
        batch,
        template: Arc::default(),
        classes,
        everywhere: is_everywhere.then(Resources::default),
    });
    let assigned = (batch.clone(), held(), 0..3u32).prop_map(|(batch, held, class)| Assigned {
        data: None,
        batch,
        instance: held.instance,
        first: held.first,
        count: held.count,
        class,
        tries: held.tries,
        rows: Rows::Computed { factors: Vec::new(), offset: 0 },
    });
    (
        any_number(),
        vec(prepare, 0..2),
        vec(assigned, 0..4),
        any_number(),
        vec(held(), 0..3),
        vec(held(), 0..3),
        vec(batch, 0..2),
        runs(),
    )
        .prop_map(
            |(acknowledged, prepare, assign, recall, cancel, disown, forget, discard)| Order {
                data: None,
                acknowledged,
                prepare,
                assign,
                recall,
                cancel,
                disown,
                forget,
                discard,
                gangs: Vec::new(),
                leave: acknowledged % 2 == 1,
                heartbeat_micros: recall,
            },
        )
}

/// Whether nothing in it is longer than it may be.
fn is_short(record: &Record) -> bool {
    match record {
        Record::Created { options, .. } => options.name.len() <= NAME_BYTES_MAX,
        Record::ExecutorSeen { name, .. } => name.len() <= NAME_BYTES_MAX,
        Record::Submitted { submission, .. } => submission.encoded_bytes() <= SUBMISSION_BYTES_MAX,
        Record::Finished { results, .. } => {
            let details = results.iter().filter_map(|run| run.detail.as_ref());
            let bytes = |detail: &Arc<Detail>| {
                detail.value.len()
                    + detail.error.len()
                    + detail.stdout.head.len()
                    + detail.stderr.head.len()
            };
            details.map(bytes).sum::<usize>() as u64 <= REPORT_BYTES_MAX
        }
        Record::Cancelled { runs, .. } => runs.len() <= RECORD_RUNS_MAX,
        _ => true,
    }
}

#[derive(Debug, Clone)]
enum Said {
    Order(Order),
    Connected(bool),
    Ends(usize),
    TakenBack(usize),
    Time(u64),
    Leave,
}

fn said() -> impl Strategy<Value = Said> {
    prop_oneof![
        8 => order().prop_map(Said::Order),
        2 => any::<bool>().prop_map(Said::Connected),
        6 => (0..8usize).prop_map(Said::Ends),
        2 => (0..8usize).prop_map(Said::TakenBack),
        3 => (0..5_000_000u64).prop_map(Said::Time),
        1 => Just(Said::Leave),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases(256)) })]

    #[test]
    fn a_dispatcher_survives_any_peers(events in vec((0..3_000_000u64, event()), 0..40)) {
        let mut dispatcher = Dispatcher::new();
        let mut journal = Vec::new();
        let mut now = Time(0);
        let connection = ConnectionId(0);
        let options = InstanceOptions::default();
        let create = Event::Create { connection, request: 0, options };
        for (micros, event) in std::iter::once((0, create)).chain(events) {
            now = now.after(micros);
            let mut rounds = 0;
            while let Some((_, reason)) = dispatcher.poll_timeout().filter(|(at, _)| *at <= now) {
                dispatcher.handle_timeout(now);
                rounds += 1;
                prop_assert!(rounds < 100, "{reason} is due for ever");
            }
            dispatcher.handle(now, event);
            let mut actions = 0;
            while let Some(action) = dispatcher.poll_action() {
                match action {
                    Action::Journal(record) => {
                        prop_assert!(is_short(&record), "a long record");
                        journal.push(record);
                    }
                    Action::Order { order, .. } => {
                        prop_assert!(order.bytes_max() <= MESSAGE_BYTES_MAX, "a long order");
                    }
                    _ => {}
                }
                actions += 1;
                prop_assert!(actions < 10_000, "it goes on for ever");
            }
            prop_assert!(dispatcher.check().is_ok(), "{:?}", dispatcher.check());
            let survey = dispatcher.survey(now, Vec::new);
            prop_assert!(survey.relays.iter().all(|one| one.name.len() <= NAME_BYTES_MAX));
        }
        for records in [journal, dispatcher.snapshot()] {
            let mut again = Dispatcher::new();
            for record in records {
                prop_assert_eq!(again.recover(record), Ok(()));
            }
            again.recovered(now);
            prop_assert!(again.check().is_ok(), "{:?}", again.check());
            prop_assert_eq!(
                again.instance_views().map(|view| view.id()).collect::<Vec<_>>(),
                dispatcher.instance_views().map(|view| view.id()).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn an_executor_survives_any_dispatcher(said in vec(said(), 0..40)) {
        let capacity = Resources {
            gpus: 2,
            memory_bytes: 1 << 20,
            custom: vec![("a".to_owned(), 2)],
            ..Resources::cpus(4)
        };
        let mut executor = execute::Executor::new(1, String::new(), capacity);
        let mut now = Time(0);
        executor.handle(now, execute::Event::Connected);
        let mut running: Vec<execute::TaskKey> = Vec::new();
        for said in said {
            match said {
                Said::Order(order) => executor.handle(now, execute::Event::Order(order)),
                Said::Connected(true) => executor.handle(now, execute::Event::Connected),
                Said::Connected(false) => executor.handle(now, execute::Event::Disconnected),
                Said::Ends(index) => {
                    if running.is_empty() {
                        continue;
                    }
                    let key = running.remove(index % running.len());
                    executor.handle(now, execute::Event::Ended {
                        key,
                        outcome: Outcome::Exit(0),
                        started: now,
                        ended: now,
                        detail: None,
                    });
                }
                Said::TakenBack(index) => {
                    if running.is_empty() {
                        continue;
                    }
                    let key = running.remove(index % running.len());
                    executor.handle(now, execute::Event::TakenBack(key));
                }
                Said::Time(micros) => {
                    now = now.after(micros);
                    executor.handle_timeout(now);
                }
                Said::Leave => executor.handle(now, execute::Event::Leave),
            }
            let mut actions = 0;
            while let Some(action) = executor.poll_action() {
                if let execute::Action::Start(start) = action {
                    prop_assert!(!running.contains(&start.key));
                    running.push(start.key);
                }
                actions += 1;
                prop_assert!(actions < 10_000, "it goes on for ever");
            }
            prop_assert!(executor.check().is_ok(), "{:?}", executor.check());
        }
    }

    #[test]
    fn a_relay_survives_any_dispatcher_above(said in vec(said(), 0..40)) {
        let mut relay = relay::Relay::new(1, 2, String::new());
        let mut now = Time(0);
        relay.begin(InstanceId(0), 0);
        relay.handle(now, relay::Event::Subtree(Subtree::default()));
        relay.handle(now, relay::Event::Connected { above: now });
        // What the dispatcher below has, and has not answered.
        let (mut sent, mut withdrawals, mut delivered) = (Vec::new(), 0, 0);
        for said in said {
            match said {
                Said::Order(order) => relay.handle(now, relay::Event::Order(order)),
                Said::Connected(true) => relay.handle(now, relay::Event::Connected { above: now }),
                Said::Connected(false) => relay.handle(now, relay::Event::Disconnected),
                Said::Ends(_) if !sent.is_empty() => {
                    let (first, count): (TaskId, u64) = sent.remove(0);
                    relay.handle(now, relay::Event::Accepted { count });
                    let results = vec![finished(first, count)];
                    relay.handle(now, relay::Event::Results { from: delivered, results });
                    delivered += count;
                }
                Said::TakenBack(number) if !sent.is_empty() => {
                    let why = (number % 2 == 0).then(String::new);
                    for _ in sent.drain(..) {
                        relay.handle(now, relay::Event::Refused { why: why.clone() });
                    }
                }
                Said::Time(micros) => {
                    now = now.after(micros);
                    relay.handle_timeout(now);
                }
                Said::TakenBack(number) => {
                    let runs = vec![(number as u64, u64::MAX), (delivered / 2, 3)];
                    let (staged, unstaged) = match number % 3 {
                        0 => (Vec::new(), runs),
                        _ => (runs, vec![(delivered, 1)]),
                    };
                    relay.handle(now, relay::Event::Staged { staged, unstaged });
                }
                _ if withdrawals > 0 => {
                    withdrawals -= 1;
                    relay.handle(now, relay::Event::Withdrawn(vec![(delivered, 5)]));
                }
                _ => {}
            }
            let mut actions = 0;
            while let Some(action) = relay.poll_action() {
                match action {
                    relay::Action::Submit { first, submission } => {
                        prop_assert_eq!(submission.check(), Ok(()));
                        sent.push((first, submission.count));
                    }
                    relay::Action::Withdraw(_) => withdrawals += 1,
                    _ => {}
                }
                actions += 1;
                prop_assert!(actions < 10_000, "it goes on for ever");
            }
            prop_assert!(relay.check().is_ok(), "{:?}", relay.check());
        }
        let mut again = relay::Relay::new(1, 3, String::new());
        relay.notes().into_iter().for_each(|note| again.recover(note));
        prop_assert!(again.check().is_ok(), "{:?}", again.check());
    }
}

fn finished(first: TaskId, count: u64) -> Finished {
    Finished {
        first,
        count,
        outcome: Outcome::Exit(0),
        executor: None,
        attempts: 1,
        queued: Time(0),
        dispatched: Time(0),
        started: Time(0),
        ended: Time(0),
        detail: None,
    }
}
