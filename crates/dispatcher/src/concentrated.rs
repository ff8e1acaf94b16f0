//! The dispatcher's end of a concentrator.

use super::Handle;
use super::backlog::Backlog;
use super::passing::{NotPassed, Passing, WaitingRoom};
use super::peer::{HeldEnd, Inbound, Message, Outgoing, Peer, Word};
use falkon_core::dispatch::ConnectionId;
use falkon_net::concentrator::{Arrivals, CONCENTRATOR_ARGUMENT, Down, SILENT, Up, WINDOW_BYTES};
use falkon_net::secure::{
    Acceptor, FrameReader, FrameWriter, Role, WRITE_QUEUE_BYTES_MAX, WriteError, plain,
};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as BlockingStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Words for a concentrator that are encoded between two writes.
const WRITE_WORDS_MAX: usize = 4096;
/// Bytes after which they are written all the same, so that the concentrator
/// can begin.
const WRITE_BYTES: usize = 1 << 20;

/// The longest item that is sent to a concentrator.
const DOWN_BYTES_MAX: usize = 16;

// Messages that are queued before a write, the last one included, are never
// refused.
const _: () = assert!(WRITE_BYTES < WRITE_QUEUE_BYTES_MAX);

/// A concentrator that runs. It ends when this and all its connections are
/// gone, or with the dispatcher.
#[derive(Debug)]
pub(super) struct Concentrator {
    passing: Passing,
    /// Connections passed to it that are not over.
    connections: Arc<AtomicU64>,
    /// The link's task ends with the last of these.
    link: std::sync::Weak<()>,
    given_up: bool,
}

impl Concentrator {
    pub(super) fn start(handle: &Handle, acceptor: &Acceptor) -> io::Result<Concentrator> {
        let (ours, theirs) = BlockingStream::pair()?;
        let (arrivals, passed) = Arrivals::pair()?;
        ours.set_nonblocking(true)?;
        let (reader, mut writer) = plain_link(UnixStream::from_std(ours)?);
        let child = Command::new("/proc/self/exe")
            .arg(CONCENTRATOR_ARGUMENT)
            .stdin(OwnedFd::from(theirs))
            .stdout(passed)
            // Signals from the terminal that end this process do not reach the
            // concentrator, which ends after it.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        // An empty queue takes what is so short.
        writer.queue(&acceptor.to_bytes()).map_err(io::Error::other)?;
        let (words, said) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicU64::new(0));
        let alive = Arc::new(());
        let watched = Arc::downgrade(&alive);
        let link = Link {
            handle: handle.clone(),
            connections: Arc::clone(&connections),
            words,
            roles: HashMap::new(),
            speaker: None,
        };
        tokio::spawn(async move {
            let _alive = alive;
            link.run(child, reader, writer, said).await;
        });
        let passing = Passing::new(arrivals);
        Ok(Concentrator { passing, connections, link: watched, given_up: false })
    }

    /// Passes a connection on, without waiting.
    pub(super) fn pass(
        &self,
        connection: ConnectionId,
        stream: TcpStream,
        room: &WaitingRoom,
    ) -> Result<(), NotPassed> {
        self.passing.pass(connection, stream, room)?;
        self.connections.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Connections that it has not taken yet, as it is busy or hangs.
    pub(super) fn waiting(&self) -> u64 {
        self.passing.waiting()
    }

    /// Connections passed to it that are not over.
    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Takes it for gone.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
    }

    pub(super) fn is_there(&self) -> bool {
        !self.given_up && self.link.strong_count() > 0
    }
}

/// Frames over a link, whose two directions share no lock.
fn plain_link(link: UnixStream) -> (FrameReader, FrameWriter) {
    let (read, write) = link.into_split();
    plain(tokio::io::join(read, write))
}

/// Reads what a concentrator says.
#[derive(Debug)]
struct Link {
    handle: Handle,
    connections: Arc<AtomicU64>,
    words: mpsc::UnboundedSender<Word>,
    /// The roles of its connections' peers.
    roles: HashMap<ConnectionId, Role>,
    /// The connection to which the next messages belong, and their number.
    speaker: Option<(ConnectionId, u32)>,
}

impl Link {
    async fn run(
        mut self,
        mut child: Child,
        reader: FrameReader,
        writer: FrameWriter,
        said: mpsc::UnboundedReceiver<Word>,
    ) {
        let log = self.handle.log.clone();
        let inbox = self.handle.inbox.clone();
        let why = tokio::select! {
            why = self.read(reader) => why,
            why = write(writer, said, &log, inbox) => why,
        };
        // The concentrator may hang rather than have ended.
        let _ = child.kill().await;
        let lost = self.roles.len();
        if self.handle.inbox.is_closed() {
            return;
        }
        log(&format!("a concentrator has ended ({why}) and {lost} connections with it"));
        let closed = |connection| Inbound::Closed { connection, why: None };
        let bundle = self.roles.into_keys().map(closed).collect();
        // Without a driver the bundle is of no use.
        let _ = self.handle.inbox.send(Inbound::Bundle(bundle)).await;
    }

    /// Reads until there is nothing more, and says why.
    async fn read(&mut self, mut reader: FrameReader) -> String {
        loop {
            let batch = match timeout(SILENT, reader.read_batch()).await {
                Ok(Ok(Some(batch))) => batch,
                Ok(Ok(None)) => return "it closed its link".to_owned(),
                Ok(Err(error)) => return error.to_string(),
                Err(_) => return format!("it was silent for {} s", SILENT.as_secs()),
            };
            let mut bundle = Vec::new();
            for frame in batch {
                if let Err(why) = self.take(frame, &mut bundle) {
                    return why.to_owned();
                }
            }
            if !bundle.is_empty() && self.handle.inbox.send(Inbound::Bundle(bundle)).await.is_err()
            {
                return "the dispatcher ends".to_owned();
            }
        }
    }

    /// Takes one frame; fails if it makes no sense.
    fn take(&mut self, frame: &[u8], bundle: &mut Vec<Inbound>) -> Result<(), &'static str> {
        if let Some((connection, left)) = self.speaker {
            self.speaker = (left > 1).then_some((connection, left - 1));
            self.hear(connection, frame, bundle);
            return Ok(());
        }
        match Up::decode(frame).ok_or("it said what makes no sense")? {
            Up::Opened { connection, role, version, peer } => {
                self.handle.connections.fetch_add(1, Ordering::Relaxed);
                self.roles.insert(connection, role);
                let backlog = Backlog::default();
                self.say(Word::Opened(connection, backlog.clone()));
                let end = HeldEnd { connection, words: self.words.clone() };
                let peer = Peer::held((role, version), peer, backlog, end);
                bundle.push(Inbound::Opened { connection, peer });
            }
            Up::Refused { kind, why, .. } => {
                self.connections.fetch_sub(1, Ordering::Relaxed);
                self.handle.refusals.refused(kind, &why);
            }
            Up::Said { connection, frames } => {
                self.speaker = (frames > 0).then_some((connection, frames));
                if self.roles.contains_key(&connection) {
                    let messages = Vec::with_capacity((frames as usize).min(MESSAGES_AHEAD_MAX));
                    bundle.push(Inbound::Messages { connection, messages });
                }
            }
            Up::Closed { connection, why } => {
                self.connections.fetch_sub(1, Ordering::Relaxed);
                self.say(Word::Over(connection));
                if self.roles.remove(&connection).is_some() {
                    bundle.push(Inbound::Closed { connection, why });
                }
            }
            Up::Passed { connection, bytes } => self.say(Word::Passed(connection, bytes)),
            Up::Asks { connection, role } => {
                let yes = self.handle.doors.let_in(role);
                self.say(Word::Exists(connection, yes));
            }
            Up::Pulse => {}
        }
        Ok(())
    }

    fn say(&self, word: Word) {
        // The writer ends only together with this.
        let _ = self.words.send(word);
    }

    /// A peer's message. One that is none ends its connection, at once for the
    /// driver: nothing that comes after it counts.
    fn hear(&mut self, connection: ConnectionId, frame: &[u8], bundle: &mut Vec<Inbound>) {
        let Some(role) = self.roles.get(&connection) else { return };
        match Message::decode(*role, frame) {
            Ok(message) => match bundle.last_mut() {
                Some(Inbound::Messages { connection: of, messages }) if *of == connection => {
                    messages.push(message);
                }
                _ => bundle.push(Inbound::Messages { connection, messages: vec![message] }),
            },
            Err(why) => {
                self.roles.remove(&connection);
                self.say(Word::HangUp(connection));
                bundle.push(Inbound::Closed { connection, why: Some(why) });
            }
        }
    }
}

/// Messages for which there is room before they are read.
const MESSAGES_AHEAD_MAX: usize = 64;

/// The messages on their way to one peer.
#[derive(Debug)]
struct Flow {
    /// Messages in `waiting` and before it.
    backlog: Backlog,
    /// Bytes said to the concentrator that it has not passed on yet.
    bytes: u64,
    /// The messages that wait until it has.
    waiting: VecDeque<Outgoing>,
    /// Nothing more comes: the connection ends after what waits.
    ends: bool,
}

/// Writes items for a concentrator. Returns the reason when a write fails.
async fn write(
    writer: FrameWriter,
    mut words: mpsc::UnboundedReceiver<Word>,
    log: &super::Log,
    inbox: mpsc::Sender<Inbound>,
) -> String {
    let mut speech = Speech { writer, flows: HashMap::new(), log, inbox };
    let mut batch = Vec::new();
    loop {
        if let Err(error) = speech.writer.flush().await {
            return error.to_string();
        }
        if words.recv_many(&mut batch, WRITE_WORDS_MAX).await == 0 {
            return "nobody speaks to it any more".to_owned();
        }
        for word in batch.drain(..) {
            if let Err(error) = speech.take(word).await {
                return error.to_string();
            }
        }
    }
}

struct Speech<'a> {
    writer: FrameWriter,
    flows: HashMap<ConnectionId, Flow>,
    log: &'a super::Log,
    inbox: mpsc::Sender<Inbound>,
}

impl Speech<'_> {
    /// Takes a word, and writes what may go out of what it brings.
    async fn take(&mut self, word: Word) -> Result<(), WriteError> {
        match word {
            Word::Opened(connection, backlog) => {
                let flow = Flow { backlog, bytes: 0, waiting: VecDeque::new(), ends: false };
                self.flows.insert(connection, flow);
            }
            Word::Say(connection, message) => {
                // A connection that is over takes no messages.
                let Some(flow) = self.flows.get_mut(&connection) else { return Ok(()) };
                if !flow.waiting.is_empty() || flow.bytes >= WINDOW_BYTES {
                    flow.waiting.push_back(message);
                    return Ok(());
                }
                self.tell(connection, &message).await?;
            }
            Word::Passed(connection, bytes) => {
                let Some(flow) = self.flows.get_mut(&connection) else { return Ok(()) };
                flow.bytes = flow.bytes.saturating_sub(bytes);
                while let Some(flow) = self.flows.get_mut(&connection)
                    && flow.bytes < WINDOW_BYTES
                    && let Some(message) = flow.waiting.pop_front()
                {
                    self.tell(connection, &message).await?;
                }
                self.end(connection, false);
            }
            Word::End(connection) => self.end(connection, true),
            Word::HangUp(connection) => {
                if self.flows.remove(&connection).is_some() {
                    self.put(Down::HangUp { connection });
                }
            }
            Word::Over(connection) => {
                self.flows.remove(&connection);
            }
            Word::Exists(connection, yes) => self.put(Down::Exists { connection, yes }),
        }
        if self.writer.queued_bytes() >= WRITE_BYTES { self.writer.flush().await } else { Ok(()) }
    }

    /// Ends a connection that is to end, `now` or since before, once nothing
    /// waits for it.
    fn end(&mut self, connection: ConnectionId, now: bool) {
        let Some(flow) = self.flows.get_mut(&connection) else { return };
        flow.ends |= now;
        if flow.ends && flow.waiting.is_empty() {
            self.flows.remove(&connection);
            self.put(Down::End { connection });
        }
    }

    /// Passes a message on, which counts as on its way from then on.
    async fn tell(
        &mut self,
        connection: ConnectionId,
        message: &Outgoing,
    ) -> Result<(), WriteError> {
        if self.writer.queued_bytes() >= WRITE_BYTES {
            self.writer.flush().await?;
        }
        self.put(Down::Tell { connection, sealed: message.has_secret() });
        let before = self.writer.queued_bytes();
        let queued = self.writer.queue_with(|out| message.encode(out));
        let Some(flow) = self.flows.get_mut(&connection) else { return Ok(()) };
        // The bytes at the concentrator are bounded by its window.
        let is_awaited = flow.backlog.written(1, u64::from(message.has_results()));
        match queued {
            Ok(()) => flow.bytes += (self.writer.queued_bytes() - before) as u64,
            Err(error) => {
                (self.log)(&format!("closing a connection: {error}"));
                // The message was announced, so a frame must come; the peer
                // does not get that far.
                self.flows.remove(&connection);
                self.put_frame(&[]);
                self.put(Down::HangUp { connection });
            }
        }
        if is_awaited {
            // Without a driver the notice is of no use.
            let _ = self.inbox.send(Inbound::Written { connection }).await;
        }
        Ok(())
    }

    fn put(&mut self, item: Down) {
        let mut bytes = Vec::with_capacity(DOWN_BYTES_MAX);
        item.encode(&mut bytes);
        self.put_frame(&bytes);
    }

    fn put_frame(&mut self, bytes: &[u8]) {
        // There is room: the queue is written when a fraction of it is taken.
        let _ = self.writer.queue(bytes);
    }
}
