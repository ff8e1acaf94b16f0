//! Parts of data objects that dispatchers pass on between executors that cannot reach each
//! other: questions about them, and their answers.

use crate::data::object::ObjectId;

/// Most that one answer has of an object, in bytes.
pub const OBJECT_PART_BYTES_MAX: usize = 128 << 10;

/// A question for a part of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartQuestion {
    /// The object.
    pub object: ObjectId,
    /// The first byte that is asked for.
    pub from: u64,
    /// How many bytes; at most [`OBJECT_PART_BYTES_MAX`] come.
    pub count: u64,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartAnswer {
    /// The part.
    Here {
        /// Bytes of the whole object.
        whole: u64,
        /// The bytes from the one on that was asked for: fewer than were asked for only where
        /// the object ends.
        bytes: Vec<u8>,
    },
    /// Nobody who was asked holds the object.
    Gone,
    /// Too many parts are on their way already.
    Busy,
    /// Holders were not reached, or have not answered in time.
    Unreached,
}

impl PartQuestion {
    /// The same with no more bytes than an answer has.
    #[must_use]
    pub fn bounded(self) -> PartQuestion {
        PartQuestion { count: self.count.min(OBJECT_PART_BYTES_MAX as u64), ..self }
    }

    /// How many bytes the answer has if the object has `whole`; `None` if the object ends
    /// before the first byte that is asked for.
    #[must_use]
    pub fn length_of(&self, whole: u64) -> Option<u64> {
        Some(whole.checked_sub(self.from)?.min(self.bounded().count))
    }

    /// An answer, unless it has other bytes than were asked for.
    #[must_use]
    pub fn checked(&self, answer: PartAnswer) -> PartAnswer {
        match &answer {
            PartAnswer::Here { whole, bytes } => match self.length_of(*whole) {
                Some(length) if length == bytes.len() as u64 => answer,
                _ => PartAnswer::Unreached,
            },
            _ => answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_bytes_that_were_asked_for() {
        let question = PartQuestion { object: ObjectId(7), from: 10, count: u64::MAX };
        let here = |whole, count| PartAnswer::Here { whole, bytes: vec![1; count] };
        for (whole, count) in [(10, 0), (15, 5), (1 << 30, OBJECT_PART_BYTES_MAX)] {
            assert_eq!(question.checked(here(whole, count)), here(whole, count));
        }
        for (whole, count) in [(9, 0), (10, 1), (15, 4), (15, 6), (1 << 30, 1)] {
            assert_eq!(question.checked(here(whole, count)), PartAnswer::Unreached);
        }
        assert_eq!(question.checked(PartAnswer::Gone), PartAnswer::Gone);
    }
}
