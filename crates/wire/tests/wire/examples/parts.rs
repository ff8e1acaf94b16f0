//! One example of each message about parts of objects that are passed on.

use super::INSTANCE;
use falkon_core::data::object::ObjectId;
use falkon_core::dispatch::LetGo;
use falkon_core::part::{PartAnswer, PartQuestion};
use falkon_wire::message::{BelowAsk, FromClient, FromExecutor, ToClient, ToExecutor};

const OBJECT: ObjectId = ObjectId(0x0123_4567_89ab_cdef);

fn question() -> PartQuestion {
    PartQuestion { object: OBJECT, from: 131_072, count: 65_536 }
}

fn here() -> PartAnswer {
    PartAnswer::Here { whole: 131_077, bytes: b"part\n".to_vec() }
}

pub(super) fn from_client() -> Vec<(&'static str, FromClient)> {
    let request = 42;
    let objects = LetGo { release: vec![OBJECT], drop: vec![ObjectId(7)] };
    let below = |instance, ask| FromClient::Below { request, instance, ask };
    vec![
        ("read_part", FromClient::ReadPart { request, question: question() }),
        ("await_parts", FromClient::AwaitParts { request }),
        ("tell_part", FromClient::TellPart { number: 3, answer: here() }),
        ("let_go", FromClient::LetGo { request, objects }),
        ("read_below", below(None, BelowAsk::Read(question()))),
        ("drop_below", below(Some(INSTANCE), BelowAsk::Drop { object: OBJECT, force: true })),
    ]
}

pub(super) fn to_client() -> Vec<(&'static str, ToClient)> {
    let request = 42;
    vec![
        ("part", ToClient::Part { request, answer: PartAnswer::Gone }),
        ("parts", ToClient::Parts { request, questions: vec![(3, question())] }),
    ]
}

pub(super) fn from_executor() -> Vec<(&'static str, FromExecutor)> {
    vec![
        ("read_part", FromExecutor::ReadPart { number: 3, question: question() }),
        ("part", FromExecutor::Part { number: 3, answer: here() }),
        ("part_busy", FromExecutor::Part { number: 4, answer: PartAnswer::Busy }),
    ]
}

pub(super) fn to_executor() -> Vec<(&'static str, ToExecutor)> {
    vec![
        ("read_part", ToExecutor::ReadPart { number: 3, question: question() }),
        ("part", ToExecutor::Part { number: 3, answer: PartAnswer::Unreached }),
    ]
}
