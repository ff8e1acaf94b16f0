//! Connections, and who may ask what.

use super::respond::{self, Body};
use super::{Answering, CONNECTIONS_MAX, Login, Question, REQUEST_BYTES_MAX, Rights, SESSION_S};
use super::{Site, VIEWERS_MAX, origin};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, COOKIE};
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
/// How far the server's thread stands back, which also follows events: where processors are
/// scarce, what is watched comes first.
const WATCHING_NICE: i32 = 10;

/// What is served, and where.
pub struct Options {
    /// Where to accept connections.
    pub listener: TcpListener,
    /// Who may see it.
    pub viewers: Login,
    /// Who may also have it do something.
    pub owners: Login,
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
    let Options { listener, viewers, owners, site, background } = options;
    let address = listener.local_addr().map_err(ServeError::System)?;
    listener.set_nonblocking(true).map_err(ServeError::System)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ServeError::System)?;
    let (stop, stopped) = oneshot::channel::<()>();
    let serve = move || {
        // Where a system has no priorities, watching competes with what is watched.
        let _ = rustix::process::nice(WATCHING_NICE);
        runtime.block_on(async move {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            tokio::spawn(background);
            tokio::select! {
                () = accept(listener, Arc::new(Serving::new([viewers, owners], site))) => {}
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
    viewers: Login,
    owners: Login,
    site: Arc<dyn Site>,
    connections: Arc<Semaphore>,
    watching: Arc<Semaphore>,
}

impl Serving {
    fn new([viewers, owners]: [Login; 2], site: Arc<dyn Site>) -> Serving {
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let watching = Arc::new(Semaphore::new(VIEWERS_MAX));
        Serving { viewers, owners, site, connections, watching }
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

/// What those are told who are not logged in.
const LOG_IN: &str = "log in: falkon web";
/// What programs are told that have no token.
const NO_TOKEN: &str = "send the token that falkon web --token prints: Authorization: Bearer TOKEN";
/// What those are told who may look only.
const NO_OWNER: &str = "this browser may look only: falkon web with the owner's access file logs \
                        an owner in";
/// What those are told whose request no page of this server has sent.
const NOT_OWN_PAGE: &str = "another page than this server's sent the request, or none: use the \
                            buttons of the page; a proxy has to keep the Host header";

/// The time in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Serving {
    async fn respond(&self, request: &Request<Incoming>) -> Response<Body> {
        let path = request.uri().path();
        if request.method() == Method::POST
            && let Some(name) = path.strip_prefix("/do/")
        {
            return self.act(name, request).await;
        }
        if request.method() != Method::GET {
            return respond::text(StatusCode::METHOD_NOT_ALLOWED, "ask with GET");
        }
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
        if path == "/metrics" {
            return match self.has_token(request) || self.rights(request).is_some() {
                true => answered(self.site.clone().metrics()).await,
                false => respond::text(StatusCode::UNAUTHORIZED, NO_TOKEN),
            };
        }
        let is_page = path == "/";
        let Some(rights) = self.rights(request) else {
            return match is_page {
                true => respond::page(StatusCode::UNAUTHORIZED, self.site.stranger_page()),
                false => respond::text(StatusCode::UNAUTHORIZED, LOG_IN),
            };
        };
        if is_page {
            return respond::page(StatusCode::OK, self.site.page(rights));
        }
        match path.strip_prefix("/api/") {
            Some("updates") => self.updates(),
            Some(name) => answered(self.site.clone().answer(Question::new(name, query))).await,
            None => respond::text(StatusCode::NOT_FOUND, "there is no such page"),
        }
    }

    fn log_in(&self, query: &Question) -> Response<Body> {
        let code = query.value("code").unwrap_or_default();
        let now = now();
        // A browser has the rights of the link that it came with last.
        for (login, other) in [(&self.viewers, &self.owners), (&self.owners, &self.viewers)] {
            if login.opens(now, code) {
                let session = login.session(now);
                return respond::logged_in(&login.cookie(), &other.cookie(), &session, SESSION_S);
            }
        }
        respond::page(StatusCode::FORBIDDEN, self.site.stranger_page())
    }

    /// What a request's sender may do; `None` if the sender is not logged in.
    fn rights(&self, request: &Request<Incoming>) -> Option<Rights> {
        let all = [(&self.owners, Rights::Act), (&self.viewers, Rights::Look)];
        all.into_iter().find(|(login, _)| is_logged_in(login, request)).map(|(_, rights)| rights)
    }

    /// Whether a request has a token for metrics.
    fn has_token(&self, request: &Request<Incoming>) -> bool {
        let found = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = found.and_then(|text| text.strip_prefix("Bearer "));
        token.is_some_and(|token| self.viewers.is_token(token))
    }

    /// Does what an owner's page asks for.
    async fn act(&self, name: &str, request: &Request<Incoming>) -> Response<Body> {
        match self.rights(request) {
            None => respond::text(StatusCode::UNAUTHORIZED, LOG_IN),
            Some(Rights::Look) => respond::text(StatusCode::FORBIDDEN, NO_OWNER),
            Some(Rights::Act) if !origin::is_own(request.headers()) => {
                respond::text(StatusCode::FORBIDDEN, NOT_OWN_PAGE)
            }
            Some(Rights::Act) => {
                let query = request.uri().query().unwrap_or_default();
                answered(self.site.clone().act(Question::new(name, query))).await
            }
        }
    }

    fn updates(&self) -> Response<Body> {
        match self.watching.clone().try_acquire_owned() {
            Ok(place) => respond::updates(self.site.updates(), place),
            Err(_) => {
                let why = format!("{VIEWERS_MAX} browsers watch already: close one");
                respond::text(StatusCode::SERVICE_UNAVAILABLE, why)
            }
        }
    }
}

/// Whether a request has the cookie of a session that goes on.
fn is_logged_in(login: &Login, request: &Request<Incoming>) -> bool {
    let name = login.cookie();
    let cookies = request.headers().get_all(COOKIE).iter();
    let cookies = cookies.filter_map(|value| value.to_str().ok());
    cookies.flat_map(|value| value.split(';')).any(|cookie| {
        let pair = cookie.trim().split_once('=');
        pair.is_some_and(|(found, code)| found == name && login.is_session(now(), code))
    })
}

/// The response with an answer, or that none came.
async fn answered(answering: Answering) -> Response<Body> {
    match tokio::time::timeout(ANSWER, answering).await {
        Ok(answer) => respond::answer(answer),
        Err(_) => respond::text(StatusCode::SERVICE_UNAVAILABLE, "no answer came"),
    }
}
