//! Arbitrary things that relays say and note.

use super::data::{access, access_error, ticket};
use super::{bytes, held, instance, number, resources, small, task, text};
use falkon_core::data::object::ObjectId;
use falkon_core::dispatch::{
    Holdings, Idle, IdleReason, LetGo, NodeClass, Site, Standing, Subtree, Survey,
};
use falkon_core::part::{PartAnswer, PartQuestion};
use falkon_core::provision::Waiting;
use falkon_core::relay::Note;
use falkon_core::result::Stream;
use falkon_core::tail::{KeptQuestion, Tail, TailQuestion, TailState};
use falkon_core::task::TaskKey;
use falkon_wire::message::{BelowAsk, FromClient, FromExecutor, ToClient, ToExecutor};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

pub(super) fn request() -> impl Strategy<Value = FromClient> {
    let withdraw = (number(), instance(), number());
    prop_oneof![
        (number(), number(), number()).prop_map(|(request, relay, since)| FromClient::Subtree {
            request,
            relay,
            since
        }),
        vec(waiting(), 0..4).prop_map(|waiting| FromClient::Unmet { waiting }),
        withdraw.prop_map(|(request, instance, count)| FromClient::Withdraw {
            request,
            instance,
            count
        }),
        (number(), instance())
            .prop_map(|(request, instance)| FromClient::AwaitStaged { request, instance }),
        (number(), question()).prop_map(|(request, question)| {
            let TailQuestion { task: TaskKey { instance, task }, stream, from, patience_ms } =
                question;
            FromClient::AskTail { request, instance, task, stream, from, patience_ms }
        }),
        (number(), question(), number()).prop_map(|(request, question, count)| {
            let TailQuestion { task: TaskKey { instance, task }, stream, from, .. } = question;
            FromClient::ReadOutput { request, instance, task, stream, from, count }
        }),
        (number(), instance(), vec((number(), number()), 0..5)).prop_map(
            |(request, instance, runs)| FromClient::ReleaseOutput { request, instance, runs }
        ),
        (number(), part_question())
            .prop_map(|(request, question)| FromClient::ReadPart { request, question }),
        number().prop_map(|request| FromClient::AwaitParts { request }),
        (number(), part()).prop_map(|(number, answer)| FromClient::TellPart { number, answer }),
        (number(), vec(object_id(), 0..4), vec(object_id(), 0..4)).prop_map(
            |(request, release, drop)| {
                FromClient::LetGo { request, objects: LetGo { release, drop } }
            }
        ),
        (number(), option::of(instance()), below_ask())
            .prop_map(|(request, instance, ask)| FromClient::Below { request, instance, ask }),
    ]
}

fn below_ask() -> impl Strategy<Value = BelowAsk> {
    prop_oneof![
        part_question().prop_map(BelowAsk::Read),
        (object_id(), any::<bool>()).prop_map(|(object, force)| BelowAsk::Drop { object, force }),
    ]
}

pub(super) fn answer() -> impl Strategy<Value = ToClient> {
    let runs = || vec((number(), number()), 0..5);
    let staged = (number(), runs(), runs());
    prop_oneof![
        staged.prop_map(|(request, staged, unstaged)| ToClient::Staged {
            request,
            staged,
            unstaged
        }),
        (number(), subtree(), holdings(), survey()).prop_map(
            |(request, subtree, holdings, survey)| {
                let survey = Box::new(survey);
                ToClient::Subtree { request, subtree, holdings, survey }
            }
        ),
        (number(), runs()).prop_map(|(request, runs)| ToClient::Withdrawn { request, runs }),
        (number(), number(), number()).prop_map(|(request, count, forgotten)| {
            ToClient::Retried { request, count, forgotten }
        }),
        (number(), tail()).prop_map(|(request, tail)| ToClient::Tail { request, tail }),
        (number(), part()).prop_map(|(request, answer)| ToClient::Part { request, answer }),
        (number(), vec((number(), part_question()), 0..4))
            .prop_map(|(request, questions)| ToClient::Parts { request, questions }),
        (number(), ticket(), access(), number()).prop_map(|(request, ticket, access, number)| {
            ToClient::OutputReached { request, ticket, access, number }
        }),
        (number(), vec(idle(), 0..4)).prop_map(|(request, idle)| ToClient::Idle { request, idle }),
    ]
}

/// What a relay says and is asked about what tasks write.
pub(super) fn told() -> impl Strategy<Value = FromExecutor> {
    prop_oneof![
        (number(), tail()).prop_map(|(number, tail)| FromExecutor::Tail { number, tail }),
        (number(), access_error()).prop_map(|(number, why)| FromExecutor::NoTail { number, why }),
        (number(), part_question())
            .prop_map(|(number, question)| FromExecutor::ReadPart { number, question }),
        (number(), part()).prop_map(|(number, answer)| FromExecutor::Part { number, answer }),
    ]
}

/// See [`told`].
pub(super) fn asked() -> impl Strategy<Value = ToExecutor> {
    let kept = (number(), any::<bool>(), number(), number());
    prop_oneof![
        (number(), question())
            .prop_map(|(number, question)| ToExecutor::AskTail { number, question }),
        (number(), kept).prop_map(|(number, (output, is_error, from, count))| {
            let stream = Stream::BOTH[usize::from(is_error)];
            let question = KeptQuestion { output, stream, from, count };
            ToExecutor::ReadOutput { number, question }
        }),
        (number(), part_question())
            .prop_map(|(number, question)| ToExecutor::ReadPart { number, question }),
        (number(), part()).prop_map(|(number, answer)| ToExecutor::Part { number, answer }),
    ]
}

fn object_id() -> impl Strategy<Value = ObjectId> {
    any::<u128>().prop_map(ObjectId)
}

fn part_question() -> impl Strategy<Value = PartQuestion> {
    (object_id(), number(), number()).prop_map(|(object, from, count)| PartQuestion {
        object,
        from,
        count,
    })
}

fn part() -> impl Strategy<Value = PartAnswer> {
    prop_oneof![
        (number(), bytes()).prop_map(|(whole, bytes)| PartAnswer::Here { whole, bytes }),
        Just(PartAnswer::Gone),
        Just(PartAnswer::Busy),
        Just(PartAnswer::Unreached),
    ]
}

fn question() -> impl Strategy<Value = TailQuestion> {
    (instance(), task(), any::<bool>(), number(), any::<u32>()).prop_map(
        |(instance, task, is_error, from, patience_ms)| TailQuestion {
            task: TaskKey { instance, task },
            stream: Stream::BOTH[usize::from(is_error)],
            from,
            patience_ms,
        },
    )
}

fn tail() -> impl Strategy<Value = Tail> {
    let state = proptest::sample::select(TailState::ALL.to_vec());
    (state, any::<bool>(), number(), bytes()).prop_map(|(state, is_cut, total_bytes, bytes)| Tail {
        state,
        is_cut,
        total_bytes,
        bytes,
    })
}

fn idle() -> impl Strategy<Value = Idle> {
    use IdleReason::*;
    let reason = proptest::sample::select(vec![
        Away, Leaving, Drained, Suspended, Emptied, Soon, Data, Held, Larger, Short, Unoffered,
        Upstream, NoTasks, Kept,
    ]);
    (reason, number(), number(), number(), vec(text(), 0..3)).prop_map(
        |(reason, tasks, executors, cpus_milli, some)| Idle {
            reason,
            tasks,
            executors,
            cpus_milli,
            some,
        },
    )
}

fn holdings() -> impl Strategy<Value = Holdings> {
    let object = || any::<u128>().prop_map(ObjectId);
    let held = (vec((object(), number()), 0..3), vec(object(), 0..3));
    (any::<bool>(), number(), held).prop_map(|(anew, upto, (added, removed))| Holdings {
        anew,
        upto,
        added,
        removed,
    })
}

pub(super) fn subtree() -> impl Strategy<Value = Subtree> {
    let nodes = (resources(), any::<bool>(), number())
        .prop_map(|(capacity, has_cache, count)| NodeClass { capacity, has_cache, count });
    let obtainable = (vec(resources(), 0..3), any::<bool>());
    (number(), vec(number(), 0..4), vec(nodes, 0..5), obtainable).prop_map(
        |(process, relays, nodes, (obtainable, is_unknown_obtainable))| Subtree {
            process,
            relays,
            nodes,
            obtainable,
            is_unknown_obtainable,
        },
    )
}

pub(super) fn survey() -> impl Strategy<Value = Survey> {
    (standings(), sites()).prop_map(|(relays, sites)| Survey { relays, sites })
}

pub(super) fn standings() -> impl Strategy<Value = Vec<Standing>> {
    let tasks = (number(), number(), number(), option::of(number()));
    let one = (text(), number(), number(), (number(), number()), tasks);
    let one = one.prop_map(|(name, depth, nodes, (cpus_milli, used_milli), tasks)| {
        let (running, ahead, ended, away_micros) = tasks;
        Standing { name, depth, nodes, cpus_milli, used_milli, running, ahead, ended, away_micros }
    });
    vec(one, 0..4)
}

pub(super) fn sites() -> impl Strategy<Value = Vec<Site>> {
    let numbers = proptest::array::uniform6(number());
    let one = (text(), text(), resources(), numbers, vec(number(), 0..3), text());
    let one = one.prop_map(|(relays, queue, node, numbers, requests, reason)| {
        let [held, nodes_max, delay_micros, walltime_micros, billing_micros, unmet] = numbers;
        Site {
            relays,
            queue,
            node,
            held,
            nodes_max,
            delay_micros,
            walltime_micros,
            billing_micros,
            unmet,
            requests,
            reason,
        }
    });
    vec(one, 0..3)
}

pub(super) fn waiting() -> impl Strategy<Value = Waiting> {
    (resources(), number(), option::of(number()), number(), small()).prop_map(
        |(need, tasks, estimate_micros, lasts_micros, nodes)| Waiting {
            need,
            tasks,
            estimate_micros,
            lasts_micros,
            nodes,
        },
    )
}

pub(crate) fn note() -> impl Strategy<Value = Note> {
    prop_oneof![
        number().prop_map(Note::Identity),
        instance().prop_map(Note::Instance),
        (number(), held()).prop_map(|(below, held)| Note::Sent { below, held }),
        (number(), number()).prop_map(|(below, count)| Note::Gone { below, count }),
        (number(), number()).prop_map(|(high, low)| Note::Upstream { high, low }),
        number().prop_map(Note::Salt),
        (number(), number()).prop_map(|(first, count)| Note::Kept { first, count }),
        (number(), number()).prop_map(|(first, count)| Note::Released { first, count }),
    ]
}
