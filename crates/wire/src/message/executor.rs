//! Messages between executors and dispatchers.

use crate::codec::wire_enum;
use crate::hidden::Hidden;
use falkon_core::dispatch::{AccessError, Join, Order, Update};
use falkon_core::gang::GangOrder;
use falkon_core::part::{PartAnswer, PartQuestion};
use falkon_core::provision::Waiting;
use falkon_core::tail::{KeptQuestion, Tail, TailQuestion};
use falkon_core::task::Time;

/// From an executor to a dispatcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromExecutor {
    /// Register. The first message.
    Join(Join),
    /// Report, give back, or just be heard.
    Update(Update),
    /// A relay answers [`ToExecutor::AskTail`] or [`ToExecutor::ReadOutput`].
    Tail {
        /// The number of the question.
        number: u64,
        /// What the task has written.
        tail: Tail,
    },
    /// A relay does not know what it was asked with [`ToExecutor::AskTail`] or
    /// [`ToExecutor::ReadOutput`].
    NoTail {
        /// The number of the question.
        number: u64,
        /// Why.
        why: AccessError,
    },
    /// Ask for a part of an object that others hold whom it cannot reach. Answer:
    /// [`ToExecutor::Part`].
    ReadPart {
        /// Comes back in the answer.
        number: u64,
        /// The question.
        question: PartQuestion,
    },
    /// Answers [`ToExecutor::ReadPart`].
    Part {
        /// The number of the question.
        number: u64,
        /// The answer.
        answer: PartAnswer,
    },
}
wire_enum!(FromExecutor {
    0 => Join(join),
    1 => Update(update),
    2 => Tail { number, tail },
    3 => NoTail { number, why },
    4 => ReadPart { number, question },
    5 => Part { number, answer },
});

/// From a dispatcher to an executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToExecutor {
    /// The first message: the dispatcher's clock.
    Welcome {
        /// Microseconds since the Unix epoch.
        now: Time,
        /// What executors prove themselves to each other with; none if this
        /// dispatcher has only executors of its own process.
        peer_secret: Option<Hidden<[u8; 32]>>,
    },
    /// The order.
    Order(Order),
    /// To a relay below which nodes can be got: the tasks that wait for some, instead of
    /// what it was told before.
    Unmet {
        /// The tasks.
        waiting: Vec<Waiting>,
    },
    /// Ask a relay what a task writes. Answer: [`FromExecutor::Tail`] or
    /// [`FromExecutor::NoTail`].
    AskTail {
        /// Comes back in the answer.
        number: u64,
        /// The question.
        question: TailQuestion,
    },
    /// Read long output that a relay said it keeps. Answer: [`FromExecutor::Tail`] or
    /// [`FromExecutor::NoTail`].
    ReadOutput {
        /// Comes back in the answer.
        number: u64,
        /// The question.
        question: KeptQuestion,
    },
    /// Ask for a part of an object that the executor holds, or that those below a relay hold.
    /// Answer: [`FromExecutor::Part`].
    ReadPart {
        /// Comes back in the answer.
        number: u64,
        /// The question.
        question: PartQuestion,
    },
    /// Answers [`FromExecutor::ReadPart`].
    Part {
        /// The number of the question.
        number: u64,
        /// The answer.
        answer: PartAnswer,
    },
    /// The executor is not taken in, and would not be if it came again. The
    /// last message.
    Refused {
        /// Why, for people.
        reason: String,
    },
}
wire_enum!(ToExecutor {
    0 => Welcome { now, peer_secret },
    1 => Order(order),
    2 => Refused { reason },
    3 => Unmet { waiting },
    4 => AskTail { number, question },
    5 => ReadOutput { number, question },
    6 => ReadPart { number, question },
    7 => Part { number, answer },
});

impl ToExecutor {
    /// As [`ToClient::has_secret`](super::ToClient::has_secret).
    #[must_use]
    pub fn has_secret(&self) -> bool {
        match self {
            ToExecutor::Welcome { .. } => true,
            ToExecutor::Order(order) => {
                order.gangs.iter().any(|gang| matches!(gang, GangOrder::Form { .. }))
            }
            ToExecutor::Unmet { .. }
            | ToExecutor::AskTail { .. }
            | ToExecutor::ReadOutput { .. }
            | ToExecutor::ReadPart { .. }
            | ToExecutor::Part { .. }
            | ToExecutor::Refused { .. } => false,
        }
    }
}
