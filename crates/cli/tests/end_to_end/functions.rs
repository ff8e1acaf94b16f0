//! Functions in Python workers.

use crate::fixture::{Ran, Site, json_lines};
use falkon_core::runset::RunSet;
use falkon_trials::{skip, trial};
use serde_json::{Value, json};
use std::process::{Command, Stdio};

/// What the tests call. Whatever is counted is a file's length: a byte each.
const MODULE: &str = r#"
import os, random, signal, sys, time

def count(name):
    with open(name, "ab", 0) as file:
        file.write(b"x")

count("loads")

def add(a, b):
    return int(a) + int(b)

def everything(*args, **kwargs):
    return {"args": args, "kwargs": kwargs}

def raises(text):
    raise ValueError("no good: " + text)

def thing(x):
    return object()

def endless(x):
    value = []
    value.append(value)
    return value

def leave(code):
    sys.exit(int(code))

def leave_saying(x):
    sys.exit("had enough")

def leave_like(text):
    sys.exit(text + " (most recent call last)")

def vanish(code):
    print("last words", flush=True)
    os._exit(int(code))

def suicide(x):
    os.kill(os.getpid(), signal.SIGKILL)

def write(x):
    os.write(1, b"raw " + x.encode() + b"\n")
    print("printed", x)
    print("complaint", x, file=sys.stderr)
    os.system("echo from a child")

def much(x):
    for _ in range(100):
        os.write(1, b"a" * 50_000)
    for _ in range(100):
        print("b" * 49_999)

def hang():
    while True:
        signal.pause()

def wait(x):
    open("begun", "ab", 0).write(b"x")
    hang()

def sometimes_wait(x):
    if x == "1":
        hang()
    return int(x)

def once(x):
    fd = os.open("calls", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, (x + "\n").encode())
    os.close(fd)
    if random.random() < 0.004:
        random.choice([lambda: os._exit(7), lambda: os.kill(os.getpid(), signal.SIGKILL)])()
    return int(x)

def worker(x):
    return os.getpid()

def number(source, target):
    import late
    with open(source) as read, open(target, "w") as written:
        written.write(late.numbered(read.read()))
    return [sorted(os.listdir(".")), os.path.isabs(source)]

def place(x):
    return os.getcwd()

def grow(x):
    globals()["kept"] = bytearray(os.urandom(1) * (64 << 20))
    return os.getpid()

def fork(x):
    if os.fork() == 0:
        return "child"
    os.wait()
    return "parent"

async def later(x):
    return x

def close(x):
    os.close(1)
    sys.stdout.close()

def siblings():
    count = 0
    for name in os.listdir("/proc"):
        try:
            with open("/proc/%d/stat" % int(name)) as file:
                count += int(file.read().rpartition(")")[2].split()[1]) == os.getppid()
        except (ValueError, OSError):
            pass
    return count

def fill(x):
    print(x * (10_000 // len(x)), end="")
    if int(x) % 150 == 149:
        time.sleep(0.1)

def wait_until_few_are_left(x):
    os.write(os.open("begun", os.O_WRONLY | os.O_APPEND | os.O_CREAT), b"x")
    while os.path.getsize("begun") < 8:
        time.sleep(0.01)
    while x == "1" and siblings() > 2:
        time.sleep(0.01)
"#;

/// Loaded by a worker: it comes late to each of its bundles, as on a machine
/// that has much else to do.
const LATE: &str = r#"
import time
from falkon_worker import serving

call = serving.Worker.call

def late(self, *bundle):
    time.sleep(0.05)
    return call(self, *bundle)

serving.Worker.call = late
"#;

/// Loaded by a worker: answers that it sends before its bundle is over arrive when that is over, as
/// on a machine where the executor gets no processor.
const HELD: &str = r#"
from falkon_worker import serving

send, held = serving.Connection.send, []

def hold(self, *parts):
    held.append(parts)
    if parts[2:3] != (b"\xc2",):
        for parts in held:
            send(self, *parts)
        held.clear()

serving.Connection.send = hold
"#;

/// A site with the module; nothing if there is no Python.
fn site() -> Site {
    let there = Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !there {
        skip("python3 is not there");
    }
    let site = Site::new();
    site.write("jobs.py", MODULE);
    site
}

fn call(site: &Site, args: &[&str]) -> Ran {
    let ran = site.run(["run", "--json", "-q", "-j2"].iter().chain(args));
    site.left().wait_for_none();
    let temporary = std::fs::read_dir(site.path("tmp")).unwrap();
    let left: Vec<_> = temporary
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("falkon-"))
        .collect();
    assert!(left.is_empty(), "folders are left: {left:?}");
    ran
}

fn field(results: &[Value], name: &str) -> Vec<Value> {
    results.iter().map(|result| result[name].clone()).collect()
}

#[trial]
fn values_come_back() {
    let site = site();
    let ran = call(&site, &["--call", "jobs:add", "--range", "1-500", "--", "{}", "1000"]);
    let results = ran.exits(0).results();
    let expected: Vec<Value> = (1..=500).map(|number| json!(number + 1000)).collect();
    assert_eq!(field(&results, "value"), expected);
    let loads = site.read("loads").len();
    assert!((1..=2).contains(&loads), "the module was loaded {loads} times");
}

#[trial]
fn task_files_pass_values_of_any_kind() {
    let site = site();
    let file = site.write(
        "tasks.jsonl",
        r#"{"id": "a", "call": "jobs:everything", "args": [1, 2.5, null, {"k": ["é\u0000"]}], "kwargs": {"x": true}}
{"id": "b", "call": "jobs:everything", "after": ["a"]}
{"id": "c", "call": "math:hypot", "args": [3, 4]}
{"id": "d", "command": "echo", "args": ["one", 2]}
"#,
    );
    let results = call(&site, &["--tasks", &file]).exits(0).results();
    let first = json!({"args": [1, 2.5, null, {"k": ["é\u{0}"]}], "kwargs": {"x": true}});
    let values = [first, json!({"args": [], "kwargs": {}}), json!(5.0), Value::Null];
    assert_eq!(field(&results, "value"), values);
    assert_eq!(results[3]["stdout"], "one 2\n");
    let wrong = site.write("wrong.jsonl", r#"{"command": "echo", "kwargs": {}}"#);
    call(&site, &["--tasks", &wrong]).exits(2).says("`kwargs` is for functions");
    let wrong = site.write("wrong.jsonl", r#"{"call": "jobs", "args": []}"#);
    call(&site, &["--tasks", &wrong]).exits(2).says("`jobs` names no function");
}

#[trial]
fn a_function_finds_data_objects_by_their_names() {
    let site = site();
    site.write("source", "text");
    site.write("late.py", "def numbered(text):\n    return '1 ' + text\n");
    let args = [
        "--call",
        "jobs:number",
        "--range",
        "1-2",
        "--input",
        "read=source",
        "--output",
        "made=made{}",
        "--",
        "read",
        "made",
    ];
    let results = call(&site, &args).exits(0).results();
    assert_eq!(
        field(&results, "value"),
        [json!([["made", "read"], false]), json!([["made", "read"], false])]
    );
    assert_eq!((site.read("made1"), site.read("made2")), ("1 text".into(), "1 text".into()));
    // The next call reads the object that one leaves in caches.
    let file = site.write(
        "tasks.jsonl",
        r#"{"id": "a", "call": "jobs:number", "args": ["in", "out"], "inputs": ["in=source"], "outputs": ["out=cache:a"]}
{"id": "b", "call": "jobs:number", "args": ["in", "out"], "inputs": ["in=cache:a"], "outputs": ["out=last"]}
"#,
    );
    call(&site, &["--tasks", &file]).exits(0);
    assert_eq!(site.read("last"), "1 1 text");
    call(&site, &["--call", "jobs:place", "--output", "out=never", "--", "1"]).exits(1);
}

#[trial]
fn a_file_is_shipped() {
    let site = site();
    let code = "import dataclasses\n\n@dataclasses.dataclass\nclass Point:\n    x: int\n\n\
                def square(x):\n    return Point(int(x)).x ** 2\n\ndef fails(x):\n    [][1]\n";
    let file = site.write("code.py", code);
    let square = format!("{file}:square");
    let results = call(&site, &["--call", &square, "--range", "1-3"]).exits(0).results();
    assert_eq!(field(&results, "value"), [1, 4, 9]);
    let fails = format!("{file}:fails");
    let results = call(&site, &["--call", &fails]).exits(1).results();
    let error = results[0]["error"].as_str().unwrap();
    assert!(error.ends_with("missing 1 required positional argument: 'x'"), "{error}");
    let results = call(&site, &["--call", &fails, "--", "1"]).exits(1).results();
    let error = results[0]["error"].as_str().unwrap();
    assert!(error.contains("code.py") && error.contains("[][1]"), "{error}");
}

#[trial]
fn a_failure_says_what_and_where() {
    let site = site();
    let results = call(&site, &["--call", "jobs:raises", "--range", "1-2"]).exits(1).results();
    assert_eq!(field(&results, "exit_code"), [1, 1]);
    assert_eq!(field(&results, "cause"), ["raised", "raised"]);
    let error = results[1]["error"].as_str().unwrap();
    assert!(error.starts_with("Traceback"), "{error}");
    assert!(error.contains("jobs.py") && error.ends_with("ValueError: no good: 2"), "{error}");
    assert!(!error.contains("falkon_worker") && !error.contains("worker.py"), "{error}");
    for (function, part) in [
        ("no_such_module_here:f", "ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("jobs:nothing", "AttributeError: jobs has no attribute 'nothing'"),
        ("jobs:sys.no", "AttributeError: jobs.sys has no attribute 'no'"),
        ("jobs:sys.path", "it cannot be called"),
        ("jobs:later", "a call runs nothing of it"),
    ] {
        let results = call(&site, &["--call", function, "--range", "1-300"]).exits(1).results();
        assert_eq!(results.len(), 300);
        for result in results {
            assert_eq!(result["exit_code"], 1);
            assert!(result["error"].as_str().unwrap().contains(part), "{result}");
        }
    }
    call(&site, &["--call", "jobs"]).exits(2).says("`jobs` names no function");
    call(&site, &["--call", "jobs:add", "--shell"]).exits(2).says("leave out --shell");
}

#[trial]
fn what_cannot_be_json_is_shown() {
    let site = site();
    for (function, part) in [("jobs:thing", "<object object at"), ("jobs:endless", "[[...]]")] {
        let results = call(&site, &["--call", function, "--range", "1-2"]).exits(0).results();
        assert!(results[0]["value_repr"].as_str().unwrap().starts_with(part), "{}", results[0]);
        assert!(results[0].get("value").is_none());
    }
}

#[trial]
fn leaving_is_an_exit_code() {
    let site = site();
    let results = call(&site, &["--call", "jobs:leave", "--range", "0-3"]).exits(1).results();
    assert_eq!(field(&results, "exit_code"), [0, 1, 2, 3]);
    let results = call(&site, &["--call", "jobs:leave_saying", "--range", "1-2"]).results();
    assert_eq!(results[0]["exit_code"], 1);
    assert_eq!(results[0]["error"], "exited with 1; had enough");
    assert!(results[0].get("cause").is_none());
    // The text of an exit is that, whatever it resembles.
    let results = call(&site, &["--call", "jobs:leave_like", "--", "Traceback"]).results();
    assert_eq!(results[0]["error"], "exited with 1; Traceback (most recent call last)");
}

#[trial]
fn a_worker_that_dies_fails_its_call_alone() {
    let site = site();
    let results = call(&site, &["--call", "jobs:vanish", "--range", "3-5"]).exits(1).results();
    assert_eq!(field(&results, "exit_code"), [3, 4, 5]);
    for result in &results {
        assert_eq!(result["stdout"], "last words\n");
        assert!(result["error"].as_str().unwrap().contains("its worker exited with"), "{result}");
        assert_eq!(result["cause"], "worker_died", "{result}");
    }
    let results = call(&site, &["--call", "jobs:vanish", "--", "0"]).exits(1).results();
    assert_eq!(results.len(), 1);
    let results = call(&site, &["--call", "jobs:suicide", "--range", "1-3"]).exits(1).results();
    assert_eq!(field(&results, "signal"), [9, 9, 9]);
    assert_eq!(field(&results, "cause"), ["worker_died"; 3]);
}

#[trial]
fn ten_thousand_calls_are_made_exactly_once_whatever_dies() {
    let site = site();
    let ran = call(&site, &["--call", "jobs:once", "--range", "1-10000"]).exits(1);
    let mut made = RunSet::default();
    let calls = site.read("calls");
    assert_eq!(calls.lines().count(), 10_000);
    for line in calls.lines() {
        made.insert(line.parse().unwrap(), 1);
    }
    assert_eq!(made.len(), 10_000, "a call was made twice");
    let results = ran.results();
    assert_eq!(results.len(), 10_000);
    let mut died = 0;
    for (index, result) in results.iter().enumerate() {
        if result["status"] == "done" {
            assert_eq!(result["value"], index + 1);
        } else {
            died += 1;
            assert!(result["exit_code"] == 7 || result["signal"] == 9, "{result}");
        }
    }
    assert!(died > 10, "only {died} workers died");
}

#[trial]
fn what_a_call_writes_is_its_own() {
    let site = site();
    let results = call(&site, &["--call", "jobs:write", "--range", "1-50"]).exits(0).results();
    for (index, result) in results.iter().enumerate() {
        let x = index + 1;
        assert_eq!(result["stdout"], format!("raw {x}\nprinted {x}\nfrom a child\n"));
        assert_eq!(result["stderr"], format!("complaint {x}\n"));
    }
    let results = call(&site, &["--call", "jobs:much", "--range", "1-2", "--out", "much"]);
    for result in results.exits(0).results() {
        assert_eq!(result["stdout"].as_str().unwrap().len(), 64 << 10);
        assert_eq!(result["stdout_cut"]["total_bytes"], 10_000_000);
    }
    assert_eq!(site.read("much/stdout").len(), 20_000_000);
    // A call that closes what others write to spoils only its own output.
    let ran = call(&site, &["--call", "jobs:close", "--range", "1-3"]);
    assert_eq!(ran.exits(0).results().len(), 3);
}

#[trial]
fn a_timeout_ends_the_call_that_ran_into_it() {
    let site = site();
    // One call to each worker, and many.
    for (range, estimate) in [("0-3", "1000"), ("0-300", "0.00001")] {
        let sometimes = ["--call", "jobs:sometimes_wait", "--timeout", "3", "--range", range];
        let ran = call(&site, &[&sometimes[..], &["--estimate", estimate]].concat());
        for (index, result) in ran.exits(1).results().iter().enumerate() {
            match index {
                1 => assert!(result["error"].as_str().unwrap().contains("timeout"), "{result}"),
                _ => assert_eq!(result["value"], index, "{result}"),
            }
        }
    }
}

#[trial]
fn a_run_that_is_stopped_ends_its_calls() {
    let site = site();
    let args = ["run", "--json", "-q", "-j2", "--call", "jobs:wait", "--range", "1-5000"];
    let running = site.start(args);
    wait_for_file(&site, "begun", 2);
    running.signal(rustix::process::Signal::INT);
    let ran = running.finish().exits(1);
    let results = json_lines(ran.text());
    assert_eq!(results.len(), 5000);
    assert!(results.iter().all(|result| result["status"] == "cancelled"));
    site.left().wait_for_none();
}

#[trial]
fn nothing_is_left_of_a_run_that_is_killed() {
    let site = site();
    let running = site.start(["run", "-j2", "--call", "jobs:wait", "--range", "1-5000"]);
    wait_for_file(&site, "begun", 2);
    running.kill();
    site.left().wait_for_none();
}

/// Waits until a file has so many bytes, by reading it: what is waited for
/// is the work of another process.
fn wait_for_file(site: &Site, name: &str, bytes: usize) {
    let deadline = std::time::Instant::now() + crate::fixture::PATIENCE;
    while std::fs::read(site.path(name)).map_or(0, |read| read.len()) < bytes {
        assert!(std::time::Instant::now() < deadline, "{name} stays short");
        std::thread::yield_now();
    }
}

#[trial]
fn workers_are_replaced_when_they_are_worn() {
    let site = site();
    let pids = |args: &[&str]| {
        let results = call(&site, args).exits(0).results();
        let mut pids: Vec<u64> =
            results.iter().map(|result| result["value"].as_u64().unwrap()).collect();
        let calls = pids.len();
        pids.sort_unstable();
        pids.dedup();
        (calls, pids.len())
    };
    let worn = pids(&["--call", "jobs:worker", "--range", "1-20", "--worker-calls-max", "5"]);
    assert!(worn.0 == 20 && worn.1 >= 4, "{worn:?}");
    let once = pids(&["--call", "jobs:worker", "--range", "1-8", "--worker-calls-max", "1"]);
    assert_eq!(once, (8, 8));
    let kept = pids(&["--call", "jobs:worker", "--range", "1-2000"]);
    assert!(kept.1 <= 2, "{kept:?}");
    let grown = ["--call", "jobs:grow", "--range", "1-3", "--worker-memory-max", "40MiB"];
    assert_eq!(pids(&grown), (3, 3));
}

#[trial]
fn workers_that_come_late_to_their_calls_do_not_become_more() {
    let site = site();
    site.write("late.py", LATE);
    let range = ["--preload", "late", "--range", "1-2000", "--estimate", "0.00001"];
    let ran = call(&site, &[&range[..], &["--call", "jobs:worker"]].concat());
    let mut workers = field(&ran.exits(0).results(), "value");
    assert_eq!(workers.len(), 2000);
    workers.sort_by_key(Value::as_u64);
    workers.dedup();
    assert!(workers.len() <= 2, "{workers:?}");
}

#[trial]
fn answers_that_fill_the_buffer_are_taken_in_after_those_that_are_under_way() {
    let site = site();
    site.write("held.py", HELD);
    let range = ["--preload", "held", "--range", "1-2000", "--estimate", "0.00001"];
    let ran = call(&site, &[&range[..], &["--call", "jobs:fill"]].concat());
    let results = ran.exits(0).results();
    assert_eq!(results.len(), 2000);
    for (index, result) in results.iter().enumerate() {
        let text = (index + 1).to_string();
        assert_eq!(result["stdout"].as_str().unwrap(), text.repeat(10_000 / text.len()));
    }
}

#[trial]
fn workers_beyond_the_slots_end_when_they_have_nothing_to_do() {
    let site = site();
    let quarters = ["--cpus", "0.25", "--timeout", "60", "--range", "1-8"];
    let ran = call(&site, &[&quarters[..], &["--call", "jobs:wait_until_few_are_left"]].concat());
    assert_eq!(ran.exits(0).results().len(), 8);
}

#[trial]
fn a_forked_child_does_not_answer() {
    let site = site();
    let results = call(&site, &["--call", "jobs:fork", "--range", "1-100"]).exits(0).results();
    assert!(field(&results, "value").iter().all(|value| value == "parent"));
}

#[trial]
fn a_worker_that_cannot_start_fails_every_call_and_says_why() {
    let site = site();
    for (args, part) in [
        (&["--worker", "python=no-such-python"][..], "no such command: no-such-python"),
        (&["--worker", "python=false"][..], "exited with 1 before it took calls"),
        (&["--preload", "no_such_module"][..], "No module named 'no_such_module'"),
        (&["--language", "ruby"][..], "no worker for functions in ruby"),
        (&["--cwd", "/no/such/folder"][..], "/no/such/folder"),
    ] {
        let rest = ["--call", "jobs:add", "--range", "1-100"];
        let args: Vec<&str> = args.iter().copied().chain(rest).collect();
        let results = call(&site, &args).exits(1).results();
        assert_eq!(results.len(), 100);
        for result in results {
            assert!(result["error"].as_str().unwrap().contains(part), "{result}");
            assert_eq!(result["cause"], "no_worker", "{result}");
        }
    }
}

#[trial]
fn environment_and_folder_are_the_tasks_own() {
    let site = site();
    std::fs::create_dir(site.path("other")).unwrap();
    site.write(
        "other/there.py",
        "import os\ndef f():\n    return [os.getcwd(), os.environ['A']]\n",
    );
    let args = ["--cwd", "other", "--env", "A={}", "--call", "there:f", "--range", "1-3", "--"];
    // The values occur in the environment alone, and are no arguments.
    let results = call(&site, &args).exits(0).results();
    let folder = std::fs::canonicalize(site.path("other")).unwrap();
    for (index, result) in results.iter().enumerate() {
        assert_eq!(result["value"], json!([folder, (index + 1).to_string()]));
    }
}
