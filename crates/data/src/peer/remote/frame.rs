//! Frames of a remote process as bytes, and the halves of a connection that carry them.

use super::{FRAMES_MAX, PART_BYTES_MAX};
use crate::peer::WAIT_MS;
use crate::peer::connection::Writer;
use crate::peer::receive::Reader;
use crate::peer::silence::in_time;
use falkon_core::gang::{NodeUsed, RankUsage};
use falkon_core::result::ResourceUsage;
use falkon_net::secure::{Incoming, Outgoing};
use std::io;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

const HEAD_BYTES: usize = 6;

/// Bytes of a node's usage but for its ranks: index, what is known, five numbers, and how many
/// ranks there are.
const NODE_BYTES: usize = 4 + 1 + NUMBERS_BYTES + 4;

/// Bytes of a rank's usage: the rank and five numbers.
const RANK_BYTES: usize = 4 + NUMBERS_BYTES;

const NUMBERS_BYTES: usize = 5 * 8;

/// A stream of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteStream {
    /// Standard input.
    Stdin = 0,
    /// Standard output.
    Stdout = 1,
    /// Standard error.
    Stderr = 2,
}

impl RemoteStream {
    fn from_byte(byte: u8) -> Option<RemoteStream> {
        [RemoteStream::Stdin, RemoteStream::Stdout, RemoteStream::Stderr]
            .get(usize::from(byte))
            .copied()
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteEnd {
    /// With a status.
    Exit(u8),
    /// By a signal.
    Signal(u8),
}

/// See the [module above](super).
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the table of the module above says what they are")]
pub enum Frame {
    Alive,
    Data(RemoteStream, Vec<u8>),
    End(RemoteStream),
    Taken(RemoteStream, u32),
    Signal(u8),
    Exited(RemoteEnd),
    Refused(String),
    Used(Vec<NodeUsed>),
    Unwanted,
}

impl Frame {
    pub(super) fn encode(&self) -> Vec<u8> {
        let used;
        let (kind, stream, bytes) = match self {
            Frame::Alive => (0, 0, &[][..]),
            Frame::Data(stream, bytes) => (1, *stream as u8, bytes.as_slice()),
            Frame::End(stream) => (2, *stream as u8, &[][..]),
            Frame::Taken(stream, count) => (3, *stream as u8, &count.to_le_bytes()[..]),
            Frame::Signal(signal) => (4, 0, &[*signal][..]),
            Frame::Exited(RemoteEnd::Exit(status)) => (5, 0, &[*status][..]),
            Frame::Exited(RemoteEnd::Signal(signal)) => (5, 1, &[*signal][..]),
            Frame::Refused(reason) => (6, 0, reason.as_bytes()),
            Frame::Used(nodes) => {
                let mut encoded = Vec::new();
                nodes.iter().for_each(|node| encode_used(&mut encoded, node));
                used = encoded;
                (7, 0, used.as_slice())
            }
            Frame::Unwanted => (8, 0, &[][..]),
        };
        let bytes = &bytes[..bytes.len().min(PART_BYTES_MAX)];
        let mut out = vec![kind, stream];
        // A part is far shorter than 4 GiB.
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(bytes);
        out
    }

    /// `None` for what is no frame.
    fn decode(kind: u8, stream: u8, bytes: Vec<u8>) -> Option<Frame> {
        let of = RemoteStream::from_byte(stream)?;
        let frame = match (kind, stream, bytes.as_slice()) {
            (0, 0, []) => Frame::Alive,
            (2, _, []) => Frame::End(of),
            (3, _, &[a, b, c, d]) => Frame::Taken(of, u32::from_le_bytes([a, b, c, d])),
            (4, 0, &[signal]) => Frame::Signal(signal),
            (5, 0, &[status]) => Frame::Exited(RemoteEnd::Exit(status)),
            (5, 1, &[signal]) => Frame::Exited(RemoteEnd::Signal(signal)),
            (6, 0, text) => Frame::Refused(String::from_utf8_lossy(text).into_owned()),
            (7, 0, nodes) => Frame::Used(decode_used(nodes)?),
            (8, 0, []) => Frame::Unwanted,
            (1, _, [_, ..]) => Frame::Data(of, bytes),
            _ => return None,
        };
        Some(frame)
    }
}

/// The bits of what is known of a node: its usage is, and some is missing.
const KNOWN: u8 = 1;
const MISSING: u8 = 2;

/// Divides usage into frames.
pub(super) fn used_frames(used: Vec<NodeUsed>) -> Vec<Frame> {
    let mut frames = Vec::new();
    let (mut nodes, mut room) = (Vec::new(), PART_BYTES_MAX);
    for mut node in used {
        loop {
            if room < NODE_BYTES + RANK_BYTES {
                frames.push(Frame::Used(std::mem::take(&mut nodes)));
                room = PART_BYTES_MAX;
            }
            room -= NODE_BYTES;
            let fitting = node.ranks.len().min(room / RANK_BYTES);
            room -= fitting * RANK_BYTES;
            let rest = node.ranks.split_off(fitting);
            let index = node.index;
            nodes.push(node);
            if rest.is_empty() {
                break;
            }
            node = NodeUsed { index, used: None, is_missing: false, ranks: rest };
        }
    }
    if !nodes.is_empty() {
        frames.push(Frame::Used(nodes));
    }
    frames
}

fn encode_used(out: &mut Vec<u8>, node: &NodeUsed) {
    let NodeUsed { index, used, is_missing, ranks } = node;
    let known = (KNOWN * u8::from(used.is_some())) | (MISSING * u8::from(*is_missing));
    out.extend_from_slice(&index.to_le_bytes());
    out.push(known);
    encode_numbers(out, &used.unwrap_or_default());
    // No node has more than a frame has room for.
    out.extend_from_slice(&(ranks.len() as u32).to_le_bytes());
    for RankUsage { rank, used } in ranks {
        out.extend_from_slice(&rank.to_le_bytes());
        encode_numbers(out, used);
    }
}

fn encode_numbers(out: &mut Vec<u8>, used: &ResourceUsage) {
    let numbers = [
        used.user_micros,
        used.system_micros,
        used.rss_max_bytes,
        used.read_bytes,
        used.written_bytes,
    ];
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
}

/// `None` for what is no list of usage.
fn decode_used(mut bytes: &[u8]) -> Option<Vec<NodeUsed>> {
    let mut nodes = Vec::new();
    while !bytes.is_empty() {
        let index = decode_u32(&mut bytes)?;
        let (known, rest) = bytes.split_first()?;
        bytes = rest;
        let used = decode_numbers(&mut bytes)?;
        let is_known = known & KNOWN != 0;
        if known & !(KNOWN | MISSING) != 0 || (!is_known && used != ResourceUsage::default()) {
            return None;
        }
        let mut ranks = Vec::new();
        for _ in 0..decode_u32(&mut bytes)? {
            let rank = decode_u32(&mut bytes)?;
            ranks.push(RankUsage { rank, used: decode_numbers(&mut bytes)? });
        }
        let used = is_known.then_some(used);
        nodes.push(NodeUsed { index, used, is_missing: known & MISSING != 0, ranks });
    }
    Some(nodes)
}

fn decode_u32(bytes: &mut &[u8]) -> Option<u32> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*number))
}

fn decode_numbers(bytes: &mut &[u8]) -> Option<ResourceUsage> {
    let (numbers, rest) = bytes.split_first_chunk::<NUMBERS_BYTES>()?;
    *bytes = rest;
    let (numbers, []) = numbers.as_chunks::<8>() else { return None };
    let numbers: Vec<u64> = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    let &[user_micros, system_micros, rss_max_bytes, read_bytes, written_bytes] =
        numbers.as_slice()
    else {
        return None;
    };
    Some(ResourceUsage {
        user_micros,
        system_micros,
        rss_max_bytes,
        read_bytes,
        written_bytes,
        disk_max_bytes: None,
    })
}

/// The half of a connection where frames arrive.
pub struct FrameReader {
    reader: Reader,
    /// The peer sends keepalives, and its silence ends the connection.
    is_timed: bool,
}

/// The half of a connection where frames are sent.
pub struct FrameWriter {
    writer: Writer,
    is_timed: bool,
}

/// The halves of a connection to a process of this machine.
#[must_use]
pub fn unix_halves(stream: UnixStream) -> (FrameReader, FrameWriter) {
    let (read, write) = stream.into_split();
    let reader = Reader::new(Incoming::Unix(read), None);
    let writer = Writer { stream: Outgoing::Unix(write), seal: None };
    (FrameReader { reader, is_timed: false }, FrameWriter { writer, is_timed: false })
}

impl FrameReader {
    pub(super) fn of_peer(reader: Reader) -> FrameReader {
        FrameReader { reader, is_timed: true }
    }

    /// The next frame. An error also if the other side is gone, or sends what is no frame. To
    /// drop the future breaks the connection.
    ///
    /// # Errors
    /// That of the connection.
    pub async fn next(&mut self) -> io::Result<Frame> {
        let FrameReader { reader, is_timed } = self;
        let heard = async {
            let [kind, stream, length @ ..] = reader.take::<HEAD_BYTES>().await?;
            let count = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
            if count > PART_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let bytes = reader.take_vec(count).await?;
            let whole = [&[kind, stream], &length[..], &bytes].concat();
            let is_genuine = reader.is_genuine(&whole).await?;
            let frame = Frame::decode(kind, stream, bytes).filter(|_| is_genuine);
            frame.ok_or_else(|| io::ErrorKind::InvalidData.into())
        };
        match is_timed {
            true => in_time(heard).await,
            false => heard.await,
        }
    }

    /// Takes bytes that are no frame, at most as many as a buffer holds.
    ///
    /// # Errors
    /// That of the connection.
    pub async fn take(&mut self, count: usize) -> io::Result<Vec<u8>> {
        in_time(self.reader.take_vec(count)).await
    }
}

impl FrameWriter {
    pub(super) fn of_peer(writer: Writer) -> FrameWriter {
        FrameWriter { writer, is_timed: true }
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// That of the connection.
    pub async fn put(&mut self, frame: &Frame) -> io::Result<()> {
        self.put_bytes(&frame.encode()).await
    }

    /// Sends bytes that are no frame.
    ///
    /// # Errors
    /// That of the connection.
    pub async fn put_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.is_timed {
            true => in_time(self.writer.say(bytes)).await,
            false => self.writer.say(bytes).await,
        }
    }

    /// Sends frames as they come, and says every now and then that this side is there; until
    /// nobody can send any more.
    pub(super) async fn put_all(&mut self, mut frames: mpsc::Receiver<Frame>) -> io::Result<()> {
        loop {
            let wait = tokio::time::sleep(Duration::from_millis(WAIT_MS));
            tokio::select! {
                frame = frames.recv() => match frame {
                    Some(frame) => self.put(&frame).await?,
                    None => return Ok(()),
                },
                () = wait => if self.is_timed {
                    self.put(&Frame::Alive).await?;
                },
            }
        }
    }
}

/// A queue of frames that are to be sent.
pub(super) fn frames() -> (mpsc::Sender<Frame>, mpsc::Receiver<Frame>) {
    mpsc::channel(FRAMES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_frame_has_one_encoding(kind in 0_u8..10, stream in 0_u8..4, bytes: Vec<u8>) {
            let length = bytes.len() as u32;
            let is_text = std::str::from_utf8(&bytes).is_ok();
            if let Some(frame) = Frame::decode(kind, stream, bytes.clone())
                && (kind != 6 || is_text)
            {
                let whole = [&[kind, stream], &length.to_le_bytes()[..], &bytes].concat();
                prop_assert_eq!(frame.encode(), whole);
            }
        }

        #[test]
        fn usage_has_one_encoding(
            indices in prop::collection::vec(0..9_u32, 0..5),
            known in 0..5_u8,
            numbers: [u64; 5],
            ranks in prop::collection::vec(any::<u32>(), 0..4),
        ) {
            let numbers = numbers.map(u64::to_le_bytes).concat();
            let rank = |rank: &u32| [&rank.to_le_bytes()[..], &numbers].concat();
            let count = (ranks.len() as u32).to_le_bytes();
            let ranks = ranks.iter().map(rank).collect::<Vec<_>>().concat();
            let node = |index: &u32| {
                [&index.to_le_bytes()[..], &[known], &numbers, &count, &ranks].concat()
            };
            let bytes: Vec<u8> = indices.iter().flat_map(node).collect();
            match Frame::decode(7, 0, bytes.clone()) {
                Some(frame) => prop_assert_eq!(&frame.encode()[HEAD_BYTES..], bytes),
                None => prop_assert!(known & KNOWN == 0 || known > 3),
            }
        }

        #[test]
        fn all_usage_is_in_frames_that_are_not_too_long(
            nodes in prop::collection::vec((any::<u32>(), any::<bool>(), 0..2_000_u32), 0..900),
        ) {
            let used = ResourceUsage { user_micros: 3, ..ResourceUsage::default() };
            // Most nodes have few ranks.
            let node = |(index, is_missing, count): (u32, bool, u32)| NodeUsed {
                index,
                used: Some(used),
                is_missing,
                ranks: (0..if count < 1_900 { count % 3 } else { count })
                    .map(|rank| RankUsage { rank, used })
                    .collect(),
            };
            let nodes: Vec<NodeUsed> = nodes.into_iter().map(node).collect();
            let mut arrived = Vec::<NodeUsed>::new();
            for frame in used_frames(nodes.clone()) {
                let bytes = frame.encode().split_off(HEAD_BYTES);
                prop_assert!(bytes.len() <= PART_BYTES_MAX);
                let Some(Frame::Used(part)) = Frame::decode(7, 0, bytes) else {
                    return Err(TestCaseError::fail("it is no frame"));
                };
                prop_assert!(!part.is_empty());
                for mut node in part {
                    match (node.used, arrived.last_mut()) {
                        (None, Some(last)) => last.ranks.append(&mut node.ranks),
                        _ => arrived.push(node),
                    }
                }
            }
            prop_assert_eq!(arrived, nodes);
        }
    }
}
