//! Tasks and the memory that they may have, with real allocations.

use falkon_trials::{Machine, skip, trial};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use falkon_process::{Ended, Launch, MemoryLimit, Outcome, Shortage};

use super::rig::{Mark, Rig, bytes, command, host_of, shell};

/// With this and a file the test is a task that maps much and has little memory.
pub(crate) const MAPPER_ARGUMENT: &str = "map-much";

const MIB: u64 = 1 << 20;

/// The limit of tasks, in bytes: more than a shell and its commands have.
const LIMIT: u64 = 32 * MIB;

/// Grows to many times the limit, and goes on for ever.
const GROW: &str = "dd if=/dev/zero of=/dev/null bs=2000000000 count=1000000 status=none";

const NO_GROUPS: &str = "this machine lets this user make no control groups with a memory limit";

const KILLED: Outcome = Outcome::Signal(libc::SIGKILL);

/// Reserves a terabyte and touches a page of it, and reads a file through a mapping.
pub(crate) fn map(arguments: &[String]) -> ! {
    let file = fs::File::open(&arguments[0]).unwrap();
    let length = file.metadata().unwrap().len() as usize;
    let (mut sum, flags) = (0_u64, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: New mappings at addresses of the kernel's choice; all that is read and written lies
    // within them.
    unsafe {
        let map = |length, protection, flags, fd| {
            let place = libc::mmap(std::ptr::null_mut(), length, protection, flags, fd, 0);
            assert_ne!(place, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
            place.cast::<u8>()
        };
        let large = map(1 << 40, libc::PROT_READ | libc::PROT_WRITE, flags, -1);
        large.add(1 << 39).write_volatile(1);
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let read = map(length, libc::PROT_READ, libc::MAP_PRIVATE, fd);
        for _ in 0..20 {
            for at in (0..length).step_by(4096) {
                sum += u64::from(read.add(at).read_volatile());
            }
            // It sleeps because it has to run for long enough to be looked at.
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    println!("{sum}");
    std::process::exit(0)
}

fn held(launch: Launch, in_group: bool) -> Launch {
    Launch { memory: Some(MemoryLimit { bytes: LIMIT, in_group }), ..launch }
}

/// What has become of a task that exceeded its limit: the memory that it had.
#[track_caller]
fn over(ended: &Ended) -> u64 {
    assert_eq!(ended.outcome, KILLED, "{ended:?}");
    match ended.shortage {
        Some(Shortage::OverLimit { had_bytes }) => had_bytes,
        _ => panic!("it was ended for its memory: {ended:?}"),
    }
}

/// A host whose tasks are held to their limits by the kernel; the test is skipped where that is
/// impossible.
fn rig_with_groups() -> Rig {
    let mut rig = Rig::new();
    let said = rig.stdout(held(command(["cat", "/proc/self/cgroup"]), true));
    if !said.contains("/falkon-") {
        skip(NO_GROUPS);
    }
    rig
}

/// Runs what exceeds its limit in every way next to tasks that do not.
fn check_limits(rig: &mut Rig, in_group: bool) {
    let dir = tempfile::tempdir().unwrap();
    let gate = dir.path().join("gate");
    let scripts = [
        GROW.to_owned(),
        // The shell outlives its command.
        format!("{GROW}; echo $?; exec sleep 1000"),
        format!("{GROW}; exit 0"),
        // In a session of its own, and in one whose parent has ended.
        format!("setsid {GROW} & exec sleep 1000"),
        format!("(setsid {GROW} &) ; exec sleep 1000"),
        // No single process has too much.
        format!(
            "for i in 1 2 3 4; do {} & done; wait",
            GROW.replace("2000000000", &(LIMIT / 3).to_string())
        ),
    ];
    let mark = Mark::new();
    let mut batch: Vec<Launch> = scripts
        .iter()
        .enumerate()
        .map(|(key, script)| Launch { key: key as u64, ..mark.on(held(shell(script), in_group)) })
        .collect();
    // Neighbours: without a limit, and below it until the others have ended.
    let wait = format!("until [ -e {} ]; do sleep 0.01; done", gate.display());
    let have = format!("dd if=/dev/zero bs={} count=1 status=none", 16 * MIB);
    let below = format!("{have} | {{ {wait}; wc -c; }}");
    batch.push(Launch { key: 100, ..shell(&below) });
    batch.push(Launch { key: 101, ..held(shell(&below), in_group) });
    rig.launch(&batch);
    let mut all: Vec<Ended> = Vec::new();
    while all.len() < batch.len() {
        all.extend(rig.recv().unwrap());
        if all.len() == scripts.len() {
            fs::write(&gate, "").unwrap();
        }
    }
    for ended in &all {
        if ended.key >= 100 {
            assert_eq!(ended.outcome, Outcome::Exit(0), "{ended:?}");
            assert_eq!(ended.shortage, None, "{ended:?}");
            assert_eq!(ended.stdout.head, format!("{}\n", 16 * MIB).as_bytes());
            continue;
        }
        // The watch ends a task that exceeds its limit before the kernel knows the limit.
        let had = over(ended);
        assert!(had > LIMIT || in_group && had == LIMIT, "{ended:?}");
        assert!(ended.usage.rss_max_bytes >= had, "{ended:?}");
    }
    mark.wait_gone();
}

#[trial]
fn a_task_that_exceeds_its_memory_is_ended_by_the_watch_and_its_neighbours_live() {
    check_limits(&mut Rig::new(), false);
}

#[trial]
fn a_task_that_exceeds_its_memory_is_ended_by_the_kernel_and_its_neighbours_live() {
    let mut rig = rig_with_groups();
    check_limits(&mut rig, true);
    // Groups are used again, and a limit is that of the task.
    let is_ended_by_kernel = (0..20).any(|_| {
        let bytes = 2 * LIMIT;
        let needs = format!("dd if=/dev/zero of=/dev/null bs={bytes} count=1 && echo had");
        let memory = Some(MemoryLimit { bytes: 4 * LIMIT, in_group: true });
        let said = rig.stdout(Launch { memory, ..shell(&needs) });
        assert_eq!(said, "had\n");
        let had = over(&rig.run_one(held(shell(&needs), true)));
        assert!(had >= LIMIT, "{had} bytes");
        had == LIMIT
    });
    assert!(is_ended_by_kernel, "the kernel gives no more than the limit");
}

#[trial]
fn what_a_task_reserves_or_maps_without_having_it_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let kind = std::process::Command::new("stat").args(["-f", "-c", "%T"]).arg(dir.path()).output();
    if kind.is_ok_and(|kind| kind.stdout.starts_with(b"tmpfs")) {
        skip("temporary files are in memory here, so that nothing of them can be dropped");
    }
    fs::File::create(&file).unwrap().set_len(3 * LIMIT).unwrap();
    let mut rig = Rig::new();
    for in_group in [false, true] {
        let mapper = command(["/proc/self/exe", MAPPER_ARGUMENT]);
        let own = std::env::current_exe().unwrap();
        let argv = vec![bytes(&own), mapper.argv[1].clone(), bytes(&file)];
        let ended = rig.run_one(held(Launch { argv, ..mapper }, in_group));
        assert_eq!((ended.outcome, ended.shortage), (Outcome::Exit(0), None), "{ended:?}");
    }
}

#[trial]
fn limits_that_no_program_can_keep_end_tasks_and_not_the_host() {
    let mut rig = Rig::new();
    for in_group in [false, true] {
        for limit in [1, 4096, u64::MAX] {
            let memory = Some(MemoryLimit { bytes: limit, in_group });
            let ended = rig.run_one(Launch { memory, ..shell("sleep 0.1; echo done") });
            match limit {
                u64::MAX => assert_eq!(ended.outcome, Outcome::Exit(0), "{ended:?}"),
                _ => {
                    over(&ended);
                }
            }
        }
        // A program that cannot be started.
        let none = rig.run_one(held(command(["/no/such/program"]), in_group));
        assert!(matches!(none.outcome, Outcome::NotStarted { .. }), "{none:?}");
    }
    assert_eq!(rig.outcome(shell("exit 3")), Outcome::Exit(3));
}

#[trial]
fn no_control_group_is_left() {
    let mut rig = rig_with_groups();
    let said = rig.stdout(held(command(["cat", "/proc/self/cgroup"]), true));
    let place = said.lines().find(|line| line.contains("/falkon-")).unwrap();
    let group = place.rsplit(':').next().unwrap().trim_start_matches('/');
    let roots = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"];
    let folder = roots.iter().map(|root| Path::new(root).join(group)).find(|group| group.exists());
    let folder = folder.expect("the group is mounted where it usually is");
    // One that leaves something in its group, and one that runs when the host ends.
    let left = shell("setsid sleep 1000 & exit 0");
    assert_eq!(rig.outcome(held(left, true)), Outcome::Exit(0));
    rig.launch(&[Launch { key: 7, ..held(shell("exec sleep 1000"), true) }]);
    drop(rig);
    let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
    let prefix = name.rsplit_once('-').unwrap().0.to_owned();
    let left = fs::read_dir(folder.parent().unwrap()).unwrap().flatten();
    let left: Vec<_> = left.filter(|e| e.file_name().to_string_lossy().contains(&prefix)).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A control group with a limit, which goes when it is dropped: below this process's own or, of
/// version 2, beside it.
struct Confined(PathBuf);

impl Confined {
    /// The test is skipped where no such group can be made.
    fn new(limit: u64) -> Confined {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap();
        let of = |kind: &str| groups.lines().find_map(|line| line.split_once(kind));
        let (within, file) = match (of(":memory:/"), of("0::/")) {
            (Some((_, own)), _) => (Path::new("memory").join(own), "memory.limit_in_bytes"),
            (_, Some((_, own))) => (Path::new(own).join(".."), "memory.max"),
            _ => skip("there are no control groups"),
        };
        let name = format!("test-{}", std::process::id());
        let folder = Path::new("/sys/fs/cgroup").join(within).join(name);
        let made =
            fs::create_dir(&folder).and_then(|()| fs::write(folder.join(file), limit.to_string()));
        match made {
            Ok(()) => Confined(folder),
            Err(_) => skip("tasks cannot be confined in a control group"),
        }
    }

    fn take(&self, pid: i32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[trial]
fn a_task_that_the_system_ends_for_want_of_memory_is_told_from_one_that_was_killed() {
    let confined = Confined::new(4 * LIMIT);
    let mut rig = Rig::new();
    let killed = rig.run_one(shell("kill -9 $$"));
    assert_eq!((killed.outcome, killed.shortage), (KILLED, None));
    confined.take(host_of(std::process::id()));
    for script in [format!("exec {GROW}"), GROW.to_owned()] {
        let ended = rig.run_one(shell(&script));
        assert_eq!(ended.shortage, Some(Shortage::OfSystem), "{ended:?}");
    }
    // What exceeds its own limit is to blame itself, whatever else has happened. It has less than
    // the group may have, so that only the watch ends it, however late that looks.
    let have = format!("dd if=/dev/zero bs={} count=1 status=none | sleep 1000", 2 * LIMIT);
    over(&rig.run_one(held(shell(&have), false)));
    drop(rig);
}

#[trial]
fn memory_that_others_lack_within_their_limits_ends_no_task() {
    let confined = Confined::new(4 * LIMIT);
    let mut rig = Rig::new();
    let enter = format!("echo $$ > '{}'; exec {GROW}", confined.0.join("cgroup.procs").display());
    let other = std::process::Command::new("sh").args(["-c", &enter]).status().unwrap();
    assert_eq!(other.signal(), Some(9), "{other}");
    let killed = rig.run_one(shell("kill -9 $$"));
    assert_eq!((killed.outcome, killed.shortage), (KILLED, None));
    drop(rig);
}

/// How the tests of this file are run again in a machine whose control groups are of version 2: in
/// a group that nobody else is in.
const WITHIN: &str = "
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/delegated
sh -c 'echo 0 > /sys/fs/cgroup/delegated/cgroup.procs; exec \"$@\"' - \\
    /test memory:: --skip version_2 --skip by_the_watch
";

#[trial]
fn all_of_this_holds_where_control_groups_are_of_version_2() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new(folder.path());
    machine.add_program(&std::env::current_exe().unwrap(), "test");
    machine.add_file("etc/passwd", "root:x:0:0::/root:/bin/sh\n");
    let said = machine.run(WITHIN);
    assert_eq!(said.status, Some(0), "{}", said.text);
    assert!(!said.text.contains(NO_GROUPS), "{}", said.text);
}
