//! `kill -9` in the middle of very many short tasks: at full speed, too, no
//! task that was accepted is lost, and its client gets each result once.
//!
//! With `FALKON_LARGE` set there are 10,000,000 tasks.

use crate::fixture::{Access, Dispatcher, PATIENCE, Random, Running, Site};
use crate::input::large;
use crate::kill::find;
use falkon_trials::trial;
use std::io::{BufRead, BufReader, BufWriter, PipeReader, Write};
use std::process::Stdio;
use std::time::Instant;

struct Size {
    tasks: u64,
    command: &'static [&'static str],
    /// How often something is killed while they run.
    strikes: u64,
    /// How long it lives at most before, in microseconds.
    pause_micros: u64,
}

/// Few tasks that do nothing at all would be over before anything is killed:
/// these are started one by one.
const SMALL: Size =
    Size { tasks: 30_000, command: &["@sleep", "0"], strikes: 4, pause_micros: 200_000 };
const LARGE: Size =
    Size { tasks: 10_000_000, command: &["@noop"], strikes: 12, pause_micros: 500_000 };
const NAME: &str = "speed";

#[trial]
fn at_full_speed_nothing_is_lost_and_nothing_comes_twice() {
    let Size { tasks, command: program, strikes, pause_micros } =
        if large() { LARGE } else { SMALL };
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
    command
        .args(["--each-line", "lines", "--"])
        .args(program)
        .stdout(to_test)
        .stderr(Stdio::piped());
    let mut services = Services { dispatcher, executors: Vec::new(), started: 0, random };
    let client = Running::start_as_is(command);
    std::thread::scope(|scope| {
        let read = scope.spawn(move || read(from_client, tasks));
        services.wait_until_accepted(tasks);
        services.add_executor();
        services.dispatcher.service().wait_for("joined");
        services.add_executor();
        for strike in 0..strikes {
            services.strike(strike % 2 == 0, pause_micros);
        }
        read.join().unwrap();
    });
    client.finish().exits(0);
    let id = find(&access, NAME).unwrap();
    let instance = access.instance(&id);
    assert_eq!((&instance["tasks"], &instance["done"]), (&tasks.into(), &tasks.into()));
    site.left().wait_for_none_but(&services.all());
}

/// Reads results until there are no more: each must be there, once.
fn read(client: PipeReader, tasks: u64) {
    let mut seen = vec![false; tasks as usize];
    for line in BufReader::with_capacity(1 << 20, client).lines() {
        let line = line.unwrap();
        let index = index(&line) as usize;
        assert!(!std::mem::replace(&mut seen[index], true), "twice: {line}");
        assert!(line.contains("\"status\":\"done\""), "{line}");
    }
    let missing = seen.iter().filter(|seen| !**seen).count();
    assert_eq!(missing, 0, "results are missing");
}

/// Whose result a line is.
fn index(line: &str) -> u64 {
    let (_, rest) = line.split_once("\"index\":").unwrap();
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

    /// Nothing runs until all tasks are there: what is killed then is killed at
    /// work.
    fn wait_until_accepted(&self, tasks: u64) {
        let (mut accepted, mut deadline) = (0, Instant::now() + PATIENCE);
        while accepted < tasks {
            let before = accepted;
            let instance = find(&self.access(), NAME).map(|id| self.access().instance(&id));
            accepted = instance.map_or(0, |instance| instance["tasks"].as_u64().unwrap());
            if accepted > before {
                deadline = Instant::now() + PATIENCE;
            }
            assert!(Instant::now() < deadline, "{accepted} tasks were accepted, and no more");
        }
    }

    /// Kills an executor or the dispatcher after a moment of work, and starts
    /// another.
    fn strike(&mut self, at_executor: bool, pause_micros: u64) {
        self.random.moment(pause_micros);
        if at_executor {
            let at = self.random.below(self.executors.len() as u64) as usize;
            self.executors.swap_remove(at).kill();
            self.add_executor();
        } else {
            self.dispatcher.kill();
            self.dispatcher.start();
        }
        let id = find(&self.access(), NAME).unwrap();
        let done = self.access().instance(&id)["done"].clone();
        let what = if at_executor { "an executor" } else { "the dispatcher" };
        println!("{what} was killed; a moment later {done} tasks were done");
    }

    fn all(&self) -> Vec<&Running> {
        self.executors.iter().chain([self.dispatcher.service()]).collect()
    }
}
