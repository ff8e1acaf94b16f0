//! Connections, and who may ask what.

use super::respond::{self, Body};
use super::{CONNECTIONS_MAX, Login, Question, REQUEST_BYTES_MAX, SESSION_S, Site, VIEWERS_MAX};
use hyper::body::Incoming;
use hyper::header::COOKIE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// How long a browser may take for its request.
const REQUEST: Duration = Duration::from_secs(10);
/// How long the site may take for an answer.
const ANSWER: Duration = Duration::from_secs(60);
/// How long a connection may take in all: longer than updates are sent over one.
const CONNECTION: Duration = Duration::from_secs(2000);
/// The pause after the system refused to accept a connection.
const REFUSED: Duration = Duration::from_millis(100);

/// What is served, and where.
pub struct Options {
    /// Where to accept connections.
    pub listener: TcpListener,
    /// Who may see it.
    pub login: Login,
    /// What is shown.
    pub site: Arc<dyn Site>,
    /// What goes on besides, on the same thread: whoever makes the updates.
    pub background: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The system gives no thread, or no means to wait for connections.
    #[error("cannot serve pages: {0}")]
    System(#[source] io::Error),
}

/// A server, until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The thread may have ended.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves pages from a thread of its own.
///
/// # Errors
/// See [`ServeError`].
pub fn start(options: Options) -> Result<Server, ServeError> {
    let Options { listener, login, site, background } = options;
    let address = listener.local_addr().map_err(ServeError::System)?;
    listener.set_nonblocking(true).map_err(ServeError::System)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ServeError::System)?;
    let (stop, stopped) = oneshot::channel::<()>();
    let serve = move || {
        runtime.block_on(async move {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            tokio::spawn(background);
            tokio::select! {
                () = accept(listener, Arc::new(Serving::new(login, site))) => {}
                // The sender is dropped with the server.
                _ = stopped => {}
            }
        });
    };
    let thread = std::thread::Builder::new().name("web".to_owned()).spawn(serve);
    let thread = thread.map_err(ServeError::System)?;
    Ok(Server { address, stop: Some(stop), thread: Some(thread) })
}

/// What connections share.
struct Serving {
    login: Login,
    site: Arc<dyn Site>,
    connections: Arc<Semaphore>,
    viewers: Arc<Semaphore>,
}

impl Serving {
    fn new(login: Login, site: Arc<dyn Site>) -> Serving {
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let viewers = Arc::new(Semaphore::new(VIEWERS_MAX));
        Serving { login, site, connections, viewers }
    }
}

async fn accept(listener: tokio::net::TcpListener, serving: Arc<Serving>) {
    loop {
        // Before a connection is accepted, so that those beyond the bound wait in the system.
        let Ok(place) = serving.connections.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(serve(stream, serving.clone(), place))),
            Err(_) => tokio::time::sleep(REFUSED).await,
        }
    }
}

/// One connection, for one request.
async fn serve(stream: TcpStream, serving: Arc<Serving>, _place: OwnedSemaphorePermit) {
    let service = service_fn(async |request| {
        let response = serving.respond(&request).await;
        Ok::<Response<Body>, Infallible>(response)
    });
    let mut connection = http1::Builder::new();
    connection
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST)
        .max_buf_size(REQUEST_BYTES_MAX)
        .keep_alive(false);
    // Browsers leave when they like: that is nobody's error.
    let served = connection.serve_connection(TokioIo::new(stream), service);
    let _ = tokio::time::timeout(CONNECTION, served).await;
}

/// The time in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Serving {
    async fn respond(&self, request: &Request<Incoming>) -> Response<Body> {
        if request.method() != Method::GET {
            return respond::text(StatusCode::METHOD_NOT_ALLOWED, "ask with GET");
        }
        let path = request.uri().path();
        let query = request.uri().query().unwrap_or_default();
        if let Some(name) = path.strip_prefix("/files/") {
            let found = self.site.files().iter().find(|file| file.name == name);
            return match found {
                Some(file) => respond::file(file),
                None => respond::text(StatusCode::NOT_FOUND, "there is no such file"),
            };
        }
        if path == "/login" {
            return self.log_in(&Question::new("", query));
        }
        let is_page = path == "/";
        if !self.is_logged_in(request) {
            return match is_page {
                true => respond::page(StatusCode::UNAUTHORIZED, self.site.stranger_page()),
                false => respond::text(StatusCode::UNAUTHORIZED, "log in: falkon web"),
            };
        }
        if is_page {
            return respond::page(StatusCode::OK, self.site.page());
        }
        match path.strip_prefix("/api/") {
            Some("updates") => self.updates(),
            Some(name) => {
                let question = Question::new(name, query);
                let answering = self.site.clone().answer(question);
                match tokio::time::timeout(ANSWER, answering).await {
                    Ok(answer) => respond::answer(answer),
                    Err(_) => respond::text(StatusCode::SERVICE_UNAVAILABLE, "no answer came"),
                }
            }
            None => respond::text(StatusCode::NOT_FOUND, "there is no such page"),
        }
    }

    fn log_in(&self, query: &Question) -> Response<Body> {
        let code = query.value("code").unwrap_or_default();
        let now = now();
        match self.login.opens(now, code) {
            true => respond::logged_in(&self.login.cookie(), &self.login.session(now), SESSION_S),
            false => respond::page(StatusCode::FORBIDDEN, self.site.stranger_page()),
        }
    }

    fn is_logged_in(&self, request: &Request<Incoming>) -> bool {
        let name = self.login.cookie();
        let cookies = request.headers().get_all(COOKIE).iter();
        let cookies = cookies.filter_map(|value| value.to_str().ok());
        cookies.flat_map(|value| value.split(';')).any(|cookie| {
            let pair = cookie.trim().split_once('=');
            pair.is_some_and(|(found, code)| found == name && self.login.is_session(now(), code))
        })
    }

    fn updates(&self) -> Response<Body> {
        match self.viewers.clone().try_acquire_owned() {
            Ok(place) => respond::updates(self.site.updates(), place),
            Err(_) => {
                let why = format!("{VIEWERS_MAX} browsers watch already: close one");
                respond::text(StatusCode::SERVICE_UNAVAILABLE, why)
            }
        }
    }
}
