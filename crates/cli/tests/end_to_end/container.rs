//! Tasks in containers of podman and Apptainer, where these are. Stand-ins for all engines are in
//! `executor/src/tasks/container/tests.rs`.

use crate::fixture::{Site, poll};
use falkon_trials::{skip, trial};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// A static program that is a whole system.
const BUSYBOX: &str = "/bin/busybox";
/// The image that the tests make.
const IMAGE: &str = "localhost/falkon-test:1";
/// The option that runs tasks in it.
const CONTAINER: [&str; 2] = ["--container", "podman:localhost/falkon-test:1"];
/// Stands before podman where control groups are not as crun wants them: it has its own view of
/// them.
const WITH_OWN_GROUPS: &str = r#"exec unshare --mount sh -c '
    umount -l /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec /usr/bin/podman "$@"
' podman "$@""#;

/// A site whose podman keeps all that it has in the site, with [`IMAGE`]. Without podman, or
/// where podman cannot run a container, the test is skipped.
fn site() -> Site {
    let mut site = Site::new();
    if Command::new("podman").arg("--version").output().is_err() || !Path::new(BUSYBOX).exists() {
        skip("it needs podman and busybox-static");
    }
    make_system(&site);
    for folder in ["storage", "running", "bin"] {
        std::fs::create_dir(site.path(folder)).unwrap();
    }
    let (storage, running) = (site.text("storage"), site.text("running"));
    let places = format!("driver = \"vfs\"\ngraphroot = \"{storage}\"\nrunroot = \"{running}\"\n");
    let configuration = site.write("storage.conf", format!("[storage]\n{places}"));
    site.set("CONTAINERS_STORAGE_CONF", &configuration);
    // Podman of another user than root keeps there what runs, whatever its configuration says.
    let permissions = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(&running, permissions).unwrap();
    site.set("XDG_RUNTIME_DIR", &running);
    let limits = "[containers]\ndefault_ulimits = [\"nofile=1000:1000\", \"nproc=1000:1000\"]\n";
    let configuration = site.write("containers.conf", limits);
    site.set("CONTAINERS_CONF", &configuration);
    let (root, archive) = (site.text("root"), site.text("root.tar"));
    let packed = site.program("tar").args(["-C", &root, "-cf", &archive, "."]).output().unwrap();
    assert!(packed.status.success(), "{packed:?}");
    if !has_image(&site, &archive) {
        // A process of its own writes it, so that none here has it open when it is executed.
        let write = ["-c", "printf '#!/bin/sh\n%s\n' \"$1\" >\"$2\" && chmod +x \"$2\"", "sh"];
        let mut shell = site.program("sh");
        shell.args(write).arg(WITH_OWN_GROUPS).arg(site.path("bin/podman"));
        assert!(shell.status().unwrap().success());
        let path = format!("{}:{}", site.text("bin"), std::env::var("PATH").unwrap());
        site.set("PATH", &path);
        if !has_image(&site, &archive) {
            skip("podman cannot run a container here");
        }
    }
    site
}

/// Makes a system in the folder `root` of a site.
fn make_system(site: &Site) {
    for folder in ["root", "root/bin", "root/tmp", "root/etc", "root/dev", "root/proc"] {
        std::fs::create_dir(site.path(folder)).unwrap();
    }
    std::fs::copy(BUSYBOX, site.path("root/bin/busybox")).unwrap();
    for applet in ["sh", "echo", "cat", "id", "pwd", "sleep", "touch", "ls", "true", "test"] {
        std::os::unix::fs::symlink("busybox", site.path("root/bin").join(applet)).unwrap();
    }
}

/// Makes the image; whether podman can run it.
fn has_image(site: &Site, archive: &str) -> bool {
    let import = ["import", "--change", "ENTRYPOINT [\"/bin/none\"]", archive, IMAGE];
    let imported = site.program("podman").args(import).output().unwrap();
    let run = ["run", "--rm", "--network", "host", "--entrypoint", "", IMAGE, "true"];
    let with_crun =
        [&["--runtime", "crun"], &run[..1], &["--cgroups=disabled"], &run[1..]].concat();
    let is_run = |command: &[&str]| {
        site.program("podman").args(command).output().is_ok_and(|ran| ran.status.success())
    };
    let is_there = Command::new("crun").arg("--version").output().is_ok();
    imported.status.success() && if is_there { is_run(&with_crun) } else { is_run(&run) }
}

/// The containers that podman has, whatever their state.
fn containers(site: &Site) -> String {
    let listed = site.program("podman").args(["ps", "--all", "--quiet"]).output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
    String::from_utf8(listed.stdout).unwrap()
}

#[trial]
fn a_task_in_a_container_finds_what_it_has_outside_it() {
    let site = site();
    site.write("in.txt", "input\n");
    site.write("stdin.txt", "typed\n");
    let own = rustix::process::getuid().as_raw();
    let script = "cat in.txt; cat; pwd; id -u; echo \"$TOKEN $FALKON_TASK\"; cat in.txt >out.txt; \
                  ls /usr 2>/dev/null; echo complaint >&2; exit 7";
    let options = ["--env", "TOKEN=it's \"secret\"", "--stdin", "stdin.txt", "--input", "in.txt"];
    let command = ["--json", "--", "sh", "-c", script];
    let ran = site.run([&["run"], &CONTAINER[..], &options, &command].concat()).exits(1);
    let result = ran.results().remove(0);
    assert_eq!(result["exit_code"], 7, "{result}");
    let folder = site.dir().canonicalize().unwrap();
    let expected = format!("input\ntyped\n{}\n{own}\nit's \"secret\" 0\n", folder.display());
    assert_eq!(result["stdout"], expected, "{result}");
    assert_eq!(result["stderr"], "complaint\n", "{result}");
    assert_eq!(site.read("out.txt"), "input\n");
    // Each task of a file may have an image of its own, or none.
    site.write("other", "outside");
    let script = "test -x /bin/busybox && test ! -e /usr/bin && echo inside || cat other";
    let lines = ["", ", \"container\": \"\""]
        .map(|field| format!("{{\"command\": [\"sh\", \"-c\", \"{script}\"]{field}}}\n"));
    site.write("tasks.jsonl", lines.concat());
    let tasks = ["--tasks", "tasks.jsonl", "-k"];
    let ran = site.run([&["run", "--quiet"], &CONTAINER[..], &tasks].concat()).exits(0);
    assert_eq!(ran.text(), "inside\noutside");
    let ran =
        site.run(["run", "--json", "--container", "podman:docker-archive:/none.tar", "--", "true"]);
    let result = ran.exits(1).results().remove(0);
    assert_eq!(result["exit_code"], 125, "{result}");
    let said = result["stderr"].as_str().unwrap();
    assert!(said.contains("falkon: podman ended with 125: it says above why"), "{said}");
    assert_eq!(containers(&site), "");
}

#[trial]
fn apptainer_runs_a_folder_and_values_of_variables_do_not_run() {
    let site = Site::new();
    if Command::new("apptainer").arg("--version").output().is_err() || !Path::new(BUSYBOX).exists()
    {
        skip("it needs apptainer and busybox-static");
    }
    make_system(&site);
    let root = site.text("root");
    let tried = site.program("apptainer").args(["--silent", "exec", &root, "true"]).output();
    if !tried.unwrap().status.success() {
        skip("apptainer cannot run a container here");
    }
    site.write("in.txt", "input\n");
    let own = rustix::process::getuid().as_raw();
    let token = "it's $HOME \"$(touch evil)\"";
    let script = "cat in.txt; pwd; id -u; echo \"$TOKEN\"; echo \"$PLAIN $FALKON_TASK\"; \
                  cat in.txt >out.txt; ls /usr 2>/dev/null; echo complaint >&2; exit 7";
    let token_is = format!("TOKEN={token}");
    let options = ["--env", &token_is, "--env", "PLAIN=a b", "--input", "in.txt"];
    let image = format!("apptainer:{root}");
    let command = ["--json", "--", "sh", "-c", script];
    let ran = site.run([&["run", "--container", &image], &options[..], &command].concat());
    let result = ran.exits(1).results().remove(0);
    assert_eq!(result["exit_code"], 7, "{result}");
    let folder = site.dir().canonicalize().unwrap();
    let expected = format!("input\n{}\n{own}\n{token}\na b 0\n", folder.display());
    assert_eq!(result["stdout"], expected, "{result}");
    assert_eq!(result["stderr"], "complaint\n", "{result}");
    assert_eq!(site.read("out.txt"), "input\n");
    assert!(!site.path("evil").exists());
}

#[trial]
fn data_objects_are_in_the_container() {
    let site = site();
    site.write("object", "an object\n");
    std::fs::create_dir(site.path("tool")).unwrap();
    site.write("tool/data", "unpacked\n");
    let dispatcher = site.dispatcher("files", &[]);
    let _executor = dispatcher.executor("node", &["--slots", "1"]);
    let read = format!("a=file://{}", site.text("object"));
    let unpacked = format!("tool={}/", site.text("tool"));
    let written = format!("b={}", site.text("written"));
    let options =
        ["--wait", "--quiet", "--input", &read, "--unpack", &unpacked, "--output", &written];
    let script = "cat a tool/data && cat a tool/data >b";
    let command = ["--", "sh", "-c", script];
    let ran = dispatcher.access().run("submit", &[&CONTAINER[..], &options, &command].concat());
    assert_eq!(ran.exits(0).text(), "an object\nunpacked\n");
    assert_eq!(site.read("written"), "an object\nunpacked\n");
}

#[trial]
fn no_container_outlives_its_task() {
    let site = site();
    let mut ready = site.signals("ready");
    // It ignores SIGTERM.
    let script = "trap '' TERM; echo ready >ready; while :; do sleep 1; done";
    for killed in ["task", "executor", "host"] {
        let dispatcher = site.dispatcher(killed, &[]);
        let executor = dispatcher.executor("node", &["--slots", "1"]);
        let access = dispatcher.access();
        let instance = access.submit(&[&CONTAINER[..], &["--", "sh", "-c", script]].concat());
        ready.next();
        match killed {
            "task" => drop(access.run("cancel", &[&instance]).exits(0)),
            "executor" => drop(executor.kill()),
            _ => {
                let host = site.left().host_of(&executor);
                rustix::process::kill_process(host, Signal::KILL).unwrap();
                executor.kill();
            }
        }
        poll("the container is gone", || containers(&site).is_empty());
    }
}
