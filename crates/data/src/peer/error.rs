//! Errors between executors.

use std::io;

use falkon_net::secure::ConnectFailure;

/// Why an object did not come from a peer. How much of it arrived all the same
/// is in [`Landing::written`](crate::object::Landing::written).
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The peer has not got the object.
    #[error("the executor does not have the object (any more)")]
    Gone,
    /// The peer serves as many as it will.
    #[error("the executor is busy serving others")]
    Busy,
    /// The peer is still fetching it itself.
    #[error("the executor is still fetching the object itself")]
    Coming,
    /// The peer was not reached; it may be tried again.
    #[error("the executor at {peer} cannot be reached: {reason}")]
    Unreachable {
        /// The address of the peer.
        peer: String,
        /// The failure.
        reason: String,
    },
    /// The peer does not let us in, or is not the one it should be.
    #[error("the executor at {peer} cannot be used: {reason}")]
    NotAllowed {
        /// The address of the peer.
        peer: String,
        /// The failure.
        reason: String,
    },
    /// The connection broke before all had arrived.
    #[error("the executor at {peer} was lost after {arrived}{} bytes: {reason}", of(*.expected))]
    Lost {
        /// The address of the peer.
        peer: String,
        /// How many bytes of the object had arrived.
        arrived: u64,
        /// How many there should have been, if that was known.
        expected: Option<u64>,
        /// The failure.
        reason: String,
    },
    /// The peer's object is not the one that was asked for, or what it sent
    /// was changed on its way.
    #[error("what the executor at {peer} sent is wrong: {reason}")]
    Wrong {
        /// The address of the peer.
        peer: String,
        /// The difference.
        reason: String,
    },
    /// There is no room for the object here.
    #[error("there is no room here: {0}")]
    DiskFull(#[source] io::Error),
    /// The object cannot be written here.
    #[error("the object cannot be written here: {0}")]
    Local(#[source] io::Error),
}

impl PeerError {
    /// Converts a failed write to the local file.
    pub(crate) fn local(error: io::Error) -> PeerError {
        if crate::store::is_full(&error) {
            PeerError::DiskFull(error)
        } else {
            PeerError::Local(error)
        }
    }

    pub(super) fn connect(peer: &str, failure: ConnectFailure) -> PeerError {
        let peer = peer.to_owned();
        match failure {
            ConnectFailure::Busy => PeerError::Busy,
            ConnectFailure::Unreachable(error) => {
                PeerError::Unreachable { peer, reason: error.to_string() }
            }
            ConnectFailure::Proxy { error, .. } => {
                PeerError::Unreachable { peer, reason: error.to_string() }
            }
            ConnectFailure::NoAnswer => {
                PeerError::Unreachable { peer, reason: "it does not answer".to_owned() }
            }
            ConnectFailure::Handshake { stage, source } => {
                PeerError::Unreachable { peer, reason: format!("{source} (at the {stage})") }
            }
            ConnectFailure::NotAccepted
            | ConnectFailure::OtherInstance { .. }
            | ConnectFailure::UnknownInstance { .. }
            | ConnectFailure::UnknownUser => {
                let reason = "it has another dispatcher's secret".to_owned();
                PeerError::NotAllowed { peer, reason }
            }
            ConnectFailure::OtherCertificate | ConnectFailure::NoFingerprint => {
                let reason = "its certificate is not the one that the dispatcher named".to_owned();
                PeerError::NotAllowed { peer, reason }
            }
            ConnectFailure::Version { .. } | ConnectFailure::PeerVersion { .. } => {
                let reason = "it is of another release".to_owned();
                PeerError::NotAllowed { peer, reason }
            }
            ConnectFailure::Level { ours, theirs } => {
                let theirs = theirs.map_or("another".to_owned(), |level| level.to_string());
                let reason = format!("its security level is {theirs}, not {ours}");
                PeerError::NotAllowed { peer, reason }
            }
        }
    }
}

fn of(expected: Option<u64>) -> String {
    expected.map_or_else(String::new, |expected| format!(" of {expected}"))
}
