//! Ack coalescing, against a model that knows the whole history: of each message
//! it says when it is sent, from what happens after it.

use falkon_core::dispatch::{AckCoalescing, AckEvent, Classify, ConnectionId, Traffic};
use falkon_core::limits::COALESCE_MICROS;
use falkon_core::task::Time;
use proptest::prelude::*;

/// A message, with a number of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Message(u64, Traffic);

impl Classify for Message {
    fn traffic(&self) -> Traffic {
        self.1
    }
}

#[derive(Debug, Clone)]
enum Happening {
    Subscribed(u64),
    Received(u64),
    Closed(u64),
    /// A round with these messages.
    Round(Vec<(u64, Traffic)>),
    /// The machine's own time has come.
    Timeout,
    Stop,
}

/// What happens at a time.
type History = Vec<(u64, Happening)>;

/// The messages sent after each step: their connections and numbers.
type Sent = Vec<Vec<(u64, u64)>>;

/// Numbers messages as they come.
fn numbered(round: &[(u64, Traffic)], next: &mut u64) -> Vec<(u64, u64, Traffic)> {
    let numbered = round.iter().zip(*next..).map(|(&(to, traffic), number)| (to, number, traffic));
    let numbered: Vec<_> = numbered.collect();
    *next += round.len() as u64;
    numbered
}

/// Whether the acceptance at `at` of a round is all that clients are sent, and
/// executors are sent its tasks.
fn goes_alone(round: &[(u64, Traffic)], at: usize) -> bool {
    let Traffic::Acceptance(count) = round[at].1 else { return false };
    let tasks = round.iter().map(|(_, traffic)| match traffic {
        Traffic::Tasks(count) => *count,
        _ => 0,
    });
    let to_clients = round.iter().filter(|(_, traffic)| !matches!(traffic, Traffic::Tasks(_)));
    to_clients.count() == 1 && tasks.sum::<u64>() >= count
}

/// The step in which an acceptance is sent that is held back in step `from`;
/// `None` if its connection is closed before.
fn sent_in(history: &History, from: usize, to: u64) -> Option<usize> {
    let until = history[from].0 + COALESCE_MICROS;
    for (step, (now, what)) in history.iter().enumerate().skip(from + 1) {
        let is_sent = match what {
            Happening::Closed(connection) if *connection == to => return None,
            Happening::Received(connection) => *connection == to,
            Happening::Round(round) => {
                *now >= until || round.iter().any(|(connection, _)| *connection == to)
            }
            Happening::Timeout => *now >= until,
            Happening::Stop => true,
            _ => false,
        };
        if is_sent {
            return Some(step);
        }
    }
    Some(history.len())
}

/// When each message is sent, by the rules.
fn model(history: &History) -> Sent {
    let mut sent: Sent = vec![Vec::new(); history.len() + 1];
    let mut next = 0;
    // The connection of an acceptance that is held back, the step in which it is
    // sent, and when it is at the latest.
    let mut held: Option<(u64, usize, u64)> = None;
    for (step, (now, what)) in history.iter().enumerate() {
        if let Happening::Closed(closed) = what {
            held = held.filter(|(to, ..)| to != closed);
        }
        let Happening::Round(round) = what else { continue };
        let is_free = held.is_none_or(|(_, until, latest)| until < step || latest <= *now);
        let messages = numbered(round, &mut next);
        for (at, (to, number, _)) in messages.into_iter().enumerate() {
            let subscribed = history[..step].iter().rev().find_map(|(_, what)| match what {
                Happening::Subscribed(connection) if *connection == to => Some(true),
                Happening::Closed(connection) if *connection == to => Some(false),
                _ => None,
            });
            if is_free && subscribed == Some(true) && goes_alone(round, at) {
                let until = sent_in(history, step, to);
                if let Some(until) = until {
                    sent[until].insert(0, (to, number));
                }
                held = Some((to, until.unwrap_or(usize::MAX), now + COALESCE_MICROS));
            } else {
                sent[step].push((to, number));
            }
        }
    }
    sent
}

/// What the machine sends after each step, and at last, driven `in_time` or not.
fn machine(history: &History, in_time: bool) -> Sent {
    let mut machine = AckCoalescing::default();
    let mut sent: Sent = Vec::new();
    let mut next = 0;
    for (now, what) in history {
        let now = Time(*now);
        match what {
            Happening::Subscribed(to) => {
                machine.handle(now, AckEvent::Subscribed(ConnectionId(*to)));
            }
            Happening::Received(from) => {
                machine.handle(now, AckEvent::Received(ConnectionId(*from)));
            }
            Happening::Closed(one) => machine.handle(now, AckEvent::Closed(ConnectionId(*one))),
            Happening::Round(round) => {
                let messages = numbered(round, &mut next).into_iter();
                let messages = messages
                    .map(|(to, number, traffic)| (ConnectionId(to), Message(number, traffic)));
                machine.handle(now, AckEvent::Round(messages.collect()));
            }
            Happening::Timeout => machine.handle_timeout(now),
            Happening::Stop => machine.handle(now, AckEvent::Stop),
        }
        let messages = std::iter::from_fn(|| machine.poll_message());
        sent.push(messages.map(|(to, Message(number, _))| (to.0, number)).collect());
        if let Some((at, _)) = machine.poll_timeout() {
            assert!(at > now || !in_time, "at {now:?} it is to wake up at {at:?}");
            assert!(at <= now.after(COALESCE_MICROS), "at {now:?} it sleeps until {at:?}");
        }
    }
    if let Some((at, _)) = machine.poll_timeout() {
        machine.handle_timeout(at);
    }
    let last = std::iter::from_fn(|| machine.poll_message());
    sent.push(last.map(|(to, Message(number, _))| (to.0, number)).collect());
    assert_eq!(machine.poll_timeout(), None);
    sent
}

fn round() -> impl Strategy<Value = Vec<(u64, Traffic)>> {
    let traffic = prop_oneof![
        4 => (10..13u64, (0..4u64).prop_map(Traffic::Tasks)),
        4 => (0..3u64, (1..4u64).prop_map(Traffic::Acceptance)),
        1 => (0..3u64, Just(Traffic::Other)),
    ];
    prop::collection::vec(traffic, 0..4)
}

fn history() -> impl Strategy<Value = History> {
    let happening = prop_oneof![
        4 => (0..3u64).prop_map(Happening::Subscribed),
        2 => (0..13u64).prop_map(Happening::Received),
        1 => (0..3u64).prop_map(Happening::Closed),
        12 => round().prop_map(Happening::Round),
        3 => Just(Happening::Timeout),
        1 => Just(Happening::Stop),
    ];
    let pause = prop_oneof![Just(0), Just(COALESCE_MICROS), 0..2 * COALESCE_MICROS];
    prop::collection::vec((pause, happening), 0..40).prop_map(|steps| {
        let mut now = 0;
        let steps = steps.into_iter().map(|(pause, what)| {
            now += pause;
            (now, what)
        });
        steps.collect()
    })
}

proptest! {
    #[test]
    fn each_message_is_sent_when_the_rules_say_so(history in history()) {
        // By a shell that is late, and by one that wakes up in time.
        prop_assert_eq!(machine(&history, false), model(&history));
        let mut woken: History = Vec::new();
        for (now, what) in history {
            woken.push((now, Happening::Timeout));
            woken.push((now, what));
        }
        prop_assert_eq!(machine(&woken, true), model(&woken));
    }
}
