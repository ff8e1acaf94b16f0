//! A relay that lies: about the nodes below it, about tasks of others, and about what it was
//! asked. It harms the tasks that it was given, until it is gone; nobody else's.

use super::{still_runs, two_run};
use crate::fixture::Site;
use falkon_core::data::object::ObjectId;
use falkon_core::data::stage::Changes;
use falkon_core::dispatch::{
    AccessError, Held, Join, Lease, NodeClass, Site as Queue, Standing, Subtree, Survey, Update,
};
use falkon_core::limits::NODE_CLASSES_MAX;
use falkon_core::result::{Outcome, Report, Tries};
use falkon_core::tail::{Tail, TailState};
use falkon_core::task::{InstanceId, Resources, TaskId, Time};
use falkon_net::secure::{AccessFile, Role, Session, connect};
use falkon_trials::trial;
use falkon_wire::codec::Wire;
use falkon_wire::message::{FromExecutor, PROTOCOL_VERSION};

/// Memory that the dispatcher may have had at its worst, in bytes.
const DISPATCHER_BYTES_MAX: u64 = 512 << 20;
/// Relays that lie, one after another.
const LIARS: u64 = 3;

/// More nodes than there could be, each larger than any.
fn endless(process: u64) -> Subtree {
    let node = |number: usize| NodeClass {
        capacity: Resources {
            cpus_milli: u32::MAX - number as u32,
            memory_bytes: u64::MAX,
            ..Resources::cpus(1)
        },
        has_cache: number.is_multiple_of(2),
        count: u64::MAX,
    };
    Subtree {
        process,
        relays: vec![process],
        nodes: (0..NODE_CLASSES_MAX).map(node).collect(),
        obtainable: vec![node(0).capacity; 8],
        is_unknown_obtainable: true,
    }
}

/// A survey whose names are hostile and whose numbers are the largest.
fn survey() -> Survey {
    let name = "\u{1b}]0;x\u{7}<img src=x onerror=hacked=1>".to_owned();
    let most = u64::MAX;
    let standing = |depth| Standing {
        name: name.clone(),
        depth,
        nodes: most,
        cpus_milli: most,
        used_milli: most,
        running: most,
        ahead: most,
        ended: most,
        away_micros: Some(most),
    };
    let queue = Queue { relays: name.clone(), queue: name.clone(), ..Queue::default() };
    Survey { relays: [0, 9, most].map(standing).to_vec(), sites: vec![queue; 4] }
}

#[trial]
fn a_relay_that_lies_harms_nobody_else() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let _executor = dispatcher.executor("one", &["--slots", "2"]);
    let access = dispatcher.access();
    let go = site.path("go");
    let others = two_run(&access, &go, "1-2");
    let instance = InstanceId(others.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let file = AccessFile::load(&dispatcher.access_of("access-executor.json").file).unwrap();
    let ranges: [(u64, u64); 5] =
        [(0, 1), (0, 2), (1, u64::MAX), (u64::MAX, 1), (1 << 40, 1 << 40)];
    let held = ranges.map(|(first, count)| Held {
        instance,
        first: TaskId(first),
        count,
        tries: Tries::default(),
    });
    let reports = ranges.map(|(first, count)| Report {
        instance,
        first: TaskId(first),
        count,
        tries: Tries::default(),
        outcome: Outcome::Exit(0),
        started: Time(0),
        ended: Time(u64::MAX),
        detail: None,
    });
    let added = (0..10_000).map(|id| (ObjectId(id), u64::MAX)).collect();
    let cache = Changes { anew: true, added, ..Changes::default() };
    let lies = [
        Update { survey: Some(Box::new(survey())), ..Update::default() },
        Update { reports: reports.to_vec(), ..Update::default() },
        Update { returned: held.to_vec(), recalled: true, ..Update::default() },
        Update { staged: held.to_vec(), unstaged: held.to_vec(), ..Update::default() },
        Update { cache: Some(Box::new(cache)), ..Update::default() },
    ];
    let own = access.submit(&["--range", "1-100", "--", "echo", "own {}"]);
    for liar in 1..=LIARS {
        runtime.block_on(async {
            let connected = connect(&file, Role::Executor, PROTOCOL_VERSION).await;
            let Session { mut writer, mut reader, .. } = connected.unwrap();
            let join = Join {
                incarnation: liar,
                name: format!("liar-{liar}"),
                capacity: Resources::default(),
                held: Vec::new(),
                reports: Vec::new(),
                gangs: Vec::new(),
                alternatives: Vec::new(),
                serves: None,
                cache: Default::default(),
                lease: Lease::default(),
            };
            let subtree = Some(Box::new(endless(liar)));
            let first = Update { number: 1, subtree, ..Update::default() };
            writer.queue(&FromExecutor::Join(join).to_bytes()).unwrap();
            writer.queue(&FromExecutor::Update(first).to_bytes()).unwrap();
            for (number, lie) in (2..).zip(&lies) {
                let update = Update { number, ..lie.clone() };
                writer.queue(&FromExecutor::Update(update).to_bytes()).unwrap();
            }
            // Answers to what it was not asked.
            for number in [0, 1, u64::MAX] {
                let bytes = vec![b'x'; 1 << 20];
                let tail = Tail { state: TailState::Running, is_cut: false, total_bytes: 7, bytes };
                writer.queue(&FromExecutor::Tail { number, tail }.to_bytes()).unwrap();
                let why = AccessError::Below("x".repeat(1 << 20));
                writer.queue(&FromExecutor::NoTail { number, why }.to_bytes()).unwrap();
            }
            // The dispatcher may have closed the connection before it has it all.
            let _ = writer.flush().await;
            while let Ok(Some(_)) = reader.read_batch().await {
                if access.instance(&own)["dispatched"] != 0 || access.instance(&own)["done"] == 100
                {
                    break;
                }
            }
        });
        // What people look at is there meanwhile.
        let shown = access.run("status", &["--tree"]).exits(0);
        assert!(!shown.text().contains('\u{1b}'), "{shown}");
        access.run("explain", &[&own]).exits(0);
    }
    site.write("go", "");
    for (id, count) in [(&others, 2), (&own, 100)] {
        access.run("wait", &[id]).exits(0);
        let results = access.results(id);
        assert_eq!(results.len(), count);
        for (result, number) in results.iter().zip(1..) {
            let expected =
                if *id == others { "honest\n".into() } else { format!("own {number}\n") };
            assert_eq!(result["stdout"], expected, "{result}");
        }
    }
    assert!(access.results(&others).iter().all(|result| result["attempts"] == 1));
    let ran = access.run("submit", &["--wait", "--", "echo", "still there"]);
    assert_eq!(ran.exits(0).text(), "still there\n");
    still_runs(&mut dispatcher.running.unwrap(), DISPATCHER_BYTES_MAX);
}
