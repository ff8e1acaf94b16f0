//! Peers that speak the protocol, prove who they are, and mean ill: whatever
//! they do, no process ends, memory stays bounded, and everybody else's tasks
//! end right.
//!
//! `FALKON_HOSTILE_SECONDS` says for how long (`make hostile`: ten minutes),
//! `FALKON_SEED` repeats the random choices, `FALKON_HOSTILE_TRACE` prints each
//! message that is changed.

mod mangler;
mod peers;
mod relay;
mod replay;
mod scheduler;
mod sizes;
mod unread;
mod value;

use crate::fixture::{Access, Random, Running, Site, poll};
use falkon_net::secure::Role;
use falkon_trials::trial;
use mangler::{Character, Ledger, Mangler};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Memory that a dispatcher may have had at its worst, in bytes: what a few
/// dozen connections may have under way, frames of 16 MiB among it.
const DISPATCHER_BYTES_MAX: u64 = 2 << 30;
/// The same of an executor.
const EXECUTOR_BYTES_MAX: u64 = 1 << 30;

const MILD: Character = Character {
    mangles: 12,
    repeats: 40,
    drops: 60,
    swaps: 40,
    floods: 400,
    stalls: 80,
    hangs_up: 100,
};
const WILD: Character = Character {
    mangles: 2,
    repeats: 10,
    drops: 20,
    swaps: 10,
    floods: 60,
    stalls: 40,
    hangs_up: 40,
};

/// Submits tasks that print `honest` when a file is there, and waits until two of them run; the
/// others are queued.
fn two_run(access: &Access<'_>, go: &Path, range: &str) -> String {
    let script = format!("until [ -e {} ]; do sleep 0.05; done; echo honest", go.display());
    let id = access.submit(&["--range", range, "--", "sh", "-c", &script]);
    poll("two tasks run", || access.instance(&id)["dispatched"] == 2);
    id
}

fn duration() -> Duration {
    let seconds = std::env::var("FALKON_HOSTILE_SECONDS").ok();
    Duration::from_secs(seconds.map_or(15, |text| text.parse().expect("a number of seconds")))
}

/// Runs a client's commands through a mangler until the test is over. What it
/// says of itself does not matter, as long as it ends.
fn hostile_client(site: &Site, access: &Path, mut random: Random, ledger: &Ledger) {
    let input = site.write(&format!("input-{}", random.next()), vec![b'i'; 100_000]);
    let lines = site.write(&format!("lines-{}", random.next()), "a line\n".repeat(2_000));
    let (whole, cached) = (format!("x={input}"), format!("cache:made-{}", random.below(4)));
    let written = format!("y={cached}");
    let commands: [&[&str]; 16] = [
        &["submit", "--range", "1-1000", "--", "@noop"],
        &["submit", "--each-line", &lines, "--", "@noop"],
        &["submit", "--range", "1-20", "--", "echo", "evil"],
        &["submit", "--range", "1-5", "--resource", "nowhere=3", "--", "true"],
        &["submit", "--wait", "--range", "1-50", "--", "@noop"],
        &["submit", "--range", "1-3", "--input", &whole, "--", "cat", "x"],
        &["submit", "--range", "1-2", "--output", &written, "--", "sh", "-c", "echo y > y"],
        &["submit", "--fail-fast", "--range", "1-30", "--", "false"],
        &["submit", "--range", "1-9", "--", "sh", "-c", "head -c 200000 /dev/zero"],
        &["status"],
        &["status", "--json"],
        &["data", "ls"],
        &["data", "put", &input],
        &["data", "where", &cached],
        &["provision", "list"],
        &["provision", "log"],
    ];
    let mut made: Vec<String> = Vec::new();
    while !ledger.over.load(Ordering::Relaxed) {
        let number = made.get(random.below(made.len() as u64 + 1) as usize).cloned();
        let number = number.unwrap_or_else(|| random.below(20).to_string());
        let of_one = [
            &["tasks", &number][..],
            &["results", &number],
            &["cancel", &number],
            &["destroy", &number],
            &["wait", &number],
        ];
        let command = match random.below(3) {
            0 => of_one[random.below(5) as usize],
            _ => commands[random.below(commands.len() as u64) as usize],
        };
        let words = if matches!(command[0], "data" | "provision") { 2 } else { 1 };
        let access = access.to_str().unwrap();
        let args = [&command[..words], &["--access", access], &command[words..]].concat();
        let mut running = site.start(args);
        // A client whose answer was dropped on its way waits for ever.
        if running.ended_within(Duration::from_millis(700)).is_none() {
            drop(running);
            continue;
        }
        let ran = running.finish();
        if command[0] == "submit" && ran.succeeded() {
            made.extend(ran.text().lines().last().map(str::to_owned));
        }
        if made.len() > 20 {
            made.remove(0);
        }
    }
}

/// Runs executors through a mangler, one after the other.
fn hostile_executor(site: &Site, access: &Path, mut random: Random, ledger: &Ledger) {
    let access = access.to_str().unwrap();
    while !ledger.over.load(Ordering::Relaxed) {
        let name = format!("evil-{}", random.below(5));
        let mut args = vec!["executor", "--access", access, "--slots", "2", "--name", &name];
        args.extend(["--give-up", "2s"]);
        let mut running = site.start(args);
        running.ended_within(Duration::from_millis(500 + random.below(4_000)));
    }
}

/// Runs tasks that only honest executors may run, and looks at every result.
fn honest_client(site: &Site, access: &Access<'_>, mut random: Random, ledger: &Ledger) -> u64 {
    let name = format!("honest-{}", random.next());
    let content: String = (0..2_000).map(|_| char::from(b'a' + random.below(26) as u8)).collect();
    let input = format!("x={}", site.write(&name, &content));
    let mut done = 0;
    while !ledger.over.load(Ordering::Relaxed) {
        let first = random.below(1_000_000);
        let range = format!("{first}-{}", first + 39);
        let mut args = vec!["--wait", "--keep-order", "--resource", "honest=1", "--range", &range];
        args.extend(["--retries", "1", "--input", &input]);
        args.extend(["--", "sh", "-c", "echo $0; cat x; echo"]);
        let ran = access.run("submit", &args).exits(0);
        let expected: Vec<String> =
            (first..first + 40).flat_map(|number| [number.to_string(), content.clone()]).collect();
        assert_eq!(ran.lines(), expected);
        done += 40;
    }
    done
}

#[track_caller]
fn still_runs(running: &mut Running, bytes_max: u64) {
    assert!(running.ended_within(Duration::ZERO).is_none(), "it ended\n{}", running.said());
    let bytes = running.memory_max();
    println!("{} MiB at most", bytes >> 20);
    assert!(bytes < bytes_max, "it held {} MiB", bytes >> 20);
}

#[trial]
fn whatever_hostile_peers_do_everybody_elses_tasks_end_right() {
    let mut random = Random::seeded("whatever_hostile_peers_do");
    let mut site = Site::new();
    site.lying_scheduler(&mut random);
    let queue = "kind = \"slurm\"\nnodes_max = 2\nquery_interval = 0.2\ndelay = 1\n";
    let queue = site.write("lies.toml", queue);
    let mut dispatcher = site
        .dispatcher("d", &["--listen", "127.0.0.1:0", "--security", "none", "--provision", &queue]);
    let honest: Vec<Running> = ["one", "two"]
        .map(|name| dispatcher.executor(name, &["--slots", "2", "--resource", "honest=2"]))
        .into();
    let peer_secret = dispatcher.access_of("access-executor.json").peer_secret();
    let ledger = Arc::new(Ledger { peer_secret, ..Ledger::default() });
    let mangler = |role: &str, number: u64, character| {
        let access = dispatcher.access_of(&format!("access-{role}.json")).file;
        let name = format!("evil-{role}-{number}.json");
        Mangler::start(&access, &name, character, &random.lane(number), &ledger)
    };
    let clients = [mangler("client", 1, MILD), mangler("client", 2, WILD)];
    let executors = [mangler("executor", 3, MILD), mangler("executor", 4, WILD)];
    let observer = mangler("observer", 5, WILD);

    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (site, ledger, done) = (&site, &ledger, &done);
        let access = dispatcher.access();
        for (lane, mangler) in (10..).zip(clients.iter().chain([&observer])) {
            let random = random.lane(lane);
            scope.spawn(move || hostile_client(site, mangler.access(), random, ledger));
        }
        for (lane, mangler) in (20..).zip(&executors) {
            let random = random.lane(lane);
            scope.spawn(move || hostile_executor(site, mangler.access(), random, ledger));
        }
        for (lane, role) in (50..).zip([Role::Client, Role::Client, Role::Executor, Role::Observer])
        {
            let file = match role {
                Role::Executor => "access-executor.json",
                Role::Observer => "access-observer.json",
                _ => "access-client.json",
            };
            let (file, random) = (dispatcher.access_of(file).file, random.lane(lane));
            scope.spawn(move || replay::replay(&file, role, random, ledger));
        }
        let lane = random.lane(30);
        scope.spawn(move || peers::visit(lane, ledger));
        let lane = random.lane(40);
        let honest_work = scope.spawn(move || {
            done.fetch_add(honest_client(site, &access, lane, ledger), Ordering::Relaxed);
        });
        let end = Instant::now() + duration();
        while Instant::now() < end && !honest_work.is_finished() {
            random.moment(200_000);
        }
        ledger.over.store(true, Ordering::Relaxed);
    });
    let (frames, mangled) =
        (ledger.frames.load(Ordering::Relaxed), ledger.mangled.load(Ordering::Relaxed));
    let done = done.load(Ordering::Relaxed);
    println!("{frames} frames of hostile peers, {mangled} of them changed; {done} honest tasks");
    assert!(mangled > 0 && done > 0);
    still_runs(dispatcher.running.as_mut().unwrap(), DISPATCHER_BYTES_MAX);
    for mut executor in honest {
        still_runs(&mut executor, EXECUTOR_BYTES_MAX);
    }

    // The journal has what was accepted of them, and must be readable.
    dispatcher.kill();
    dispatcher.start();
    assert!(dispatcher.access().status()["instances"].is_array());
}
