//! A client that asks for results again and again, acknowledges all of them,
//! and reads nothing.

use crate::fixture::Site;
use falkon_core::task::InstanceId;
use falkon_net::secure::{AccessFile, Role, Session, connect};
use falkon_trials::trial;
use falkon_wire::codec::Wire;
use falkon_wire::message::{FromClient, PROTOCOL_VERSION};

/// Tasks of each instance, whose results go into one message.
const TASKS: u64 = 3_000;
/// How often all of it is asked for.
const ROUNDS: u64 = 3_000;
/// Memory that a dispatcher may have had at its worst, in bytes. All that is
/// asked for would be most of a gigabyte.
const DISPATCHER_BYTES_MAX: u64 = 256 << 20;

#[trial]
fn results_that_nobody_reads_are_bounded_for_each_connection() {
    for concentrators in ["0", "1"] {
        let site = Site::new();
        let dispatcher = site.dispatcher("d", &["--concentrators", concentrators]);
        let executor = dispatcher.executor("worker", &["--slots", "2"]);
        let access = dispatcher.access();
        let range = format!("1-{TASKS}");
        let ids = [(); 2].map(|()| access.submit(&["--range", &range, "--", "echo"]));
        for id in &ids {
            access.run("wait", &[id]).exits(0);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let file = AccessFile::load(&access.file).unwrap();
        let connected = runtime.block_on(connect(&file, Role::Owner, PROTOCOL_VERSION));
        let pacing = runtime.block_on(connect(&file, Role::Owner, PROTOCOL_VERSION));
        // Nothing reads the first one, which stays open. The second one waits
        // for an answer, so that the dispatcher has acted each time.
        let Session { mut writer, reader, .. } = connected.unwrap();
        let Session { writer: mut asks, reader: mut answers, .. } = pacing.unwrap();
        for round in 0..ROUNDS {
            let id = ids[round as usize % ids.len()].parse().unwrap();
            let instance = InstanceId(id);
            let subscribe = FromClient::Subscribe { request: round, instance, from: 0 };
            let acknowledge = FromClient::Acknowledge { instance, upto: TASKS };
            for message in [subscribe, acknowledge] {
                writer.queue(&message.to_bytes()).unwrap();
            }
            let status = FromClient::Status { request: round, instance: None, from: None };
            asks.queue(&status.to_bytes()).unwrap();
            runtime.block_on(async {
                writer.flush().await.unwrap();
                asks.flush().await.unwrap();
                assert!(answers.read_batch().await.unwrap().is_some());
            });
        }
        assert_eq!(access.status()["executors"][0]["connected"], true);
        let ran = access.run("results", &[&ids[0]]).exits(0);
        assert_eq!(ran.lines().len() as u64, TASKS);
        super::still_runs(&mut dispatcher.running.unwrap(), DISPATCHER_BYTES_MAX);
        drop((reader, executor));
    }
}
