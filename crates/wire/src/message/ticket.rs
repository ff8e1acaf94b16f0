//! Tickets, with which clients visit executors.

use crate::codec::wire_struct;
use crate::hidden::Hidden;
use falkon_core::task::Time;

/// The proof, to an executor, of the right to do something with one data object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// By which the executor knows it.
    pub number: u64,
    /// Proves that it is ours.
    pub secret: Hidden<[u8; 32]>,
    /// When it ends.
    pub expires: Time,
}
wire_struct!(Ticket { number, secret, expires });
