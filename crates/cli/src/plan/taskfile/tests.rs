use super::super::{Plan, PlanArgs, Surroundings};
use super::*;
use crate::plan::options::{Count, Cpus};
use falkon_core::task::UNLIMITED;
use proptest::prelude::*;
use std::path::Path;

fn plan_with(text: &[u8], edit: impl FnOnce(&mut PlanArgs)) -> Result<Plan, PlanError> {
    let mut args = PlanArgs::default();
    args.sources.tasks = Some("-".into());
    edit(&mut args);
    let surroundings = Surroundings {
        stdin: &mut &text[..],
        stdin_is_piped: true,
        current_dir: Path::new("/here"),
    };
    Plan::new(&args, surroundings)
}

fn plan(text: &str) -> Result<Plan, PlanError> {
    plan_with(text.as_bytes(), |_| {})
}

fn argv(plan: &Plan, position: u64) -> Vec<String> {
    let argv = plan.command(position).unwrap().argv;
    argv.into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
}

/// Every field, in both notations.
const JSON: &str = r#"
{"id": "first", "command": "prog", "args": ["-n", 4, "a\"b"], "env": {"A": "1", "B": 2}, "cwd": "d", "stdin": "in", "inputs": ["x"], "outputs": ["y"], "cpus": 0.5, "gpus": 1, "memory": "2GiB", "memory_limit": "none", "resources": {"lic": 3}, "runtime_estimate": "2m", "timeout": 1.5, "retries": 2, "replicas": 3, "lenders": 4, "priority": -1}
{"command": ["echo", "hi"], "after": ["first"], "shell": true}
"#;
const TOML: &str = r#"
# A comment first.
[[task]]
id = "first"
command = "prog"
args = ["-n", 4, 'a"b']
env = { A = "1", B = 2 }
cwd = "d"
stdin = "in"
inputs = ["x"]
outputs = ["y"]
cpus = 0.5
gpus = 1
memory = "2GiB"
memory_limit = "none"
resources = { lic = 3 }
runtime_estimate = "2m"
timeout = 1.5
retries = 2
replicas = 3
lenders = 4
priority = -1

[[task]]
command = ["echo", "hi"]
after = ["first"]
shell = true
"#;

#[test]
fn both_notations_say_the_same() {
    let (json, toml) = (plan(JSON).unwrap(), plan(TOML).unwrap());
    assert_eq!(json.count(), 2);
    for position in 0..2 {
        assert_eq!(json.command(position), toml.command(position));
        assert_eq!(json.class(position), toml.class(position));
        assert_eq!(json.name(position), toml.name(position));
        assert_eq!(json.after(position), toml.after(position));
    }
    assert_eq!(argv(&json, 0), ["prog", "-n", "4", "a\"b"]);
    assert_eq!(argv(&json, 1), ["/bin/sh", "-c", "echo hi", "falkon"]);
    let command = json.command(0).unwrap();
    assert_eq!(command.env, [(b"A".to_vec(), b"1".to_vec()), (b"B".to_vec(), b"2".to_vec())]);
    let class = json.class(0).unwrap();
    assert_eq!(class.resources.to_string(), "0.5 cpus, 1 gpus, 2048 MiB memory, 3 lic");
    assert_eq!((class.timeout_micros, class.retries, class.priority), (1_500_000, 2, -1));
    assert_eq!(class.replicas, 3);
    assert_eq!(class.lenders, 4);
    assert_eq!((class.memory_limit_bytes, class.memory_limit()), (UNLIMITED, None));
    assert_eq!((json.name(0), json.name(1)), (Some("first"), None));
    assert_eq!((json.after(0), json.after(1)), (vec![], vec![0]));
}

#[test]
fn options_are_defaults() {
    let text = r#"{"command":"a"}
{"command":"b","cwd":"own","env":{"X":"own"},"outputs":[],"cpus":3,"shell":false}"#;
    let plan = plan_with(text.as_bytes(), |args| {
        args.options.cwd = Some("given-{#}".into());
        args.options.env = vec!["X=given".into(), "Y=1".into()];
        args.options.output = vec!["out-{#}".into()];
        args.options.class.cpus = Some(Cpus(2000));
        args.options.class.retries = Some(Count(5));
        args.options.shell = true;
    })
    .unwrap();
    let (first, second) = (plan.command(0).unwrap(), plan.command(1).unwrap());
    assert_eq!(first.cwd.unwrap(), b"given-1");
    assert_eq!(first.outputs, [b"out-1"]);
    assert_eq!(argv(&plan, 0)[0], "/bin/sh");
    assert_eq!(second.cwd.unwrap(), b"own");
    assert_eq!(second.outputs, [b""; 0]);
    assert_eq!(second.env, [(b"Y".to_vec(), b"1".to_vec()), (b"X".to_vec(), b"own".to_vec())]);
    assert_eq!(argv(&plan, 1), ["b"]);
    assert_eq!(plan.class(0).unwrap().resources.cpus_milli, 2000);
    assert_eq!(plan.class(1).unwrap().resources.cpus_milli, 3000);
    assert_eq!(plan.class(1).unwrap().retries, 5);
}

#[test]
fn errors_have_their_places() {
    let mut wrong = Vec::new();
    for (text, expected) in [
        (
            "{\"command\":\"a\"}\n{\"comand\":\"b\"}\n",
            "2:9: there is no field `comand`; did you mean `command`?",
        ),
        (
            "\n{\"command\":\"a\"\n}",
            "2:14: EOF while parsing an object (a task file has one whole object per line)",
        ),
        (
            "{\"command\":\"a\",\"cpus\":-1}",
            "1:24: invalid value: integer `-1`, expected a number of cpus above 0 with at most three decimals",
        ),
        ("{\"command\":\"a\",\"memory\":\"12Q\"}", "1:29: `12Q` is not an amount of memory"),
        (
            "{\"command\":\"a\",\"retries\":-1}",
            "1:27: invalid value: integer `-1`, expected a whole number from 0 to 4294967295",
        ),
        ("{\"command\":\"a\",\"timeout\":\"soon\"}", "`soon` is not a duration"),
        ("{\"command\":\"a\\u0000b\"}", "1:21: a NUL character"),
        ("{\"command\":\"\"}", "1:1: the task has no command"),
        ("{\"args\":[]}", "1:1: the task has no command"),
        ("{\"command\":\"@nap\"}", "1:1: there is no builtin `@nap`"),
        ("{\"command\":[\"@sleep\",\"long\"]}", "1:1: @sleep takes one number of seconds"),
        ("{\"command\":\"@noop\",\"shell\":true}", "does not run in a shell"),
        ("{\"command\":\"a\",\"command\":\"b\"}", "duplicate field `command`"),
        ("{\"id\":\"\",\"command\":\"a\"}", "1:1: the task's id is empty"),
        (
            "{\"id\":\"i\",\"command\":\"a\"}\n{\"id\":\"i\",\"command\":\"b\"}",
            "2:1: tasks 1 and 2 both have the id `i`",
        ),
        ("[{\"command\":\"a\"}]", "`standard input` is one JSON array"),
        ("[\n]", "`standard input` is one JSON array"),
        (
            "[[task]]\ncommand = \"a\"\nretrys = 1\n",
            "3:1: there is no field `retrys`; did you mean `retries`?",
        ),
        ("[[task]]\ncommand = \n", "2:1"),
        ("[[task]]\ncommand = \"a\"\n\n[[tsk]]\n", "4:3: unknown field `tsk`"),
        ("[[task]]\ncommand = \"a\"\n  memory = \"12Q\"\n", "3:12: `12Q` is not an amount"),
        ("[[task]]\nid = \"x\"\n", "1:1: the task has no command"),
    ] {
        let found = plan(text).unwrap_err().to_string();
        if !found.contains(expected) {
            wrong.push(format!("{text}\n{found}\n{expected}\n"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let found = plan_with(b"{\"command\":\"a\"}\n{\"command\":\"\xff\"}", |_| {}).unwrap_err();
    assert_eq!(found.to_string(), "standard input:2:13: the text is not UTF-8");
    let found = plan_with(b"[[task]]\ncommand = \"\xff\"", |_| {}).unwrap_err();
    assert!(matches!(found, PlanError::NotUtf8 { line: 2, column: 12, .. }));
    assert!(matches!(plan("\n\n").unwrap_err(), PlanError::EmptySource { .. }));
}

#[test]
fn the_first_errors_are_listed_and_the_rest_counted() {
    let text = "{\"command\":\"a\"}\n{\"x\":1}\n".repeat(9);
    let PlanError::Tasks(errors) = plan(&text).unwrap_err() else { panic!() };
    let lines: Vec<u64> = errors.errors.iter().map(|error| error.line).collect();
    assert_eq!(lines, [2, 4, 6, 8, 10]);
    assert_eq!(errors.more, 4);
    assert!(errors.to_string().ends_with("… and 4 more lines of standard input are wrong"));
}

#[test]
fn graphs_are_checked_before_anything_runs() {
    let text = r#"{"id":"a","command":"x","after":["b"]}
{"id":"b","command":"x","inputs":["f"]}
{"id":"c","command":"x","after":["a"],"outputs":["./f"]}"#;
    let found = plan(text).unwrap_err().to_string();
    assert_eq!(found, "tasks wait for each other in a cycle: a → b → c → a");
    let found = plan("{\"command\":\"x\",\"after\":[\"nobody\"]}").unwrap_err().to_string();
    assert_eq!(found, "task `#1` waits for `nobody`, but no task has that id");
    let both = "{\"command\":\"x\",\"outputs\":[\"o\"]}\n".repeat(2);
    let found = plan(&both).unwrap_err().to_string();
    assert_eq!(found, "tasks `#1` and `#2` both declare the output `o`");
}

proptest! {
    #[test]
    fn no_text_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = plan_with(&bytes, |_| {});
    }

    #[test]
    fn no_broken_task_panics(cut in 0usize..400, byte in any::<u8>(), toml in any::<bool>()) {
        let mut bytes = if toml { TOML } else { JSON }.as_bytes().to_vec();
        let at = cut % bytes.len();
        bytes[at] = byte;
        let _ = plan_with(&bytes, |_| {});
        bytes.truncate(at);
        let _ = plan_with(&bytes, |_| {});
    }
}
