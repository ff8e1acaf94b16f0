//! Documents that are sent to another program's server, again and again.
//!
//! They are made and sent on a thread of their own: whatever that server does, nothing else
//! waits for it. A document that cannot be sent is dropped, and the next one is made when its
//! time has come.

use crate::question::decoded;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url};
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a document may take to be sent and answered.
const ANSWER: Duration = Duration::from_secs(30);

/// The place to which documents are sent.
#[derive(Debug, Clone)]
pub struct Target {
    url: Url,
    headers: HeaderMap,
}

/// Why documents cannot be sent somewhere.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// It is no address of a server.
    #[error("{text:?} is no URL of a server: it takes http://HOST:PORT or https://HOST:PORT")]
    Url {
        /// The text that was given.
        text: String,
    },
    /// A header cannot be.
    #[error("the header {text:?} cannot be sent: headers are NAME=VALUE,NAME=VALUE")]
    Header {
        /// The name that was given; the value may be secret.
        text: String,
    },
}

impl Target {
    /// The server at `url`, with `path` behind it unless it is there already.
    ///
    /// # Errors
    /// See [`TargetError::Url`].
    pub fn new(url: &str, path: &str) -> Result<Target, TargetError> {
        let refused = || TargetError::Url { text: url.to_owned() };
        let mut parsed = Url::parse(url).map_err(|_| refused())?;
        if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
            return Err(refused());
        }
        let base = parsed.path().trim_end_matches('/').to_owned();
        if !base.ends_with(path) {
            parsed.set_path(&format!("{base}{path}"));
        }
        Ok(Target { url: parsed, headers: HeaderMap::new() })
    }

    /// The same, with headers as `NAME=VALUE,NAME=VALUE`, in which `%` and two digits are a byte.
    ///
    /// # Errors
    /// See [`TargetError::Header`].
    pub fn with_headers(mut self, text: &str) -> Result<Target, TargetError> {
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let refused = || TargetError::Header { text: name.to_owned() };
            // A plus sign is no space here.
            let value = decoded(&value.trim().replace('+', "%2B"));
            let mut value = HeaderValue::from_str(&value).map_err(|_| refused())?;
            value.set_sensitive(true);
            let name: HeaderName = name.trim().parse().map_err(|_| refused())?;
            self.headers.insert(name, value);
        }
        Ok(self)
    }

    /// The URL, without secrets.
    #[must_use]
    pub fn shown(&self) -> String {
        let mut url = self.url.clone();
        // A server that has a host can have no name and no password.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.to_string()
    }
}

/// Makes the next document, or says why there is none.
pub type Make =
    Box<dyn FnMut() -> Pin<Box<dyn Future<Output = Result<String, String>> + Send>> + Send>;

/// A document that is sent again and again, and how often.
pub struct PushOptions {
    /// The collector.
    pub target: Target,
    /// From one document to the next.
    pub every: Duration,
    /// Makes the document, as JSON.
    pub make: Make,
    /// Is told when documents cannot be sent, and when they can again.
    pub log: Box<dyn Fn(&str) + Send>,
}

/// Sends documents, until it is dropped.
#[derive(Debug)]
pub struct Push {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Push {
    /// Begins to send.
    ///
    /// # Errors
    /// The system gives no thread, or nothing to make connections with.
    pub fn start(options: PushOptions) -> std::io::Result<Push> {
        // The HTTP client looks up the process's provider of cryptography. An earlier one
        // will do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let send = move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = run(options) => {}
                    // The sender is dropped with the other end.
                    _ = stopped => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("push".to_owned()).spawn(send)?;
        Ok(Push { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        // The thread may have ended.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn run(options: PushOptions) {
    let PushOptions { target, every, mut make, log } = options;
    let mut has_failed = false;
    let mut client = None;
    let mut due = tokio::time::interval(every);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        let sent = match make().await {
            Ok(document) => send(&mut client, &target, document).await,
            Err(why) => Err(why),
        };
        match sent {
            Ok(()) if std::mem::take(&mut has_failed) => {
                log(&format!("metrics are sent to {} again", target.shown()));
            }
            Ok(()) => {}
            Err(why) => {
                if !std::mem::replace(&mut has_failed, true) {
                    log(&format!("metrics are not sent to {}: {why}", target.shown()));
                }
            }
        }
    }
}

async fn send(
    client: &mut Option<Client>,
    target: &Target,
    document: String,
) -> Result<(), String> {
    let made = match client {
        Some(client) => client,
        None => client.insert(new_client().map_err(|error| chain(&error))?),
    };
    let request = made
        .post(target.url.clone())
        .headers(target.headers.clone())
        .header(CONTENT_TYPE, "application/json")
        .body(document);
    let answer = request.send().await.map_err(|error| chain(&error.without_url()))?;
    match answer.status() {
        status if status.is_success() => Ok(()),
        status => Err(format!("it answers {status}")),
    }
}

fn new_client() -> reqwest::Result<Client> {
    Client::builder()
        .user_agent(concat!("falkon/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT)
        .timeout(ANSWER)
        // Secrets are for this server alone.
        .redirect(reqwest::redirect::Policy::none())
        .build()
}

/// An error with its causes.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_with_or_without_its_path() {
        let shown = |url| Target::new(url, "/v1/metrics").map(|target| target.shown());
        for (url, expected) in [
            ("http://one:4318", "http://one:4318/v1/metrics"),
            ("http://one:4318/", "http://one:4318/v1/metrics"),
            ("https://one/v1/metrics", "https://one/v1/metrics"),
            ("https://me:secret@one/otlp/?key=1", "https://one/otlp/v1/metrics"),
        ] {
            assert_eq!(shown(url).unwrap(), expected);
        }
        for url in ["", "one:4318", "ftp://one", "http://", "/v1/metrics"] {
            let refused = shown(url).unwrap_err().to_string();
            assert!(refused.contains("it takes http://HOST:PORT"), "{refused}");
        }
    }

    #[test]
    fn headers_are_read_and_wrong_ones_refused_without_their_values() {
        let target = || Target::new("http://one", "/v1/metrics").unwrap();
        let headers = target().with_headers("api-key=a%20b+c, x-y=2,").unwrap().headers;
        assert_eq!(headers["api-key"], "a b+c");
        assert_eq!(headers["x-y"], "2");
        for text in ["a b=secret", "key=%0asecret", "=secret"] {
            let refused = target().with_headers(text).unwrap_err().to_string();
            assert!(!refused.contains("secret"), "{refused}");
        }
    }
}
