//! A process of a gang that asks for a process on another node.

use super::begin::read_key;
use super::environment::GANG_VARIABLE;
use super::socket::{self, KEY_BYTES};
use falkon_data::peer::remote::{AskError, RemoteEnd, Standard, attend};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

/// How many ancestors are asked which executor is theirs.
const ANCESTORS_MAX: usize = 64;

/// How often a socket whose queue is full is tried again, and the time between.
const QUEUE_LOOKS_MAX: u32 = 1_000;
const QUEUE_LOOK: Duration = Duration::from_millis(20);

/// Why there is no such process.
#[derive(Debug, thiserror::Error)]
pub enum GangError {
    /// Whoever asks is in no gang.
    #[error(
        "this is no task on several nodes: it works within what `--nodes-per-task` runs, where \
         {GANG_VARIABLE} is set"
    )]
    NoGang,
    /// The variable that leads to the executor is damaged.
    #[error("{GANG_VARIABLE} does not say where the executor is: it must be left as it was")]
    Damaged,
    /// The executor cannot be asked.
    #[error("cannot reach the executor at {path}: {error}; the task may be over")]
    Unreachable {
        /// Its socket.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// The executor refuses, or is gone.
    #[error(transparent)]
    Ask(AskError),
}

/// Has a process started on a node of the gang that `gang` is about, the value of
/// [`GANG_VARIABLE`], and carries its streams until it has ended.
///
/// # Errors
/// [`GangError`].
pub async fn ask<I, O, E>(
    gang: Option<&str>,
    host: &str,
    folder: &Path,
    command: &[u8],
    standard: Standard<I, O, E>,
    signals: mpsc::Receiver<u8>,
) -> Result<RemoteEnd, GangError>
where
    I: AsyncRead + Unpin,
    O: AsyncWrite + Unpin,
    E: AsyncWrite + Unpin,
{
    let (stream, token) = connect(gang.ok_or(GangError::NoGang)?).await?;
    let (reader, writer) =
        socket::ask(stream, &token, host, folder, command).await.map_err(GangError::Ask)?;
    attend(reader, writer, standard, signals).await.map_err(GangError::Ask)
}

/// The socket and the token that the variable names.
fn read(gang: &str) -> Option<(&str, [u8; KEY_BYTES])> {
    let (path, token) = gang.rsplit_once(':')?;
    Some((path, read_key(token)?))
}

/// Connects to the executor of this node. A launcher passes its environment on to other nodes,
/// where the variable then names a socket of the first node; what the executor there has started
/// is an ancestor, and has the right one.
async fn connect(gang: &str) -> Result<(UnixStream, [u8; KEY_BYTES]), GangError> {
    let (path, token) = read(gang).ok_or(GangError::Damaged)?;
    let error = match reach(path).await {
        Ok(stream) => return Ok((stream, token)),
        Err(error) => error,
    };
    for gang in of_ancestors() {
        if let Some((path, known)) = read(&gang)
            && known == token
            && let Ok(stream) = reach(path).await
        {
            return Ok((stream, token));
        }
    }
    Err(GangError::Unreachable { path: path.to_owned(), error })
}

/// Connects to a socket, where so many may do so at once that its queue is full for a while.
async fn reach(path: &str) -> std::io::Result<UnixStream> {
    for _ in 0..QUEUE_LOOKS_MAX {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                tokio::time::sleep(QUEUE_LOOK).await;
            }
            other => return other,
        }
    }
    UnixStream::connect(path).await
}

/// What the variable was when this process's ancestors began, the nearest first.
fn of_ancestors() -> Vec<String> {
    let prefix = format!("{GANG_VARIABLE}=");
    let mut found = Vec::new();
    let mut next = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    for _ in 0..ANCESTORS_MAX {
        let Some(pid) = next else { break };
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let settings = environment.split(|byte| *byte == 0);
        let settings = settings.filter_map(|setting| setting.strip_prefix(prefix.as_bytes()));
        found.extend(settings.map(|value| String::from_utf8_lossy(value).into_owned()));
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name of the program, before the last bracket, may have blanks.
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        next = fields.split(' ').nth(1).and_then(|parent| parent.parse().ok());
    }
    found
}
