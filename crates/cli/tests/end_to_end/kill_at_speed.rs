//! `kill -9` in the middle of very many short tasks: at full speed, too, no
//! task that was accepted is lost, and its client gets each result once.
//!
//! With `FALKON_LARGE` set there are 10,000,000 tasks.

use crate::fixture::{Access, Dispatcher, PATIENCE, Random, Running, Site};
use crate::input::large;
use crate::kill::find;
use std::io::{BufRead, BufReader, BufWriter, PipeReader, Write};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, Sender, channel};

/// How many tasks, and how often something is killed while they run.
const SMALL: (u64, u64) = (100_000, 4);
const LARGE: (u64, u64) = (10_000_000, 24);
const NAME: &str = "speed";

#[test]
fn at_full_speed_nothing_is_lost_and_nothing_comes_twice() {
    let (tasks, strikes) = if large() { LARGE } else { SMALL };
    let random = Random::seeded("at_full_speed_nothing_is_lost");
    let site = Site::new();
    let mut lines = BufWriter::new(std::fs::File::create(site.path("lines")).unwrap());
    for line in 0..tasks {
        writeln!(lines, "{line:08}").unwrap();
    }
    lines.into_inner().unwrap();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let (from_client, to_test) = std::io::pipe().unwrap();
    let file = access.file.to_str().unwrap();
    let mut command = site.falkon(["submit", "--access", file, "--name", NAME, "--wait", "--json"]);
    command.args(["--each-line", "lines", "--", "@noop"]).stdout(to_test).stderr(Stdio::piped());
    let mut services = Services { dispatcher, executors: Vec::new(), started: 0, random };
    services.add_executor();
    services.add_executor();
    let client = Running::start_as_is(command);
    let (passed, passes) = channel();
    let again = std::thread::scope(|scope| {
        let read = scope.spawn(move || read(from_client, tasks, strikes, &passed));
        services.strike(strikes, &passes);
        read.join().unwrap()
    });
    println!("{tasks} results, {strikes} kills, {again} tasks that ran more than once");
    client.finish().exits(0);
    let id = find(&access, NAME).unwrap();
    let instance = access.instance(&id);
    assert_eq!((&instance["tasks"], &instance["done"]), (&tasks.into(), &tasks.into()));
    site.left().wait_for_none_but(&services.all());
}

/// Reads results until there are no more, each of which must be there once. Says
/// when another share of them has come. Returns how many tasks were tried more
/// than once.
fn read(client: PipeReader, tasks: u64, strikes: u64, passed: &Sender<u64>) -> u64 {
    let mut seen = vec![false; tasks as usize];
    let (mut count, mut again) = (0, 0);
    let share = tasks / (strikes + 1);
    for line in BufReader::with_capacity(1 << 20, client).lines() {
        let line = line.unwrap();
        let index = number(&line, "\"index\":");
        assert!(!std::mem::replace(&mut seen[index as usize], true), "twice: {line}");
        assert!(line.contains("\"status\":\"done\""), "{line}");
        again += u64::from(number(&line, "\"attempts\":") > 1);
        count += 1;
        if count % share == 0 {
            // Nobody listens any more once everything was killed that is to be.
            let _ = passed.send(count);
        }
    }
    assert_eq!(count, tasks, "results are missing");
    again
}

/// The number behind `key`.
fn number(line: &str, key: &str) -> u64 {
    let (_, rest) = line.split_once(key).unwrap();
    rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap()].parse().unwrap()
}

struct Services<'a> {
    dispatcher: Dispatcher<'a>,
    executors: Vec<Running>,
    started: u64,
    random: Random,
}

impl Services<'_> {
    fn access(&self) -> Access<'_> {
        self.dispatcher.access()
    }

    fn add_executor(&mut self) {
        let name = format!("executor{}", self.started);
        self.started += 1;
        // The dispatcher may be away: it comes when it can.
        let executor = self.access().start("executor", &["--name", &name, "--slots", "2"]);
        self.executors.push(executor);
    }

    /// Kills a dispatcher or an executor, by turns, whenever another share of
    /// the results is there; and starts another.
    fn strike(&mut self, strikes: u64, passes: &Receiver<u64>) {
        for strike in 0..strikes {
            let Ok(count) = passes.recv_timeout(PATIENCE) else {
                panic!("no results come after {strike} kills\n{}", self.dispatcher.service().said())
            };
            if strike % 2 == 0 {
                let at = self.random.below(self.executors.len() as u64) as usize;
                self.executors.swap_remove(at).kill();
                self.add_executor();
                println!("an executor was killed after {count} results");
            } else {
                self.dispatcher.kill();
                self.dispatcher.start();
                println!("the dispatcher was killed after {count} results");
            }
        }
    }

    fn all(&self) -> Vec<&Running> {
        self.executors.iter().chain([self.dispatcher.service()]).collect()
    }
}
