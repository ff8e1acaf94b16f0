//! A connection to a peer, from which objects are fetched.

use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::PeerError;
use super::receive::Reader;
use super::wire::Request;
use crate::object::Landing;
use falkon_net::secure::{Code, Outgoing};

/// A connection to a peer.
pub(super) struct Connection {
    pub(super) reader: Reader,
    pub(super) writer: Writer,
}

impl Connection {
    /// Fetches one object, without others under way.
    pub(super) async fn fetch(
        &mut self,
        peer: &str,
        request: &Request,
        landing: &Landing,
    ) -> Result<u64, PeerError> {
        let mut bytes = Vec::new();
        self.writer.encode(request, &mut bytes);
        if let Err(error) = self.writer.write(&bytes).await {
            let reason = error.to_string();
            return Err(PeerError::Lost {
                peer: peer.to_owned(),
                arrived: 0,
                expected: None,
                reason,
            });
        }
        self.reader.receive(peer, request, Some(landing)).await
    }
}

/// The sending side of a connection to a peer.
pub(super) struct Writer {
    pub(super) stream: Outgoing,
    pub(super) seal: Option<Code>,
}

impl Writer {
    /// Adds a request, and its code, to `bytes`. Requests are written in the
    /// order in which they were encoded.
    pub(super) fn encode(&mut self, request: &Request, bytes: &mut Vec<u8>) {
        let request = request.encode();
        bytes.extend_from_slice(&request);
        if let Some(seal) = &mut self.seal {
            let mut hasher = seal.begin();
            hasher.update(&request);
            bytes.extend_from_slice(&Code::end(&hasher));
        }
    }

    /// Sends a message, with its code.
    pub(super) async fn say(&mut self, message: &[u8]) -> std::io::Result<()> {
        let mut bytes = message.to_vec();
        if let Some(seal) = &mut self.seal {
            let mut hasher = seal.begin();
            hasher.update(message);
            bytes.extend_from_slice(&Code::end(&hasher));
        }
        self.write(&bytes).await
    }

    /// Begins the code of a body that goes out in parts, if there are codes.
    pub(super) fn begin_code(&mut self) -> Option<blake3::Hasher> {
        self.seal.as_mut().map(Code::begin)
    }

    /// Ends a body with its code.
    pub(super) async fn end_code(&mut self, hasher: Option<blake3::Hasher>) -> std::io::Result<()> {
        let code = hasher.map(|hasher| Code::end(&hasher));
        self.write(code.as_ref().map_or(&[], |code| &code[..])).await
    }

    pub(super) fn stream(&mut self) -> &mut (dyn AsyncWrite + Send + Unpin) {
        self.stream.stream()
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let stream = self.stream.stream();
        stream.write_all(bytes).await?;
        stream.flush().await
    }
}
