//! The store that is a web server. For reading only.

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
    sink: &mut Sink,
) -> Result<Fetched, StoreError> {
    let mut request = client.get(url);
    match (want.offset, want.length) {
        (0, None) => {}
        (from, None) => request = request.header(RANGE, format!("bytes={from}-")),
        (_, Some(0)) => return fetch_nothing(client, url, want).await,
        (from, Some(length)) => {
            let last = from.saturating_add(length - 1);
            request = request.header(RANGE, format!("bytes={from}-{last}"));
        }
    }
    let mut answer = request.send().await.map_err(|error| unreached(url, &error))?;
    if answer.status() == StatusCode::RANGE_NOT_SATISFIABLE {
        return fetch_nothing(client, url, want).await;
    }
    if !answer.status().is_success() {
        return Err(refused(url, &answer));
    }
    let headers = answer.headers().clone();
    let (expected, whole) = extent(url, want, &answer)?;
    // The requested range is checked before the bytes are carried here.
    if let Some(whole) = whole {
        want.check(url, &Resolved { bytes: Some(whole), version: version(&headers, Some(whole)) })?;
        sink.sized(whole);
    }
    let mut bytes = 0;
    let lost = |error| StoreError::local(url.to_owned(), error);
    let cut = loop {
        match answer.chunk().await {
            Ok(Some(piece)) => {
                bytes += piece.len() as u64;
                sink.take(&piece).await.map_err(lost)?;
            }
            Ok(None) => break None,
            Err(error) => break Some(unreached(url, &error)),
        }
    };
    // Also what came before the end of a broken answer is of use.
    sink.flush().await.map_err(lost)?;
    if let Some(error) = cut {
        return Err(error);
    }
    if let Some(wanted) = expected.filter(|wanted| *wanted != bytes) {
        let reason = format!("the server sent {bytes} of {wanted} bytes");
        return Err(StoreError::Unreachable { url: url.to_owned(), reason });
    }
    let whole = whole.or(Some(bytes).filter(|_| want.offset == 0 && want.length.is_none()));
    let now = Resolved { bytes: whole, version: version(&headers, whole) };
    want.check(url, &now)?;
    Ok(Fetched { bytes, version: now.version })
}

/// No byte is wanted, or the object has none there: it is only looked at.
async fn fetch_nothing(client: &Client, url: &str, want: &Want) -> Result<Fetched, StoreError> {
    let now = resolve(client, url).await?;
    want.check(url, &now)?;
    match now.bytes {
        Some(whole) if want.within(whole).is_none_or(|range| !range.is_empty()) => {
            Err(want.beyond(url, whole))
        }
        _ => Ok(Fetched { bytes: 0, version: now.version }),
    }
}

/// How many bytes an answer has, and the whole object; `None` where the server
/// does not say.
fn extent(
    url: &str,
    want: &Want,
    answer: &Response,
) -> Result<(Option<u64>, Option<u64>), StoreError> {
    if want.offset == 0 && want.length.is_none() {
        let whole = number(answer.headers());
        return Ok((whole, whole));
    }
    let got = content_range(answer.headers())
        .filter(|_| answer.status() == StatusCode::PARTIAL_CONTENT)
        .filter(|got| got.first == want.offset && got.first <= got.last);
    let Some(got) = got else {
        let reason = "the server does not give a part of it alone".to_owned();
        return Err(StoreError::Refused { url: url.to_owned(), reason });
    };
    let bytes = (got.last - got.first).saturating_add(1);
    let wanted = want.length.or_else(|| got.whole?.checked_sub(want.offset));
    if wanted.is_some_and(|wanted| wanted != bytes) {
        return Err(want.beyond(url, got.whole.unwrap_or(got.last.saturating_add(1))));
    }
    Ok((Some(bytes), got.whole))
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

/// The range of bytes in an answer, and the size of the whole.
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
