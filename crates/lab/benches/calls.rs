//! Calls per second of a Python function that does nothing, through two
//! workers, beside `ProcessPoolExecutor(2).map` in the same run.
//!
//! A dispatcher without a journal, an executor with two slots and a client run
//! in this process; the payloads are prepared beforehand. Rounds alternate, so
//! that a change in the machine's load meets all. Nothing is asserted.
//!
//! `cargo bench -p falkon-lab --bench calls [-- CALLS]`

#![allow(clippy::unwrap_used, reason = "a benchmark may fail at once")]

use falkon_core::dispatch::InstanceOptions;
use falkon_core::result::Outcome;
use falkon_core::task::{Kind, Packed, Resources, Rows, Submission, TaskClass, TaskId};
use falkon_data::overflow::OverflowDirectory;
use falkon_executor::Link;
use falkon_net::Log;
use falkon_net::client::{Client, Deliveries};
use falkon_net::secure::{Role, plain};
use falkon_process::{HOST_ARGUMENT, host_main};
use falkon_wire::codec::Wire;
use falkon_wire::command::{Call, Command, Function, Template};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;

const WORKERS: u32 = 2;
const CALLS: u64 = 200_000;
const SUBMISSION_CALLS: u64 = 65_536;
const ROUNDS: usize = 5;
const LINK_BYTES: usize = 1 << 20;

/// What the pool does; the word after it chooses how.
const POOL: &str = r#"
import sys, time
from concurrent.futures import ProcessPoolExecutor

def nothing(x):
    return None

if __name__ == "__main__":
    count, automatic = int(sys.argv[1]), sys.argv[2] == "automatic"
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(nothing, range(100)))
        start = time.perf_counter()
        # As `multiprocessing.Pool.map` chooses it: four chunks per worker.
        chunk = max(1, -(-count // 8)) if automatic else 1
        for _ in pool.map(nothing, range(count), chunksize=chunk):
            pass
        print(count / (time.perf_counter() - start))
"#;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == HOST_ARGUMENT) {
        return host_main();
    }
    let given = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(compare(given.unwrap_or(CALLS)));
    ExitCode::SUCCESS
}

async fn compare(calls: u64) {
    let mut names = vec!["falkon"];
    names.extend(["pool, chunksize=1", "pool, automatic"]);
    let mut rates = [const { Vec::new() }; 3];
    let submissions = submissions(calls);
    let service = Service::start();
    let Service { client, mut deliveries, leave, running } = service;
    run(&client, &mut deliveries, &submissions[..1]).await;
    for _ in 0..ROUNDS {
        rates[0].push(run(&client, &mut deliveries, &submissions).await);
        rates[1].extend(pool(calls / 20, "one"));
        rates[2].extend(pool(calls, "automatic"));
    }
    leave.send(()).unwrap();
    running.await.unwrap();
    println!("calls of a Python function that does nothing, {WORKERS} workers, {ROUNDS} rounds");
    for (name, mut rates) in names.into_iter().zip(rates) {
        rates.sort_by(f64::total_cmp);
        match (rates.first(), rates.get(rates.len() / 2), rates.last()) {
            (Some(least), Some(median), Some(most)) => {
                println!("{name:>20}: {median:>9.0}/s ({least:.0} to {most:.0})");
            }
            _ => println!("{name:>20}: python3 is not there"),
        }
    }
}

struct Service {
    client: Client,
    deliveries: Deliveries,
    leave: oneshot::Sender<()>,
    running: tokio::task::JoinHandle<()>,
}

impl Service {
    fn start() -> Service {
        let log: Log = Arc::new(|_: &str| {});
        let options = falkon_dispatcher::Options {
            store: None,
            pages: None,
            events: None,
            identity: None,
            keep_micros: None,
            collectors: None,
            control: None,
            log: log.clone(),
        };
        let (dispatcher, _) = falkon_dispatcher::start(options).unwrap();
        let attach = |role| {
            let (ours, theirs) = tokio::io::duplex(LINK_BYTES);
            let (reader, writer) = plain(theirs);
            dispatcher.attach(role, "here", reader, writer);
            plain(ours)
        };
        let (reader, writer) = attach(Role::Owner);
        let (client, deliveries) = Client::over(reader, writer);
        let (reader, writer) = attach(Role::Executor);
        let scratch = std::env::temp_dir();
        let overflow = OverflowDirectory::create(&scratch).unwrap();
        let capacity = Resources::cpus(WORKERS);
        let options = falkon_executor::Options {
            capture_bytes_max: 1 << 16,
            log,
            ..falkon_executor::Options::new("bench".to_owned(), capacity, scratch, overflow)
        };
        let (leave, leaving) = oneshot::channel();
        let running = tokio::spawn(async move {
            falkon_executor::run(options, Link::Here(Box::new((reader, writer))), leaving)
                .await
                .unwrap();
            dispatcher.stop().await;
        });
        Service { client, deliveries, leave, running }
    }
}

/// The calls, as a client that keeps up would send them.
fn submissions(calls: u64) -> Vec<Submission> {
    let function = Function {
        language: "python".to_owned(),
        name: b"nothing.py:nothing".to_vec(),
        code: Arc::new(b"snothing.py\0def nothing(x): return None".to_vec()),
    };
    let call = Call { function: Arc::new(function), payload: Vec::new() };
    let template = Template::Calls(Command { call: Some(call), ..Command::default() });
    let template = Arc::new(template.to_bytes());
    let starts = (0..calls).step_by(SUBMISSION_CALLS as usize);
    starts
        .map(|first| {
            let count = SUBMISSION_CALLS.min(calls - first);
            let mut rows = Packed::default();
            for _ in 0..count {
                assert!(rows.push(b"s\x91\xc4\x011"));
            }
            Submission {
                data: None,
                count,
                template: template.clone(),
                rows: Rows::Packed(rows),
                classes: vec![TaskClass { kind: Kind::Function, ..TaskClass::default() }],
                class_runs: vec![(count, 0)],
                names: None,
                after: Vec::new(),
                everywhere: None,
            }
        })
        .collect()
}

/// Calls per second from the first submission to the last result.
async fn run(client: &Client, deliveries: &mut Deliveries, submissions: &[Submission]) -> f64 {
    let options = InstanceOptions { keep_results: false, ..InstanceOptions::default() };
    let (instance, _) = client.create(options).await.unwrap();
    client.subscribe(instance, 0).await.unwrap();
    let start = Instant::now();
    let submit = async {
        let mut first = 0;
        for submission in submissions {
            let pending = client.submit(instance, TaskId(first), submission.clone()).await.unwrap();
            pending.accepted().await.unwrap();
            first += submission.count;
        }
        client.seal(instance).await.unwrap();
        first
    };
    let receive = async {
        let mut position = 0;
        loop {
            let delivery = deliveries.recv().await.unwrap();
            if delivery.instance != instance {
                continue;
            }
            for run in &delivery.results {
                assert_eq!(run.outcome, Outcome::Exit(0), "{:?}", run.detail);
                position += run.count;
            }
            client.acknowledge(instance, position).await.unwrap();
            if delivery.complete {
                return position;
            }
        }
    };
    let (submitted, received) = tokio::join!(submit, receive);
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(submitted, received);
    client.destroy(instance).await.unwrap();
    submitted as f64 / seconds
}

/// Calls per second of Python's own pool; nothing if there is no Python.
fn pool(calls: u64, how: &str) -> Option<f64> {
    let path = std::env::temp_dir().join(format!("falkon-bench-pool-{}.py", std::process::id()));
    std::fs::write(&path, POOL).unwrap();
    let output = std::process::Command::new("python3")
        .arg(&path)
        .args([calls.to_string(), how.to_owned()])
        .output();
    std::fs::remove_file(&path).unwrap();
    String::from_utf8(output.ok()?.stdout).ok()?.trim().parse().ok()
}
