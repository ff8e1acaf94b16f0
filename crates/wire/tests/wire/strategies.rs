//! Arbitrary values of everything that travels: numbers of all sizes, texts and bytes across the
//! boundaries of their encodings. A value need not make sense: the codec does not judge.

mod data;
mod details;
mod gangs;
mod joins;
mod options;
mod provision;
mod records;
mod relays;
mod restart;
mod status;
mod users;

use crate::examples;
use data::{
    access, access_error, assigned_data, changes, data_order, declared, lists, object, object_id,
    object_status, pace, policy, policy_error, policy_name, purpose, shared_text, ticket,
    unwritten,
};
pub(crate) use details::resource_usage;
use details::{cause, counts, detail};
use falkon_core::dispatch::{
    Assigned, BatchId, Delivery, Held, Order, Prepare, RequestError, Selection, Update,
};
use falkon_core::result::{Finished, Outcome, Report, Stream, Tries};
use falkon_core::task::{
    After, Everywhere, ExecutorId, InstanceId, Kind, Packed, Range, Resources, Rows, Submission,
    SubmissionError, SubmissionPart, TaskClass, TaskId, Time,
};
use falkon_wire::codec::Wire;
use falkon_wire::command::{
    Call, Command, CommandTemplate, Digits, Form, Function, Piece, Template, Text,
};
use falkon_wire::hidden::Hidden;
use falkon_wire::message::{FromClient, FromExecutor, Refusal, ToClient, ToExecutor};
use gangs::{gang_order, gang_report};
use joins::join;
use options::options;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
pub(crate) use relays::note;
use relays::{subtree, survey, waiting};
use status::{status, task_info};
use std::sync::Arc;

pub(crate) use records::record;

/// Numbers of all magnitudes.
pub(crate) fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0u32..64).prop_map(|(value, shift)| value >> shift)
}

fn small() -> impl Strategy<Value = u32> {
    number().prop_map(|value| value as u32)
}

fn signed() -> impl Strategy<Value = i32> {
    (any::<i32>(), 0u32..32).prop_map(|(value, shift)| value >> shift)
}

pub(crate) fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![8 => vec(any::<u8>(), 0..40), 1 => vec(any::<u8>(), 240..300)]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![8 => "\\PC{0,12}", 1 => "[a-z]{30,34}", 1 => "[a-z]{250,260}"]
}

pub(crate) fn instance() -> impl Strategy<Value = InstanceId> {
    number().prop_map(InstanceId)
}

fn task() -> impl Strategy<Value = TaskId> {
    number().prop_map(TaskId)
}

pub(crate) fn executor() -> impl Strategy<Value = ExecutorId> {
    number().prop_map(ExecutorId)
}

pub(crate) fn time() -> impl Strategy<Value = Time> {
    number().prop_map(Time)
}

fn batch() -> impl Strategy<Value = BatchId> {
    number().prop_map(BatchId)
}

fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(examples::every::<Kind>())
}

pub(crate) fn resources() -> impl Strategy<Value = Resources> {
    Any::any()
}

fn class() -> impl Strategy<Value = TaskClass> {
    Any::any()
}

/// What fields of a task's class may hold.
trait Any: std::fmt::Debug + Sized {
    fn any() -> BoxedStrategy<Self>;
}

macro_rules! any_of {
    ($($type:ty: $strategy:expr;)*) => {$(
        impl Any for $type {
            fn any() -> BoxedStrategy<$type> {
                $strategy.boxed()
            }
        }
    )*};
}

any_of! {
    Kind: kind();
    u32: small();
    u64: number();
    i32: signed();
    bool: any::<bool>();
    Vec<(String, u64)>: vec((text(), number()), 0..3);
    Vec<Resources>: vec(resources(), 0..4);
}

/// Classes with any value in each of their fields, whichever these are.
macro_rules! any_class {
    (TaskClass { $($field:ident),* $(,)? } later { $($later:ident),* }) => {
        any_class!(@struct TaskClass { $($field,)* $($later),* });
    };
    (Resources $fields:tt) => { any_class!(@struct Resources $fields); };
    (@struct $type:ident { $($field:ident),* $(,)? }) => {
        impl Any for $type {
            fn any() -> BoxedStrategy<$type> {
                let all = Just($type::default()).boxed();
                $(let all = (all, Any::any())
                    .prop_map(|(all, $field)| $type { $field, ..all })
                    .boxed();)*
                all
            }
        }
    };
    ($other:ident $fields:tt) => {};
}
falkon_core::submission_structs!(any_class);

fn packed() -> impl Strategy<Value = Packed> {
    vec(bytes(), 0..6).prop_map(|strings| {
        let mut packed = Packed::default();
        for string in strings {
            assert!(packed.push(&string), "a few short strings fit");
        }
        packed
    })
}

fn range() -> impl Strategy<Value = Range> {
    (any::<i64>(), any::<i64>(), 0u32..64, number()).prop_map(|(start, step, shift, count)| Range {
        start: start >> shift,
        step: step >> shift,
        count,
    })
}

fn rows() -> impl Strategy<Value = Rows> {
    prop_oneof![
        (vec(range(), 0..4), number())
            .prop_map(|(factors, offset)| Rows::Computed { factors, offset }),
        packed().prop_map(Rows::Packed),
    ]
}

fn after() -> impl Strategy<Value = After> {
    (number(), vec(task(), 0..20), number()).prop_map(|(offset, tasks, takes)| After {
        offset,
        tasks,
        takes,
    })
}

pub(crate) fn submission() -> impl Strategy<Value = Submission> {
    (
        number(),
        bytes().prop_map(Arc::new),
        rows(),
        vec(class(), 0..3),
        vec((number(), small()), 0..3),
        option::of(packed()),
        vec(after(), 0..3),
        option::of(declared()),
        option::of((
            any::<bool>(),
            resources(),
            vec(number(), 0..3),
            option::of(number()),
            option::of(number().prop_map(ExecutorId)),
        )),
    )
        .prop_map(
            |(count, template, rows, classes, class_runs, names, after, data, everywhere)| {
                let everywhere = everywhere.map(|(joining, offering, executors, lent, only)| {
                    Everywhere { joining, offering, executors, lent, only }
                });
                Submission {
                    data,
                    count,
                    template,
                    rows,
                    classes,
                    class_runs,
                    names,
                    after,
                    everywhere,
                }
            },
        )
}

pub(crate) fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        signed().prop_map(Outcome::Exit),
        signed().prop_map(Outcome::Signal),
        Just(Outcome::TimedOut),
        Just(Outcome::NotRun),
        Just(Outcome::NoOutput),
        Just(Outcome::NoInput),
        Just(Outcome::Unreadable),
        Just(Outcome::Lost),
        task().prop_map(Outcome::UpstreamFailed),
        Just(Outcome::Unschedulable),
        Just(Outcome::Cancelled),
    ]
}

fn tries() -> impl Strategy<Value = Tries> {
    (small(), small()).prop_map(|(failures, losses)| Tries { failures, losses })
}

fn report() -> impl Strategy<Value = Report> {
    (instance(), task(), number(), tries(), outcome(), time(), time(), option::of(detail()))
        .prop_map(|(instance, first, count, tries, outcome, started, ended, detail)| Report {
            instance,
            first,
            count,
            tries,
            outcome,
            started,
            ended,
            detail,
        })
}

fn finished() -> impl Strategy<Value = Finished> {
    let times = (time(), time(), time(), time());
    (task(), number(), outcome(), option::of(executor()), small(), times, option::of(detail()))
        .prop_map(|(first, count, outcome, executor, attempts, times, detail)| Finished {
            first,
            count,
            outcome,
            executor,
            attempts,
            queued: times.0,
            dispatched: times.1,
            started: times.2,
            ended: times.3,
            detail,
        })
}

fn held() -> impl Strategy<Value = Held> {
    (instance(), task(), number(), tries()).prop_map(|(instance, first, count, tries)| Held {
        instance,
        first,
        count,
        tries,
    })
}

fn assigned() -> impl Strategy<Value = Assigned> {
    let tasks = (batch(), instance(), task(), number(), small());
    (tasks, tries(), rows(), option::of(assigned_data())).prop_map(
        |((batch, instance, first, count, class), tries, rows, data)| Assigned {
            batch,
            instance,
            first,
            count,
            class,
            tries,
            rows,
            data,
        },
    )
}

fn prepare() -> impl Strategy<Value = Prepare> {
    (batch(), bytes().prop_map(Arc::new), vec(class(), 0..3), option::of(resources())).prop_map(
        |(batch, template, classes, everywhere)| Prepare { batch, template, classes, everywhere },
    )
}

pub(crate) fn order() -> impl Strategy<Value = Order> {
    (
        number(),
        vec(prepare(), 0..3),
        vec(assigned(), 0..4),
        number(),
        vec(held(), 0..3),
        vec(held(), 0..3),
        vec(batch(), 0..20),
        vec((number(), number()), 0..5),
        (option::of(data_order()), vec(gang_order(), 0..3)),
    )
        .prop_map(
            |(acknowledged, prepare, assign, recall, cancel, disown, forget, discard, more)| {
                let (data, gangs) = more;
                Order {
                    discard,
                    data,
                    acknowledged,
                    prepare,
                    assign,
                    recall,
                    cancel,
                    disown,
                    forget,
                    leave: acknowledged % 2 == 1,
                    heartbeat_micros: recall.rotate_left(7),
                    gangs,
                }
            },
        )
}

fn selection() -> impl Strategy<Value = Selection> {
    prop_oneof![Just(Selection::All), vec((number(), number()), 0..5).prop_map(Selection::Runs)]
}

fn delivery() -> impl Strategy<Value = Delivery> {
    (
        instance(),
        number(),
        vec(finished(), 0..20),
        vec((executor(), text()), 0..3),
        counts(),
        any::<bool>(),
        (number(), vec((number(), number()), 0..3)),
    )
        .prop_map(|(instance, from, results, executors, counts, complete, (upto, again))| {
            Delivery { instance, from, results, executors, counts, complete, upto, again }
        })
}

fn submission_error() -> impl Strategy<Value = SubmissionError> {
    let parts = (0u64..21).prop_map(|tag| SubmissionPart::from_bytes(&tag.to_bytes()));
    let part = parts.prop_map(|part| part.expect("parts have these numbers"));
    prop_oneof![
        Just(SubmissionError::Empty),
        Just(SubmissionError::TooMany),
        part.clone().prop_map(SubmissionError::Malformed),
        (part.clone(), number(), number()).prop_map(|(what, expected, found)| {
            SubmissionError::CountMismatch { what, expected, found }
        }),
        (part.clone(), number(), number()).prop_map(|(what, bytes, bytes_max)| {
            SubmissionError::TooLong { what, bytes, bytes_max }
        }),
    ]
}

fn request_error() -> impl Strategy<Value = RequestError> {
    prop_oneof![
        instance().prop_map(RequestError::NoInstance),
        (instance(), time()).prop_map(|(instance, at)| RequestError::Expired { instance, at }),
        instance().prop_map(RequestError::Sealed),
        instance().prop_map(RequestError::ResultsNotKept),
        number().prop_map(|runs| RequestError::TooManyRetries { runs }),
        executor().prop_map(RequestError::NoExecutor),
        (task(), task()).prop_map(|(expected, found)| RequestError::Gap { expected, found }),
        submission_error().prop_map(RequestError::Submission),
        number().prop_map(|queued_bytes| RequestError::Busy { queued_bytes }),
        number().prop_map(|first| RequestError::Forgotten { first }),
        Just(RequestError::TooManyNeeds),
        Just(RequestError::NoExecutors),
        instance().prop_map(RequestError::Joining),
        policy_error().prop_map(RequestError::Policy),
        data::lenders(),
        users::over(),
        number().prop_map(|bytes| RequestError::LongName { bytes }),
        number().prop_map(|instances| RequestError::TooManyInstances { instances }),
        (any::<String>(), number(), number()).prop_map(|(directory, free_bytes, wanted_bytes)| {
            RequestError::NoRoom { directory: directory.into(), free_bytes, wanted_bytes }
        }),
    ]
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        request_error().prop_map(Refusal::Request),
        Just(Refusal::NotAllowed),
        text().prop_map(Refusal::Journal),
        access_error().prop_map(Refusal::Access),
        text().prop_map(Refusal::Provision),
        prop::sample::select(vec![Refusal::Busy, Refusal::NoEvents]),
        number().prop_map(|bytes| Refusal::TooLong { bytes }),
        text().prop_map(Refusal::Unreadable),
        (object_id(), shared_text()).prop_map(|(id, url)| Refusal::WrongId { id, url }),
        users::refusal(),
        text().prop_map(Refusal::Restart),
    ]
}

pub(crate) fn from_client() -> impl Strategy<Value = FromClient> {
    prop_oneof![
        (number(), options())
            .prop_map(|(request, options)| FromClient::Create { request, options }),
        (number(), instance(), task(), number(), submission()).prop_map(
            |(request, instance, first, client, submission)| FromClient::Submit {
                request,
                instance,
                first,
                client,
                submission
            }
        ),
        (number(), instance())
            .prop_map(|(request, instance)| FromClient::Seal { request, instance }),
        data::forget(),
        (number(), instance(), number()).prop_map(|(request, instance, from)| {
            FromClient::Subscribe { request, instance, from }
        }),
        (instance(), number())
            .prop_map(|(instance, upto)| FromClient::Acknowledge { instance, upto }),
        (number(), instance(), selection()).prop_map(|(request, instance, selection)| {
            FromClient::Cancel { request, instance, selection }
        }),
        (number(), instance(), selection()).prop_map(|(request, instance, selection)| {
            FromClient::Retry { request, instance, selection }
        }),
        number().prop_map(|request| FromClient::ExplainIdle { request }),
        (number(), instance())
            .prop_map(|(request, instance)| FromClient::Destroy { request, instance }),
        (number(), option::of(instance()), option::of((number(), number()))).prop_map(
            |(request, instance, from)| { FromClient::Status { request, instance, from } }
        ),
        (number(), instance(), task(), number()).prop_map(|(request, instance, first, count)| {
            FromClient::Tasks { request, instance, first, count }
        }),
        status::requests(),
        number().prop_map(|request| FromClient::Stop { request }),
        relays::request(),
        users::request(),
        restart::request(),
        (number(), option::of(instance()), option::of(executor()), text(), option::of(object_id()))
            .prop_map(|(request, instance, executor, prefix, after)| FromClient::Objects {
                request,
                instance,
                executor,
                prefix,
                after
            }),
        (number(), option::of(instance()), text())
            .prop_map(|(request, instance, name)| FromClient::Find { request, instance, name }),
        (number(), option::of(instance()), object(), purpose()).prop_map(
            |(request, instance, object, purpose)| FromClient::Reach {
                request,
                instance,
                object,
                purpose
            }
        ),
        (number(), provision::ask())
            .prop_map(|(request, ask)| FromClient::Provision { request, ask }),
        (number(), instance(), task(), any::<bool>()).prop_map(
            |(request, instance, task, is_error)| FromClient::ReachOutput {
                request,
                instance,
                task,
                stream: Stream::BOTH[usize::from(is_error)],
            }
        ),
        (number(), instance(), task(), any::<bool>()).prop_map(
            |(request, instance, task, is_error)| FromClient::ReachTail {
                request,
                instance,
                task,
                stream: Stream::BOTH[usize::from(is_error)],
            }
        ),
    ]
}

pub(crate) fn to_client() -> impl Strategy<Value = ToClient> {
    prop_oneof![
        (number(), instance(), bytes()).prop_map(|(request, instance, secret)| {
            ToClient::Created { request, instance, secret: Hidden(secret) }
        }),
        (number(), task(), number()).prop_map(|(request, first, count)| ToClient::Accepted {
            request,
            first,
            count
        }),
        number().prop_map(|request| ToClient::Done { request }),
        (number(), refusal()).prop_map(|(request, reason)| ToClient::Refused { request, reason }),
        delivery().prop_map(ToClient::Results),
        (number(), status()).prop_map(|(request, status)| ToClient::Status { request, status }),
        (number(), vec(task_info(), 0..5))
            .prop_map(|(request, tasks)| ToClient::Tasks { request, tasks }),
        status::answers(),
        instance().prop_map(|instance| ToClient::Gone { instance }),
        (number(), vec(object_status(), 0..5), option::of(object_id()))
            .prop_map(|(request, objects, next)| ToClient::Objects { request, objects, next }),
        data::found(),
        (number(), ticket(), vec(access(), 0..5))
            .prop_map(|(request, ticket, access)| ToClient::Reached { request, ticket, access }),
        (number(), provision::status())
            .prop_map(|(request, status)| ToClient::Provision { request, status }),
        relays::answer(),
        users::answer(),
        restart::answer(),
    ]
}

pub(crate) fn from_executor() -> impl Strategy<Value = FromExecutor> {
    let flags = (any::<bool>(), any::<bool>());
    let staged = (vec(held(), 0..5), vec(held(), 0..5));
    let tasks = (vec(report(), 0..20), vec(held(), 0..5), staged);
    let kept = (vec((number(), number()), 0..5), vec(gang_report(), 0..3));
    let lent = option::of(subtree().prop_map(Box::new));
    let lent = (lent, option::of(survey().prop_map(Box::new)));
    let besides = (option::of(changes()), lent, option::of(unwritten()), option::of(pace()));
    let update = (number(), tasks, flags, kept, besides).prop_map(
        |(number, (reports, returned, staged), (recalled, leaving), kept, besides)| {
            let (staged, unstaged) = staged;
            let (cache, (subtree, survey), unwritten, pace) = besides;
            let (kept, gangs) = kept;
            Update {
                number,
                reports,
                returned,
                recalled,
                leaving,
                staged,
                unstaged,
                kept,
                cache,
                subtree,
                survey,
                unwritten,
                pace,
                gangs,
            }
        },
    );
    let told = relays::told();
    prop_oneof![join().prop_map(FromExecutor::Join), update.prop_map(FromExecutor::Update), told]
}

pub(crate) fn to_executor() -> impl Strategy<Value = ToExecutor> {
    prop_oneof![
        (time(), any::<Option<[u8; 32]>>()).prop_map(|(now, peer_secret)| {
            let peer_secret = peer_secret.map(Hidden);
            ToExecutor::Welcome { now, peer_secret }
        }),
        order().prop_map(ToExecutor::Order),
        text().prop_map(|reason| ToExecutor::Refused { reason }),
        vec(waiting(), 0..4).prop_map(|waiting| ToExecutor::Unmet { waiting }),
        relays::asked(),
    ]
}

fn function() -> impl Strategy<Value = Arc<Function>> {
    (text(), bytes(), bytes()).prop_map(|(language, name, code)| {
        Arc::new(Function { language, name, code: Arc::new(code) })
    })
}

pub(crate) fn command() -> impl Strategy<Value = Command> {
    (
        vec(bytes(), 0..20),
        vec((bytes(), bytes()), 0..4),
        option::of(bytes()),
        option::of(bytes()),
        vec(bytes(), 0..4),
        vec(bytes(), 0..4),
        option::of(bytes()),
        option::of((function(), bytes())),
    )
        .prop_map(|(argv, env, cwd, stdin, inputs, outputs, streams, call)| Command {
            argv,
            env,
            cwd,
            stdin,
            inputs,
            outputs,
            streams,
            call: call.map(|(function, payload)| Call { function, payload }),
        })
}

fn form() -> impl Strategy<Value = Form> {
    use Form::*;
    prop::sample::select(vec![Whole, Base, Stem, BaseStem, Directory])
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        bytes().prop_map(Piece::Literal),
        (small(), form()).prop_map(|(source, form)| Piece::Value { source, form }),
        Just(Piece::Number),
        (small(), form(), small(), small()).prop_map(|(source, form, places, width)| {
            Piece::Decimal { source, form, digits: Digits { places, width } }
        }),
    ]
}

fn words() -> impl Strategy<Value = Text> {
    vec(piece(), 0..5)
}

pub(crate) fn template() -> impl Strategy<Value = Template> {
    let template_command =
        (
            vec(words(), 0..20),
            vec((bytes(), words()), 0..4),
            option::of(words()),
            option::of(words()),
            vec(words(), 0..4),
            vec(words(), 0..4),
            option::of(words()),
            option::of(function()),
        )
            .prop_map(|(argv, env, cwd, stdin, inputs, outputs, streams, call)| {
                CommandTemplate { argv, env, cwd, stdin, inputs, outputs, streams, call }
            });
    prop_oneof![
        Just(Template::Each),
        template_command.prop_map(Template::Command),
        command().prop_map(Template::Calls),
    ]
}

/// Checks that `strategy` draws every variant of an enum that is an array with
/// its tag first.
fn draws_every_variant<T: Wire>(strategy: impl Strategy<Value = T>) {
    let mut runner = TestRunner::deterministic();
    let mut tags: Vec<u8> = (0..4000)
        .map(|_| strategy.new_tree(&mut runner).unwrap().current().to_bytes()[1])
        .collect();
    tags.sort_unstable();
    tags.dedup();
    let expected: Vec<u8> = (0..examples::variants::<T>()).collect();
    assert_eq!(tags, expected, "the tags of {} that are drawn", std::any::type_name::<T>());
}

#[test]
fn every_variant_is_drawn() {
    draws_every_variant(from_client());
    draws_every_variant(to_client());
    draws_every_variant(from_executor());
    draws_every_variant(to_executor());
    draws_every_variant(record());
    draws_every_variant(template());
    draws_every_variant(kind());
    draws_every_variant(rows());
    draws_every_variant(outcome());
    draws_every_variant(cause());
    draws_every_variant(selection());
    draws_every_variant(refusal());
    draws_every_variant(provision::ask());
    draws_every_variant(request_error());
    draws_every_variant(policy_name());
    draws_every_variant(policy_error());
    draws_every_variant(lists());
    draws_every_variant(form());
    draws_every_variant(piece());
}
