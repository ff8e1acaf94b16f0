//! Values of tasks in what they run and in their results.

use crate::fixture::{Running, Site, json_lines};
use falkon_trials::trial;

#[trial]
fn rows_and_decimals_reach_tasks_and_their_results() {
    let site = Site::new();
    let table = site.write("stars.csv", "name,file\n\"M 31\",sky/a.fits\n");
    let (log, tree) = (site.text("log"), site.text("tree"));
    let ran = site
        .run([
            "run",
            "--json",
            "--joblog",
            &log,
            "--results",
            &tree,
            "--rows",
            &table,
            "--range",
            "0.5-1:0.5",
            "-k",
            "--",
            "echo",
            "{name}",
            "{file/.}",
            "{3}",
        ])
        .exits(0);
    let results = json_lines(ran.text());
    assert_eq!(results.len(), 2);
    assert_eq!(results[1]["stdout"], "M 31 a 1.0\n");
    assert_eq!(results[1]["command"], "echo 'M 31' a 1.0");
    let values = serde_json::json!({"name": "M 31", "file": "sky/a.fits", "3": "1.0"});
    assert_eq!(results[1]["values"], values);
    let logged = site.read("log");
    assert_eq!(logged.lines().count(), 3);
    let line = logged.lines().find(|line| line.starts_with("2\t")).unwrap();
    assert!(line.ends_with("\t0\t11\t0\t0\techo 'M 31' a 1.0"), "{line}");
    assert_eq!(site.read("tree/name/M 31/file/sky\\_a.fits/3/1.0/stdout"), "M 31 a 1.0\n");
    assert_eq!(site.read("tree/name/M 31/file/sky\\_a.fits/3/1.0/seq"), "2");
}

#[trial]
fn tasks_find_what_they_have_reserved() {
    let site = Site::new();
    let script = "echo $FALKON_CPUS $FALKON_GPUS $FALKON_MEMORY $OMP_NUM_THREADS $PASSED";
    let run = |options: &[&str], threads: Option<&str>| {
        let mut command = site.program(env!("CARGO_BIN_EXE_falkon"));
        command.arg("run").args(options).args(["--shell", script]).env("PASSED", "{} on");
        match threads {
            Some(threads) => command.env("OMP_NUM_THREADS", threads),
            None => command.env_remove("OMP_NUM_THREADS"),
        };
        let ran = Running::start(command).finish().exits(0);
        ran.text().to_owned()
    };
    assert_eq!(run(&["--memory", "1GiB", "--env", "PASSED"], None), "1 0 1073741824 1 {} on\n");
    assert_eq!(run(&["--cpus", "0.5", "--env", "PASSED="], Some("7")), "0.5 0 7\n");
    assert_eq!(run(&["--env", "OMP_NUM_THREADS=3", "--env", "PASSED=x"], None), "1 0 3 x\n");
    let unset = site.run(["run", "--env", "FALKON_IS_NOT_SET", "true"]).exits(2);
    unset.says("the variable `FALKON_IS_NOT_SET` is not set here");
}

#[trial]
fn a_command_runs_in_the_end() {
    let site = Site::new();
    let run = |program: &str, command: &str, code| {
        site.run(["run", "--quiet", "--notify", command, program]).exits(code)
    };
    run("false", "echo ended $FALKON_EXIT > told", 1);
    assert_eq!(site.read("told"), "ended 1\n");
    run("true", "exit $((7 + FALKON_EXIT))", 0).says("the command of --notify ended with");
}

#[trial]
fn a_run_halts_when_enough_tasks_have_ended_so() {
    let site = Site::new();
    let args = ["run", "-j", "2", "--halt", "now,success=1", "--json"];
    let ran = site.run([&args[..], &["@sleep", "{}", ":::", "0", "1000000"]].concat()).exits(1);
    let results = json_lines(ran.text());
    assert_eq!(results[0]["status"], "done");
    assert_eq!(results[1]["status"], "cancelled");
    let soon = site.run(["run", "--halt", "soon,fail=1", "true"]).exits(2);
    soon.says("write now,fail=1 instead");
}
