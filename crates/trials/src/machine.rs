//! A virtual machine for tests of control groups of version 2 with all of their controllers, which
//! the kernel of this machine may not have.
//!
//! It has no disk and no network, only files that a test gives it, the commands of BusyBox, and
//! a processor that is emulated: whatever runs there is some twenty times slower than here.

use crate::skip;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The kernel, which `tests/all.sh` gets.
const KERNEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/kernel/vmlinuz");
/// The machine's memory, in MiB.
const MEMORY_MIB: u32 = 1536;
/// How long it may run, in seconds: less than a test may.
const SECONDS_MAX: u32 = 600;
/// The words before the exit status of the script, at the end.
const ENDED: &str = "the script has ended with ";

/// The script of the first process of the machine.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox mkdir -p /bin /proc /sys /dev /tmp /root
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root TERM=dumb
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t cgroup2 groups /sys/fs/cgroup
ip link set lo up
# A task may reserve more memory than there is, as elsewhere.
echo 1 > /proc/sys/vm/overcommit_memory
dmesg -n 1
cd /root
sh /script </dev/null 2>&1
echo "the script has ended with $?"
poweroff -f
"#;

/// The part without which there is no such machine.
#[derive(Debug)]
struct Missing(&'static str);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no {} to start a virtual machine with", self.0)
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Machine {
    /// The directory that becomes its file system.
    root: PathBuf,
    busybox: PathBuf,
}

/// The output of a script, and its exit status.
#[derive(Debug)]
pub struct Said {
    /// Both of its streams, line by line.
    pub text: String,
    /// `None` if it did not end in time, or the machine broke down.
    pub status: Option<i32>,
}

impl Machine {
    /// A machine that is made in an empty directory. The test is skipped where that is impossible.
    pub fn new(directory: &Path) -> Machine {
        match Machine::made(directory) {
            Ok(machine) => machine,
            Err(missing) => skip(missing.to_string()),
        }
    }

    fn made(directory: &Path) -> Result<Machine, Missing> {
        if !Path::new(KERNEL).exists() {
            return Err(Missing("kernel (target/kernel)"));
        }
        found("qemu-system-x86_64").ok_or(Missing("qemu-system-x86_64"))?;
        // A static one needs no libraries.
        let busybox = found("busybox").ok_or(Missing("busybox"))?;
        let root = directory.join("root");
        fs::create_dir_all(root.join("bin")).expect("a directory of the test's can be written");
        let machine = Machine { root, busybox };
        machine.add_program(&machine.busybox.clone(), "bin/busybox");
        machine.add_file("init", INIT);
        Ok(machine)
    }

    /// Gives it a text file that may be executed.
    pub fn add_file(&self, to: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt;

        let file = self.place(to);
        fs::write(&file, text).expect("a file of the test's can be written");
        let all = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&file, all).expect("a file of the test's can be made executable");
    }

    /// Gives it a program with the libraries that this needs, without symbols.
    pub fn add_program(&self, program: &Path, to: &str) {
        let place = self.place(to);
        let stripped = Command::new("strip").arg("-o").arg(&place).arg(program).status();
        if !stripped.is_ok_and(|status| status.success()) {
            fs::copy(program, &place).expect("a program can be copied");
        }
        let libraries = Command::new("ldd").arg(program).output().expect("ldd can be run");
        for word in String::from_utf8_lossy(&libraries.stdout).split_whitespace() {
            if word.starts_with('/') {
                fs::copy(word, self.place(word)).expect("a library can be copied");
            }
        }
    }

    fn place(&self, to: &str) -> PathBuf {
        let place = self.root.join(to.trim_start_matches('/'));
        let parent = place.parent().expect("the root is above it");
        fs::create_dir_all(parent).expect("a directory of the test's can be written");
        place
    }

    /// Starts the machine, runs a script of the shell as its root, and ends it.
    pub fn run(self, script: &str) -> Said {
        self.add_file("script", script);
        let packed = self.root.with_extension("cpio");
        let pack = "cd \"$1\" && \"$2\" find . | \"$2\" cpio -o -H newc > \"$3\"";
        let mut packing = Command::new("sh");
        packing.args(["-c", pack, "-"]).args([&self.root, &self.busybox, &packed]);
        let status = packing.stderr(Stdio::null()).status().expect("sh can be run");
        assert!(status.success(), "busybox packs files: {status}");
        let mut machine = Command::new("timeout");
        machine.args([&SECONDS_MAX.to_string(), "qemu-system-x86_64", "-accel", "tcg"]);
        machine.args(["-smp", "2", "-cpu", "max", "-m", &MEMORY_MIB.to_string(), "-nodefaults"]);
        machine.args(["-display", "none", "-serial", "stdio", "-no-reboot"]);
        machine.args(["-append", "console=ttyS0 panic=-1 quiet", "-kernel", KERNEL, "-initrd"]);
        machine.arg(&packed).stdin(Stdio::null());
        let output = machine.output().expect("timeout can be run");
        let text = String::from_utf8_lossy(&output.stdout).replace('\r', "");
        let errors = String::from_utf8_lossy(&output.stderr);
        let (said, status) = text.rsplit_once(ENDED).unwrap_or((&text, ""));
        let status = status.lines().next().and_then(|status| status.trim().parse().ok());
        Said { text: format!("{said}{errors}"), status }
    }
}

/// Where a program is.
fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}
