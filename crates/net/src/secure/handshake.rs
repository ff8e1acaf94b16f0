//! The mutual challenge-response, at every level.
//!
//! | | message | bytes after the length |
//! |---|---|---|
//! | client → server | hello | 1, role (9), share (32) |
//! | server → client | challenge | 2, share (32), server's proof (32) |
//! | client → server | proof | 3, client's proof (32) |
//! | server → client | welcome | 4, welcome's proof (32) |
//! | server → client | refused, instead of welcome | 5, reason |
//!
//! From version 9 on, the hello comes with the client's preamble, and the challenge with the
//! server's. An executor's welcome comes with the server's first frame: what a server accepts
//! after a proof is an executor's frames, and the client has checked the server's proof by then.
//!
//! A proof is a keyed BLAKE3 hash, under the secret of the role, of a label for
//! its place and of the transcript: both preambles, the role, both shares and,
//! inside TLS, the certificate's fingerprint and a key exported from the TLS
//! session. Thus a proof cannot be used at another place, in another
//! connection, at another level or by a third party in between.
//!
//! The shares are those of a [key exchange](super::exchange), drawn for each
//! connection; at level none, and inside TLS, they are random numbers. The keys
//! of frames follow from the agreed secret, the transcript and the role's
//! secret: an eavesdropper who has recorded a connection cannot compute them,
//! with the role's secret either.
//!
//! The server proves itself first and the client shows nothing before that has
//! been checked, so a false server gets a role, a number and a share. A server
//! answers a hello alike whether or not the instance exists, and a false proof
//! alike whatever was false; only a peer that has an instance's secret, or a user's, learns
//! that the instance does not exist, or that the user was removed.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use zeroize::Zeroizing;

use super::admission::Pace;
use super::breakdown::{Breakdown, Deadline, Stage};
use super::exchange::{Exchange, SHARE_BYTES};
use super::preamble::{PREAMBLE_BYTES, Preamble};
use super::versions::SHORT_VERSION;
use super::{Fingerprint, HANDSHAKE_MESSAGE_BYTES_MAX, Level, Role, Secret};

/// The binding of the proofs to one TLS session.
pub(super) struct Binding {
    pub(super) fingerprint: Fingerprint,
    pub(super) exported: [u8; 32],
}

/// The facts that both sides know of a connection before the hello.
pub(super) struct Opening {
    pub(super) client: Preamble,
    pub(super) server: Preamble,
    pub(super) binding: Option<Binding>,
}

/// This side's part in agreeing on keys: nothing where TLS agrees on them, and where frames are not
/// protected.
fn exchange(level: Level) -> io::Result<Exchange> {
    match level {
        Level::Authenticate => Exchange::draw(),
        Level::None | Level::Encrypt => Exchange::without_keys(),
    }
}

/// When the messages of a handshake are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Each after the one before it has been received.
    Waiting,
    /// Each as soon as the other side can do something with it: since version 9.
    Short,
}

impl Manner {
    pub(super) fn of_version(version: u16) -> Manner {
        if version < SHORT_VERSION { Manner::Waiting } else { Manner::Short }
    }

    /// Whether the welcome is left to the server's first frame. It says nothing that an executor
    /// does not know: a server that has proved itself has the secret that the client's proof is
    /// made with, and an executor's role always exists. The server sends such a frame at once.
    fn leaves_welcome(self, role: Role) -> bool {
        self == Manner::Short && role == Role::Executor
    }
}

/// The result of a handshake on either side.
pub(super) struct Proved {
    pub(super) role: Role,
    pub(super) keys: Keys,
    /// The welcome that stands before the first frame from the server: for the server to send,
    /// for the client to expect. Empty if it has been sent and received.
    pub(super) welcome: Vec<u8>,
}

impl Opening {
    /// The hash of all that the proofs stand for. Every part has a fixed size,
    /// but for the binding, which is there or not; a byte says which.
    fn transcript(
        &self,
        role: Role,
        client: &[u8; SHARE_BYTES],
        server: &[u8; SHARE_BYTES],
    ) -> [u8; 32] {
        let mut bytes = Vec::with_capacity(2 * PREAMBLE_BYTES + 9 + 4 * 32 + 1);
        bytes.extend_from_slice(&self.client.bytes);
        bytes.extend_from_slice(&self.server.bytes);
        bytes.extend_from_slice(&role.encode());
        bytes.extend_from_slice(client);
        bytes.extend_from_slice(server);
        match &self.binding {
            None => bytes.push(0),
            Some(binding) => {
                bytes.push(1);
                bytes.extend_from_slice(&binding.fingerprint.0);
                bytes.extend_from_slice(&binding.exported);
            }
        }
        blake3::derive_key("falkon 2026 handshake transcript", &bytes)
    }
}

/// The bytes of a message's length.
const LENGTH_BYTES: usize = 4;
/// The longest bodies of messages, in bytes: of a hello, of a challenge, and of a proof either
/// way. A refusal is shorter.
const HELLO_BYTES: usize = 1 + 9 + SHARE_BYTES;
const CHALLENGE_BYTES: usize = 1 + SHARE_BYTES + 32;
const PROOF_BYTES: usize = 1 + 32;

const SERVER_PROOF: &[u8; 16] = b"server's proof  ";
const CLIENT_PROOF: &[u8; 16] = b"client's proof  ";
const WELCOME_PROOF: &[u8; 16] = b"server's welcome";

/// The keys of a connection's two directions.
pub(super) struct Keys {
    pub(super) to_server: DirectionKeys,
    pub(super) to_client: DirectionKeys,
}

/// The keys of what goes in one direction.
pub(super) struct DirectionKeys {
    /// For codes that show changes.
    pub(super) codes: Secret,
    /// The key for messages that only their receiver may read.
    pub(super) sealing: Secret,
}

impl Keys {
    /// The transcript has both shares, so no two connections have a key in
    /// common.
    fn of(secret: &Secret, transcript: &[u8; 32], agreed: &Secret) -> Keys {
        let mut material = Zeroizing::new([0; 64]);
        material[..32].copy_from_slice(transcript);
        material[32..].copy_from_slice(agreed.as_bytes());
        let keys = |codes, sealing| DirectionKeys {
            codes: secret.derive(codes, &material[..]),
            sealing: secret.derive(sealing, &material[..]),
        };
        Keys {
            to_server: keys(
                "falkon 2026 frames from client to server",
                "falkon 2026 sealed frames from client to server",
            ),
            to_client: keys(
                "falkon 2026 frames from server to client",
                "falkon 2026 sealed frames from server to client",
            ),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Message {
    Hello { role: Role, share: [u8; SHARE_BYTES] },
    Challenge { share: [u8; SHARE_BYTES], proof: blake3::Hash },
    Proof { proof: blake3::Hash },
    Welcome { proof: blake3::Hash },
    Refused { reason: Reason },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    NotProved,
    UnknownInstance,
    UnknownUser,
}

impl Message {
    /// The message with its length before it.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        match self {
            Message::Hello { role, share } => {
                bytes.push(1);
                bytes.extend_from_slice(&role.encode());
                bytes.extend_from_slice(share);
            }
            Message::Challenge { share, proof } => {
                bytes.push(2);
                bytes.extend_from_slice(share);
                bytes.extend_from_slice(proof.as_bytes());
            }
            Message::Proof { proof } => {
                bytes.push(3);
                bytes.extend_from_slice(proof.as_bytes());
            }
            Message::Welcome { proof } => {
                bytes.push(4);
                bytes.extend_from_slice(proof.as_bytes());
            }
            Message::Refused { reason } => {
                let reason = match reason {
                    Reason::NotProved => 0,
                    Reason::UnknownInstance => 1,
                    Reason::UnknownUser => 2,
                };
                bytes.extend_from_slice(&[5, reason]);
            }
        }
        let length = (bytes.len() - 4) as u32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    fn decode(body: &[u8]) -> Option<Message> {
        let (kind, rest) = body.split_first()?;
        let hash = |bytes: &[u8]| bytes.try_into().ok().map(blake3::Hash::from_bytes);
        Some(match kind {
            1 => {
                let (role, share) = rest.split_first_chunk()?;
                Message::Hello { role: Role::decode(*role)?, share: share.try_into().ok()? }
            }
            2 => {
                let (share, proof) = rest.split_first_chunk()?;
                Message::Challenge { share: *share, proof: hash(proof)? }
            }
            3 => Message::Proof { proof: hash(rest)? },
            4 => Message::Welcome { proof: hash(rest)? },
            5 => match rest {
                [0] => Message::Refused { reason: Reason::NotProved },
                [1] => Message::Refused { reason: Reason::UnknownInstance },
                [2] => Message::Refused { reason: Reason::UnknownUser },
                _ => return None,
            },
            _ => return None,
        })
    }

    async fn send<S: AsyncWrite + Unpin>(&self, stream: &mut S) -> Result<(), Breakdown> {
        stream.write_all(&self.encode()).await?;
        stream.flush().await?;
        Ok(())
    }

    /// Reads one message whose body has `longest` bytes at most, and not a byte
    /// more: frames follow the last one, and nothing follows a shorter one.
    async fn receive<S: AsyncRead + Unpin>(
        stream: &mut S,
        longest: usize,
    ) -> Result<Message, Breakdown> {
        let mut bytes = [0; LENGTH_BYTES + CHALLENGE_BYTES];
        let bytes = bytes.get_mut(..LENGTH_BYTES + longest).ok_or(Breakdown::Malformed)?;
        let mut filled = 0;
        loop {
            let (read, rest) = bytes.split_at_mut(filled);
            if let Some((length, body)) = read.split_first_chunk() {
                let length = u32::from_le_bytes(*length) as usize;
                if length > HANDSHAKE_MESSAGE_BYTES_MAX {
                    return Err(Breakdown::TooLong { bytes: length });
                }
                if length > longest || length < body.len() {
                    return Err(Breakdown::Malformed);
                }
                if length == body.len() {
                    return Message::decode(body).ok_or(Breakdown::Malformed);
                }
            }
            match stream.read(rest).await? {
                0 => return Err(Breakdown::HungUp),
                count => filled += count,
            }
        }
    }
}

/// The reason why the server's side refused the client.
pub(super) enum ServeError {
    NotProved(Role),
    UnknownInstance(u64),
    UnknownUser(u64),
    Breakdown(Stage, Breakdown),
}

/// Why the client's side did not get in.
pub(super) enum JoinError {
    NotProved,
    UnknownInstance,
    UnknownUser,
    Breakdown(Stage, Breakdown),
}

impl From<(Stage, Breakdown)> for ServeError {
    fn from((stage, cause): (Stage, Breakdown)) -> ServeError {
        ServeError::Breakdown(stage, cause)
    }
}

impl From<(Stage, Breakdown)> for JoinError {
    fn from((stage, cause): (Stage, Breakdown)) -> JoinError {
        JoinError::Breakdown(stage, cause)
    }
}

/// The server's side: finds out who the client is.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin, K: Future<Output = bool>>(
    stream: &mut S,
    (opening, level, manner): (&Opening, Level, Manner),
    pace: Pace<'_>,
    secret_of: impl FnOnce(Role) -> Secret,
    is_known: impl FnOnce(Role) -> K,
) -> Result<Proved, ServeError> {
    let hello = pace.step(Stage::Hello, Message::receive(stream, HELLO_BYTES)).await?;
    let Message::Hello { role, share: client_share } = hello else {
        return Err((Stage::Hello, Breakdown::Malformed).into());
    };
    let exchange = exchange(level).map_err(|error| (Stage::Challenge, error.into()))?;
    let share = exchange.share();
    let secret = secret_of(role);
    let transcript = opening.transcript(role, &client_share, &share);
    let challenge = Message::Challenge { share, proof: secret.proof(SERVER_PROOF, &transcript) };
    pace.step(Stage::Challenge, challenge.send(stream)).await?;

    let answer = pace.step(Stage::Proof, Message::receive(stream, PROOF_BYTES)).await?;
    let Message::Proof { proof } = answer else {
        return Err((Stage::Proof, Breakdown::Malformed).into());
    };
    if proof != secret.proof(CLIENT_PROOF, &transcript) {
        let refused = Message::Refused { reason: Reason::NotProved };
        // Whether or not the refusal arrives, the refusal is what to report.
        let _ = pace.step(Stage::Welcome, refused.send(stream)).await;
        return Err(ServeError::NotProved(role));
    }
    let unknown = match role {
        Role::Instance(id) => Some((Reason::UnknownInstance, ServeError::UnknownInstance(id))),
        Role::User(id) => Some((Reason::UnknownUser, ServeError::UnknownUser(id))),
        Role::Owner | Role::Client | Role::Executor | Role::Observer => None,
    };
    if let Some((reason, error)) = unknown
        && !is_known(role).await
    {
        let _ = pace.step(Stage::Welcome, Message::Refused { reason }.send(stream)).await;
        return Err(error);
    }
    let agreed = exchange.agree(&client_share).ok_or((Stage::Proof, Breakdown::Malformed))?;
    let welcome = Message::Welcome { proof: secret.proof(WELCOME_PROOF, &transcript) };
    let welcome = match manner.leaves_welcome(role) {
        true => welcome.encode(),
        false => {
            pace.step(Stage::Welcome, welcome.send(stream)).await?;
            Vec::new()
        }
    };
    Ok(Proved { role, keys: Keys::of(&secret, &transcript, &agreed), welcome })
}

/// The client's side: shows that it has the secret of a role, to a server that
/// has shown so first.
pub(super) struct Claim<'a> {
    role: Role,
    secret: &'a Secret,
    exchange: Exchange,
}

impl<'a> Claim<'a> {
    /// A claim for one connection.
    pub(super) fn draw(
        level: Level,
        role: Role,
        secret: &'a Secret,
    ) -> Result<Claim<'a>, (Stage, Breakdown)> {
        let exchange = exchange(level).map_err(|error| (Stage::Hello, error.into()))?;
        Ok(Claim { role, secret, exchange })
    }

    /// Sends the hello.
    pub(super) async fn send<S: AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
    ) -> Result<(), Breakdown> {
        Message::Hello { role: self.role, share: self.exchange.share() }.send(stream).await
    }

    /// Proves it, once the hello is sent.
    pub(super) async fn prove<S: AsyncRead + AsyncWrite + Unpin>(
        self,
        stream: &mut S,
        (opening, manner): (&Opening, Manner),
        deadline: Deadline,
    ) -> Result<Proved, JoinError> {
        let Claim { role, secret, exchange } = self;
        let challenge =
            deadline.step(Stage::Challenge, Message::receive(stream, CHALLENGE_BYTES)).await?;
        let Message::Challenge { share: server_share, proof } = challenge else {
            return Err((Stage::Challenge, Breakdown::Malformed).into());
        };
        let transcript = opening.transcript(role, &exchange.share(), &server_share);
        if proof != secret.proof(SERVER_PROOF, &transcript) {
            return Err(JoinError::NotProved);
        }
        let agreed =
            exchange.agree(&server_share).ok_or((Stage::Challenge, Breakdown::Malformed))?;
        let answer = Message::Proof { proof: secret.proof(CLIENT_PROOF, &transcript) };
        deadline.step(Stage::Proof, answer.send(stream)).await?;

        let keys = Keys::of(secret, &transcript, &agreed);
        let expected = secret.proof(WELCOME_PROOF, &transcript);
        if manner.leaves_welcome(role) {
            let welcome = Message::Welcome { proof: expected }.encode();
            return Ok(Proved { role, keys, welcome });
        }
        match deadline.step(Stage::Welcome, Message::receive(stream, PROOF_BYTES)).await? {
            Message::Welcome { proof } if proof == expected => {
                Ok(Proved { role, keys, welcome: Vec::new() })
            }
            Message::Refused { reason: Reason::UnknownInstance } => Err(JoinError::UnknownInstance),
            Message::Refused { reason: Reason::UnknownUser } => Err(JoinError::UnknownUser),
            Message::Welcome { .. } | Message::Refused { reason: Reason::NotProved } => {
                Err(JoinError::NotProved)
            }
            _ => Err((Stage::Welcome, Breakdown::Malformed).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Level;
    use super::super::preamble::Status;
    use super::*;

    #[test]
    fn the_transcript_covers_all_that_the_two_sides_said_and_the_tls_session() {
        let preamble = |level| Preamble::new(1, level, Status::Fine);
        let binding = |print, key| Binding { fingerprint: Fingerprint(print), exported: key };
        let transcript = |client, server, binding, role, shares: ([u8; 32], [u8; 32])| {
            let opening = Opening { client: preamble(client), server: preamble(server), binding };
            opening.transcript(role, &shares.0, &shares.1)
        };
        let (a, b) = ([1; 32], [2; 32]);
        let (low, high) = (Level::None, Level::Encrypt);
        let all = [
            transcript(low, low, None, Role::Client, (a, b)),
            transcript(high, low, None, Role::Client, (a, b)),
            transcript(low, high, None, Role::Client, (a, b)),
            transcript(low, low, None, Role::Observer, (a, b)),
            transcript(low, low, None, Role::Client, (b, b)),
            transcript(low, low, None, Role::Client, (a, a)),
            transcript(low, low, Some(binding(a, a)), Role::Client, (a, b)),
            transcript(low, low, Some(binding(b, a)), Role::Client, (a, b)),
            transcript(low, low, Some(binding(a, b)), Role::Client, (a, b)),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one), "{index}");
        }
    }

    proptest! {
        #[test]
        fn each_message_has_one_encoding(body in prop::collection::vec(any::<u8>(), 0..80), kind in 0u8..7) {
            let mut body = body;
            if let Some(first) = body.first_mut() {
                *first = kind;
            }
            if let Some(message) = Message::decode(&body) {
                prop_assert_eq!(&message.encode()[4..], &body[..]);
            }
        }

        #[test]
        fn messages_read_back(share: [u8; 32], proof: [u8; 32], id: u64) {
            let proof = blake3::Hash::from_bytes(proof);
            for message in [
                Message::Hello { role: Role::Instance(id), share },
                Message::Challenge { share, proof },
                Message::Proof { proof },
                Message::Welcome { proof },
                Message::Refused { reason: Reason::NotProved },
                Message::Refused { reason: Reason::UnknownInstance },
                Message::Refused { reason: Reason::UnknownUser },
            ] {
                prop_assert_eq!(Message::decode(&message.encode()[4..]), Some(message));
            }
        }
    }
}
