//! Requests and answers as bytes.

use falkon_core::data::object::ObjectId;

pub(super) const REQUEST_BYTES: usize = 32;
pub(super) const ANSWER_BYTES: usize = 17;

/// What a request names that hands outputs over, instead of asking for an object.
pub(super) const ENTRUSTED: ObjectId = ObjectId(u128::MAX);

/// What a request names that has a process of a gang started.
pub(super) const REMOTE: ObjectId = ObjectId(u128::MAX - 1);

/// The length that stands for all that follows the offset.
const ALL: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) object: ObjectId,
    pub(super) offset: u64,
    /// `None` is all that follow.
    pub(super) length: Option<u64>,
}

impl Request {
    pub(super) fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..16].copy_from_slice(&self.object.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_le_bytes());
        bytes[24..].copy_from_slice(&self.length.unwrap_or(ALL).to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; REQUEST_BYTES]) -> Request {
        let (mut object, mut offset, mut length) = ([0; 16], [0; 8], [0; 8]);
        object.copy_from_slice(&bytes[..16]);
        offset.copy_from_slice(&bytes[16..24]);
        length.copy_from_slice(&bytes[24..]);
        let length = u64::from_le_bytes(length);
        Request {
            object: ObjectId(u128::from_le_bytes(object)),
            offset: u64::from_le_bytes(offset),
            length: (length != ALL).then_some(length),
        }
    }

    /// How many bytes are meant of an object of `whole`; `None` if it has not
    /// got them.
    pub(super) fn length_of(&self, whole: u64) -> Option<u64> {
        let rest = whole.checked_sub(self.offset)?;
        let length = self.length.unwrap_or(rest);
        (length <= rest).then_some(length)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Here,
    Gone,
    Busy,
    NoSuchBytes,
    Coming,
}

impl Status {
    const ALL: [Status; 5] =
        [Status::Here, Status::Gone, Status::Busy, Status::NoSuchBytes, Status::Coming];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: Status,
    /// Bytes of the whole object.
    pub(super) whole: u64,
    /// Bytes that follow.
    pub(super) length: u64,
}

impl Answer {
    pub(super) fn without_body(status: Status, whole: u64) -> Answer {
        Answer { status, whole, length: 0 }
    }

    pub(super) fn encode(&self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        bytes[0] = self.status as u8;
        bytes[1..9].copy_from_slice(&self.whole.to_le_bytes());
        bytes[9..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// `None` for what is no answer.
    pub(super) fn decode(bytes: &[u8; ANSWER_BYTES]) -> Option<Answer> {
        let (mut whole, mut length) = ([0; 8], [0; 8]);
        whole.copy_from_slice(&bytes[1..9]);
        length.copy_from_slice(&bytes[9..]);
        let status = *Status::ALL.get(usize::from(bytes[0]))?;
        let (whole, length) = (u64::from_le_bytes(whole), u64::from_le_bytes(length));
        let fits = if status == Status::Here { length <= whole } else { length == 0 };
        fits.then_some(Answer { status, whole, length })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn requests_read_back(bytes: [u8; REQUEST_BYTES]) {
            prop_assert_eq!(Request::decode(&bytes).encode(), bytes);
        }

        #[test]
        fn an_answer_has_one_encoding(status in 0u8..6, whole in 0u64..9, length in 0u64..9) {
            let mut bytes = [status; ANSWER_BYTES];
            bytes[1..9].copy_from_slice(&whole.to_le_bytes());
            bytes[9..].copy_from_slice(&length.to_le_bytes());
            if let Some(answer) = Answer::decode(&bytes) {
                prop_assert_eq!(answer.encode(), bytes);
            }
        }

        #[test]
        fn a_range_lies_within_its_object(offset: u64, length: Option<u64>, whole: u64) {
            let request = Request { object: ObjectId(0), offset, length };
            match request.length_of(whole) {
                Some(length) => prop_assert!(offset + length <= whole),
                None => {
                    let end = offset.checked_add(length.unwrap_or(0));
                    prop_assert!(end.is_none_or(|end| end > whole));
                }
            }
        }
    }
}
