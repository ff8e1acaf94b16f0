//! The store that is S3 or compatible.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Path as Key;
use object_store::{
    ClientOptions, Error, GetOptions, GetRange, MultipartUpload, ObjectStore, ObjectStoreExt,
    PutPayload, RetryConfig,
};
use tokio::task::JoinSet;

use super::error::chain;
use super::sink::Sink;
use super::{
    CONNECT_MS_MAX, Fetched, Resolved, S3_PART_BYTES_MIN, S3_PARTS_AT_ONCE_MAX, S3_PARTS_MAX,
    S3_SINGLE_BYTES_MAX, SILENCE_MS_MAX, StoreError, StoreUrl, Want, version_of,
};

/// The buckets that were used, each with its connections.
pub(super) struct Buckets {
    settings: Vec<(AmazonS3ConfigKey, String)>,
    is_plain: bool,
    has_credentials: bool,
    open: Mutex<HashMap<String, Arc<AmazonS3>>>,
}

impl Buckets {
    pub(super) fn new(environment: impl IntoIterator<Item = (String, String)>) -> Buckets {
        let settings: Vec<(AmazonS3ConfigKey, String)> = environment
            .into_iter()
            .filter(|(name, value)| name.starts_with("AWS_") && !value.is_empty())
            .filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value)))
            .collect();
        let is = |wanted: fn(&AmazonS3ConfigKey) -> bool| {
            settings.iter().filter(move |(key, _)| wanted(key)).map(|(_, value)| value)
        };
        use AmazonS3ConfigKey as K;
        let is_plain = is(|key| matches!(key, K::Endpoint | K::S3Endpoint))
            .any(|endpoint| endpoint.starts_with("http://"));
        let has_credentials =
            is(|key| matches!(key, K::AccessKeyId | K::WebIdentityTokenFile | K::SkipSignature))
                .next()
                .is_some();
        Buckets { settings, is_plain, has_credentials, open: Mutex::default() }
    }

    fn bucket(&self, url: &StoreUrl, bucket: &str) -> Result<Arc<AmazonS3>, StoreError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = open.get(bucket) {
            return Ok(Arc::clone(store));
        }
        let client = ClientOptions::new()
            .with_connect_timeout(Duration::from_millis(CONNECT_MS_MAX))
            .with_read_timeout(Duration::from_millis(SILENCE_MS_MAX))
            .with_timeout_disabled();
        let mut builder = AmazonS3Builder::new().with_client_options(client);
        for (key, value) in &self.settings {
            builder = builder.with_config(*key, value);
        }
        if self.is_plain {
            builder = builder.with_allow_http(true);
        }
        let once = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let store = builder.with_bucket_name(bucket).with_retry(once).build();
        let store = Arc::new(store.map_err(|error| self.sorted(url, error))?);
        open.insert(bucket.to_owned(), Arc::clone(&store));
        Ok(store)
    }

    pub(super) async fn resolve(
        &self,
        url: &StoreUrl,
        bucket: &str,
        key: &str,
    ) -> Result<Resolved, StoreError> {
        let (store, key) = (self.bucket(url, bucket)?, self.key(url, key)?);
        let meta = store.head(&key).await.map_err(|error| self.sorted(url, error))?;
        Ok(Resolved { bytes: Some(meta.size), version: meta.e_tag.unwrap_or_default() })
    }

    pub(super) async fn fetch(
        &self,
        url: &StoreUrl,
        (bucket, key): (&str, &str),
        want: &Want,
        sink: &mut Sink,
    ) -> Result<Fetched, StoreError> {
        let name = url.to_string();
        let (store, path) = (self.bucket(url, bucket)?, self.key(url, key)?);
        let range = match (want.offset, want.length) {
            (0, None) => None,
            (from, None) => Some(GetRange::Offset(from)),
            (_, Some(0)) => return self.fetch_nothing(url, (bucket, key), want).await,
            (from, Some(length)) => Some(GetRange::Bounded(from..from.saturating_add(length))),
        };
        let options = GetOptions { range, ..GetOptions::default() };
        let got = match store.get_opts(&path, options).await {
            Ok(got) => got,
            Err(error) => {
                let error = self.sorted(url, error);
                // A range that begins at the end or beyond it.
                if matches!(error, StoreError::Refused { .. }) && want.offset > 0 {
                    return self.fetch_nothing(url, (bucket, key), want).await;
                }
                return Err(error);
            }
        };
        let whole = got.meta.size;
        let version = got.meta.e_tag.clone().unwrap_or_default();
        want.check(&name, &Resolved { bytes: Some(whole), version: version.clone() })?;
        sink.sized(whole);
        let wanted = want.within(whole).ok_or_else(|| want.beyond(&name, whole))?;
        let wanted = wanted.end - wanted.start;
        let mut bytes = 0;
        let mut pieces = got.into_stream();
        let mut cut = None;
        let lost = |error| StoreError::local(name.clone(), error);
        while let Some(piece) = pieces.next().await {
            match piece {
                Ok(piece) => {
                    bytes += piece.len() as u64;
                    sink.take(&piece).await.map_err(lost)?;
                }
                Err(error) => {
                    cut = Some(self.sorted(url, error));
                    break;
                }
            }
        }
        // Also what came before the end of a broken answer is of use.
        sink.flush().await.map_err(lost)?;
        if let Some(error) = cut {
            return Err(error);
        }
        if bytes != wanted {
            let reason = format!("the store sent {bytes} of {wanted} bytes");
            return Err(StoreError::Unreachable { url: name, reason });
        }
        Ok(Fetched { bytes, version })
    }

    /// No byte is wanted, or the object has none there: it is only looked at.
    async fn fetch_nothing(
        &self,
        url: &StoreUrl,
        (bucket, key): (&str, &str),
        want: &Want,
    ) -> Result<Fetched, StoreError> {
        let now = self.resolve(url, bucket, key).await?;
        want.check(&url.to_string(), &now)?;
        let whole = now.bytes.unwrap_or_default();
        match want.within(whole) {
            Some(range) if range.is_empty() => Ok(Fetched { bytes: 0, version: now.version }),
            _ => Err(want.beyond(&url.to_string(), whole)),
        }
    }

    pub(super) async fn put(
        &self,
        source: &Path,
        url: &StoreUrl,
        bucket: &str,
        key: &str,
    ) -> Result<Resolved, StoreError> {
        let (store, key) = (self.bucket(url, bucket)?, self.key(url, key)?);
        let local = |error| StoreError::local(url.to_string(), error);
        let file = Arc::new(File::open(source).map_err(local)?);
        let before = file.metadata().map_err(local)?;
        let unchanged = || {
            let now = file.metadata().map_err(local)?;
            if version_of(&now) == version_of(&before) {
                return Ok(());
            }
            let reason = format!("{} was written while it was copied", source.display());
            Err(StoreError::Changed { url: url.to_string(), reason, now: None })
        };
        let bytes = before.len();
        let result = if bytes <= S3_SINGLE_BYTES_MAX {
            let body = read_piece(Arc::clone(&file), 0, bytes).await.map_err(local)?;
            unchanged()?;
            store.put(&key, body).await.map_err(|error| self.sorted(url, error))?
        } else {
            let upload = store.put_multipart(&key).await;
            let mut upload = upload.map_err(|error| self.sorted(url, error))?;
            let sent = match self.send_parts(url, upload.as_mut(), &file, bytes).await {
                Ok(()) => unchanged(),
                Err(error) => Err(error),
            };
            if let Err(error) = sent {
                // If this fails too, the store's own clearing up is left.
                let _ = upload.abort().await;
                return Err(error);
            }
            upload.complete().await.map_err(|error| self.sorted(url, error))?
        };
        Ok(Resolved { bytes: Some(bytes), version: result.e_tag.unwrap_or_default() })
    }

    async fn send_parts(
        &self,
        url: &StoreUrl,
        upload: &mut dyn MultipartUpload,
        file: &Arc<File>,
        bytes: u64,
    ) -> Result<(), StoreError> {
        let part_bytes = bytes.div_ceil(S3_PARTS_MAX).max(S3_PART_BYTES_MIN);
        let mut under_way = JoinSet::new();
        let mut at = 0;
        loop {
            while at < bytes && under_way.len() < S3_PARTS_AT_ONCE_MAX {
                let length = part_bytes.min(bytes - at);
                let body = read_piece(Arc::clone(file), at, length).await;
                let body = body.map_err(|error| StoreError::local(url.to_string(), error))?;
                under_way.spawn(upload.put_part(body));
                at += length;
            }
            match under_way.join_next().await {
                None => return Ok(()),
                Some(Ok(sent)) => sent.map_err(|error| self.sorted(url, error))?,
                Some(Err(lost)) => {
                    let reason = format!("a part was given up: {lost}");
                    return Err(StoreError::Unreachable { url: url.to_string(), reason });
                }
            }
        }
    }

    fn key(&self, url: &StoreUrl, key: &str) -> Result<Key, StoreError> {
        Key::parse(key).map_err(|error| StoreError::Refused {
            url: url.to_string(),
            reason: error.to_string(),
        })
    }

    /// Converts an error of the store, or of the way to it.
    fn sorted(&self, url: &StoreUrl, error: Error) -> StoreError {
        let reason = chain(&error);
        let url = url.to_string();
        match &error {
            Error::NotFound { .. } => return StoreError::NotThere { url },
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                return StoreError::NotAllowed { url, reason: self.with_advice(reason) };
            }
            Error::Precondition { .. } | Error::NotModified { .. } => {
                return StoreError::Changed { url, reason, now: None };
            }
            _ => {}
        }
        match http_error(&error) {
            // An unknown name, a refused connection, silence: a store that is
            // away looks like that.
            Some(error) => match error.kind() {
                HttpErrorKind::Decode => StoreError::Refused { url, reason },
                _ => StoreError::Unreachable { url, reason: self.with_advice(reason) },
            },
            None => match named_status(&reason) {
                Some(status) => StoreError::status(url, status, reason),
                None => StoreError::Refused { url, reason },
            },
        }
    }

    fn with_advice(&self, reason: String) -> String {
        if self.has_credentials {
            return reason;
        }
        format!(
            "{reason}; no credentials are set: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, \
             or AWS_SKIP_SIGNATURE=true for what everybody may read"
        )
    }
}

async fn read_piece(file: Arc<File>, at: u64, bytes: u64) -> std::io::Result<PutPayload> {
    let reading = tokio::task::spawn_blocking(move || {
        // Pieces are at most a part's size, which fits the memory.
        let mut piece = vec![0; bytes as usize];
        file.read_exact_at(&mut piece, at).map(|()| PutPayload::from(piece))
    });
    reading.await.map_err(std::io::Error::other)?
}

/// The failure of a connection among the causes of an error.
fn http_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a HttpError> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// The status that the library names in its words; it offers it in no other
/// way.
fn named_status(reason: &str) -> Option<u16> {
    // The library gives it in words alone.
    let (_, rest) = reason.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}
