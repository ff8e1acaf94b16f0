//! Where events are read: from a dispatcher, or from a directory.

use crate::access::{AccessArgs, connect};
use crate::exit::{Exit, Runtime};
use falkon_dispatcher::events::{
    Block, Blocks, EVENTS_DIRECTORY, EventReader, EventsError, Position,
};
use falkon_net::client::{Client, ClientError};
use falkon_net::secure::AccessFile;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// Why events cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// There are none.
    #[error(
        "{0} has no events: name a directory that falkon run --out wrote, or one of falkon start \
         --dir"
    )]
    None(PathBuf),
    /// The files cannot be read.
    #[error(transparent)]
    Files(EventsError),
    /// The dispatcher cannot be asked.
    #[error(transparent)]
    Client(ClientError),
    /// There is an event of another release.
    #[error("there are events that this release does not know: use the one that wrote them")]
    Unknown,
}

impl SourceError {
    pub(crate) fn exit(self) -> Exit {
        match self {
            SourceError::Client(error) => Exit::client(error),
            SourceError::None(_) => Exit::usage(self),
            SourceError::Files(_) | SourceError::Unknown => Exit::failure(self),
        }
    }
}

/// Blocks of events, in order.
pub(crate) enum Source {
    Directory(EventReader),
    Dispatcher { client: Client, next: Option<(u64, u64)>, blocks: VecDeque<Block> },
}

impl Source {
    /// The events that a user means: of a directory, or else of the dispatcher.
    pub(crate) fn of(
        directory: Option<&Path>,
        access: &AccessArgs,
        runtime: &Runtime,
    ) -> Result<Source, Exit> {
        let source = match directory {
            Some(directory) => Source::directory(directory),
            None => runtime.block_on(Source::dispatcher(&access.load_or_exit()?)),
        };
        source.map_err(SourceError::exit)
    }

    /// The events of a directory, or of the one in it that has them.
    fn directory(directory: &Path) -> Result<Source, SourceError> {
        let within = directory.join(EVENTS_DIRECTORY);
        let has_files = |path: &Path| {
            let found = std::fs::read_dir(path).into_iter().flatten().flatten();
            found
                .map(|entry| entry.path())
                .any(|file| file.extension().is_some_and(|ending| ending == EVENTS_DIRECTORY))
        };
        let found = [within.as_path(), directory].into_iter().find(|path| has_files(path));
        match found {
            Some(path) => Ok(Source::Directory(EventReader::open(path.to_owned(), None))),
            None => Err(SourceError::None(directory.to_owned())),
        }
    }

    /// The events of a running dispatcher.
    async fn dispatcher(access: &AccessFile) -> Result<Source, SourceError> {
        let (client, _) = connect(access, None).await.map_err(SourceError::Client)?;
        Ok(Source::Dispatcher { client, next: None, blocks: VecDeque::new() })
    }

    /// The next block; `None` if there is none yet.
    pub(crate) async fn next(&mut self) -> Result<Option<Block>, SourceError> {
        match self {
            Source::Directory(reader) => reader.next_block().map_err(SourceError::Files),
            Source::Dispatcher { client, next, blocks } => {
                while blocks.is_empty() {
                    let asked = client.events(*next).await.map_err(SourceError::Client)?;
                    let (bytes, behind, is_end) = asked;
                    *next = Some(behind);
                    let position = Position { file: behind.0, offset: behind.1 };
                    let read = Blocks { bytes, next: position, is_end };
                    blocks.extend(read.iter());
                    if is_end {
                        break;
                    }
                }
                Ok(blocks.pop_front())
            }
        }
    }
}
