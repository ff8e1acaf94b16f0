//! Members of archives that executors have in their caches: read by range from whichever
//! of them has the archive, inflated and checked.
//!
//! What is needed to find members, the end of the archive's file, is read once and held: the
//! file never changes. A member is one request then.

mod table;

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use falkon_archive::{Inflow, InflowError, MemberFault};
use falkon_core::archive::{Kind, readable};
use falkon_core::data::object::ObjectId;
use tokio::sync::OnceCell;

use crate::object::{Landing, Progress};
use crate::peer::{BUFFER_BYTES, Fetcher, Peer, PeerError, Piece, TURN_BYTES};
use table::Table;

/// Bytes of the ends of archives that are held, in all.
const TABLES_BYTES_MAX: usize = 64 << 20;

/// Archives whose ends are held.
const TABLES_MAX: usize = 1 << 14;

/// What an archive takes beside the end of its file, about.
const TABLE_ENTRY_BYTES: usize = 256;

/// Why a member did not come.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// It does not come from this executor.
    #[error(transparent)]
    Peer(PeerError),
    /// The archive cannot be read here.
    #[error("cannot read the archive: {0}")]
    Archive(#[source] io::Error),
    /// No executor has such a member.
    #[error("{0}")]
    NoMember(String),
    /// What came is not what the archive's directory describes.
    #[error("member `{name}`: {fault}")]
    Damaged {
        /// The member.
        name: String,
        /// The defect.
        #[source]
        fault: MemberFault,
    },
}

impl From<PeerError> for MemberError {
    fn from(error: PeerError) -> MemberError {
        MemberError::Peer(error)
    }
}

/// Where an archive is read.
#[derive(Debug, Clone)]
pub enum Holder {
    /// It is in this executor's own cache: its file and its bytes.
    Own(Arc<File>, u64),
    /// It is in the cache of another.
    Peer(Fetcher, Peer),
}

/// An archive, and where it is read.
#[derive(Debug, Clone)]
pub struct Archive {
    /// Its id.
    pub id: ObjectId,
    /// Who has it.
    pub holder: Holder,
}

impl Archive {
    /// The bytes of its file.
    async fn bytes(&self) -> Result<u64, MemberError> {
        match &self.holder {
            Holder::Own(_, bytes) => Ok(*bytes),
            Holder::Peer(fetcher, peer) => {
                let whole = Arc::new(Mutex::new(0));
                let told = Arc::clone(&whole);
                let tell = move |progress| {
                    if let Progress::Sized(bytes) = progress {
                        *told.lock().unwrap_or_else(PoisonError::into_inner) = bytes;
                    }
                };
                let landing = Landing::taking(|_| Ok(()), tell);
                fetcher.fetch(peer, &self.piece(0, 0), &landing).await?;
                let whole = *whole.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(whole)
            }
        }
    }

    fn piece(&self, offset: u64, length: u64) -> Piece {
        Piece { object: self.id, offset, length: Some(length), size: None }
    }

    /// Reads a range into memory.
    async fn range(&self, offset: u64, length: u64) -> Result<Vec<u8>, MemberError> {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&bytes);
        let take = move |piece: &[u8]| {
            taken.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(piece);
            Ok(())
        };
        self.read(offset, length, take).await?;
        let bytes = std::mem::take(&mut *bytes.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(bytes)
    }

    /// Reads a range, piece by piece.
    async fn read(
        &self,
        offset: u64,
        length: u64,
        mut take: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> Result<(), MemberError> {
        match &self.holder {
            Holder::Peer(fetcher, peer) => {
                let landing = Landing::taking(take, |_| ());
                fetcher.fetch(peer, &self.piece(offset, length), &landing).await?;
            }
            Holder::Own(file, _) => {
                let most = length.min(BUFFER_BYTES as u64);
                let mut buffer = vec![0; most as usize];
                let mut done = 0;
                while done < length {
                    let count = (length - done).min(most) as usize;
                    let read = file.read_exact_at(&mut buffer[..count], offset + done);
                    read.map_err(MemberError::Archive)?;
                    take(&buffer[..count]).map_err(|error| MemberError::Peer(local(error)))?;
                    let before = done;
                    done += count as u64;
                    if done / TURN_BYTES > before / TURN_BYTES {
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Why data could not be written here.
fn local(error: io::Error) -> PeerError {
    PeerError::local(error)
}

/// Tables of archives that members are read from. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Archives {
    held: Arc<Mutex<Held>>,
}

#[derive(Debug, Default)]
struct Held {
    tables: HashMap<ObjectId, Arc<OnceCell<Arc<Table>>>>,
    /// The first to be forgotten first, with what each takes.
    order: VecDeque<(ObjectId, usize)>,
    bytes: usize,
}

impl Archives {
    /// Copies a member to where `landing` says, and says how many bytes it has. To drop the
    /// future gives it up.
    ///
    /// # Errors
    /// [`MemberError`]; nothing has been written then that counts.
    pub async fn fetch(
        &self,
        archive: &Archive,
        name: &str,
        landing: &Arc<Landing>,
    ) -> Result<u64, MemberError> {
        let copied = self.copy(archive, name, landing).await;
        if copied.is_err() {
            // A part of a member proves nothing.
            landing.discard();
        }
        copied
    }

    async fn copy(
        &self,
        archive: &Archive,
        name: &str,
        landing: &Arc<Landing>,
    ) -> Result<u64, MemberError> {
        let table = self.table(archive).await?;
        let found = table.find(archive, name.as_bytes()).await?;
        let nothing = || format!("the archive has no member `{}`", readable(name.as_bytes()));
        let member = found.ok_or_else(|| MemberError::NoMember(nothing()))?;
        if member.kind() != Kind::File {
            let name = readable(name.as_bytes());
            let why = format!("member `{name}` is a directory or a link, and no file");
            return Err(MemberError::NoMember(why));
        }
        let size = member.size;
        let unreadable = |fault| {
            let name = readable(name.as_bytes());
            MemberError::NoMember(format!("member `{name}`: {fault}"))
        };
        let inflow = Inflow::new(member, table.file_bytes()).map_err(unreadable)?;
        landing.sized(size);
        let damaged = |fault| MemberError::Damaged { name: readable(name.as_bytes()), fault };
        let arriving = Arc::new(Mutex::new((inflow, None)));
        let want = || arriving.lock().unwrap_or_else(PoisonError::into_inner).0.want();
        while let Some((offset, length)) = want() {
            let (taken, landing) = (Arc::clone(&arriving), Arc::clone(landing));
            let take = move |bytes: &[u8]| {
                let (inflow, fault) = &mut *taken.lock().unwrap_or_else(PoisonError::into_inner);
                match inflow.give(bytes, &mut |data| landing.write(data)) {
                    Ok(()) => Ok(()),
                    Err(InflowError::Taken(error)) => Err(error),
                    Err(InflowError::Fault(found)) => {
                        *fault = Some(found);
                        Err(io::ErrorKind::InvalidData.into())
                    }
                }
            };
            let read = archive.read(offset, length, take).await;
            let fault = arriving.lock().unwrap_or_else(PoisonError::into_inner).1.take();
            if let Some(fault) = fault {
                return Err(damaged(fault));
            }
            read?;
        }
        let arrived = Arc::into_inner(arriving).and_then(|all| all.into_inner().ok());
        match arrived.map(|(inflow, _)| inflow.end()) {
            Some(Ok(())) => Ok(size),
            Some(Err(fault)) => Err(damaged(fault)),
            None => Err(MemberError::Archive(io::ErrorKind::Interrupted.into())),
        }
    }

    /// What members of an archive are found by: read once, however many want it at once.
    async fn table(&self, archive: &Archive) -> Result<Arc<Table>, MemberError> {
        let cell = {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(held.tables.entry(archive.id).or_default())
        };
        let mut is_new = false;
        let table = cell
            .get_or_try_init(|| async {
                is_new = true;
                Table::read(archive).await.map(Arc::new)
            })
            .await?;
        if is_new {
            let bytes = table.held_bytes() + TABLE_ENTRY_BYTES;
            self.held.lock().unwrap_or_else(PoisonError::into_inner).took(archive.id, bytes);
        }
        Ok(Arc::clone(table))
    }
}

impl Held {
    /// The table of an archive has come.
    fn took(&mut self, archive: ObjectId, bytes: usize) {
        self.order.push_back((archive, bytes));
        self.bytes += bytes;
        while self.order.len() > TABLES_MAX || self.bytes > TABLES_BYTES_MAX {
            let Some((oldest, bytes)) = self.order.pop_front() else { break };
            self.bytes -= bytes;
            self.tables.remove(&oldest);
        }
        // Those that could not be read are asked for again, or never.
        if self.tables.len() > TABLES_MAX {
            self.tables.retain(|_, cell| cell.initialized());
        }
    }
}

#[cfg(test)]
mod tests;
