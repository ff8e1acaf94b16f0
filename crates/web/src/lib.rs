//! A web server for pages that are live, behind a secret.
//!
//! It knows HTTP and nothing of what it shows: a [`Site`] answers questions, sends updates, and
//! does what owners ask for.
//! It runs on a thread of its own, so that whatever a browser does, nothing else waits for it.
//! Every connection carries one request, the number of connections and the length of requests
//! are bounded, and a browser may load nothing from elsewhere.

mod login;
mod origin;
mod push;
mod question;
mod respond;
mod server;

pub use login::{Login, SESSION_S};
pub use push::{Make, Push, PushOptions, Target, TargetError};
pub use question::Question;
pub use server::{Options, ServeError, Server, start};

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::watch;

/// The longest head of a request, in bytes.
pub const REQUEST_BYTES_MAX: usize = 16 << 10;
/// Connections at a time; more wait until one ends.
pub const CONNECTIONS_MAX: usize = 128;
/// Connections that updates are sent to, at a time; more are refused.
pub const VIEWERS_MAX: usize = 64;

/// What somebody may do who is logged in; more is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rights {
    /// See the site.
    Look,
    /// See it, and have it do something.
    Act,
}

/// A file of the site.
#[derive(Debug, Clone, Copy)]
pub struct File {
    /// Its name in addresses, below `/files/`.
    pub name: &'static str,
    /// What it is, as in a `Content-Type`.
    pub kind: &'static str,
    /// What it contains.
    pub text: &'static str,
}

/// An answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The answer, as JSON.
    Json(String),
    /// Metrics, in the format OpenMetrics 1.0.
    Metrics(String),
    /// There is no such question, or nothing that it is about.
    NotFound(String),
    /// The question is wrong.
    Wrong(String),
    /// Nobody can tell for now.
    Unavailable(String),
}

/// An answer that is on its way.
pub type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// What is shown.
pub trait Site: Send + Sync + 'static {
    /// The page, as HTML, for those who are logged in with these rights.
    fn page(&self, rights: Rights) -> &'static str;

    /// What others see, as HTML: how to log in.
    fn stranger_page(&self) -> &'static str;

    /// The files that pages are made of. They contain nothing that is secret.
    fn files(&self) -> &'static [File];

    /// Answers a question of somebody who is logged in.
    fn answer(self: Arc<Self>, question: Question) -> Answering;

    /// Does what somebody asks for who has the rights to act.
    fn act(self: Arc<Self>, request: Question) -> Answering;

    /// How things are in numbers, for a program that collects them.
    fn metrics(self: Arc<Self>) -> Answering;

    /// What changes: the latest is sent, and those before it that a slow browser missed are
    /// not. A text is one line.
    fn updates(&self) -> watch::Receiver<Arc<str>>;
}
