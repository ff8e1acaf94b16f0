//! Output that is too long to be sent with a result: where it is kept, who may
//! read it, and when it goes.

use crate::fixture::{Access, Dispatcher, Site, poll};
use falkon_core::data::declared::Serving;
use falkon_core::dispatch::{AccessError, Assigned, InstanceOptions, Join, Lease, Update};
use falkon_core::result::{Captured, Detail, Outcome, Overflow, Report, Stream};
use falkon_core::task::{InstanceId, Packed, Resources, Rows, Submission, TaskClass, TaskId, Time};
use falkon_net::client::{Client, ClientError};
use falkon_net::secure::{AccessFile, Role, Session};
use falkon_trials::trial;
use falkon_wire::codec::Wire;
use falkon_wire::command::{Command, Template};
use falkon_wire::message::{FromExecutor, PROTOCOL_VERSION, Refusal, ToExecutor};
use rustix::process::{Signal, kill_process};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const LONG_BYTES: usize = 200_000;

/// A command that writes so much of a letter.
fn long(letter: char) -> [String; 3] {
    let script = format!("head -c {LONG_BYTES} /dev/zero | tr '\\0' {letter}");
    ["sh".to_owned(), "-c".to_owned(), script]
}

fn is_all(text: &str, letter: char) -> bool {
    text.len() == LONG_BYTES && text.chars().all(|found| found == letter)
}

/// Submits a task that writes so much of a letter, with options.
fn submit(access: &Access<'_>, options: &[&str], letter: char) -> String {
    let command = long(letter);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    access.run("submit", &[options, &["--"], &command].concat()).exits(0).text().trim().to_owned()
}

/// All files of tasks' output below a directory.
pub(crate) fn kept(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(kept(&path));
        } else if path.extension().is_some_and(|end| end == "stdout" || end == "stderr") {
            found.push(path);
        }
    }
    found
}

#[trial]
fn long_output_of_remote_tasks_is_whole_wherever_it_is_read() {
    for level in ["none", "authenticate", "encrypt"] {
        let site = Site::new();
        let dispatcher = site.dispatcher("d", &["--security", level]);
        let access = dispatcher.access();
        let scratch = site.text("s");
        let _executor = dispatcher.executor("worker", &["--scratch", &scratch]);
        let instance = submit(&access, &[], 'a');
        let text = access.run("results", &[&instance]).exits(0);
        assert!(is_all(text.text(), 'a'), "{level}");
        let result = &access.results(&instance)[0];
        assert!(is_all(result["stdout"].as_str().unwrap(), 'a'), "{level}");
        assert!(result.get("stdout_cut").is_none());
        let out = site.text("o");
        let ran = submit(&access, &["--wait", "--json", "--out", &out, "--out-files"], 'b');
        assert!(is_all(&site.read("o/stdout"), 'b') && is_all(&site.read("o/tasks/0.stdout"), 'b'));
        let result: serde_json::Value = serde_json::from_str(&ran).unwrap();
        assert_eq!(result["stdout"].as_str().unwrap().len(), 64 << 10);
        assert_eq!(result["stdout_cut"]["total_bytes"], LONG_BYTES);
        assert_eq!(result["stdout_cut"]["offset"], 0);
        assert!(result["stdout_cut"]["file"].as_str().unwrap().ends_with("o/stdout"));
        let names = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names
            .map(|name| name.into_string().unwrap())
            .filter(|name| !name.starts_with('.'))
            .collect();
        names.sort();
        assert_eq!(names, ["results.jsonl", "stderr", "stdout", "tasks"], "nothing else is left");
    }
}

#[trial]
fn a_client_opens_and_removes_no_file_but_its_own() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    // What stands where executors once put the output of this very task.
    let names = ["s/0-0-1.stdout", "s/0-0-1.stderr", "s/1.stdout", "s/1-0-1.stdout"];
    std::fs::create_dir(site.path("s")).unwrap();
    for name in names {
        site.write(name, "PRECIOUS\n");
    }
    let scratch = site.text("s");
    let executor = dispatcher.executor("worker", &["--scratch", &scratch]);
    let out = site.text("o");
    submit(&access, &["--wait", "--out", &out], 'r');
    assert!(is_all(&site.read("o/stdout"), 'r'));
    let instance = submit(&access, &[], 'r');
    assert!(is_all(access.run("results", &[&instance]).exits(0).text(), 'r'));
    drop(executor.kill());
    let _next = dispatcher.executor("next", &["--scratch", &scratch]);
    for name in names {
        assert_eq!(site.read(name), "PRECIOUS\n");
    }
}

#[trial]
fn two_executors_with_one_scratch_directory_keep_apart_what_their_tasks_write() {
    let site = Site::new();
    let scratch = site.text("s");
    let dispatchers: Vec<Dispatcher<'_>> =
        ["d1", "d2"].iter().map(|name| site.dispatcher(name, &[])).collect();
    let _executors: Vec<_> = dispatchers
        .iter()
        .zip(["c1=1M", "c2=1M"])
        .map(|(dispatcher, cache)| {
            let cache = site.text(cache);
            dispatcher.executor("worker", &["--scratch", &scratch, "--cache", &cache])
        })
        .collect();
    // Both write, by turns: each waits until the other has written a part.
    let (ours, theirs) = (site.text("ours"), site.text("theirs"));
    for fifo in [&ours, &theirs] {
        assert!(site.program("mkfifo").arg(fifo).status().unwrap().success());
    }
    let part = "head -c 70000 /dev/zero | tr '\\0'";
    let script = |letter: char, mine: &str, other: &str, first: bool| {
        let give = format!("echo > {mine}");
        let wait = format!("read x < {other}");
        let turn = if first { format!("{give}; {wait}") } else { format!("{wait}; {give}") };
        format!("{part} {letter}; {turn}; {part} {letter}; {turn}; {part} {letter}")
    };
    let scripts = [script('1', &ours, &theirs, true), script('2', &theirs, &ours, false)];
    let instances: Vec<String> = dispatchers
        .iter()
        .zip(&scripts)
        .map(|(dispatcher, script)| dispatcher.access().submit(&["--", "sh", "-c", script]))
        .collect();
    for ((dispatcher, instance), letter) in dispatchers.iter().zip(&instances).zip(['1', '2']) {
        let ran = dispatcher.access().run("results", &[instance]).exits(0);
        assert_eq!(ran.text().len(), 210_000);
        assert!(ran.text().chars().all(|found| found == letter), "only its own");
    }
}

#[trial]
fn kept_output_goes_with_its_instance_and_with_its_executor() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let scratch = site.path("s");
    let executor = dispatcher.executor("worker", &["--scratch", scratch.to_str().unwrap()]);
    let [one, other] = ['a', 'b'].map(|letter| submit(&access, &[], letter));
    for instance in [&one, &other] {
        access.run("wait", &[instance]).exits(0);
    }
    assert_eq!(kept(&scratch).len(), 2);
    access.run("destroy", &[&one]).exits(0);
    poll("the output of the instance that was destroyed goes", || kept(&scratch).len() == 1);
    assert!(is_all(access.run("results", &[&other]).exits(0).text(), 'b'));
    // A dispatcher that is started again knows what is kept.
    let mut dispatcher = dispatcher;
    dispatcher.kill();
    dispatcher.start();
    dispatcher.service().wait_for("executor worker joined");
    assert!(is_all(access.run("results", &[&other]).exits(0).text(), 'b'));
    // A dead executor's output cannot be got, and goes when the next starts.
    drop(executor.kill());
    assert_eq!(kept(&scratch).len(), 1);
    let ran = access.run("results", &[&other]).exits(1);
    assert_eq!(ran.text().len(), 64 << 10);
    let ran = ran.says("stdout of task 0 is cut: 65536 of 200000 bytes: the executor that kept");
    drop(ran);
    let result = &access.results(&other)[0];
    let cut = &result["stdout_cut"];
    assert_eq!((&cut["why"], &cut["file"]), (&"executor_gone".into(), &serde_json::Value::Null));
    assert_eq!(cut["total_bytes"], LONG_BYTES);
    let next = dispatcher.executor("next", &["--scratch", scratch.to_str().unwrap()]);
    assert_eq!(kept(&scratch).len(), 0);
    let instance = submit(&access, &[], 'c');
    access.run("wait", &[&instance]).exits(0);
    assert_eq!(kept(&scratch).len(), 1);
    next.signal(Signal::TERM);
    next.finish().exits(0);
    assert_eq!(kept(&scratch).len(), 0, "it goes with its executor");
}

#[trial]
fn output_goes_whose_discarding_a_dispatcher_has_forgotten() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let scratch = site.path("s");
    let executor = dispatcher.executor("worker", &["--scratch", scratch.to_str().unwrap()]);
    let [kept_one, one, other] = ['a', 'b', 'c'].map(|letter| submit(&access, &[], letter));
    for instance in [&kept_one, &one, &other] {
        access.run("wait", &[instance]).exits(0);
    }
    assert_eq!(kept(&scratch).len(), 3);
    // A dispatcher that is started anew waits for nobody, as nothing runs.
    dispatcher.kill();
    executor.signal(Signal::STOP);
    dispatcher.start();
    access.run("destroy", &[&one]).exits(0);
    dispatcher.kill();
    dispatcher.start();
    access.run("destroy", &[&other]).exits(0);
    executor.signal(Signal::CONT);
    poll("the output of instances that are gone goes", || kept(&scratch).len() == 1);
    assert!(is_all(access.run("results", &[&kept_one]).exits(0).text(), 'a'));
}

#[trial]
fn output_goes_that_was_written_when_its_process_host_was_killed() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let scratch = site.path("s");
    let mut started = site.signals("started");
    let mut gate = site.gate("gate");
    let executor =
        dispatcher.executor("worker", &["--slots", "1", "--scratch", scratch.to_str().unwrap()]);
    let [_, _, write] = long('a');
    let script = format!("{write}; echo on > {}; read line < {}", started.path(), gate.path());
    let id = access.submit(&["--", "sh", "-c", &script]);
    started.take(1);
    poll("it is written", || kept(&scratch).len() == 1);
    kill_process(site.left().host_of(&executor), Signal::KILL).unwrap();
    started.take(1);
    gate.let_through(1);
    assert!(is_all(access.run("results", &[&id]).exits(0).text(), 'a'));
    poll("what the first attempt wrote goes", || kept(&scratch).len() == 1);
    access.run("destroy", &[&id]).exits(0);
    poll("what the second one wrote goes", || kept(&scratch).is_empty());
}

/// An instance of one task that writes to both streams, and its results.
async fn one_task(
    access: &AccessFile,
    keep_results: bool,
    resources: Resources,
) -> (InstanceId, Client, Vec<u8>) {
    let (client, _) = Client::connect(access, Role::Owner).await.unwrap();
    let options = InstanceOptions { keep_results, ..InstanceOptions::default() };
    let (instance, secret) = client.create(options).await.unwrap();
    let argv = long('x').iter().map(|text| text.clone().into_bytes()).collect();
    let row = Command { argv, ..Command::default() }.to_bytes();
    let ends = Arc::new(vec![u32::try_from(row.len()).unwrap()]);
    let submission = Submission {
        count: 1,
        template: Arc::new(Template::Each.to_bytes()),
        rows: Rows::Packed(Packed { blob: Arc::new(row), ends }),
        classes: vec![TaskClass { resources, ..TaskClass::default() }],
        class_runs: vec![(1, 0)],
        names: None,
        after: Vec::new(),
        everywhere: None,
        data: None,
    };
    client.submit(instance, TaskId(0), submission).await.unwrap().accepted().await.unwrap();
    client.seal(instance).await.unwrap();
    (instance, client, secret)
}

#[trial]
fn kept_output_goes_when_its_result_is_acknowledged() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let scratch = site.path("s");
    let _executor = dispatcher.executor("worker", &["--scratch", scratch.to_str().unwrap()]);
    let access = AccessFile::load(&dispatcher.access().file).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (instance, _, _) = one_task(&access, false, Resources::cpus(1)).await;
        let (client, mut deliveries) = Client::connect(&access, Role::Owner).await.unwrap();
        client.subscribe(instance, 0).await.unwrap();
        let mut delivery = deliveries.recv().await.unwrap();
        while delivery.results.is_empty() {
            delivery = deliveries.recv().await.unwrap();
        }
        let detail = delivery.results[0].detail.clone().unwrap();
        assert!(detail.stdout.overflow.is_some());
        assert_eq!(kept(&scratch).len(), 1);
        client.reach_output(instance, TaskId(0), Stream::Stdout).await.unwrap();
        client.acknowledge(instance, 1).await.unwrap();
        let gone = async || client.reach_output(instance, TaskId(0), Stream::Stdout).await.is_err();
        while !gone().await {}
    });
    poll("the output of a result that was acknowledged goes", || kept(&scratch).is_empty());
}

#[trial]
fn output_is_read_by_those_who_may_read_its_instance() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let _executor = dispatcher.executor("worker", &["--scratch", &site.text("s")]);
    let owner = AccessFile::load(&dispatcher.access().file).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut instances = Vec::new();
        for _ in 0..2 {
            let (instance, _, secret) = one_task(&owner, true, Resources::cpus(1)).await;
            let secret = falkon_net::secure::Secret::from_bytes(secret.try_into().unwrap());
            instances.push((instance, owner.for_instance(instance.0, secret)));
        }
        let (one, other) = (&instances[0], &instances[1]);
        let (client, _) = Client::connect(&one.1, Role::Instance(one.0.0)).await.unwrap();
        let reach = async |client: &Client, instance, stream| {
            client.reach_output(instance, TaskId(0), stream).await
        };
        loop {
            match reach(&client, one.0, Stream::Stdout).await {
                Ok((_, access, _)) => break assert!(!access.serves.address.is_empty()),
                // The task has not ended yet.
                Err(ClientError::Refused(Refusal::Access(AccessError::NotKept))) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let nothing = reach(&client, one.0, Stream::Stderr).await;
        let refused = ClientError::Refused(Refusal::Access(AccessError::NotKept));
        assert_eq!(nothing.unwrap_err().to_string(), refused.to_string());
        for role in [Role::Observer, Role::Client] {
            let (client, _) = Client::connect(&owner, role).await.unwrap();
            let found = reach(&client, one.0, Stream::Stdout).await;
            assert!(matches!(found, Err(ClientError::Refused(Refusal::NotAllowed))), "{role:?}");
        }
        let found = reach(&client, other.0, Stream::Stdout).await;
        assert!(matches!(found, Err(ClientError::Refused(Refusal::NotAllowed))));
    });
}

/// An executor that says of its tasks what it likes.
struct Liar {
    session: Session,
    updates: u64,
}

const LIAR: u64 = 77;

/// A resource that the liar alone offers.
fn lies() -> Resources {
    Resources { custom: vec![("lies".to_owned(), 1)], ..Resources::cpus(1) }
}

impl Liar {
    async fn join(access: &AccessFile) -> Liar {
        let join = Join {
            incarnation: LIAR,
            name: "liar".to_owned(),
            capacity: lies(),
            held: Vec::new(),
            reports: Vec::new(),
            // Nobody listens at port 1.
            gangs: Vec::new(),
            alternatives: Vec::new(),
            serves: Some(Serving { address: "127.0.0.1:1".to_owned(), fingerprint: Vec::new() }),
            cache: Default::default(),
            lease: Lease::default(),
        };
        let session = falkon_net::secure::connect(access, Role::Executor, PROTOCOL_VERSION);
        let mut liar = Liar { session: session.await.unwrap(), updates: 0 };
        liar.say(&FromExecutor::Join(join)).await;
        liar
    }

    async fn say(&mut self, message: &FromExecutor) {
        self.session.writer.queue_with(|out| message.encode(out)).unwrap();
        self.session.writer.flush().await.unwrap();
    }

    /// Waits for a task.
    async fn assigned(&mut self) -> Assigned {
        loop {
            let batch = self.session.reader.read_batch().await.unwrap().unwrap();
            for frame in batch {
                if let ToExecutor::Order(order) = ToExecutor::from_bytes(frame).unwrap()
                    && let Some(assigned) = order.assign.into_iter().next()
                {
                    return assigned;
                }
            }
            self.updates += 1;
            let number = self.updates;
            self.say(&FromExecutor::Update(Update { number, ..Update::default() })).await;
        }
    }

    /// Says that a task has written this.
    async fn report(&mut self, task: &Assigned, stdout: Captured) {
        let report = Report {
            instance: task.instance,
            first: task.first,
            count: 1,
            tries: task.tries,
            outcome: Outcome::Exit(0),
            started: Time(1),
            ended: Time(2),
            detail: Some(Arc::new(Detail { stdout, ..Detail::default() })),
        };
        self.updates += 1;
        let update = Update { number: self.updates, reports: vec![report], ..Update::default() };
        self.say(&FromExecutor::Update(update)).await;
    }
}

#[trial]
fn what_an_executor_claims_to_keep_costs_others_nothing() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &["--security", "none"]);
    let access = dispatcher.access();
    let scratch = site.path("s");
    let file = AccessFile::load(&access.file).unwrap();
    let _honest = dispatcher.executor("honest", &["--scratch", scratch.to_str().unwrap()]);
    let victim = submit(&access, &[], 'v');
    access.run("wait", &[&victim]).exits(0);
    assert_eq!(kept(&scratch).len(), 1);
    let result = &access.results(&victim)[0];
    assert!(is_all(result["stdout"].as_str().unwrap(), 'v'));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let overflows = [
        // Output of its own, which nobody can fetch; another's; none, though it is cut.
        (Some(Overflow { incarnation: LIAR, number: 1 }), "unreachable"),
        (Some(Overflow { incarnation: LIAR + 1, number: 1 }), "not_kept"),
        (None, "not_kept"),
    ];
    let mut instances = Vec::new();
    let liar = runtime.block_on(async {
        let mut liar = Liar::join(&file).await;
        for (overflow, why) in overflows {
            let (instance, ..) = one_task(&file, true, lies()).await;
            let task = liar.assigned().await;
            liar.report(
                &task,
                Captured { head: b"x".to_vec(), total_bytes: 1 << 20, overflow, member: None },
            )
            .await;
            assert_eq!(task.instance, instance);
            instances.push((instance, why));
        }
        liar
    });
    for (instance, why) in &instances {
        let instance = instance.to_string();
        let result = &access.results(&instance)[0];
        assert_eq!(
            (&result["stdout"], &result["stdout_cut"]["why"]),
            (&"x".into(), &(*why).into())
        );
        let ran = access.run("results", &[&instance]).exits(1);
        assert_eq!(ran.text(), "x");
        ran.says("stdout of task 0 is cut: 1 of 1048576 bytes");
        access.run("destroy", &[&instance]).exits(0);
    }
    drop(liar);
    assert!(
        is_all(access.run("results", &[&victim]).exits(0).text(), 'v'),
        "the victim's is there"
    );
}

#[trial]
fn a_run_leaves_nothing_in_the_temporary_directory() {
    let site = Site::new();
    let command = long('t');
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    for options in [&["--json"][..], &["--json", "--keep-order"], &[], &["--out", "o", "--json"]] {
        let ran = site.run([&["run"], options, &["--"], &command].concat()).exits(0);
        if options.is_empty() {
            assert!(is_all(ran.text(), 't'));
        } else {
            let result = &ran.results()[0];
            match options.contains(&"--out") {
                true => assert_eq!(result["stdout_cut"]["total_bytes"], LONG_BYTES),
                false => assert!(is_all(result["stdout"].as_str().unwrap(), 't')),
            }
        }
        let left: Vec<_> = std::fs::read_dir(site.path("tmp")).unwrap().flatten().collect();
        assert!(left.is_empty(), "{options:?}: {left:?}");
    }
    assert!(is_all(&site.read("o/stdout"), 't'));
}
