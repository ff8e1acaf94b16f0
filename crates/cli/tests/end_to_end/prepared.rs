//! What is prepared before tasks: real modules, real virtual environments, commands.

use crate::fixture::Site;
use falkon_trials::{skip, trial};
use std::process::Command;

/// Where Debian's package of Environment Modules has what a shell reads.
const MODULES: &str = "/usr/share/modules/init/sh";

/// A virtual environment without pip, in a folder of the site.
fn virtual_environment(site: &Site, name: &str) {
    let folder = site.dir().join(name);
    let made = Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(folder).output();
    if !made.is_ok_and(|made| made.status.success()) {
        skip("python3 has no module venv");
    }
}

#[trial]
fn a_virtual_environment_is_activated_where_the_task_runs() {
    let site = Site::new();
    virtual_environment(&site, "env");
    let prefix =
        "import os, sys; print(sys.prefix == os.environ['VIRTUAL_ENV'] != sys.base_prefix)";
    site.write("tasks.jsonl", serde_json::json!({"command": ["python", "-c", prefix]}).to_string());
    for tasks in [&["--tasks", "tasks.jsonl"][..], &["--", "python", "-c", prefix]] {
        let ran = site.run([&["run", "--quiet", "--venv", "env"], tasks].concat()).exits(0);
        assert_eq!(ran.text(), "True\n", "{tasks:?}");
    }
    // As data: packed on the way, unpacked on the node.
    let dispatcher = site.dispatcher("files", &[]);
    let executor = dispatcher.executor("node", &["--slots", "1"]);
    let access = dispatcher.access();
    let source = format!("env={}/", site.dir().join("env").display());
    let submit = ["--wait", "--quiet", "--unpack", &source, "--venv", "env"];
    let script =
        "import os, sys; print(sys.prefix == os.environ['VIRTUAL_ENV'], 'env' in sys.prefix)";
    let ran = access.run("submit", &[&submit[..], &["--", "python", "-c", script]].concat());
    assert_eq!(ran.exits(0).text(), "True True\n");
    drop(executor);
    let ran = site.run(["run", "--json", "--venv", "none", "--", "echo", "hi"]).exits(1);
    let result = ran.results().remove(0);
    assert_eq!(result["command"], "echo hi", "{result}");
    assert_eq!(result["stderr"], "falkon: there is no virtual environment in none\n");
}

#[trial]
fn modules_are_loaded_and_commands_see_them() {
    if !std::path::Path::new(MODULES).exists() {
        skip("it needs environment-modules");
    }
    let site = Site::new();
    std::fs::create_dir(site.dir().join("modules")).unwrap();
    let module = "#%Module1.0\nsetenv DOCK 7.1\nprepend-path PATH /opt/dock/bin\n";
    site.write("modules/dock", module);
    let modules = format!("MODULEPATH={}", site.dir().join("modules").display());
    let run = ["run", "--quiet", "--env", &modules, "--range", "1-2", "-k"];
    let setup = ["--module", "dock", "--setup", "export BOTH=\"$DOCK and more\""];
    let script = "echo \"{} $BOTH ${PATH%%:*}\"";
    let ran = site.run([&run[..], &setup, &["--shell", script]].concat()).exits(0);
    assert_eq!(ran.text(), "1 7.1 and more /opt/dock/bin\n2 7.1 and more /opt/dock/bin\n");
    let ran = site.run([&run[..], &["--module", "none", "--", "echo", "{}"]].concat()).exits(1);
    ran.says("cannot load the module none");
}

#[trial]
fn calls_and_builtins_are_not_prepared() {
    let site = Site::new();
    site.run(["run", "--setup", "exit 3", "@noop"]).exits(0);
    let ran = site.run(["run", "--venv", "env", "--call", "math:sqrt", "--", "4"]).exits(2);
    ran.says("a function is called and not run: leave out --venv");
    let ran = site.run(["run", "--dry-run", "--setup", "ulimit -c 0", "--", "./prog"]).exits(0);
    assert!(ran.text().ends_with("\t./prog  # prepares 'setup=ulimit -c 0'\n"), "{}", ran.text());
    site.run(["run", "--quiet", "--setup", "exit 3", "true"]).exits(1);
}

#[trial]
fn what_no_container_can_have_is_refused() {
    let site = Site::new();
    let gang = ["--nodes-per-task", "2"];
    let cases: [(&[&str], &str); 5] = [
        (&["--container=-x"], "`-x` is no image of a container"),
        (&["--container", "podman:"], "`podman:` is no image of a container"),
        (&["--container", "a\nb"], "`a\\nb` is no image of a container"),
        (&["--container", "a", "--bind", "data"], "`data` cannot be shown in a container"),
        (&["--container", "a", gang[0], gang[1]], "--container is for tasks on one node"),
    ];
    for (options, said) in cases {
        site.run([&["run"], options, &["--", "true"]].concat()).exits(2).says(said);
    }
    let call = ["run", "--container", "a", "--call", "math:sqrt", "--", "4"];
    site.run(call).exits(2).says("a function is called and not run: leave out --container");
    site.write("call.jsonl", "{\"call\": \"math:sqrt\", \"args\": [4], \"container\": \"a\"}\n");
    let ran = site.run(["run", "--tasks", "call.jsonl"]).exits(2);
    ran.says("a function is called and not run: leave out `container`");
    site.write("odd.jsonl", "{\"command\": \"true\", \"container\": \"-x\"}\n");
    site.run(["run", "--tasks", "odd.jsonl"]).exits(2).says("`-x` is no image of a container");
    let ran = site.run(["run", "--dry-run", "--container", "a b", "--", "./prog"]).exits(0);
    assert!(ran.text().ends_with("\t./prog  # prepares 'container=a b'\n"), "{}", ran.text());
}
