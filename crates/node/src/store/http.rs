//! The store that is a web server. For reading only.

use std::fs::File;
use std::sync::Arc;

use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, LAST_MODIFIED, RANGE};
use reqwest::{Client, Response, StatusCode};

use super::error::chain;
use super::sink::Sink;
use super::{Fetched, Resolved, StoreError, Want};

pub(super) async fn resolve(client: &Client, url: &str) -> Result<Resolved, StoreError> {
    let answer = client.head(url).send().await.map_err(|error| unreached(url, &error))?;
    let answer = match answer.status() {
        // Not every server knows HEAD: it is asked for one byte, which it may
        // answer with all of them; the rest is not read.
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
            let request = client.get(url).header(RANGE, "bytes=0-0");
            request.send().await.map_err(|error| unreached(url, &error))?
        }
        _ => answer,
    };
    let headers = answer.headers();
    let bytes = match answer.status() {
        StatusCode::PARTIAL_CONTENT => content_range(headers).and_then(|range| range.whole),
        // An empty object has no first byte.
        StatusCode::RANGE_NOT_SATISFIABLE => unsatisfied_whole(headers),
        status if status.is_success() => number(headers),
        _ => return Err(refused(url, &answer)),
    };
    Ok(Resolved { bytes, version: version(headers, bytes) })
}

pub(super) async fn fetch(
    client: &Client,
    url: &str,
    want: &Want,
    target: &Arc<File>,
    at: u64,
) -> Result<Fetched, StoreError> {
    let mut request = client.get(url);
    let range = want.range.as_ref();
    if let Some(range) = range {
        if range.is_empty() {
            let resolved = resolve(client, url).await?;
            return checked(url, want, Fetched { bytes: 0, version: resolved.version });
        }
        request = request.header(RANGE, format!("bytes={}-{}", range.start, range.end - 1));
    }
    let mut answer = request.send().await.map_err(|error| unreached(url, &error))?;
    if !answer.status().is_success() {
        return Err(refused(url, &answer));
    }
    let headers = answer.headers().clone();
    let expected = number(&headers);
    let mut whole = expected;
    if let Some(range) = range {
        let got =
            content_range(&headers).filter(|_| answer.status() == StatusCode::PARTIAL_CONTENT);
        let Some(got) = got.filter(|got| (got.first, got.last) == (range.start, range.end - 1))
        else {
            let reason = format!(
                "the server does not give the bytes from {} to {} alone",
                range.start, range.end
            );
            return Err(StoreError::Refused { url: url.to_owned(), reason });
        };
        whole = got.whole;
    }
    // What was asked for is checked before the bytes are carried here.
    if whole.is_some() {
        checked(url, want, Fetched { bytes: 0, version: version(&headers, whole) })?;
    }
    let mut sink = Sink::new(target, at);
    let mut bytes = 0;
    while let Some(piece) = answer.chunk().await.map_err(|error| unreached(url, &error))? {
        bytes += piece.len() as u64;
        sink.take(&piece).await.map_err(|error| StoreError::local(url.to_owned(), error))?;
    }
    sink.flush().await.map_err(|error| StoreError::local(url.to_owned(), error))?;
    let wanted = range.map(|range| range.end - range.start).or(expected);
    if let Some(wanted) = wanted.filter(|wanted| *wanted != bytes) {
        let reason = format!("the server sent {bytes} of {wanted} bytes");
        return Err(StoreError::Unreachable { url: url.to_owned(), reason });
    }
    let version = version(&headers, whole.or(Some(bytes).filter(|_| range.is_none())));
    checked(url, want, Fetched { bytes, version })
}

/// Checks that the version is the one that was wanted.
fn checked(url: &str, want: &Want, fetched: Fetched) -> Result<Fetched, StoreError> {
    match &want.version {
        Some(wanted) if *wanted != fetched.version => {
            let version = fetched.version;
            let reason = format!("its version is `{version}` and `{wanted}` was wanted");
            Err(StoreError::Changed { url: url.to_owned(), reason })
        }
        _ => Ok(fetched),
    }
}

/// The version that headers tell: the ETag, else time and size, else nothing.
fn version(headers: &HeaderMap, bytes: Option<u64>) -> String {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    match (text(ETAG), text(LAST_MODIFIED), bytes) {
        (Some(tag), _, _) if !tag.is_empty() => tag.to_owned(),
        (_, Some(time), Some(bytes)) => format!("{time} {bytes}"),
        _ => String::new(),
    }
}

/// The length that the headers name. A HEAD's answer has no body to measure.
fn number(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// Which bytes an answer has, of how many.
struct ContentRange {
    first: u64,
    last: u64,
    whole: Option<u64>,
}

fn content_range(headers: &HeaderMap) -> Option<ContentRange> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    let (range, whole) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    Some(ContentRange {
        first: first.trim().parse().ok()?,
        last: last.trim().parse().ok()?,
        whole: whole.trim().parse().ok(),
    })
}

/// The whole length that an answer without any bytes names.
fn unsatisfied_whole(headers: &HeaderMap) -> Option<u64> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    text.trim().strip_prefix("bytes */")?.parse().ok()
}

fn refused(url: &str, answer: &Response) -> StoreError {
    StoreError::status(url.to_owned(), answer.status().as_u16(), format!("{}", answer.status()))
}

/// A request that got no answer, or only a part of it.
fn unreached(url: &str, error: &reqwest::Error) -> StoreError {
    let reason = chain(error);
    let url = url.to_owned();
    if error.is_builder() || error.is_redirect() {
        return StoreError::Refused { url, reason };
    }
    StoreError::Unreachable { url, reason }
}
