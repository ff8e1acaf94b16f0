//! Parts of objects that come or go through the dispatcher, over the session.

use super::objects::message::FromObjects;
use falkon_core::part::PartAnswer;
use falkon_data::peer::PartAsked;
use falkon_wire::message::FromExecutor;
use std::collections::BTreeMap;

/// Questions to the dispatcher that have no answer yet: no more than transfers ask.
#[derive(Debug, Default)]
pub(super) struct Parts {
    asked: BTreeMap<u64, PartAsked>,
    last: u64,
}

impl Parts {
    /// Takes what transfers want of the dispatcher, and gives back what is not about that.
    /// Without a session nobody hears them.
    pub(super) fn take(
        &mut self,
        said: FromObjects,
        say: Option<&mut Vec<FromExecutor>>,
    ) -> Option<FromObjects> {
        match (said, say) {
            (FromObjects::Asked(asked), Some(say)) => {
                self.last += 1;
                let (number, question) = (self.last, asked.question);
                self.asked.insert(number, asked);
                say.push(FromExecutor::ReadPart { number, question });
            }
            (FromObjects::Asked(asked), None) => asked.end(PartAnswer::Unreached),
            (FromObjects::Read(number, answer), Some(say)) => self.said(number, answer, say),
            (FromObjects::Read(..), None) => {}
            (other, _) => return Some(other),
        }
        None
    }

    /// Answers a question of the dispatcher.
    pub(super) fn said(&self, number: u64, answer: PartAnswer, say: &mut Vec<FromExecutor>) {
        say.push(FromExecutor::Part { number, answer });
    }

    /// The dispatcher has answered.
    pub(super) fn told(&mut self, number: u64, answer: PartAnswer) {
        if let Some(asked) = self.asked.remove(&number) {
            asked.end(answer);
        }
    }

    /// The session is over.
    pub(super) fn cut(&mut self) {
        for asked in std::mem::take(&mut self.asked).into_values() {
            asked.end(PartAnswer::Unreached);
        }
    }
}
