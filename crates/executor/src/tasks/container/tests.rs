//! Stand-ins for the engines, which print how they are called: what a shell hands over to them.
//! The program's own tests run containers of podman.

use super::super::setup::in_shell;
use super::*;
use falkon_wire::command::Setup;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Prints its own name and its arguments, a line each.
const PRINTS: &str = "printf '%s\\n' \"${0##*/}\" \"$@\"";
/// The same, by a docker whose service is there.
const DOCKER: &str = "case $1 in info) echo '[name=seccomp]' ;; *) printf '%s\\n' \"$@\" ;; esac";
/// What the script calls, which is there whatever else is not.
const TOOLS: [&str; 13] = [
    "sh", "id", "tr", "mktemp", "mkfifo", "rm", "setsid", "timeout", "readlink", "dirname",
    "basename", "sleep", "cat",
];

/// A node: the programs that are there, and the directory of a task.
struct Node {
    root: tempfile::TempDir,
}

impl Node {
    fn new(engines: &[(&str, &str)]) -> Node {
        let node = Node { root: tempfile::tempdir().unwrap() };
        std::fs::create_dir(node.path("bin")).unwrap();
        std::fs::create_dir(node.path("task")).unwrap();
        let path = std::env::var_os("PATH").unwrap();
        for tool in TOOLS {
            let places = std::env::split_paths(&path).map(|folder| folder.join(tool));
            let found = places.into_iter().find(|place| place.exists()).unwrap();
            std::os::unix::fs::symlink(found, node.path("bin").join(tool)).unwrap();
        }
        for (name, script) in engines {
            // Another process writes it: one that is started meanwhile by another test would hold
            // it open for writing, and nobody could run it.
            let write =
                ["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$2\" && chmod +x \"$2\"", "sh"];
            let place = node.path("bin").join(name);
            assert!(
                Command::new("sh").args(write).arg(script).arg(place).status().unwrap().success()
            );
        }
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().canonicalize().unwrap().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).into_os_string().into_string().unwrap()
    }

    /// The shell that runs a command after what is prepared.
    fn command(&self, prepared: &[&str], surroundings: Surroundings, command: &[&str]) -> Command {
        let to_bytes = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let mut words = Setup::words(to_bytes(prepared));
        words.extend::<Vec<Vec<u8>>>(to_bytes(command));
        let words = in_shell(words, || surroundings);
        let words: Vec<OsString> = words.into_iter().map(OsString::from_vec).collect();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("PATH", self.path("bin")).env("FALKON_TASK_KEY", "9:1");
        command.env_remove("FALKON_GPUS").env_remove("TMPDIR").current_dir(self.path("task"));
        command
    }

    fn run(&self, prepared: &[&str], command: &[&str]) -> Output {
        self.command(prepared, Surroundings::default(), command).output().unwrap()
    }
}

fn printed(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap().lines().map(str::to_owned).collect()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The values of an option.
fn values<'a>(lines: &'a [String], option: &str) -> Vec<&'a str> {
    let pairs = lines.windows(2).filter(|pair| pair[0] == option);
    pairs.map(|pair| pair[1].as_str()).collect()
}

#[test]
fn the_first_engine_of_the_node_runs_the_image_and_another_if_it_is_named() {
    let all =
        [("apptainer", PRINTS), ("singularity", PRINTS), ("podman", PRINTS), ("docker", DOCKER)];
    for at in 0..all.len() {
        let lines =
            printed(&Node::new(&all[at..]).run(&["container=tool"], &["prog", "-x", "a b"]));
        let first = if at == 3 { "run" } else { all[at].0 };
        assert_eq!(lines[0], first);
        let image = if at < 2 { "docker://tool" } else { "tool" };
        assert_eq!(lines[lines.len() - 4..], [image, "prog", "-x", "a b"]);
    }
    let node = Node::new(&all);
    assert_eq!(printed(&node.run(&["container=podman:tool"], &["prog"]))[0], "podman");
    let lines = printed(&node.run(&["container=docker://tool:1"], &["prog"]));
    assert_eq!(
        (lines[0].as_str(), lines[lines.len() - 2].as_str()),
        ("apptainer", "docker://tool:1")
    );
    let lines = printed(&node.run(&["container=docker:docker://tool:1"], &["prog"]));
    assert_eq!(lines[lines.len() - 2], "tool:1");
}

#[test]
fn an_engine_or_image_that_is_not_there_is_an_error_with_a_remedy() {
    let none = Node::new(&[]);
    let remedy = "install it, or load its module with --module";
    let cases = [
        (
            "tool",
            format!(
                "there is no apptainer, singularity, podman or docker on this node for the image tool: {remedy}"
            ),
        ),
        ("podman:tool", format!("there is no podman on this node for the image tool: {remedy}")),
    ];
    for (image, expected) in cases {
        let output = none.run(&[&format!("container={image}")], &["prog"]);
        assert_eq!(output.status.code(), Some(127), "{output:?}");
        assert_eq!(said(&output), format!("falkon: {expected}\n"));
    }
    let node = Node::new(&[("podman", "echo no such image >&2; exit 125")]);
    std::fs::write(node.path("task/tool.sif"), "").unwrap();
    let output = node.run(&["container=tool.sif"], &["prog"]);
    assert!(
        said(&output).contains("no apptainer or singularity, which run image files,"),
        "{output:?}"
    );
    let output = node.run(&["container=./other.sif"], &["prog"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("there is no image ./other.sif on this node"), "{output:?}");
    let output = node.run(&["container=tool"], &["prog"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(said(&output).contains("no such image\nfalkon: podman ended with 125"), "{output:?}");
    let node = Node::new(&[("docker", "echo cannot connect >&2; exit 1")]);
    let output = node.run(&["container=tool"], &["prog"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("cannot connect\nfalkon: docker does not answer"), "{output:?}");
}

#[test]
fn no_shell_interprets_an_image_and_none_is_an_option() {
    let node = Node::new(&[("podman", PRINTS), ("apptainer", PRINTS)]);
    let odd =
        ["$(touch gone)", "`touch gone`", "a;touch gone", "a'b\"c", "a b", "*", "a\\b", "${X}"];
    for image in odd {
        let lines = printed(&node.run(&[&format!("container=podman:{image}")], &["prog"]));
        assert_eq!(lines[lines.len() - 2..], [image, "prog"]);
        let lines = printed(&node.run(&[&format!("container=apptainer:{image}")], &["prog"]));
        assert_eq!(lines[lines.len() - 2..], [&format!("docker://{image}"), "prog"]);
    }
    assert!(!node.path("task/gone").exists());
    for image in ["--privileged", "podman:--privileged", "podman:", ""] {
        let output = node.run(&[&format!("container={image}")], &["prog"]);
        assert_eq!(output.status.code(), Some(1), "{image}");
        assert!(said(&output).contains("is no image of a container"), "{output:?}");
    }
}

#[test]
fn a_container_shows_the_directory_and_what_inputs_and_outputs_link_to() {
    let node = Node::new(&[("docker", DOCKER), ("apptainer", PRINTS)]);
    let link = |target: &str, at: &str| std::os::unix::fs::symlink(target, node.path(at)).unwrap();
    for folder in ["cache", "big", "elsewhere"] {
        std::fs::create_dir(node.path(folder)).unwrap();
    }
    for file in ["cache/object", "big/one", "elsewhere/two", "task/own"] {
        std::fs::write(node.path(file), "").unwrap();
    }
    link(&node.text("cache/object"), "task/input");
    link("../big", "task/data");
    link(&node.text("elsewhere"), "way");
    link(&node.text("way/two"), "task/two");
    let bytes = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect();
    let surroundings = || Surroundings {
        folder: Some(format!("{}/", node.text("task")).into_bytes()),
        inputs: bytes(&["input", "own", "data/one", "two", &node.text("big/one")]),
        outputs: bytes(&["out", &node.text("elsewhere/out"), "data/out"]),
        variables: Vec::new(),
    };
    let bind = format!("bind={}", node.text("cache"));
    let prepared = ["container=docker:tool", bind.as_str()];
    let lines = printed(&node.command(&prepared, surroundings(), &["prog"]).output().unwrap());
    let mount = |name: &str, rest: &str| {
        let path = node.text(name);
        format!("type=bind,src={path},dst={path}{rest}")
    };
    let mut shown: Vec<String> = values(&lines, "--mount").into_iter().map(str::to_owned).collect();
    let mut expected = vec![
        mount("task", ""),
        mount("cache", ""),
        mount("elsewhere", ""),
        mount("big", ""),
        mount("cache/object", ",readonly"),
        mount("big/one", ",readonly"),
        mount("way/two", ",readonly"),
        mount("elsewhere/two", ",readonly"),
    ];
    shown.sort();
    expected.sort();
    assert_eq!(shown, expected);
    assert_eq!(values(&lines, "--workdir"), [node.text("task")]);
    let prepared = ["container=tool.sif", bind.as_str()];
    std::fs::write(node.path("task/tool.sif"), "").unwrap();
    let lines = printed(&node.command(&prepared, surroundings(), &["prog"]).output().unwrap());
    assert_eq!(values(&lines, "--bind").len(), expected.len());
    let object = node.text("cache/object");
    assert!(values(&lines, "--bind").contains(&&*format!("{object}:{object}:ro")), "{lines:?}");
    assert_eq!(lines[lines.len() - 2..], ["tool.sif", "prog"]);
    // A comma would begin an option of the mount.
    let output = node.run(&["container=docker:tool", "bind=/a,readonly=false"], &["prog"]);
    assert!(said(&output).contains("cannot show /a,readonly=false: rename it"), "{output:?}");
}

#[test]
fn values_of_variables_are_in_the_environment_alone() {
    let names = ["TOKEN", "FALKON_TASK", "with-dash", "9lives", "UNSET"];
    let surroundings = || Surroundings {
        variables: names.iter().map(|name| name.as_bytes().to_vec()).collect(),
        ..Surroundings::default()
    };
    let value = "it's $HOME \"secret\"\nof two lines";
    for (engine, script, is_run) in [
        (
            "podman",
            "case $1 in kill | rm) ;; *) printf '%s\\n' \"$@\"; echo \"=$TOKEN=\" ;; esac",
            true,
        ),
        ("docker", "case $1 in run) printf '%s\\n' \"$@\"; echo \"=$TOKEN=\" ;; esac", true),
        ("apptainer", "printf '%s\\n' \"$@\"; echo \"=$TOKEN=$APPTAINERENV_FALKON_TASK\"", false),
        (
            "singularity",
            "printf '%s\\n' \"$@\"; echo \"=$TOKEN=$SINGULARITYENV_FALKON_TASK\"",
            false,
        ),
    ] {
        let node = Node::new(&[(engine, script)]);
        let mut command = node.command(&["container=tool"], surroundings(), &["prog"]);
        command.env("TOKEN", value).env("FALKON_TASK", "3").env_remove("UNSET");
        let lines = printed(&command.output().unwrap());
        let text = lines.join("\n");
        let (arguments, environment) = text.split_once("\n=").unwrap();
        let with_prefix = if is_run { "" } else { "3" };
        assert_eq!(environment, format!("{value}={with_prefix}"));
        assert!(!arguments.contains("secret"), "{arguments}");
        if is_run {
            let mut passed = values(&lines, "--env");
            passed.retain(|variable| !variable.starts_with("HOME="));
            passed.sort_unstable();
            assert_eq!(passed, ["FALKON_TASK", "TOKEN", "UNSET"]);
        }
    }
}

#[test]
fn the_user_is_the_same_inside() {
    let id = |option: &str| {
        let output = Command::new("id").arg(option).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let own = format!("{}:{}", id("-u"), id("-g"));
    let lines = printed(&Node::new(&[("docker", DOCKER)]).run(&["container=tool"], &["prog"]));
    assert_eq!(values(&lines, "--user"), [own.as_str()]);
    let groups = id("-G");
    let mut groups: Vec<&str> = groups.split(' ').rev().collect();
    groups.sort_unstable();
    let mut given = values(&lines, "--group-add");
    given.sort_unstable();
    assert_eq!(given, groups);
    // Its root is the user outside.
    let rootless = DOCKER.replace("seccomp", "rootless");
    let lines = printed(&Node::new(&[("docker", &rootless)]).run(&["container=tool"], &["prog"]));
    assert_eq!(values(&lines, "--user"), ["0:0"]);
}

#[test]
fn modules_come_before_the_engine_and_all_else_is_prepared_inside() {
    // The container is the node itself.
    let runs = "while [ \"$1\" != docker://tool ]; do shift; done; shift; exec \"$@\"";
    let node = Node::new(&[("apptainer", runs)]);
    std::fs::create_dir_all(node.path("modules/init")).unwrap();
    std::fs::create_dir(node.path("engines")).unwrap();
    std::fs::rename(node.path("bin/apptainer"), node.path("engines/apptainer")).unwrap();
    let function = "module() { [ \"$*\" = 'load engines' ] && PATH=$PATH:$ENGINES; }";
    std::fs::write(node.path("modules/init/sh"), function).unwrap();
    let run = |prepared: &[&str]| {
        let command = ["sh", "-c", "echo \"$X $1\"", "sh", "a b"];
        let mut command = node.command(prepared, Surroundings::default(), &command);
        command.env("MODULESHOME", node.path("modules")).env("ENGINES", node.path("engines"));
        command.output().unwrap()
    };
    let setup = "setup=X='in here'; export X";
    assert_eq!(printed(&run(&["module=engines", setup, "container=tool"])), ["in here a b"]);
    let output = run(&["module=engines", "setup=(exit 7)", "container=tool"]);
    assert_eq!(output.status.code(), Some(7));
    let output = run(&["module=engines", "venv=/none", "container=tool"]);
    assert!(said(&output).contains("there is no virtual environment in /none"), "{output:?}");
    let output = run(&["module=none", "container=tool"]);
    assert_eq!(said(&output), "falkon: cannot load the module none\n");
    let output = run(&["setup=true", "container=tool"]);
    assert_eq!(output.status.code(), Some(127), "{output:?}");
}

#[test]
fn the_status_is_that_of_the_command_and_its_input_arrives() {
    for (engine, script) in [("apptainer", "cat; exit 7"), ("podman", "cat; exit 7")] {
        let node = Node::new(&[(engine, script)]);
        std::fs::write(node.path("stdin"), "hello\n").unwrap();
        let mut command = node.command(&["container=tool"], Surroundings::default(), &["prog"]);
        let output =
            command.stdin(std::fs::File::open(node.path("stdin")).unwrap()).output().unwrap();
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(7), &b"hello\n"[..]));
        assert_eq!(said(&output), "");
    }
}

/// Reads a named pipe to its end, which is when nobody has it open for writing.
fn read_pipe(path: &Path) -> String {
    let mut text = String::new();
    std::fs::File::open(path).unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_container_is_killed_whoever_kills_the_shell() {
    let script = "case $1 in run) echo \"$@\" >started; exec sleep 1000 ;; \
                  kill) echo \"$@\" >killed ;; esac";
    for is_whole_group in [true, false] {
        let node = Node::new(&[("podman", script)]);
        for pipe in ["started", "killed"] {
            let made = Command::new("mkfifo").arg(node.path("task").join(pipe)).status();
            assert!(made.unwrap().success());
        }
        let mut command = node.command(&["container=tool"], Surroundings::default(), &["prog"]);
        let mut shell = command.process_group(0).spawn().unwrap();
        let started = read_pipe(&node.path("task/started"));
        let words: Vec<String> = started.split_whitespace().map(str::to_owned).collect();
        let name = values(&words, "--name")[0].to_owned();
        assert!(name.ends_with("-9-1"), "{name}");
        let group = rustix::process::Pid::from_child(&shell);
        match is_whole_group {
            true => rustix::process::kill_process_group(group, rustix::process::Signal::KILL),
            false => shell.kill().map_err(|_| rustix::io::Errno::SRCH),
        }
        .unwrap();
        assert_eq!(read_pipe(&node.path("task/killed")), format!("kill {name}\n"));
        shell.wait().unwrap();
        // The stand-in of a container.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

#[test]
fn a_name_that_is_no_shell_variable_is_not_passed() {
    for name in ["A", "_a9", "FALKON_TASK"] {
        assert!(is_shell_name(OsStr::new(name).as_bytes()), "{name}");
    }
    for name in ["", "9a", "a-b", "a b", "a$(x)", "\u{e9}"] {
        assert!(!is_shell_name(OsStr::new(name).as_bytes()), "{name}");
    }
}
