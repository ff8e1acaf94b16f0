//! `falkon top`: a dispatcher's instances and executors as they change, on a terminal; and
//! `falkon run --top`, the same view of a run.
//!
//! What is shown and what keys do is in [`board`], how it looks in [`draw`]. Here is the
//! terminal, and a task that asks the dispatcher and carries orders out.

pub(crate) mod board;
mod draw;

use crate::access::{AccessArgs, connect};
use crate::exit::{Exit, say};
use crate::query::explained_text;
use board::{Board, Key, News, Order};
use clap::Args;
use falkon_core::task::InstanceId;
use falkon_net::client::{Client, ClientError};
use falkon_net::secure::AccessFile;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How long an answer is waited for.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How often a dispatcher is asked at most.
const EVERY_MIN: Duration = Duration::from_millis(100);
/// How often a run is looked at.
const RUN_EVERY: Duration = Duration::from_secs(1);
/// Pauses last so many times as long as answers take to come, or longer: whoever watches
/// a large dispatcher does not slow it.
const PAUSE_TIMES: u32 = 10;
/// The longest pause before connecting again.
const RECONNECT_MAX: Duration = Duration::from_secs(5);

/// `falkon top`
#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// How often the dispatcher is asked, from 100ms on
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::plan::duration_micros)]
    every: u64,
}

pub(crate) fn top(args: TopArgs) -> Exit {
    if let Err(why) = drawable() {
        return Exit::usage(format_args!("falkon top {why}; falkon status prints how things are"));
    }
    let every = Duration::from_micros(args.every);
    if every < EVERY_MIN {
        return Exit::usage("--every takes 100ms or more");
    }
    let access = match args.access.load_or_exit() {
        Ok(access) => access,
        Err(exit) => return exit,
    };
    let runtime = match crate::exit::runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    runtime.block_on(async {
        let client = match connect(&access, None).await {
            Ok((client, _)) => client,
            Err(error) => return Exit::client(error),
        };
        // Whoever may not ask learns it before the terminal changes.
        let status = match client.status(None).await {
            Ok(status) => status,
            Err(error) => return Exit::client(error),
        };
        let mut board = Board::default();
        board.take(News::Status(status));
        show(board, Asker { access: Some(access), client: Some(client), every }).await
    })
}

/// Why nothing can be drawn on this terminal, if so.
fn drawable() -> Result<(), String> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err("needs a terminal".to_owned());
    }
    // Escape sequences would be printed as they are.
    let kind = std::env::var("TERM").unwrap_or_default();
    match kind.is_empty() || kind == "dumb" {
        true => Err(format!("cannot draw on a terminal of the kind TERM={kind:?}")),
        false => Ok(()),
    }
}

/// The view of a run of this process, until its user closes it or the run ends.
pub(crate) struct View {
    close: oneshot::Sender<()>,
    closed: JoinHandle<()>,
}

impl View {
    /// Whether there can be one here.
    ///
    /// # Errors
    /// The command line is to be different.
    pub(crate) fn check() -> Result<(), Exit> {
        drawable().map_err(|why| Exit::usage(format_args!("--top {why}: leave it out")))
    }

    /// Opens a view of what the dispatcher of a client has.
    pub(crate) fn open(client: Client) -> View {
        let (close, closing) = oneshot::channel();
        let closed = tokio::spawn(async move {
            let mut board = Board::default();
            if let Ok(status) = client.status(None).await {
                board.take(News::Status(status));
            }
            let asker = Asker { access: None, client: Some(client), every: RUN_EVERY };
            match look(board, asker, async { drop(closing.await) }).await {
                Ok(Left::Asked) => {}
                Ok(Left::Closed) => say("the view is closed, and the run goes on"),
                // As if it had been typed without a view.
                Ok(Left::Interrupted) => interrupt(),
                Err(error) => say(format_args!("{error}; the run goes on")),
            }
        });
        View { close, closed }
    }

    /// Closes it, and gives the terminal back.
    pub(crate) async fn close(self) {
        // It may be closed already.
        let _ = self.close.send(());
        let _ = self.closed.await;
    }
}

/// Sends this process the signal of Ctrl-C.
fn interrupt() {
    let this = rustix::process::getpid();
    // A process may signal itself.
    let _ = rustix::process::kill_process(this, rustix::process::Signal::INT);
}

async fn show(board: Board, asker: Asker) -> Exit {
    // Before the terminal changes: a signal in between finds it as it was.
    let mut ends = match ends() {
        Ok(ends) => ends,
        Err(error) => return Exit::failure(format!("cannot wait for signals: {error}")),
    };
    let [interrupt, terminate, hangup] = &mut ends;
    let ended = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    };
    match look(board, asker, ended).await {
        Ok(_) => Exit::Success,
        Err(error) => Exit::failure(error),
    }
}

/// Why nobody looks any more.
enum Left {
    /// The view belongs to a run, which closes it.
    Asked,
    /// The user closes it, or the terminal is gone.
    Closed,
    /// The user typed Ctrl-C.
    Interrupted,
}

/// Why there is nothing to look at.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error("cannot use the terminal: {0}")]
    Begin(#[source] io::Error),
    #[error("cannot draw on the terminal: {0}")]
    Draw(#[source] io::Error),
    #[error("the dispatcher is not asked any more")]
    Unasked,
}

/// Shows a board, and how it changes, until `ended`.
async fn look(
    mut board: Board,
    asker: Asker,
    ended: impl Future<Output = ()>,
) -> Result<Left, LookError> {
    let mut terminal = ratatui::try_init().map_err(LookError::Begin)?;
    let mut keys = keys();
    let (orders, ordered) = unbounded_channel();
    let (tell, mut news) = unbounded_channel();
    let asking = tokio::spawn(asker.run(ordered, tell));
    let mut ended = std::pin::pin!(ended);
    let left = loop {
        if let Err(error) = terminal.draw(|frame| draw::draw(frame, &board)) {
            break Err(LookError::Draw(error));
        }
        tokio::select! {
            biased;
            () = &mut ended => break Ok(Left::Asked),
            key = keys.recv() => match key {
                // A terminal that is gone has no keys any more.
                None => break Ok(Left::Closed),
                Some(None) => {}
                Some(Some(Key::Quit)) => break Ok(Left::Interrupted),
                Some(Some(key)) => match board.press(key) {
                    Some(Order::Quit) => break Ok(Left::Closed),
                    // The one who asks ends after this.
                    Some(order) => drop(orders.send(order)),
                    None => {}
                },
            },
            one = news.recv() => match one {
                Some(one) => board.take(one),
                None => break Err(LookError::Unasked),
            },
        }
    };
    asking.abort();
    ratatui::restore();
    left
}

/// The signals that end it, like its key.
fn ends() -> io::Result<[Signal; 3]> {
    Ok([
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
        signal(SignalKind::hangup())?,
    ])
}

/// Keys as they are pressed; `None` if the terminal has another size. Ends with the terminal.
fn keys() -> UnboundedReceiver<Option<Key>> {
    let (tell, keys) = unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let pressed = match event {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
                    Some(match key.code {
                        KeyCode::Char('c') if is_control => Key::Quit,
                        KeyCode::Char(letter) => Key::Letter(letter),
                        KeyCode::Up => Key::Up,
                        KeyCode::Down => Key::Down,
                        KeyCode::PageUp => Key::PageUp,
                        KeyCode::PageDown => Key::PageDown,
                        KeyCode::Tab | KeyCode::BackTab => Key::OtherList,
                        KeyCode::Esc => Key::Back,
                        _ => continue,
                    })
                }
                Event::Resize(..) => None,
                _ => continue,
            };
            if tell.send(pressed).is_err() {
                return;
            }
        }
    });
    keys
}

/// Asks a dispatcher how things are, and carries orders out.
struct Asker {
    /// How to connect again; not to a dispatcher of this process.
    access: Option<AccessFile>,
    client: Option<Client>,
    every: Duration,
}

impl Asker {
    async fn run(mut self, mut orders: UnboundedReceiver<Order>, tell: UnboundedSender<News>) {
        let mut pause = self.every;
        let mut explained = None;
        loop {
            let order = tokio::select! {
                order = orders.recv() => match order {
                    Some(order) => Some(order),
                    None => return,
                },
                () = tokio::time::sleep(pause) => None,
            };
            if let Some(Order::Explain(instance)) = order {
                explained = instance;
            }
            let asked = Instant::now();
            let answer = tokio::time::timeout(ANSWER_MAX, self.ask(order, explained)).await;
            let news = match answer {
                Ok(Ok(news)) => news,
                Ok(Err(error @ ClientError::Refused(_))) => vec![News::Said(error.to_string())],
                Ok(Err(error)) => self.lose(error.to_string()),
                Err(_) => self.lose(format!("nothing came for {} s", ANSWER_MAX.as_secs())),
            };
            pause = match &self.client {
                Some(_) => self.every.max(asked.elapsed() * PAUSE_TIMES),
                None => (self.every * 2).min(RECONNECT_MAX),
            };
            for one in news {
                if tell.send(one).is_err() {
                    return;
                }
            }
        }
    }

    /// Gives a connection up, and says why.
    fn lose(&mut self, reason: String) -> Vec<News> {
        self.client = None;
        vec![News::Lost(reason)]
    }

    async fn ask(
        &mut self,
        order: Option<Order>,
        explained: Option<InstanceId>,
    ) -> Result<Vec<News>, ClientError> {
        let client = match (&self.client, &self.access) {
            (Some(client), _) => client.clone(),
            (None, Some(access)) => self.client.insert(connect(access, None).await?.0).clone(),
            // Nothing more comes of a run that is over.
            (None, None) => return Ok(Vec::new()),
        };
        let said = match order {
            None | Some(Order::Quit | Order::Explain(_)) => String::new(),
            Some(Order::Act(action)) => action.perform(&client).await?,
        };
        let mut news = vec![News::Status(client.status(None).await?)];
        if !said.is_empty() {
            news.push(News::Said(said));
        }
        if let Some(instance) = explained {
            let reasons = match client.explain(instance, None).await {
                Ok(reasons) => reasons.iter().map(|one| explained_text(instance, one)).collect(),
                // Observers may not ask, and the instance may be gone.
                Err(error @ ClientError::Refused(_)) => error.to_string(),
                Err(error) => return Err(error),
            };
            news.push(News::Explained(instance, reasons));
        }
        Ok(news)
    }
}
