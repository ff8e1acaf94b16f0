//! Why a dispatcher does not do what it is asked.

use super::UserError;
use crate::codec::wire_enum;
use falkon_core::data::object::ObjectId;
use falkon_core::dispatch::{AccessError, RequestError};
use std::sync::Arc;

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The dispatcher's logic says no.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// This client's role does not allow it.
    #[error(
        "this access file does not allow that; use the owner's access.json of the dispatcher, or \
         the access file of the instance"
    )]
    NotAllowed,
    /// The journal cannot be written; what is wrong with it.
    #[error("the dispatcher cannot write its journal: {0}")]
    Journal(String),
    /// Nobody can be gone to with a data object; why.
    #[error(transparent)]
    Access(AccessError),
    /// The provisioner says no; why.
    #[error("{0}")]
    Provision(String),
    /// More answers wait for this client, or for all clients, than there may:
    /// read them, then ask again.
    #[error("too many answers have not been read yet; ask again when they are")]
    Busy,
    /// The answer is longer than a message.
    #[error("the answer is {bytes} bytes and cannot be sent; ask for less at a time")]
    TooLong {
        /// The answer's length.
        bytes: u64,
    },
    /// The request cannot be read; why. Requests before and after it are not
    /// affected.
    #[error("the request cannot be read: {0}")]
    Unreadable(String),
    /// The dispatcher keeps no events.
    #[error("the dispatcher keeps no events: start it with --events and a size")]
    NoEvents,
    /// The id of a data object is not that of its URL and version.
    #[error(
        "the data object {url} is declared under the id {id}, which is not that of its URL and \
         version: a client computes it as the protocol says"
    )]
    WrongId {
        /// The id that it has.
        id: ObjectId,
        /// Its URL.
        url: Arc<str>,
    },
    /// Only the dispatcher's owner may do that, and the access file is a user's; what.
    #[error("only the owner of the dispatcher may {0}, and this access file is a user's")]
    OwnerOnly(String),
    /// The question about users is refused; why.
    #[error(transparent)]
    User(UserError),
    /// The dispatcher goes on as it is, and no other program takes its place; why.
    #[error("it goes on as it is: {0}")]
    Restart(String),
}
wire_enum!(Refusal {
    0 => Request(error),
    1 => NotAllowed,
    2 => Journal(reason),
    3 => Access(error),
    4 => Provision(reason),
    5 => Busy,
    6 => TooLong { bytes },
    7 => Unreadable(why),
    8 => WrongId { id, url },
    9 => NoEvents,
    10 => OwnerOnly(what),
    11 => User(error),
    12 => Restart(why),
});
