//! Anybody who reaches a port can open connections and leave them there: that
//! keeps nobody out who means it.

use crate::fixture::{Dispatcher, Running, Site, poll};
use falkon_trials::trial;
use falkon_wire::message::PROTOCOL_VERSION;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Connections that a crowd keeps open.
const CROWD: usize = 1_300;
/// Descriptors that this process needs for that.
const DESCRIPTORS: u64 = 4_096;

/// The first bytes of a client that could go on.
const PREAMBLE: &[u8; 16] = &{
    let mut bytes = *b"FALKON\r\n\0\0\x01\0\0\0\0\0";
    bytes[8] = PROTOCOL_VERSION as u8;
    bytes
};

/// Connections to one address that are opened anew whenever they are closed.
struct Crowd {
    over: Arc<AtomicBool>,
    opened: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Crowd {
    /// Begins to open connections from `from`; what is sent on each is `first`.
    fn start(from: Ipv4Addr, to: SocketAddr, first: &'static [u8]) -> Crowd {
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum.map_or(Some(DESCRIPTORS), |most| Some(most.min(DESCRIPTORS)));
        setrlimit(Resource::Nofile, limit).unwrap();
        let (over, opened) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ends, count) = (over.clone(), opened.clone());
        let thread = std::thread::spawn(move || {
            let mut all: Vec<TcpStream> = Vec::new();
            while !ends.load(Ordering::Relaxed) {
                while all.len() < CROWD {
                    // The dispatcher may be away for a moment.
                    let Some(mut stream) = open(from, to) else { break };
                    if stream.write_all(first).is_ok() {
                        all.push(stream);
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
                let mut polled: Vec<PollFd> =
                    all.iter().map(|stream| PollFd::new(stream, PollFlags::RDHUP)).collect();
                let pause = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
                rustix::event::poll(&mut polled, Some(&pause)).unwrap();
                let mut closed = polled.iter().map(|one| !one.revents().is_empty());
                let closed: Vec<bool> = closed.by_ref().collect();
                let mut closed = closed.into_iter();
                all.retain(|_| !closed.next().unwrap());
            }
        });
        Crowd { over, opened, thread: Some(thread) }
    }

    fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn open(from: Ipv4Addr, to: SocketAddr) -> Option<TcpStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket: OwnedFd = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).ok()?;
    bind(&socket, &SocketAddrV4::new(from, 0)).ok()?;
    connect(&socket, &to).ok()?;
    Some(TcpStream::from(socket))
}

fn address(dispatcher: &Dispatcher<'_>) -> SocketAddr {
    let text = std::fs::read_to_string(dispatcher.access().file).unwrap();
    let access: serde_json::Value = serde_json::from_str(&text).unwrap();
    access["addresses"][0].as_str().unwrap().parse().unwrap()
}

/// While such connections come and go: commands work, a dispatcher that is
/// started again gets its executor back with the task that it runs, and the log
/// stays short.
#[track_caller]
fn nobody_is_kept_out(from: [u8; 4], first: &'static [u8], args: &[&str]) {
    let site = Site::new();
    let args = [&["--listen", "127.0.0.1:0", "--security", "authenticate"], args].concat();
    let mut dispatcher = site.dispatcher("d", &args);
    let access = dispatcher.access();
    let executor = dispatcher.executor("steady", &["--slots", "1"]);
    let mut started = site.signals("started");
    let mut gate = site.gate("gate");
    let script = format!("echo on > {}; read line < {}", started.path(), gate.path());
    let id = access.submit(&["--", "sh", "-c", &script]);
    started.take(1);

    let crowd = Crowd::start(Ipv4Addr::from(from), address(&dispatcher), first);
    poll("the crowd is there", || crowd.opened() >= CROWD as u64);
    for _ in 0..3 {
        let status = access.status();
        assert_eq!(status["executors"][0]["connected"], true, "{status}");
        access.submit(&["--", "true"]);
    }
    let said = dispatcher.service().said();
    dispatcher.kill();
    dispatcher.start();
    dispatcher.service().wait_for("executor steady joined");
    gate.let_through(1);
    let results = access.results(&id);
    assert_eq!(results[0]["attempts"], 1, "{results:?}");
    // Connections that were given up are counted, not logged one by one.
    let before = crowd.opened();
    poll("the crowd has been there once more", || crowd.opened() >= before + CROWD as u64);
    let opened = crowd.opened();
    let said = said + &dispatcher.service().said();
    let refused = said.matches("refused").count() as u64;
    assert!(refused > 0 && refused < opened / 10, "{refused} lines of {opened}\n{said}");
    still_small(dispatcher.service());
    drop((crowd, executor));
}

/// Memory that such a dispatcher may have had at its worst.
const BYTES_MAX: u64 = 256 << 20;

#[track_caller]
fn still_small(dispatcher: &Running) {
    let bytes = dispatcher.memory_max();
    assert!(bytes < BYTES_MAX, "it held {} MiB", bytes >> 20);
}

#[trial]
fn connections_that_say_nothing_keep_nobody_out() {
    for concentrators in ["0", "2"] {
        nobody_is_kept_out([127, 0, 0, 1], b"", &["--concentrators", concentrators]);
    }
}

#[trial]
fn connections_that_stop_in_their_handshakes_keep_nobody_out() {
    for concentrators in ["0", "2"] {
        nobody_is_kept_out([127, 0, 0, 2], PREAMBLE, &["--concentrators", concentrators]);
    }
}

/// The one address where a process listens.
fn listens_at(running: &Running) -> SocketAddr {
    let own = std::fs::read_dir(format!("/proc/{}/fd", running.pid())).unwrap();
    let own: Vec<String> = own
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .collect();
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let found = table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_own = fields[3] == "0A" && own.contains(&format!("socket:[{}]", fields[9]));
        is_own.then(|| fields[1].split_once(':').unwrap())
    });
    let (address, port) = found.expect("it listens");
    let address = u32::from_str_radix(address, 16).unwrap().to_ne_bytes();
    SocketAddr::from((address, u16::from_str_radix(port, 16).unwrap()))
}

/// What executors serve is reached through ports of their own.
#[trial]
fn connections_that_say_nothing_keep_no_peer_out() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &["--listen", "127.0.0.1:0"]);
    let cache = format!("{}=100MB", site.text("cache"));
    let executor = dispatcher.executor("holder", &["--slots", "1", "--cache", &cache]);
    let access = dispatcher.access();
    let content = "kept\n".repeat(1_000);
    let input = site.write("input", &content);
    access.run_sub(&["data", "put"], &[&input]).exits(0);
    let crowd = Crowd::start(Ipv4Addr::LOCALHOST, listens_at(&executor), b"");
    poll("the crowd is there", || crowd.opened() >= CROWD as u64);
    let copy = site.text("copy");
    for _ in 0..3 {
        access.run_sub(&["data", "get"], &["cache:input", &copy]).exits(0);
        assert_eq!(site.read("copy"), content);
    }
    drop((crowd, executor));
}
