//! Responses, with what every one of them says to browsers.

use super::{Answer, File};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Response, StatusCode, header};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

/// The body of a response.
pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// For how long updates are sent over one connection; the browser comes again then, and is
/// asked anew who it is.
const UPDATES: Duration = Duration::from_secs(1800);
/// How often something is sent when nothing changes, so that a browser that is gone is noticed.
const STILL_THERE: Duration = Duration::from_secs(15);

/// Nothing from elsewhere, nothing that a name could bring in, and nobody around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

fn response(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn whole(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).boxed_unsync()
}

/// A page.
pub(super) fn page(status: StatusCode, text: &'static str) -> Response<Body> {
    response(status, "text/html; charset=utf-8", whole(text))
}

/// A file of the site.
pub(super) fn file(file: &File) -> Response<Body> {
    response(StatusCode::OK, file.kind, whole(file.text))
}

/// A line of text.
pub(super) fn text(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    response(status, "text/plain; charset=utf-8", whole(text.into() + "\n"))
}

/// Goes on to the page by itself: browsers send a strict cookie only where their own site leads,
/// and a link may stand anywhere.
const ENTER: &str = "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">\
                     <meta http-equiv=\"refresh\" content=\"0;url=/\"><title>Falkon</title></head>\
                     <body><p><a href=\"/\">Go on</a></p></body></html>";

/// A cookie for whoever came with a link, in place of the cookie that another link gave.
pub(super) fn logged_in(cookie: &str, other: &str, session: &str, seconds: u64) -> Response<Body> {
    let mut response = page(StatusCode::OK, ENTER);
    for (name, value, seconds) in [(cookie, session, seconds), (other, "", 0)] {
        let set = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict");
        // It is made of digits and letters.
        if let Ok(set) = HeaderValue::from_str(&set) {
            response.headers_mut().append(header::SET_COOKIE, set);
        }
    }
    response
}

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// An answer.
pub(super) fn answer(answer: Answer) -> Response<Body> {
    match answer {
        Answer::Json(json) => {
            response(StatusCode::OK, "application/json; charset=utf-8", whole(json))
        }
        Answer::Metrics(text) => response(StatusCode::OK, OPEN_METRICS, whole(text)),
        Answer::NotFound(why) => text(StatusCode::NOT_FOUND, why),
        Answer::Wrong(why) => text(StatusCode::BAD_REQUEST, why),
        Answer::Unavailable(why) => text(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

/// The sender of updates to one browser.
struct Updates {
    updates: watch::Receiver<Arc<str>>,
    ends: Instant,
    _place: OwnedSemaphorePermit,
}

impl Updates {
    /// The next text to send; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        loop {
            let wait = tokio::time::timeout(STILL_THERE, self.updates.changed());
            let changed = tokio::time::timeout_at(self.ends, wait).await.ok()?;
            match changed {
                // A comment, which browsers pass over.
                Err(_) => return Some(":\n\n".to_owned()),
                Ok(Err(_)) => return None,
                Ok(Ok(())) => {}
            }
            let text = self.updates.borrow_and_update().clone();
            if !text.is_empty() {
                return Some(format!("data: {text}\n\n"));
            }
        }
    }
}

/// Updates as they come, beginning with the latest.
pub(super) fn updates(
    mut updates: watch::Receiver<Arc<str>>,
    place: OwnedSemaphorePermit,
) -> Response<Body> {
    updates.mark_changed();
    let sender = Updates { updates, ends: Instant::now() + UPDATES, _place: place };
    let texts = stream::unfold(sender, async |mut sender| {
        let text = sender.next().await?;
        Some((Ok(Frame::data(Bytes::from(text))), sender))
    });
    let body = StreamBody::new(texts).boxed_unsync();
    response(StatusCode::OK, "text/event-stream; charset=utf-8", body)
}
