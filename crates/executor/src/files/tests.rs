//! File systems that hang, as gates that the test holds.

use super::*;
use std::sync::mpsc::{Sender, channel};

/// Longer than anything takes that does not hang.
const LIMIT: Duration = Duration::from_secs(3600);

/// Asks a question that is answered when the sender is dropped.
fn hang(files: &mut Files<u32>, path: &str, answer: u32) -> (u64, Sender<()>) {
    let (hold, held) = channel::<()>();
    let path = PathBuf::from(path);
    let question = files.ask(move |look| {
        look.at(&path);
        let _ = held.recv();
        answer
    });
    (question, hold)
}

/// Waits for `count` answers, which do come.
async fn answers(files: &mut Files<u32>, count: usize) -> Vec<(u64, u32)> {
    let mut all = Vec::new();
    while all.len() < count {
        let due = files.due().unwrap_or_else(|| Instant::now() + LIMIT);
        // Threads are added when it is time to look.
        let _ = tokio::time::timeout_at(due.into(), files.recv()).await;
        let taken = files.take(Instant::now());
        all.extend(taken.into_iter().map(|(question, answer)| (question, answer.unwrap())));
    }
    all.sort_unstable();
    all
}

/// Waits until all threads that there may be look at something.
async fn all_busy(files: &mut Files<u32>) {
    let busy = |files: &Files<u32>| {
        let state = lock(&files.shared.state);
        state.seats.iter().filter(|seat| lock(&seat.looking).is_some()).count()
    };
    while busy(files) < THREADS_MAX {
        if let Some(due) = files.due() {
            let _ = tokio::time::timeout_at(due.into(), files.recv()).await;
        }
        assert!(files.take(Instant::now()).is_empty());
    }
}

#[tokio::test(flavor = "current_thread")]
async fn what_hangs_holds_up_nothing_else_and_ends_with_its_path() {
    let mut files = Files::new(LIMIT);
    let held: Vec<_> = (0..10).map(|at| hang(&mut files, &format!("/dead/{at}"), at)).collect();
    let quick: Vec<u64> = (0..100).map(|at| files.ask(move |_| at)).collect();
    files.send();
    let expected: Vec<(u64, u32)> = quick.into_iter().zip(0..).collect();
    assert_eq!(answers(&mut files, 100).await, expected);
    // The time of these questions is over.
    let ended = files.take(Instant::now() + LIMIT);
    assert_eq!(ended.len(), 10);
    for (at, ((question, _), (ended, why))) in held.iter().zip(&ended).enumerate() {
        assert_eq!(question, ended);
        let path = PathBuf::from(format!("/dead/{at}"));
        assert_eq!(*why, Err(Unanswered::Hangs { path, limit: LIMIT }));
    }
    // Late answers are discarded.
    drop(held);
    let last = files.ask(|_| 7);
    files.send();
    assert_eq!(answers(&mut files, 1).await, [(last, 7)]);
}

#[tokio::test(flavor = "current_thread")]
async fn with_all_threads_hanging_nothing_more_is_looked_at_until_one_is_back() {
    let mut files = Files::new(LIMIT);
    let held: Vec<_> = (0..THREADS_MAX as u32).map(|at| hang(&mut files, "/dead/x", at)).collect();
    files.send();
    all_busy(&mut files).await;
    let later = Instant::now() + LIMIT;
    assert_eq!(files.take(later).len(), THREADS_MAX);
    let question = files.ask(|_| 1);
    files.send();
    let ended = files.take(files.due().unwrap());
    let path = PathBuf::from("/dead/x");
    assert_eq!(ended, [(question, Err(Unanswered::NoThread { path }))]);
    drop(held);
    let question = files.ask(|_| 2);
    files.send();
    loop {
        // The threads may not have come back yet: then it is refused once more.
        let _ = tokio::time::timeout_at(files.due().unwrap().into(), files.recv()).await;
        match files.take(Instant::now()).pop() {
            Some((of, Ok(answer))) => {
                assert_eq!((of >= question, answer), (true, 2));
                break;
            }
            Some((_, Err(_))) => {
                files.ask(|_| 2);
                files.send();
            }
            None => {}
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn what_nobody_wants_any_more_has_no_answer() {
    let mut files = Files::new(LIMIT);
    let (question, hold) = hang(&mut files, "/dead/x", 1);
    let unsent = files.ask(|_| 2);
    files.forget(unsent);
    files.send();
    files.forget(question);
    assert!(files.due().is_none());
    drop(hold);
    let last = files.ask(|_| 3);
    files.send();
    assert_eq!(answers(&mut files, 1).await, [(last, 3)]);
}
