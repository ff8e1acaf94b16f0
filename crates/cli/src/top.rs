//! `falkon top`: a dispatcher's instances and executors as they change, on a terminal.
//!
//! What is shown and what keys do is in [`board`], how it looks in [`draw`]. Here is the
//! terminal, and a task that asks the dispatcher and carries orders out.

pub(crate) mod board;
mod draw;

use crate::access::{AccessArgs, connect};
use crate::exit::Exit;
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

/// How long an answer is waited for.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How often a dispatcher is asked at most.
const EVERY_MIN: Duration = Duration::from_millis(100);
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
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Exit::usage("falkon top needs a terminal; falkon status prints how things are");
    }
    // Escape sequences would be printed as they are.
    let kind = std::env::var("TERM").unwrap_or_default();
    if kind.is_empty() || kind == "dumb" {
        return Exit::usage(format!(
            "falkon top cannot draw on a terminal of the kind TERM={kind:?}; falkon status \
             prints how things are"
        ));
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
        show(board, Asker { access, client: Some(client), every }).await
    })
}

async fn show(mut board: Board, asker: Asker) -> Exit {
    // Before the terminal changes: a signal in between finds it as it was.
    let mut ends = match ends() {
        Ok(ends) => ends,
        Err(error) => return Exit::failure(format!("cannot wait for signals: {error}")),
    };
    let mut terminal = match ratatui::try_init() {
        Ok(terminal) => terminal,
        Err(error) => return Exit::failure(format!("cannot use the terminal: {error}")),
    };
    let mut keys = keys();
    let (orders, ordered) = unbounded_channel();
    let (tell, mut news) = unbounded_channel();
    let asking = tokio::spawn(asker.run(ordered, tell));
    let exit = loop {
        if let Err(error) = terminal.draw(|frame| draw::draw(frame, &board)) {
            break Exit::failure(format!("cannot draw on the terminal: {error}"));
        }
        let [interrupt, terminate, hangup] = &mut ends;
        tokio::select! {
            biased;
            _ = interrupt.recv() => break Exit::Success,
            _ = terminate.recv() => break Exit::Success,
            _ = hangup.recv() => break Exit::Success,
            key = keys.recv() => match key {
                // A terminal that is gone has no keys any more.
                None => break Exit::Success,
                Some(None) => {}
                Some(Some(key)) => match board.press(key) {
                    Some(Order::Quit) => break Exit::Success,
                    // The one who asks ends after this.
                    Some(order) => drop(orders.send(order)),
                    None => {}
                },
            },
            one = news.recv() => match one {
                Some(one) => board.take(one),
                None => break Exit::failure("the dispatcher is not asked any more"),
            },
        }
    };
    asking.abort();
    ratatui::restore();
    exit
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
    access: AccessFile,
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
        let client = match &self.client {
            Some(client) => client.clone(),
            None => self.client.insert(connect(&self.access, None).await?.0).clone(),
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
