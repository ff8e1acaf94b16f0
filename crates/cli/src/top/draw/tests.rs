//! The screen, by its contents.
#![allow(clippy::unwrap_used, reason = "a test may fail at once")]

use super::super::board::{Board, Key, News, Order};
use super::draw;
use crate::query::Action;
use falkon_core::data::stage::{CacheState, Count, Usage};
use falkon_core::dispatch::{Standing, UserLimits, UserUse};
use falkon_core::result::Counts;
use falkon_core::task::{ExecutorId, InstanceId, Resources, Time};
use falkon_wire::message::{CacheStatus, ExecutorStatus, InstanceStatus, Status, UserStatus};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn instance(id: u64, name: &str, done: u64) -> InstanceStatus {
    let total = 1_000_000_000;
    let counts = Counts {
        total,
        waiting: 0,
        ready: total - done - 8,
        dispatched: 8,
        done: done - 3,
        failed: 3,
        ..Counts::default()
    };
    let name = name.to_owned();
    InstanceStatus { id, name, counts, running: 6, sealed: true, ..InstanceStatus::default() }
}

fn executor(id: u64) -> ExecutorStatus {
    let from = |objects| Count { objects, bytes: objects };
    let usage = Usage { local: from(90), peer: from(9), store: from(1) };
    let state = CacheState { capacity: 1000, used: 250, usage };
    ExecutorStatus {
        id: ExecutorId(id),
        name: format!("node{id}:4711"),
        capacity: Resources::cpus(4),
        free: Resources::cpus(1),
        tasks: 5,
        prefetched: 2,
        connected: id != 2,
        suspended_until: None,
        drained: id == 1,
        cache: (id == 0).then(|| CacheStatus { objects: 9, state, ..CacheStatus::default() }),
        nodes: None,
        relays: Vec::new(),
        unwritten: Vec::new(),
    }
}

fn status(at_s: u64, done: u64) -> Status {
    Status {
        version: "0.1.0".to_owned(),
        started: Time(0),
        now: Time(at_s * 1_000_000),
        instances: vec![instance(0, "sweep", done), instance(7, "a\x1b[31mb", 1_000)],
        executors: (0..3).map(executor).collect(),
        ..Status::default()
    }
}

/// The lines of the screen.
fn screen(board: &Board, (wide, high): (u16, u16)) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(wide, high)).unwrap();
    terminal.draw(|frame| draw(frame, board)).unwrap();
    let buffer = terminal.backend().buffer();
    let cell = |x, y| buffer[(x, y)].symbol().to_owned();
    let lines = (0..high).map(|y| (0..wide).map(|x| cell(x, y)).collect::<String>());
    lines.map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn the_tree_of_relays_takes_the_place_of_the_executors() {
    let relay = |name: &str, depth, ended, away_micros| Standing {
        name: name.to_owned(),
        depth,
        nodes: 640,
        cpus_milli: 2_560_000,
        used_milli: 1_280_500,
        running: 1280,
        ahead: 96,
        ended,
        away_micros,
    };
    let at = |at_s, ended| {
        let mut status = status(at_s, 500_000);
        status.executors[0].nodes = Some(640);
        let below = relay("rack\x1b[2J", 1, ended / 2, None);
        status.executors[0].relays = vec![relay("site-a", 0, ended, None), below];
        status.away = vec![relay("site-b", 0, 7, Some(90_000_000))];
        status
    };
    let mut board = Board::default();
    board.take(News::Status(at(60, 1_000_000)));
    board.take(News::Status(at(70, 1_010_000)));
    assert!(screen(&board, (80, 24))[23].contains("tab executors"));
    board.press(Key::OtherList);
    assert!(screen(&board, (80, 24))[23].contains("tab relays"));
    board.press(Key::OtherList);
    board.press(Key::Down);
    let lines = screen(&board, (80, 24));
    let relays = lines.iter().position(|line| line.contains(" relays: 3 ")).unwrap();
    let expected = [
        "STATE          RELAY                NODES           CPUS RUNNING AHEAD   /S",
        "connected      site-a                 640 1280.5 of 2560    1280    96 1000",
        "connected        rack [2J             640 1280.5 of 2560    1280    96  500",
        "away 1 min 30 s site-b                640 1280.5 of 2560    1280    96",
    ];
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown: Vec<String> = lines[relays + 1..][..4].iter().map(|line| words(line)).collect();
    assert_eq!(shown, expected.map(words), "{}", lines.join("\n"));
    assert!(lines[relays + 3].contains("  rack [2J"), "{}", lines.join("\n"));
    assert!(lines[23].contains("tab instances"));
    // The last relay goes while its list is shown.
    board.take(News::Status(status(71, 500_000)));
    assert!(screen(&board, (80, 24)).iter().any(|line| line.contains(" executors: 3 ")));
}

#[test]
fn users_take_the_place_of_the_executors_where_there_are_some() {
    let limits = UserLimits { share: 2, slots_max: Some(64), ..UserLimits::default() };
    let has = UserUse { slots_milli: 6500, ..UserUse::default() };
    let user = UserStatus { name: "alice".to_owned(), limits, has, ..UserStatus::default() };
    let mut told = status(60, 500_000);
    told.instances[0].user = "alice".to_owned();
    told.users = vec![user];
    let mut board = Board::default();
    board.take(News::Status(told));
    board.press(Key::OtherList);
    assert!(screen(&board, (80, 24))[23].contains("tab users"));
    board.press(Key::OtherList);
    board.press(Key::Down);
    let lines = screen(&board, (80, 24));
    let users = lines.iter().position(|line| line.contains(" users: 2 ")).unwrap();
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown: Vec<String> = lines[users + 1..][..3].iter().map(|line| words(line)).collect();
    let expected = [
        "SHARE USER INSTANCES QUEUED RUNNING DONE FAILED CPUS",
        "2 alice 1 999499994 6 499997 3 6.5/64",
        "1 owner 1 999998994 6 997 3",
    ];
    assert_eq!(shown, expected, "{}", lines.join("\n"));
    assert!(lines[23].contains("tab instances"));
    // The last user goes while the list is shown.
    board.take(News::Status(status(61, 500_000)));
    assert!(screen(&board, (80, 24)).iter().any(|line| line.contains(" executors: 3 ")));
}

fn board() -> Board {
    let mut board = Board::default();
    board.take(News::Status(status(60, 500_000)));
    board.take(News::Status(status(70, 503_000)));
    board
}

#[test]
fn a_screen_of_80_by_24_has_all_that_is_there() {
    let lines = screen(&board(), (80, 24));
    let expected = [
        "falkon 0.1.0, up 1 min 10 s   executors 3 (2 take no tasks)   CPUs 6 of 8 in use",
        "300.0 tasks/s   running 12   queued 1999495988   failed 6",
        "inputs 100: 90.0 % from own caches, 9.0 % from peers, 1.0 % from stores",
        " instances: 2 ──────────────────────────────────────────────────────────────────",
        "ID NAME                   STATE        TASKS    QUEUED RUNNING   DONE FAILED  /S",
        " 0 sweep                  running 1000000000 999496994       6 502997      3 300",
        " 7 a [31mb                running 1000000000 999998994       6    997      3",
    ];
    assert_eq!(lines[..expected.len()], expected, "{}", lines.join("\n"));
    let executors = lines.iter().position(|line| line.contains(" executors: 3 ")).unwrap();
    let expected = [
        "ID NAME                                         CPUS RUNNING AHEAD  CACHE   HITS",
        " 1 node1:4711                    drained      3 of 4       3     2",
        " 2 node2:4711                    disconnected 3 of 4       3     2",
        " 0 node0:4711                                 3 of 4       3     2 25.0 % 90.0 %",
    ];
    assert_eq!(lines[executors + 1..][..expected.len()], expected, "{}", lines.join("\n"));
    assert!(lines[23].starts_with("q quit"), "{}", lines.join("\n"));
}

#[test]
fn no_screen_is_too_small() {
    for size in [(80, 24), (20, 5), (1, 1), (300, 3), (3, 300)] {
        let mut board = board();
        board.take(News::Explained(InstanceId(0), "tasks wait ".repeat(400)));
        screen(&board, size);
    }
    screen(&Board::default(), (80, 24));
}

#[test]
fn long_lists_show_what_is_selected_and_numbers_whole() {
    let mut board = Board::default();
    let mut now = status(60, 1_000);
    now.instances = (0..100_000).map(|id| instance(id, &"long".repeat(64), 1_000)).collect();
    now.instances[50].counts.total = 1_000_000_000_000;
    board.take(News::Status(now));
    for _ in 0..5 {
        board.press(Key::PageDown);
    }
    let lines = screen(&board, (80, 24));
    let is_it = |line: &&String| line.contains("50 longlong") && line.contains(" 1000000000000 ");
    assert_eq!(lines.iter().filter(is_it).count(), 1, "{}", lines.join("\n"));
}

#[test]
fn keys_are_about_what_is_selected() {
    let mut board = board();
    assert_eq!(board.press(Key::Letter('d')), None);
    assert_eq!(board.press(Key::Down), None);
    assert_eq!(board.press(Key::Letter('p')), Some(Order::Act(Action::Pause(InstanceId(7), true))));
    assert_eq!(board.press(Key::Letter('w')), Some(Order::Explain(Some(InstanceId(7)))));
    board.take(News::Explained(InstanceId(7), "its instance is paused\n".to_owned()));
    let lines = screen(&board, (80, 24));
    assert!(lines.iter().any(|line| line == "its instance is paused"), "{}", lines.join("\n"));
    assert_eq!(board.press(Key::Back), Some(Order::Explain(None)));
    assert_eq!(
        board.press(Key::Letter('-')),
        Some(Order::Act(Action::Prioritize(InstanceId(7), -1)))
    );
    let mut now = status(71, 503_000);
    now.instances[1].priority = i32::MAX;
    board.take(News::Status(now));
    let full = Order::Act(Action::Prioritize(InstanceId(7), i32::MAX));
    assert_eq!(board.press(Key::Letter('+')), Some(full));
    let lines = screen(&board, (80, 24));
    assert!(lines.iter().any(|line| line.contains(" running +2147483647 ")));
    // Nothing is cancelled that was not confirmed.
    assert_eq!(board.press(Key::Letter('c')), None);
    let lines = screen(&board, (80, 24));
    assert!(lines[23].starts_with("cancel all tasks of instance 7? y"), "{}", lines[23]);
    assert_eq!(board.press(Key::Letter('q')), None);
    assert_eq!(board.press(Key::Letter('c')), None);
    assert_eq!(board.press(Key::Letter('y')), Some(Order::Act(Action::Cancel(InstanceId(7)))));
    assert_eq!(board.press(Key::OtherList), None);
    assert_eq!(
        board.press(Key::Letter('d')),
        Some(Order::Act(Action::Drain(ExecutorId(1), false)))
    );
    assert_eq!(board.press(Key::PageDown), None);
    assert_eq!(board.press(Key::Letter('d')), Some(Order::Act(Action::Drain(ExecutorId(0), true))));
    board.take(News::Said("executor 1 gets tasks again".to_owned()));
    assert!(screen(&board, (80, 24))[23].starts_with("executor 1 gets tasks again"));
    // What is old is said to be, until an answer comes.
    board.take(News::Lost("nobody\x1b[2J there".to_owned()));
    let lines = screen(&board, (80, 24));
    assert_eq!(lines[0], "no answer, trying again: nobody [2J there");
    // What was selected is gone.
    board.take(News::Status(Status { now: Time(90_000_000), ..Status::default() }));
    assert_eq!(board.press(Key::Letter('d')), None);
    assert_eq!(board.press(Key::Quit), Some(Order::Quit));
}
