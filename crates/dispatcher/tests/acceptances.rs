//! When a dispatcher tells a client that its tasks were accepted. Time stands
//! still while anybody has something to do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use falkon_core::dispatch::{InstanceOptions, Join, Order, Update};
use falkon_core::result::{Outcome, Report, Tries};
use falkon_core::task::{
    InstanceId, Kind, Range, Resources, Rows, Submission, TaskClass, TaskId, Time,
};
use falkon_dispatcher::{Handle, Options};
use falkon_net::secure::{FrameReader, FrameWriter, Role, plain};
use falkon_wire::codec::Wire;
use falkon_wire::message::{FromClient, FromExecutor, ToClient, ToExecutor};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::time::Instant;

const INSTANCE: InstanceId = InstanceId(0);

/// One end of a connection, which speaks in messages.
struct Peer {
    reader: FrameReader,
    writer: FrameWriter,
}

impl Peer {
    fn connect(dispatcher: &Handle, role: Role) -> Peer {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (reader, writer) = plain(theirs);
        dispatcher.attach(role, "here", reader, writer);
        let (reader, writer) = plain(ours);
        Peer { reader, writer }
    }

    async fn say(&mut self, message: &impl Wire) {
        self.writer.queue_with(|out| message.encode(out)).unwrap();
        self.writer.flush().await.unwrap();
    }

    /// All that comes together.
    async fn hear<M: Wire>(&mut self) -> Vec<M> {
        let batch = self.reader.read_batch().await.unwrap().expect("the connection is open");
        batch.map(|frame| M::from_bytes(frame).unwrap()).collect()
    }
}

struct World {
    client: Peer,
    executor: Peer,
}

impl World {
    /// A client with an instance, and an executor with one slot.
    async fn new(subscribed: bool) -> World {
        let log: falkon_net::Log = Arc::new(|_: &str| {});
        let options = Options {
            store: None,
            pages: None,
            identity: None,
            events: None,
            keep_micros: None,
            collectors: None,
            control: None,
            log,
        };
        let (dispatcher, _) = falkon_dispatcher::start(options).unwrap();
        let mut client = Peer::connect(&dispatcher, Role::Owner);
        let mut executor = Peer::connect(&dispatcher, Role::Executor);
        let join = Join {
            cache: Default::default(),
            lease: falkon_core::dispatch::Lease::default(),
            gangs: Vec::new(),
            alternatives: Vec::new(),
            serves: None,
            incarnation: 1,
            name: "executor".to_owned(),
            capacity: Resources::cpus(1),
            held: Vec::new(),
            reports: Vec::new(),
        };
        executor.say(&FromExecutor::Join(join)).await;
        World::order(&mut executor, |_| true).await;
        client.say(&FromClient::Create { request: 0, options: InstanceOptions::default() }).await;
        client.hear::<ToClient>().await;
        if subscribed {
            client.say(&FromClient::Subscribe { request: 1, instance: INSTANCE, from: 0 }).await;
            client.hear::<ToClient>().await;
        }
        World { client, executor }
    }

    /// The first order that is `wanted`.
    async fn order(executor: &mut Peer, wanted: impl Fn(&Order) -> bool) -> Order {
        let mut heard = VecDeque::new();
        loop {
            match heard.pop_front() {
                Some(ToExecutor::Order(order)) if wanted(&order) => return order,
                Some(_) => {}
                None => heard.extend(executor.hear::<ToExecutor>().await),
            }
        }
    }

    /// Submits tasks, and waits until the executor has those that fit.
    async fn submit(&mut self, count: u64) {
        let range = Range { start: 0, step: 1, count };
        let class = TaskClass { kind: Kind::Sleep, ..TaskClass::default() };
        let submission = Submission {
            data: None,
            count,
            template: Arc::new(Vec::new()),
            rows: Rows::Computed { factors: vec![range], offset: 0 },
            classes: vec![class],
            class_runs: vec![(count, 0)],
            names: None,
            after: Vec::new(),
            everywhere: None,
        };
        let (request, instance, first) = (2, INSTANCE, TaskId(0));
        self.client
            .say(&FromClient::Submit { client: 1, request, instance, first, submission })
            .await;
        World::order(&mut self.executor, |order| !order.assign.is_empty()).await;
    }
}

fn is_accepted(message: &ToClient) -> bool {
    matches!(message, ToClient::Accepted { request: 2, .. })
}

#[tokio::test(start_paused = true)]
async fn it_comes_with_the_results_that_follow_at_once() {
    let mut world = World::new(true).await;
    world.submit(1).await;
    let report = Report {
        instance: INSTANCE,
        first: TaskId(0),
        count: 1,
        tries: Tries::default(),
        outcome: Outcome::Exit(0),
        started: Time(0),
        ended: Time(0),
        detail: None,
    };
    let update = Update { number: 1, reports: vec![report], ..Update::default() };
    world.executor.say(&FromExecutor::Update(update)).await;
    let heard = world.client.hear::<ToClient>().await;
    assert!(is_accepted(&heard[0]), "{heard:?}");
    assert!(matches!(&heard[1], ToClient::Results(delivery) if delivery.results.len() == 1));
}

#[tokio::test(start_paused = true)]
async fn it_comes_after_a_moment_without_results() {
    let mut world = World::new(true).await;
    world.submit(1).await;
    let heard = world.client.hear::<ToClient>().await;
    assert!(matches!(&heard[..], [one] if is_accepted(one)), "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn it_comes_at_once_to_a_client_that_goes_on_asking() {
    let mut world = World::new(true).await;
    world.submit(1).await;
    let before = Instant::now();
    world.client.say(&FromClient::Status { request: 3, instance: None, from: None }).await;
    let mut heard = world.client.hear::<ToClient>().await;
    while heard.len() < 2 {
        heard.extend(world.client.hear::<ToClient>().await);
    }
    assert!(is_accepted(&heard[0]), "{heard:?}");
    assert!(matches!(heard[1], ToClient::Status { request: 3, .. }), "{heard:?}");
    assert_eq!(Instant::now(), before, "nobody waited");
}

#[tokio::test(start_paused = true)]
async fn it_comes_at_once_if_no_results_are_awaited_or_tasks_stay_queued() {
    for (subscribed, tasks) in [(false, 1), (true, 1000)] {
        let mut world = World::new(subscribed).await;
        let before = Instant::now();
        world.submit(tasks).await;
        let heard = world.client.hear::<ToClient>().await;
        assert!(matches!(&heard[..], [one] if is_accepted(one)), "{heard:?}");
        assert_eq!(Instant::now(), before, "nobody waited");
    }
}
