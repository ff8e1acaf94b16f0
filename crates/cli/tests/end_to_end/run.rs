//! `falkon run`: sources, task graphs, limits, output.

use crate::fixture::{Site, indices, json_lines};
use falkon_trials::trial;
use serde_json::Value;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Everything that stands for a value, between bars.
const PLACEHOLDERS: &str = "{}|{/}|{.}|{/.}|{//}|{#}";

/// What [`PLACEHOLDERS`] becomes for a value, by GNU parallel's rules.
fn filled(value: &str, number: usize) -> String {
    let path = Path::new(value);
    let (dir, base) = match value.rsplit_once('/') {
        Some((dir, base)) => (if dir.is_empty() { "/" } else { dir }, base),
        None => (".", value),
    };
    let stem = |text: &str| {
        let base = text.rsplit('/').next().unwrap();
        let dot = base.rfind('.').map(|at| text.len() - base.len() + at);
        dot.map_or_else(|| text.to_owned(), |dot| text[..dot].to_owned())
    };
    assert_eq!(path.as_os_str().as_bytes(), value.as_bytes());
    format!("{value}|{base}|{}|{}|{dir}|{number}", stem(value), stem(base))
}

#[trial]
fn every_source_fills_every_placeholder() {
    let site = Site::new();
    std::fs::create_dir(site.path("deep")).unwrap();
    let files = ["deep/b.c.txt", "deep/with space.fits", "plain", "x.dat"];
    for file in files {
        site.write(file, "");
    }
    let values = ["a b", "dir/name.tar.gz", "plain", "$HOME `id` '\"", "/etc/x.y"];
    let lines = site.write("lines", values.join("\n"));
    let check = |source: &[&str], input: Option<&str>, expected: &[&str]| {
        let args = [&["run", "--keep-order"], source, &["--", "printf", "%s\\n", PLACEHOLDERS]];
        let ran = match input {
            None => site.run(args.concat()),
            Some(input) => site.run_with_input(&args.concat(), input.as_bytes()),
        };
        let ran = ran.exits(0);
        let expected: Vec<String> =
            expected.iter().enumerate().map(|(at, value)| filled(value, at + 1)).collect();
        assert_eq!(ran.lines(), expected, "{source:?}");
    };
    check(&["--each", "deep/*", "plain", "x.*"], None, &files);
    check(&["--each", "**/*.txt"], None, &["deep/b.c.txt"]);
    check(&["--each-line", &lines], None, &values);
    check(&["--each-line", "-"], Some(&values.join("\n")), &values);
    check(&[], Some(&values.join("\n")), &values);
    check(&["--range", "8-11"], None, &["8", "9", "10", "11"]);
    check(&["--range", "4--2:-3"], None, &["4", "1", "-2"]);
}

#[trial]
fn sources_combine_and_name_their_values_by_number() {
    let site = Site::new();
    site.write("x.a", "");
    site.write("y.a", "");
    let lines = site.write("lines", "one\ntwo\n");
    let ran = site.run([
        "run",
        "--keep-order",
        "--each",
        "*.a",
        "--range",
        "1-3",
        "--each-line",
        &lines,
        "--",
        "echo",
        "{3}-{1/.}-{2}-{#}",
    ]);
    let mut expected = Vec::new();
    for file in ["x", "y"] {
        for number in 1..=3 {
            for word in ["one", "two"] {
                expected.push(format!("{word}-{file}-{number}-{}", expected.len() + 1));
            }
        }
    }
    assert_eq!(ran.exits(0).lines(), expected);
}

#[trial]
fn values_are_appended_or_quoted_for_the_shell() {
    let site = Site::new();
    let nasty = "a b; echo $(id) 'q' \"d\" \\ *";
    let lines = site.write("lines", nasty);
    let ran = site.run(["run", "--each-line", &lines, "--", "printf", "%s|"]).exits(0);
    assert_eq!(ran.text(), format!("{nasty}|"));
    let args = ["run", "--each-line", &lines, "--shell", "--", "printf %s {} | tr a-z A-Z"];
    assert_eq!(site.run(args).exits(0).text(), nasty.to_uppercase());
}

/// A task graph as JSON Lines and as TOML; both must behave the same.
fn check_list(site: &Site, name: &str, jsonl: &str, toml: &str, check: impl Fn(&[Value])) {
    for (file, text) in [(format!("{name}.jsonl"), jsonl), (format!("{name}.toml"), toml)] {
        let file = site.write(&file, text);
        let ran = site.run(["run", "--json", "-j", "4", "--tasks", &file]);
        check(&ran.results());
    }
}

#[trial]
fn a_task_file_says_everything_about_its_tasks() {
    let site = Site::new();
    site.write("in.txt", "from a file");
    let jsonl = r#"
{"id": "env", "command": ["sh", "-c", "echo $GREETING $0", "x"], "env": {"GREETING": "hi"}}
{"id": "cwd", "command": "pwd", "cwd": "/"}
{"id": "stdin", "command": "cat", "stdin": "in.txt"}
{"id": "shell", "command": "echo a | tr a b", "shell": true}
{"id": "args", "command": "echo", "args": ["{}", "{#}"]}
{"id": "retry", "command": ["sh", "-c", "exit $((3 - FALKON_ATTEMPT))"], "retries": 5}
{"id": "slow", "command": ["sleep", "1000"], "timeout": "100ms"}
{"id": "sleeper", "command": ["@sleep", "0.01"]}
{"id": "large", "command": "true", "cpus": 1000}
"#;
    let toml = r#"
[[task]]
id = "env"
command = ["sh", "-c", "echo $GREETING $0", "x"]
env = { GREETING = "hi" }
[[task]]
id = "cwd"
command = "pwd"
cwd = "/"
[[task]]
id = "stdin"
command = "cat"
stdin = "in.txt"
[[task]]
id = "shell"
command = "echo a | tr a b"
shell = true
[[task]]
id = "args"
command = "echo"
args = ["{}", "{#}"]
[[task]]
id = "retry"
command = ["sh", "-c", "exit $((3 - FALKON_ATTEMPT))"]
retries = 5
[[task]]
id = "slow"
command = ["sleep", "1000"]
timeout = "100ms"
[[task]]
id = "sleeper"
command = ["@sleep", "0.01"]
[[task]]
id = "large"
command = "true"
cpus = 1000
"#;
    check_list(&site, "all", jsonl, toml, |results| {
        let ids: Vec<&str> = results.iter().map(|line| line["id"].as_str().unwrap()).collect();
        let all = ["env", "cwd", "stdin", "shell", "args", "retry", "slow", "sleeper", "large"];
        assert_eq!(ids, all);
        let said = |at: usize| results[at]["stdout"].as_str().unwrap();
        assert_eq!((said(0), said(1), said(2), said(3)), ("hi x\n", "/\n", "from a file", "b\n"));
        assert_eq!(said(4), "{} {#}\n", "braces are plain text in a task file");
        assert_eq!((&results[5]["attempts"], &results[5]["status"]), (&3.into(), &"done".into()));
        assert_eq!(results[6]["status"], "failed");
        let error = |at: usize| results[at]["error"].as_str().unwrap();
        assert_eq!(error(6), "ran into its timeout");
        assert_eq!(results[7]["status"], "done");
        assert!(error(8).contains("1000 cpus"), "{}", error(8));
    });
}

/// Fails unless each task started after those it waits for had ended, by the
/// times of the results.
fn check_order(results: &[Value], after: impl Fn(usize) -> Vec<usize>) {
    for (at, result) in results.iter().enumerate() {
        let started = result["times"]["started"].as_f64().unwrap();
        for before in after(at) {
            let ended = results[before]["times"]["ended"].as_f64().unwrap();
            assert!(ended <= started, "{at} started before {before} had ended");
        }
    }
}

#[trial]
fn a_graph_runs_in_order() {
    // Layers of tasks, each reading files of the layer before, declared as
    // inputs and outputs; and a chain by `after`. A task that reads a file that
    // is not there yet would fail.
    const WIDTH: usize = 6;
    const LAYERS: usize = 5;
    let site = Site::new();
    let mut tasks = String::new();
    for layer in 0..LAYERS {
        for column in 0..WIDTH {
            let name = format!("f{layer}.{column}");
            let inputs: Vec<String> = match layer {
                0 => Vec::new(),
                _ => [0, 1, 3]
                    .map(|step| format!("f{}.{}", layer - 1, (column + step) % WIDTH))
                    .to_vec(),
            };
            let script =
                format!("cat {} /dev/null > {name}; echo {name} >> {name}", inputs.join(" "));
            let task = serde_json::json!({
                "command": ["sh", "-ec", script], "inputs": inputs, "outputs": [name],
            });
            tasks.push_str(&format!("{task}\n"));
        }
    }
    let first_of_chain = LAYERS * WIDTH;
    for at in 0..10 {
        let script = format!("test \"$(cat log 2>/dev/null | wc -l)\" = {at} && echo x >> log");
        let mut task =
            serde_json::json!({"id": format!("chain{at}"), "command": ["sh", "-c", script]});
        if at > 0 {
            task["after"] = serde_json::json!([format!("chain{}", at - 1)]);
        }
        tasks.push_str(&format!("{task}\n"));
    }
    let file = site.write("graph.jsonl", tasks);
    let results = site.run(["run", "--json", "-j", "4", "--tasks", &file]).exits(0).results();
    assert_eq!(results.len(), LAYERS * WIDTH + 10);
    check_order(&results, |at| match at {
        at if at > first_of_chain => vec![at - 1],
        at if at == first_of_chain || at < WIDTH => Vec::new(),
        at => {
            let (layer, column) = (at / WIDTH, at % WIDTH);
            [0, 1, 3].map(|step| (layer - 1) * WIDTH + (column + step) % WIDTH).to_vec()
        }
    });
}

#[trial]
fn what_depends_on_a_failure_fails_with_that_as_its_cause() {
    let site = Site::new();
    let file = site.write(
        "graph.jsonl",
        r#"{"id": "bad", "command": ["sh", "-c", "echo why >&2; exit 7"]}
{"id": "next", "command": ["touch", "ran"], "after": ["bad"]}
{"id": "last", "command": ["touch", "ran"], "after": ["next"]}
{"id": "other", "command": "true"}
"#,
    );
    let ran = site.run(["run", "--json", "--tasks", &file]).exits(1);
    let results = ran.results();
    let field =
        |name: &str| -> Vec<Value> { results.iter().map(|one| one[name].clone()).collect() };
    assert_eq!(field("status"), ["failed", "failed", "failed", "done"]);
    assert_eq!(field("exit_code"), [7.into(), Value::Null, Value::Null, 0.into()]);
    assert_eq!(field("attempts"), [1, 0, 0, 1]);
    let errors = field("error");
    assert!(errors[1].as_str().unwrap().contains("bad"), "{}", errors[1]);
    assert!(errors[2].as_str().unwrap().contains("next"), "{}", errors[2]);
    assert!(!site.path("ran").exists());
    ran.says("3 tasks failed:")
        .says("       0  bad (sh -c 'echo why >&2; exit 7'): exited with 7\n          | why\n")
        .says("not run, because task next, which it waits for, did not succeed")
        .says("1 done, 3 failed");
}

#[trial]
fn a_failed_task_is_tried_again_as_often_as_allowed() {
    let site = Site::new();
    let script = "echo x >> log{}; test $(wc -l < log{}) -gt {}";
    let ran =
        site.run(["run", "--json", "--retries", "2", "--range", "0-4", "--", "sh", "-c", script]);
    for (at, result) in ran.exits(1).results().iter().enumerate() {
        let attempts = (at + 1).min(3);
        assert_eq!(result["attempts"], attempts, "{result}");
        assert_eq!(result["status"], if at < 3 { "done" } else { "failed" });
        assert_eq!(site.read(&format!("log{at}")).lines().count(), attempts);
    }
}

#[trial]
fn a_timeout_ends_the_task_with_all_its_children() {
    let site = Site::new();
    let script = "sleep 1000 & setsid sleep 1000 & trap '' TERM; sleep 1000; sleep 1000";
    let started = std::time::Instant::now();
    let args = ["run", "--json", "-j", "2", "--timeout", "0.2", "--range", "1-2", "--", "sh", "-c"];
    let ran = site.run(args.iter().chain(&[script])).exits(1);
    assert!(started.elapsed().as_secs() < 1000, "it waited for what the task left behind");
    site.left().wait_for_none();
    for result in ran.results() {
        assert_eq!(result["status"], "failed");
        assert!(result["error"].as_str().unwrap().contains("timeout"), "{result}");
    }
}

#[trial]
fn fail_fast_cancels_the_rest() {
    let site = Site::new();
    let mut gate = site.gate("gate");
    let script = format!("test {{}} = 2 && exit 9; test {{}} -lt 3 || read line < {}", gate.path());
    let args = ["run", "--json", "--fail-fast", "-j", "2", "--range", "1-30", "--", "sh", "-c"];
    let ran = site.run(args.iter().copied().chain([script.as_str()])).exits(1);
    let results = ran.results();
    let count = |status: &str| results.iter().filter(|one| one["status"] == status).count();
    assert_eq!((count("done") + count("failed") + count("cancelled"), count("failed")), (30, 1));
    assert!(count("cancelled") >= 27, "{ran}");
    // Without it, all run.
    gate.let_through(28);
    let args = ["run", "--json", "--keep-going", "-j", "2", "--range", "1-30", "--", "sh", "-c"];
    let results = site.run(args.iter().copied().chain([script.as_str()])).exits(1).results();
    assert_eq!(results.iter().filter(|one| one["status"] == "done").count(), 29);
}

#[trial]
fn keep_order_keeps_the_order_and_without_it_the_first_to_end_is_first() {
    let site = Site::new();
    let mut gate = site.gate("gate");
    let script = format!("test {{}} != 1 || read line < {}; echo {{}}", gate.path());
    for format in [&[][..], &["--json"]] {
        let args = [&["run", "-j", "3", "--range", "1-6"], format, &["--", "sh", "-c", &script]];
        let running = site.start(args.concat());
        running.wait_for_lines(5);
        gate.let_through(1);
        let ran = running.finish().exits(0);
        let last = ran.lines()[5].to_owned();
        assert!(last == "1" || last.contains("\"index\":0,"), "{ran}");
        gate.let_through(1);
        let args = [&["run", "--keep-order"], &args.concat()[1..]].concat();
        let ran = site.run(args).exits(0);
        let order: Vec<u64> = match format {
            [] => ran.lines().iter().map(|line| line.parse::<u64>().unwrap() - 1).collect(),
            _ => json_lines(ran.text()).iter().map(|one| one["index"].as_u64().unwrap()).collect(),
        };
        assert_eq!(order, [0, 1, 2, 3, 4, 5]);
    }
}

#[trial]
fn json_has_the_fields_that_are_documented() {
    let site = Site::new();
    let script = "echo out; echo err >&2; case {} in 1) exit 0;; 2) exit 5;; 3) kill -9 $$;; esac";
    let ran = site.run(["run", "--json", "--range", "1-3", "--", "sh", "-c", script]).exits(1);
    let results = ran.results();
    let expected = [
        ("done", Value::from(0), Value::Null, Value::Null),
        ("failed", Value::from(5), Value::Null, Value::from("exited with 5")),
        ("failed", Value::Null, Value::from(9), Value::from("killed by SIGKILL")),
    ];
    for (at, (line, (status, code, signal, error))) in results.iter().zip(expected).enumerate() {
        let mut fields: Vec<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
        fields.sort_unstable();
        let mut documented = [
            "id",
            "index",
            "status",
            "command",
            "values",
            "exit_code",
            "signal",
            "stdout",
            "stderr",
            "executor",
            "attempts",
            "times",
            "usage",
            "error",
        ];
        documented.sort_unstable();
        assert_eq!(fields, documented);
        assert_eq!(line["id"], at.to_string());
        assert_eq!(line["index"], at);
        assert_eq!(line["status"], status);
        assert_eq!(line["exit_code"], code);
        assert_eq!(line["signal"], signal);
        assert_eq!(line["error"], error);
        assert_eq!((&line["stdout"], &line["stderr"]), (&"out\n".into(), &"err\n".into()));
        assert!(line["executor"].is_string());
        assert_eq!(line["attempts"], 1);
        let phases = ["queued", "dispatched", "started", "ended", "delivered"];
        let times: Vec<f64> = phases.map(|phase| line["times"][phase].as_f64().unwrap()).to_vec();
        assert!(times.is_sorted(), "{times:?}");
        assert_eq!(line["times"].as_object().unwrap().len(), phases.len());
    }
}

#[trial]
fn a_dry_run_prints_the_plan_and_runs_nothing() {
    let site = Site::new();
    let args = ["--range", "1-3", "--timeout", "5", "--", "touch", "file {}"];
    let ran = site.run(["run", "--dry-run"].iter().chain(&args)).exits(0);
    assert_eq!(ran.lines().len(), 3, "{ran}");
    assert!(ran.lines()[1].contains("touch 'file 2'"), "{ran}");
    assert!(!site.path("file 1").exists());
    // What it prints are commands that a shell takes.
    for line in ran.lines() {
        let command = line.splitn(3, '\t').nth(2).unwrap();
        assert!(site.program("sh").args(["-c", command]).status().unwrap().success());
    }
    assert!(site.path("file 3").exists());
}

#[trial]
fn quiet_says_nothing_and_the_exit_status_says_it_all() {
    let site = Site::new();
    let check = |args: &[&str], code: i32, silent: bool| {
        let ran = site.run(["run"].iter().chain(args)).exits(code);
        assert_eq!(ran.err.is_empty(), silent, "{ran}");
    };
    check(&["--quiet", "--", "true"], 0, true);
    check(&["--quiet", "--", "false"], 1, true);
    check(&["--", "false"], 1, false);
    check(&["--quiet"], 2, false);
    check(&["--quiet", "--range", "x", "--", "true"], 2, false);
    check(&["--no-such-option", "--", "true"], 2, false);
    let full = std::fs::File::create("/dev/full").unwrap();
    let mut command = site.falkon(["run", "--quiet", "--", "echo", "x"]);
    command.stdout(full).stderr(std::process::Stdio::piped());
    let ran = crate::fixture::Running::start_as_is(command).finish();
    ran.exits(3).says_only(1, "cannot write results to standard output: No space left on device");
}

#[trial]
fn ten_thousand_processes() {
    let site = Site::new();
    let ran = site.run(["run", "--json", "-j", "4", "--range", "1-10000", "--", "/bin/true"]);
    let ran = ran.exits(0).says("10000 done");
    assert_eq!(indices(ran.text()), (0..10_000).collect::<Vec<_>>());
    assert_eq!(ran.text().matches("\"status\":\"done\"").count(), 10_000);
}

#[trial]
fn a_workflow_file_runs() {
    let site = Site::new();
    let task = |name: &str, program: &str, arguments: &[&str]| serde_json::json!({ "id": name, "command": { "program": program, "arguments": arguments } });
    let specified =
        |name: &str, parents: &[&str], children: &[&str], reads: &[&str], writes: &str| {
            serde_json::json!({
                "name": name, "id": name, "parents": parents, "children": children,
                "inputFiles": reads, "outputFiles": [writes],
            })
        };
    let file = |id: &str| serde_json::json!({ "id": id, "sizeInBytes": 0 });
    let workflow = serde_json::json!({
        "name": "tiny",
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {
                "tasks": [
                    specified("join", &["left", "right"], &[], &["l", "r"], "joined"),
                    specified("left", &[], &["join"], &[], "l"),
                    specified("right", &[], &["join"], &[], "r"),
                ],
                "files": [file("l"), file("r"), file("joined")],
            },
            "execution": {
                "makespanInSeconds": 1, "executedAt": "2024-01-01T00:00:00Z",
                "tasks": [
                    task("join", "sh", &["-c", "cat l r > joined"]),
                    task("left", "sh", &["-c", "echo left > l"]),
                    task("right", "sh", &["-c", "echo right > r"]),
                ],
            },
        },
    });
    let path = site.write("tiny.json", workflow.to_string());
    let ran = site.run(["run", "--json", "--workflow", &path]).exits(0);
    assert_eq!(ran.results().len(), 3);
    assert_eq!(site.read("joined"), "left\nright\n");
}

#[trial]
fn gpus_memory_and_custom_resources_are_shared_out() {
    let site = Site::new();
    let mut started = site.signals("started");
    let mut gate = site.gate("gate");
    let script = format!(
        "echo gpus $CUDA_VISIBLE_DEVICES > {}; read line < {}",
        started.path(),
        gate.path()
    );
    let command = ["--range", "1-4", "--", "sh", "-c", script.as_str()];
    // Two of four fit, each time for another reason.
    for (offer, need) in [
        (&["-j", "9", "--offer-gpus", "4"][..], &["--gpus", "2"][..]),
        (&["-j", "9", "--offer", "tape=5"], &["--resource", "tape=2"]),
        (&["-j", "1"], &["--cpus", "0.5"]),
    ] {
        let running = site.start([&["run"], offer, need, &command].concat());
        let mut gpus = started.take(2).join(",");
        if offer.contains(&"--offer-gpus") {
            gpus = gpus.replace("gpus ", "");
            let mut each: Vec<&str> = gpus.split(',').collect();
            each.sort_unstable();
            assert_eq!(each, ["0", "1", "2", "3"], "each GPU belongs to one task");
        }
        assert!(started.is_silent(), "more tasks run than fit: {offer:?}");
        gate.let_through(4);
        started.take(2);
        running.finish().exits(0);
    }
}
