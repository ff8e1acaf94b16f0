//! Messages between executors and dispatchers.

use crate::codec::wire_enum;
use crate::hidden::Hidden;
use falkon_core::dispatch::{Join, Order, Update};
use falkon_core::gang::GangOrder;
use falkon_core::provision::Waiting;
use falkon_core::task::Time;

/// From an executor to a dispatcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromExecutor {
    /// Register. The first message.
    Join(Join),
    /// Report, give back, or just be heard.
    Update(Update),
}
wire_enum!(FromExecutor { 0 => Join(join), 1 => Update(update) });

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
            ToExecutor::Unmet { .. } | ToExecutor::Refused { .. } => false,
        }
    }
}
