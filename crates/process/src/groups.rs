//! Control groups of tasks that have a memory limit: the kernel itself holds them to it, where this
//! process may make groups.
//!
//! That is so below a group of version 2 that was delegated to this user and has the memory
//! controller, and below any group of version 1 that is writable. Elsewhere the watch alone holds
//! tasks to their limits (see [`super::watch`]), as it also does for what a group does not see.
//!
//! A slot uses its group for one task after the other. A task enters it without a limit, and gets
//! the limit when it has executed its program: until then it shares the memory of the host, and
//! the kernel would end the host with a task that exceeds its limit. As the kernel says that a
//! program is executed an instant before the two part, no group is held to less than
//! [`LIMIT_MIN_BYTES`], which no task exceeds in that instant: the watch alone holds tasks to less.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::watch;

/// How often it is tried to move this executor's processes out of a group that is to have groups
/// below it: new ones may start meanwhile.
const MOVE_ROUNDS_MAX: usize = 16;

/// The least that a group is held to: twice the most that a program may be given as arguments and
/// environment (6 MiB, `execve(2)`), and room for what the kernel makes for a process.
const LIMIT_MIN_BYTES: u64 = 16 << 20;

/// The group, below a delegated one, of the executor and of the tasks without a limit.
const OWN_SUFFIX: &str = "own";

/// The controller that holds tasks to their memory.
const MEMORY: &str = "memory";

/// The two interfaces of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    /// How many processes of a group the kernel has ended for want of memory: of version 1 that is
    /// the group alone, of version 2 those below it too.
    fn ended(self, folder: &Path) -> Option<u64> {
        let file = match self {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        ended_in(&fs::read_to_string(folder.join(file)).ok()?)
    }

    /// How many of a group alone. Kernels before 5.2 say that of version 1 only.
    fn ended_within(self, folder: &Path) -> Option<u64> {
        let alone = match self {
            Version::One => None,
            Version::Two => fs::read_to_string(folder.join("memory.events.local")).ok(),
        };
        alone.as_deref().and_then(ended_in).or_else(|| self.ended(folder))
    }
}

/// The kernel's count of processes that it has ended, among other counters.
pub(super) fn ended_in(counters: &str) -> Option<u64> {
    let count = counters.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
    count.trim().parse().ok()
}

/// The group below which groups can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    version: Version,
    folder: PathBuf,
}

/// The groups of one host.
#[derive(Debug)]
pub(super) struct Groups {
    instance: String,
    place: OnceLock<Option<Place>>,
    made: AtomicU64,
    /// Groups that are to be removed, and that had something in them of late.
    left: Mutex<Vec<PathBuf>>,
}

impl Groups {
    /// None yet; `instance` is part of their names.
    pub(super) fn new(instance: &OsStr) -> Groups {
        let instance = instance.to_string_lossy().into_owned();
        Groups { instance, place: OnceLock::new(), made: AtomicU64::new(0), left: Mutex::default() }
    }

    /// Makes a group without a limit; `None` where that is impossible.
    pub(super) fn make(&self) -> Option<Group> {
        let place = self.place.get_or_init(|| {
            let place = locate(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"))?;
            place.open(&self.instance, MEMORY).ok()
        });
        let place = place.as_ref()?;
        self.left().retain(|folder| !remove(folder));
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let folder = place.folder.join(name(&self.instance, &number.to_string()));
        fs::create_dir(&folder).ok()?;
        let group = Group::open(place.version, &folder);
        if group.is_err() {
            remove(&folder);
        }
        group.ok()
    }

    /// Takes the limit of a group away, for the next task; `None` if something of the last one is
    /// left. Then the group goes when that has ended.
    pub(super) fn vacate(&self, mut group: Group) -> Option<Group> {
        if group.vacate().is_some() {
            return Some(group);
        }
        if !remove(&group.folder) {
            self.left().push(group.folder);
        }
        None
    }

    fn left(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        // A panic aborts the host, so a poisoned lock is never met.
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes all groups of a host, which has ended, as has all that its tasks left.
pub(super) fn clear(instance: &str) {
    if let Some(place) = locate(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo")) {
        place.clear(instance, MEMORY);
    }
}

fn name(instance: &str, suffix: &str) -> String {
    format!("{}{suffix}", prefix(instance))
}

fn prefix(instance: &str) -> String {
    format!("falkon-{instance}-")
}

/// Whether a group is the one of an executor and of its tasks without a limit.
fn is_own(folder: &Path) -> bool {
    let name = folder.file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| name.starts_with("falkon-") && name.ends_with("-own"))
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Writes a value to a file of a group.
fn set(folder: &Path, file: &str, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(folder.join(file))?.write_all(value.as_bytes())
}

/// Removes a group; returns whether it is gone. One that has processes stays.
fn remove(folder: &Path) -> bool {
    fs::remove_dir(folder).is_ok() || !folder.exists()
}

/// The processes of a group, but those that this process cannot see.
fn processes(folder: &Path) -> Vec<libc::pid_t> {
    let list = read(folder.join("cgroup.procs"));
    list.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0).collect()
}

/// The group below which this process can make others: its own, or the one above if its own was
/// made by an executor. `None` as for [`own`].
fn locate(groups: &str, mounts: &str) -> Option<Place> {
    let mut place = own(groups, mounts)?;
    if is_own(&place.folder) {
        place.folder.pop();
    }
    Some(place)
}

/// The group that this process is in, in the hierarchy that has the memory controller; `None` if
/// there is none, or it is not mounted. `groups` and `mounts` are `/proc/self/cgroup` and
/// `/proc/self/mountinfo`.
fn own(groups: &str, mounts: &str) -> Option<Place> {
    let of = |version: Version, is_it: fn(&str) -> bool| {
        let mut lines = groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        let (_, path) = lines.find(|(controllers, _)| is_it(controllers))?;
        let folder = mounts.lines().find_map(|line| mounted(line, version, path))?;
        Some(Place { version, folder })
    };
    let has = |list: &str| list.split_ascii_whitespace().any(|one| one == MEMORY);
    let second = of(Version::Two, str::is_empty)
        .filter(|place| has(&read(place.folder.join("cgroup.controllers"))));
    second
        .or_else(|| of(Version::One, |controllers| controllers.split(',').any(|one| one == MEMORY)))
}

/// The group that this process is in, as are tasks without a limit, and how many processes of it
/// the kernel has ended for want of memory, there or on the whole node. `None` if the kernel does
/// not say.
pub(super) fn ended_in_own() -> Option<(PathBuf, u64)> {
    let place = own(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"))?;
    let count = place.version.ended_within(&place.folder)?;
    Some((place.folder, count))
}

/// Where a line of mounts shows the group `path` of a version.
fn mounted(line: &str, version: Version, path: &str) -> Option<PathBuf> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, point) = (mount.next()?, mount.next()?);
    let mut kind = kind.split(' ');
    let (system, options) = (kind.next()?, kind.nth(1)?);
    let is_it = match version {
        Version::One => system == "cgroup" && options.split(',').any(|option| option == MEMORY),
        Version::Two => system == "cgroup2",
    };
    // A name with a blank or the like is encoded.
    if !is_it || point.contains('\\') || root.contains('\\') {
        return None;
    }
    let below = Path::new(path).strip_prefix(root).ok()?;
    Some(Path::new(point).join(below))
}

impl Place {
    /// Makes sure that groups made here can have a limit.
    fn open(self, instance: &str, controller: &str) -> io::Result<Place> {
        if self.version == Version::One {
            return Ok(self);
        }
        let is_passed_on = |list: &str| list.split_ascii_whitespace().any(|one| one == controller);
        if is_passed_on(&read(self.folder.join("cgroup.subtree_control"))) {
            return Ok(self);
        }
        let add = format!("+{controller}");
        // A group with processes of its own passes no memory controller on, but for the topmost.
        if set(&self.folder, "cgroup.subtree_control", &add).is_ok() {
            return Ok(self);
        }
        let own = self.folder.join(name(instance, OWN_SUFFIX));
        fs::create_dir(&own)?;
        let opened = self.vacate(&own);
        match opened.and_then(|()| set(&self.folder, "cgroup.subtree_control", &add)) {
            Ok(()) => Ok(self),
            Err(error) => {
                self.fill(&own);
                Err(error)
            }
        }
    }

    /// Moves this executor's processes to the group `own`.
    fn vacate(&self, own: &Path) -> io::Result<()> {
        let executor = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        for _ in 0..MOVE_ROUNDS_MAX {
            let here = processes(&self.folder);
            if here.is_empty() {
                return Ok(());
            }
            // Later looks find more processes, which descend from those that are seen here.
            let ours = watch::family(executor, Vec::new());
            let is_strange = |pid: &libc::pid_t| !ours.contains(pid) && watch::exists(*pid);
            if here.iter().any(is_strange) {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            for pid in here {
                // It may have ended.
                let _ = set(own, "cgroup.procs", &pid.to_string());
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// Moves the processes of the group `own` back, and removes it.
    fn fill(&self, own: &Path) {
        for pid in processes(own) {
            let _ = set(&self.folder, "cgroup.procs", &pid.to_string());
        }
        remove(own);
    }

    /// Removes the groups of the host `instance`.
    fn clear(&self, instance: &str, controller: &str) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let (prefix, own) = (prefix(instance), name(instance, OWN_SUFFIX));
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let names: Vec<String> = names.filter(|name| name.starts_with(&prefix)).collect();
        names.iter().filter(|name| **name != own).for_each(|name| {
            remove(&self.folder.join(name));
        });
        if names.contains(&own) {
            // Only a group that passes no controller on may have processes.
            let _ = set(&self.folder, "cgroup.subtree_control", &format!("-{controller}"));
            self.fill(&self.folder.join(own));
        }
    }
}

/// A control group for one task at a time.
#[derive(Debug)]
pub(super) struct Group {
    version: Version,
    folder: PathBuf,
    /// Where a process enters it.
    entrance: File,
    /// How many processes the kernel had ended here for want of memory when the task began.
    ended: u64,
}

impl Group {
    fn open(version: Version, folder: &Path) -> io::Result<Group> {
        let folder = folder.to_owned();
        let entrance = OpenOptions::new().write(true).open(folder.join("cgroup.procs"))?;
        let mut group = Group { version, folder, entrance, ended: 0 };
        // Without a counter, nobody would know why a task has ended.
        group.ended = group.counted().ok_or(io::ErrorKind::Unsupported)?;
        if version == Version::Two {
            // All processes of a task end together; kernels before 4.19 end one of them.
            let _ = set(&group.folder, "memory.oom.group", "1");
        }
        Ok(group)
    }

    /// Where a process writes `0` to enter the group.
    pub(super) fn entrance(&self) -> BorrowedFd<'_> {
        self.entrance.as_fd()
    }

    /// Holds what is in it to so many bytes of memory, swap space included, but not to less than
    /// [`LIMIT_MIN_BYTES`].
    pub(super) fn hold_to(&self, bytes: u64) -> io::Result<()> {
        let bytes = bytes.max(LIMIT_MIN_BYTES).to_string();
        match self.version {
            Version::One => {
                set(&self.folder, "memory.limit_in_bytes", &bytes)?;
                // There may be no accounting of swap space.
                let _ = set(&self.folder, "memory.memsw.limit_in_bytes", &bytes);
            }
            Version::Two => {
                let _ = set(&self.folder, "memory.swap.max", "0");
                set(&self.folder, "memory.max", &bytes)?;
            }
        }
        Ok(())
    }

    /// How many processes of the task the kernel has ended for want of memory within its limit.
    pub(super) fn exceeded(&self) -> u64 {
        self.counted().map_or(0, |counted| counted.saturating_sub(self.ended))
    }

    /// How many processes the kernel has ended here.
    fn counted(&self) -> Option<u64> {
        self.version.ended(&self.folder)
    }

    /// Kills all that is in it.
    pub(super) fn kill(&self) {
        if self.version == Version::Two && set(&self.folder, "cgroup.kill", "1").is_ok() {
            return;
        }
        for pid in processes(&self.folder) {
            // SAFETY: A system call on plain values. The process was in this group a moment ago,
            // so it is of the task or, if it has ended since, its number is not in use again yet:
            // numbers are given out in turn.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }

    /// Takes the limit away; `None` if something of the last task is left here, as processes or as
    /// files in memory, which would count as the next one's.
    fn vacate(&mut self) -> Option<()> {
        match self.version {
            Version::One => {
                // There may be no accounting of swap space.
                let _ = set(&self.folder, "memory.memsw.limit_in_bytes", "-1");
                set(&self.folder, "memory.limit_in_bytes", "-1").ok()?;
            }
            Version::Two => set(&self.folder, "memory.max", "max").ok()?,
        }
        let is_empty = |file| fs::read(self.folder.join(file)).is_ok_and(|list| list.is_empty());
        let files = read(self.folder.join("memory.stat"));
        let files = files.lines().find_map(|line| line.strip_prefix("shmem "))?;
        if !is_empty("cgroup.procs") || files.trim() != "0" {
            return None;
        }
        self.ended = self.counted()?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line of a mount of `point` that shows the groups below `root`.
    fn mount(point: &Path, root: &str, kind: &str, options: &str) -> String {
        let point = point.display();
        format!("30 25 0:26 {root} {point} rw,nosuid shared:4 - {kind} cgroup {options}\n")
    }

    #[test]
    fn the_own_group_is_found_in_the_hierarchy_that_holds_memory() {
        let mounted = tempfile::tempdir().unwrap();
        let (first, second) = (mounted.path().join("one"), mounted.path().join("two"));
        let inner = second.join("job/step");
        fs::create_dir_all(&inner).unwrap();
        let groups = "12:cpu,cpuacct:/other\n7:memory:/user/job\n0::/job/step\n";
        let mounts = mount(&first.join("cpu"), "/", "cgroup", "rw,cpu,cpuacct")
            + &mount(&first, "/user", "cgroup", "rw,memory")
            + &mount(&second, "/", "cgroup2", "rw,nsdelegate");
        let place = |version, folder: PathBuf| Some(Place { version, folder });
        // Version 2 is there, and has no memory controller.
        assert_eq!(locate(groups, &mounts), place(Version::One, first.join("job")));
        fs::write(inner.join("cgroup.controllers"), "cpuset memoryless\n").unwrap();
        assert_eq!(locate(groups, &mounts), place(Version::One, first.join("job")));
        fs::write(inner.join("cgroup.controllers"), "cpuset memory pids\n").unwrap();
        assert_eq!(locate(groups, &mounts), place(Version::Two, inner.clone()));
        // The executor is in the group that it has made.
        let within = groups.replace("/job/step", "/job/step/falkon-00ff-own");
        let own = inner.join("falkon-00ff-own");
        fs::create_dir(&own).unwrap();
        fs::write(own.join("cgroup.controllers"), "memory\n").unwrap();
        assert_eq!(locate(&within, &mounts), place(Version::Two, inner));
        // Nothing is mounted, or something else.
        assert_eq!(locate(groups, ""), None);
        let elsewhere = mount(&first, "/another", "cgroup", "rw,memory");
        assert_eq!(locate(groups, &elsewhere), None);
        assert_eq!(locate("", &mounts), None);
        assert_eq!(locate("garbled\n1:2\n", "garbled\n - \n1 2 - 3\n"), None);
    }
}
