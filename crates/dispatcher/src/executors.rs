//! What executors say.

use super::Driver;
use falkon_core::dispatch::{ConnectionId, Event, Join};
use falkon_core::task::{Resources, Time};
use falkon_wire::message::FromExecutor;

impl Driver {
    pub(super) fn executor_says(
        &mut self,
        now: Time,
        connection: ConnectionId,
        message: FromExecutor,
    ) {
        let event = match message {
            FromExecutor::Join(join) => {
                // A refused executor is logged when it is refused.
                if join.check().is_ok() {
                    (self.log)(&joined(&join));
                }
                Event::Join { connection, join }
            }
            FromExecutor::Update(update) => Event::Update { connection, update },
            FromExecutor::Tail { number, tail } => {
                Event::TailTold { connection, number, told: Ok(tail) }
            }
            FromExecutor::ReadPart { number, question } => {
                Event::ReadPart { connection, number, question }
            }
            FromExecutor::Part { number, answer } => Event::PartTold { connection, number, answer },
            FromExecutor::NoTail { number, why } => {
                Event::TailTold { connection, number, told: Err(why) }
            }
        };
        self.core.handle(now, event);
    }
}

/// A line about an executor that joins. A relay says later what it offers.
fn joined(join: &Join) -> String {
    match join.capacity == Resources::default() {
        true => format!("relay {} joined", join.name),
        false => format!("executor {} joined with {}", join.name, join.capacity),
    }
}
