//! Archives in stores that are reached over the network. A thread reads the archive; the
//! future that waits for it makes its requests, so that they end with it.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use falkon_archive::Bytes;
use falkon_core::archive::file_name;
use tokio::sync::{mpsc, oneshot};

use super::set::{Piece, Set};
use crate::store::copy::Steps;
use crate::store::sink::Sink;
use crate::store::{StoreError, StoreUrl, Stores, Want, http};

/// Bytes that a request asks for at least: around what is read first.
const READ_BYTES_MIN: u64 = 64 << 10;

/// Bytes that a request asks for at most beyond what is read: it grows to this while a member is
/// read from its start on.
const READ_AHEAD_BYTES_MAX: u64 = 8 << 20;

/// How much more is read ahead after each request that continues the last one.
const READ_AHEAD_GROWTH: u64 = 4;

/// Files of a set that are looked for. A server that answers to any name would have them looked
/// for without end.
const SET_FILES_MAX: u32 = 1024;

/// A range of a file, and who waits for it.
struct Request {
    file: usize,
    offset: u64,
    bytes: u64,
    answer: oneshot::Sender<Result<Vec<u8>, StoreError>>,
}

/// Opens an archive and does `work` with it.
pub(super) async fn with_set<T: Send + 'static>(
    stores: &Stores,
    archive: &StoreUrl,
    work: impl FnOnce(&Set, &Steps) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let files = files_of(stores, archive).await?;
    let (ask, mut asked) = mpsc::channel::<Request>(1);
    let path = PathBuf::from(archive.to_string());
    let pieces = files.iter().map(|(_, piece)| Piece {
        name: piece.name.clone(),
        version: piece.version.clone(),
        ..*piece
    });
    let pieces: Vec<Piece> = pieces.collect();
    let mut thread = tokio::task::spawn_blocking(move || {
        let open = |file: usize, piece: &Piece| -> Arc<dyn Bytes> {
            let (ask, bytes) = (ask.clone(), piece.bytes);
            Arc::new(Remote { file, bytes, ask, held: Mutex::default() })
        };
        // Each request names the version that it must be of.
        let set = Set::of(path, pieces, open, |_| None)?;
        work(&set, &Steps::default())
    });
    loop {
        tokio::select! {
            done = &mut thread => {
                let given_up = |lost| StoreError::Unreachable {
                    url: archive.to_string(),
                    reason: format!("reading it was given up: {lost}"),
                };
                return done.unwrap_or_else(|lost| Err(given_up(lost)));
            }
            Some(request) = asked.recv() => {
                let answer = match files.get(request.file) {
                    Some((url, piece)) => {
                        read(stores, url, &piece.version, request.offset, request.bytes).await
                    }
                    None => Err(StoreError::NotThere { url: archive.to_string() }),
                };
                // A thread that failed meanwhile waits for nothing.
                let _ = request.answer.send(answer);
            }
        }
    }
}

/// The files of the set. Nothing lists them here: they are looked for by their numbers, up to
/// the first that is missing. Some stores do not tell whoever may not list them what is missing
/// from what is not allowed.
async fn files_of(
    stores: &Stores,
    archive: &StoreUrl,
) -> Result<Vec<(StoreUrl, Piece)>, StoreError> {
    let mut files = Vec::new();
    for number in 1.. {
        if number > SET_FILES_MAX {
            let reason = format!("the store has more than {SET_FILES_MAX} files of this set");
            return Err(StoreError::Refused { url: archive.to_string(), reason });
        }
        let named = |first: &str| {
            String::from_utf8_lossy(&file_name(first.as_bytes(), number)).into_owned()
        };
        let url = match archive {
            StoreUrl::Web(first) => StoreUrl::Web(named(first)),
            StoreUrl::S3 { bucket, key } => {
                StoreUrl::S3 { bucket: bucket.clone(), key: named(key) }
            }
            StoreUrl::Posix(_) | StoreUrl::Folder(_) | StoreUrl::Member { .. } => break,
        };
        match stores.resolve_whole(&url).await {
            Ok(found) => {
                let Some(bytes) = found.bytes else {
                    let reason = "the server does not say how large it is".to_owned();
                    return Err(StoreError::Refused { url: url.to_string(), reason });
                };
                let (name, version) = (PathBuf::from(url.to_string()), found.version);
                files.push((url, Piece { name, bytes, version, number }));
            }
            Err(StoreError::NotThere { .. } | StoreError::NotAllowed { .. }) if number > 1 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(files)
}

/// Reads a range of a file.
async fn read(
    stores: &Stores,
    url: &StoreUrl,
    version: &str,
    offset: u64,
    bytes: u64,
) -> Result<Vec<u8>, StoreError> {
    let version = (!version.is_empty()).then(|| version.to_owned());
    let want = Want { offset, length: Some(bytes), version };
    let mut sink = Sink::in_memory();
    match url {
        StoreUrl::Web(web) => http::fetch(&stores.web(web)?, web, &want, &mut sink).await?,
        StoreUrl::S3 { bucket, key } => {
            stores.s3.fetch(url, (bucket, key), &want, &mut sink).await?
        }
        StoreUrl::Posix(_) | StoreUrl::Folder(_) | StoreUrl::Member { .. } => {
            let reason = "it is not in a store of the network".to_owned();
            return Err(StoreError::Refused { url: url.to_string(), reason });
        }
    };
    Ok(sink.into_bytes())
}

/// A file that is read by requests.
#[derive(Debug)]
struct Remote {
    file: usize,
    bytes: u64,
    ask: mpsc::Sender<Request>,
    held: Mutex<Held>,
}

/// What was read lately.
#[derive(Debug, Default)]
struct Held {
    /// The end of the file, which everything begins with.
    tail: Window,
    last: Window,
    ahead: u64,
}

#[derive(Debug, Default)]
struct Window {
    offset: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// What it has from `offset` on, at most `most` bytes.
    fn from(&self, offset: u64, most: usize) -> &[u8] {
        match offset.checked_sub(self.offset).and_then(|at| self.bytes.get(at as usize..)) {
            Some(bytes) => &bytes[..most.min(bytes.len())],
            None => &[],
        }
    }
}

impl Remote {
    fn request(&self, offset: u64, bytes: u64) -> io::Result<Vec<u8>> {
        let given_up = || {
            let reason = "nobody waits for it any more".to_owned();
            io::Error::other(StoreError::Unreachable { url: "the archive".to_owned(), reason })
        };
        let (answer, answered) = oneshot::channel();
        let request = Request { file: self.file, offset, bytes, answer };
        self.ask.blocking_send(request).map_err(|_| given_up())?;
        let found = answered.blocking_recv().map_err(|_| given_up())?;
        let found = found.map_err(io::Error::other)?;
        match found.len() as u64 == bytes {
            true => Ok(found),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Bytes for Remote {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        if end > self.bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let held = &mut *held;
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let missing = bytes.len() - done;
            let found = match held.tail.from(at, missing) {
                [] => held.last.from(at, missing),
                found => found,
            };
            if !found.is_empty() {
                bytes[done..done + found.len()].copy_from_slice(found);
                done += found.len();
                continue;
            }
            let (missing, left) = (missing as u64, self.bytes - at);
            if end == self.bytes && held.tail.bytes.is_empty() {
                let read = missing.max(READ_BYTES_MIN).min(self.bytes);
                let from = self.bytes - read;
                held.tail = Window { offset: from, bytes: self.request(from, read)? };
                continue;
            }
            let is_next = !held.last.bytes.is_empty() && held.last.end() == at;
            held.ahead = match is_next {
                true => (held.ahead * READ_AHEAD_GROWTH).min(READ_AHEAD_BYTES_MAX),
                false => READ_BYTES_MIN,
            };
            let read = missing.max(held.ahead).min(left);
            held.last = Window { offset: at, bytes: self.request(at, read)? };
        }
        Ok(())
    }
}
