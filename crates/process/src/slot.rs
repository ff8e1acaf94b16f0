//! A slot: a thread that runs one task after the other.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;

use super::capture::Stream;
use super::clock::now_us;
use super::copy;
use super::environment::Image;
use super::groups::Group;
use super::host_protocol::{self, LaunchRecord, Report, Variable};
use super::inbox::Woken;
use super::outbox::{Deferral, HELD_TASK_US_MAX, HELD_US_MAX};
use super::pool::{Assignment, Pool, Seat};
use super::ranks::Ranks;
use super::spawn::{self, Child, NotSpawned, Setup, Stack};
use super::watch::Watch;
use super::{FileMark, MemoryLimit, Outcome, RankUsage, Shortage, Source, Stage, Usage};

/// Most that is read from a stream at once; what a pipe holds unless its size was changed.
const READ_BYTES: usize = 64 << 10;

/// How long a slot that has no task leaves what the last one left.
const TIDY_MS: u64 = 10;

/// A slot and the memory that it uses for each task again.
#[derive(Debug)]
pub(super) struct Slot {
    pool: Arc<Pool>,
    seat: Arc<Seat>,
    stack: Stack,
    streams: [Stream; 2],
    buffer: Vec<u8>,
    /// The slot makes pipes for a task's output before there is one.
    is_ready: bool,
    pipes: Option<[Pipe; 2]>,
    /// The descriptors and the child of the last task, to be closed.
    done: Option<([Pipe; 2], Child)>,
    /// The slot has not tidied up since its last task.
    is_untidy: bool,
    /// When this slot sees to it that what is held back is sent.
    flush_due: Option<u64>,
    /// The control group of tasks with a memory limit, if there was one.
    group: Option<Group>,
}

/// The memory limit of a task that runs.
#[derive(Debug)]
struct Held {
    bytes: u64,
    /// The control group that it is in.
    group: Option<Group>,
}

impl Held {
    /// How many of its processes the kernel has ended.
    fn exceeded(&self) -> u64 {
        self.group.as_ref().map_or(0, Group::exceeded)
    }
}

/// A task that has been started.
struct Started {
    pipes: [Pipe; 2],
    child: Child,
    held: Option<Held>,
    ranks: Ranks,
}

/// How a task has ended.
#[derive(Debug)]
struct End {
    outcome: Outcome,
    usage: Usage,
    at: u64,
    shortage: Option<Shortage>,
    ranks: Vec<RankUsage>,
}

/// The end to read from and the end to write to. A slot keeps both: so the pipe never ends, and
/// a task that ends wakes its slot once and not three times.
type Pipe = (OwnedFd, OwnedFd);

/// How a step of starting a task failed.
type NotStarted = (Stage, i32);

impl Slot {
    pub(super) fn new(pool: Arc<Pool>, seat: Arc<Seat>, is_ready: bool) -> io::Result<Slot> {
        let (stack, buffer) = (Stack::new()?, vec![0; READ_BYTES]);
        Ok(Slot {
            pool,
            seat,
            stack,
            streams: Default::default(),
            buffer,
            is_ready,
            pipes: None,
            done: None,
            is_untidy: true,
            flush_due: None,
            group: None,
        })
    }

    /// Runs the tasks that come to this slot's seat, without end.
    pub(super) fn run(mut self) {
        let mut image = Image::default();
        let mut assignment = self.wait();
        loop {
            let report = self.run_task(&mut image, &assignment);
            let mut next = None;
            if let Some(report) = &report {
                next = self.pool.ended(report.key, &self.seat);
                let more = next.as_ref().is_some_and(|(next, followed)| *followed && !next.killed);
                self.tell(report, more);
            } else {
                self.pool.came_back();
            }
            assignment = match next {
                Some((next, _)) => next,
                None => {
                    self.pool.rest();
                    self.wait()
                }
            };
        }
    }

    /// Waits for a task, and reads what the executor sends.
    fn wait(&mut self) -> Assignment {
        loop {
            if let Some(assignment) = self.pool.begin(&self.seat) {
                return assignment;
            }
            let limit = self.is_untidy.then_some(Duration::from_millis(TIDY_MS));
            match self.pool.inbox.wait(limit) {
                Woken::Sent => self.pool.read(),
                Woken::Rung => {}
                Woken::Late => self.tidy(),
            }
        }
    }

    /// Closes what the last task has left and makes pipes for the next one. Whoever waits for the
    /// end of a task, or for a start, does not wait for this: there is time while the next task
    /// runs, or when none has come.
    fn tidy(&mut self) {
        self.is_untidy = false;
        self.done = None;
        if self.is_ready && self.pipes.is_none() {
            self.pipes = new_pipes().ok();
        }
    }

    /// Reports the end of a task: soon, if the slot has more to do than the next one.
    fn tell(&mut self, report: &Report, more: bool) {
        let [stdout, stderr] = &self.streams;
        let put = |out: &mut Vec<u8>| host_protocol::put_ended(out, report, [stdout, stderr]);
        let brief = report.ended.saturating_sub(report.started) < HELD_TASK_US_MAX;
        let held = match more && brief {
            true => self.pool.outbox.hold(put),
            false => {
                self.pool.outbox.send(put);
                Deferral::Not
            }
        };
        match held {
            Deferral::First => self.flush_due = Some(report.ended + HELD_US_MAX),
            Deferral::Behind if self.flush_due.is_some_and(|due| due <= report.ended) => {
                self.flush()
            }
            Deferral::Behind => {}
            Deferral::Not => self.flush_due = None,
        }
    }

    fn flush(&mut self) {
        self.flush_due = None;
        self.pool.outbox.flush();
    }

    /// Answers the questions what the task `key` has written.
    fn answer_tails(&self, key: u64) {
        for tail in self.pool.tails(key) {
            let stream = &self.streams[usize::from(tail.is_error)];
            self.pool.outbox.send(|out| host_protocol::put_tailed(out, &tail, stream));
        }
    }

    /// Runs a task to its end; `None` if its start was given up, and its end has been reported.
    fn run_task(&mut self, image: &mut Image, assignment: &Assignment) -> Option<Report> {
        let started = now_us();
        self.seat.start.begin(started);
        let key = host_protocol::launch_key(&assignment.order);
        for stream in &mut self.streams {
            stream.begin(0, None, "");
        }
        let result = if assignment.killed {
            Err((Stage::Waiting, libc::ECANCELED))
        } else {
            match self.start(image, &assignment.order) {
                Ok(started) if self.seat.start.end() => Ok(self.follow_to_its_end(key, started)),
                // The start was given up.
                Ok(Started { pipes, child, held, .. }) => {
                    kill_group(&child, libc::SIGKILL);
                    self.reap(&child);
                    self.leave_group(held);
                    self.done = Some((pipes, child));
                    return None;
                }
                Err(failed) => {
                    let is_wanted = self.seat.start.end();
                    failed.reap();
                    if !is_wanted {
                        return None;
                    }
                    Err((failed.stage, failed.errno))
                }
            }
        };
        // The start is over already if the task was started.
        self.seat.start.end();
        for stream in &mut self.streams {
            stream.finish();
        }
        let End { outcome, usage, at: ended, shortage, ranks } =
            result.unwrap_or_else(|(stage, errno)| End {
                outcome: Outcome::NotStarted { stage, errno },
                usage: Usage::default(),
                at: now_us(),
                shortage: None,
                ranks: Vec::new(),
            });
        Some(Report { key, outcome, started, ended, usage, shortage, ranks })
    }

    /// Starts a task. Everything up to here may hang in a file system.
    fn start(&mut self, image: &mut Image, record: &[u8]) -> Result<Started, NotSpawned> {
        let garbled = |_| NotSpawned::new(Stage::Arguments, libc::EINVAL);
        let order = LaunchRecord::read(record).map_err(garbled)?;
        let mut order = order.map_err(|errno| NotSpawned::new(Stage::Arguments, errno))?;
        let mut changed = false;
        let seat = Arc::clone(&self.seat);
        let progress = &seat.start.progress;
        progress.reach(Stage::Changed);
        order.unchanged(|path, mark| changed |= !is_unchanged(path, mark)).map_err(garbled)?;
        if changed {
            return Err(NotSpawned::new(Stage::Changed, libc::ESTALE));
        }
        let (cwd, head_bytes_max) = (order.cwd, order.capture_bytes_max);
        let (memory, cpus) = (order.memory, order.cpus);
        let ranks = Ranks::new(std::mem::take(&mut order.ranked_by));
        let [stdout, stderr] = &mut self.streams;
        stdout.begin(head_bytes_max, order.spill, ".stdout");
        stderr.begin(head_bytes_max, order.spill, ".stderr");
        let pipes = match self.pipes.take() {
            Some(pipes) => pipes,
            None => new_pipes().map_err(|(stage, errno)| NotSpawned::new(stage, errno))?,
        };
        if let Source::Copy { of } = order.source {
            progress.reach(Stage::Copy);
            let child = self.copy(order, of, &pipes);
            let child = child.map_err(|errno| NotSpawned::new(Stage::Copy, errno))?;
            return Ok(Started { pipes, child, held: None, ranks: Ranks::default() });
        }
        if order.source == Source::Forked {
            progress.reach(Stage::Copy);
            let pid = self.pool.adopted(order.key).ok_or(libc::ESRCH);
            let child = pid.and_then(|pid| self.pool.copies.adopt(pid));
            let child = child.map_err(|errno| NotSpawned::new(Stage::Copy, errno))?;
            return Ok(Started { pipes, child, held: None, ranks: Ranks::default() });
        }
        progress.reach(Stage::Stdin);
        let stdin = match (order.source, order.stdin) {
            (Source::Template, _) => self.pool.template_input(order.key),
            (_, Some(path)) => {
                let open = open_stdin(cwd, path);
                Some(open.map_err(|errno| NotSpawned::new(Stage::Stdin, errno))?)
            }
            _ => None,
        };
        image.prepare(&self.pool.inherited, order).map_err(garbled)?;
        let [stdout, stderr] = &pipes;
        let held = memory.map(|limit| self.enter_group(limit));
        let group = held.as_ref().and_then(|held| held.group.as_ref());
        let setup = Setup {
            cwd,
            stdin: stdin.as_ref().map(AsFd::as_fd),
            stdout: stdout.1.as_fd(),
            stderr: stderr.1.as_fd(),
            host: self.pool.pid,
            open_files: self.pool.open_files,
            cpus: cpus.as_ref(),
            group: group.map(Group::entrance),
            progress,
        };
        // SAFETY: `image` was prepared above from `record` and the pool's `inherited`, which both
        // live on; the host blocks all signals before it makes threads.
        let spawned = unsafe { spawn::spawn(&mut self.stack, image, &setup) };
        if let (Ok(_), Some(group), Some(limit)) = (&spawned, group, memory) {
            // The program has begun, in memory of its own. If the kernel does not take the limit,
            // the watch alone holds the task to it.
            let _ = group.hold_to(limit.bytes);
        }
        match spawned {
            Ok(child) => Ok(Started { pipes, child, held, ranks }),
            Err(failed) => {
                // Nothing was in its group but the child, which has ended, and it has no limit.
                self.group = held.and_then(|held| held.group);
                Err(failed)
            }
        }
    }

    /// Makes the control group ready for a task with a memory limit, if there is to be one and can
    /// be one.
    fn enter_group(&mut self, limit: MemoryLimit) -> Held {
        let group = match limit.in_group {
            true => self.group.take().or_else(|| self.pool.groups.make()),
            false => None,
        };
        Held { bytes: limit.bytes, group }
    }

    /// Keeps the control group of a task that has ended, if the task has left nothing in it.
    fn leave_group(&mut self, held: Option<Held>) {
        if let Some(group) = held.and_then(|held| held.group) {
            self.group = self.pool.groups.vacate(group);
        }
    }

    /// Has a template make a copy, and waits until it is there.
    fn copy(&mut self, order: LaunchRecord<'_>, of: u64, pipes: &[Pipe; 2]) -> Result<Child, i32> {
        let key = order.key;
        let template = self.pool.template(of).ok_or(libc::ESRCH)?;
        let mut settings = self.pool.inherited.key_setting(key);
        let setting = |variable: Variable<'_>| {
            settings.extend_from_slice(variable.setting.to_bytes_with_nul());
        };
        order.strings(|_| {}, |_| {}, setting).map_err(|_| libc::EINVAL)?;
        let (answer, reply) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|errno| errno.raw_os_error())?;
        let [stdout, stderr] = pipes;
        let pool = Arc::clone(&self.pool);
        let ordered = pool.copies.expect();
        copy::order(&template, &settings, [stdout.1.as_fd(), stderr.1.as_fd(), reply.as_fd()])?;
        // The end of the stream is seen when the template's end is the only one, and closed.
        drop((reply, template));
        let deadline = now_us() + copy::ANSWER_MS_MAX * 1000;
        let seat = Arc::clone(&self.seat);
        let mut fds = [PollFd::new(&answer, PollFlags::IN), PollFd::new(&seat.wake, PollFlags::IN)];
        loop {
            let left = time_left(deadline.saturating_sub(now_us()));
            let _ = rustix::event::poll(&mut fds, Some(&left));
            if !fds[0].revents().is_empty() {
                return ordered.adopt(copy::number(answer.as_fd())?);
            }
            if !fds[1].revents().is_empty() {
                let _ = rustix::io::read(&seat.wake, &mut [0; 8]);
                self.answer_tails(key);
                self.flush();
            }
            if self.pool.is_to_end(key) {
                return Err(libc::ECANCELED);
            }
            if now_us() >= deadline {
                return Err(libc::ETIMEDOUT);
            }
        }
    }

    /// Waits for a child that has ended.
    fn reap(&self, child: &Child) -> (Outcome, Usage) {
        match child.is_copy {
            true => self.pool.copies.reap(child),
            false => spawn::reap(child),
        }
    }

    /// Follows a task that runs until it has ended.
    fn follow_to_its_end(&mut self, key: u64, started: Started) -> End {
        let Started { pipes, child, held, ranks } = started;
        self.tidy();
        self.is_untidy = true;
        let [stdout, stderr] = &pipes;
        let streams = [stdout.0.as_fd(), stderr.0.as_fd()];
        let watch = Watch::new(child.pid, held.as_ref().map(|held| held.bytes), ranks);
        let seen = self.follow(key, &child, streams, held.as_ref(), watch);
        let at = now_us();
        // While the task has not been waited for, its number and so its group's is not used
        // again. What it left in its group goes with it.
        kill_group(&child, libc::SIGKILL);
        let (mut outcome, mut usage) = self.reap(&child);
        usage.rss_max_bytes = usage.rss_max_bytes.max(seen.most_bytes);
        let shortage = self.shortage(&seen, held.as_ref(), outcome);
        if let Some(Shortage::OverLimit { had_bytes }) = shortage {
            // However the rest of it has ended.
            outcome = Outcome::Signal(libc::SIGKILL);
            // The kernel's own figure for a process that it killed can be far less than this.
            usage.rss_max_bytes = usage.rss_max_bytes.max(had_bytes);
        }
        if let Some(group) = held.as_ref().and_then(|held| held.group.as_ref()) {
            group.kill();
        }
        self.leave_group(held);
        self.done = Some((pipes, child));
        End { outcome, usage, at, shortage, ranks: seen.ranks }
    }

    /// The want of memory that has ended a task, if one has.
    fn shortage(&self, seen: &Seen, held: Option<&Held>, outcome: Outcome) -> Option<Shortage> {
        let exceeded = held.map_or(0, Held::exceeded);
        self.pool.shortages.note_own(exceeded);
        match (seen.over_bytes, held) {
            (Some(had_bytes), _) => Some(Shortage::OverLimit { had_bytes }),
            (None, Some(held)) if exceeded > 0 => {
                Some(Shortage::OverLimit { had_bytes: held.bytes })
            }
            _ if seen.was_killed => None,
            _ => self.pool.shortages.may_have_ended(outcome).then_some(Shortage::OfSystem),
        }
    }

    /// Reads what the task writes and ends it when that is ordered, or when it exceeds its limit,
    /// until it has ended.
    fn follow(
        &mut self,
        key: u64,
        child: &Child,
        pipes: [BorrowedFd<'_>; 2],
        held: Option<&Held>,
        mut watch: Watch,
    ) -> Seen {
        // Whoever asked before it started waits for that.
        self.answer_tails(key);
        let mut was_killed = false;
        // SIGKILL is due at this time.
        let mut deadline: Option<u64> = None;
        let seat = Arc::clone(&self.seat);
        // The task stands first: the kernel looks at these in their order, so all that the task
        // wrote before it ended is seen together with its end.
        let mut fds = [
            PollFd::new(&child.pidfd, PollFlags::IN),
            PollFd::from_borrowed_fd(pipes[0], PollFlags::IN),
            PollFd::from_borrowed_fd(pipes[1], PollFlags::IN),
            PollFd::new(&seat.wake, PollFlags::IN),
        ];
        loop {
            let due = [deadline, self.flush_due, Some(watch.due())].into_iter().flatten().min();
            let left = due.map(|due| time_left(due.saturating_sub(now_us())));
            // Signals are blocked and the arguments are right: only a want of memory can make
            // this fail, and then the next round may succeed.
            let _ = rustix::event::poll(&mut fds, left.as_ref());
            let ended = !fds[0].revents().is_empty();
            for (at, pipe) in pipes.into_iter().enumerate() {
                if fds[1 + at].revents().contains(PollFlags::IN) {
                    self.read(at, pipe, ended);
                }
            }
            if ended {
                let over_bytes = watch.over().map(|over| over.bytes);
                let (most_bytes, ranks) = (watch.most_bytes(), watch.ranks());
                return Seen { most_bytes, over_bytes, was_killed, ranks };
            }
            if watch.look(|| self.pool.strays(key)) {
                end_if_over(&watch, held, child);
            }
            if !fds[3].revents().is_empty() {
                let _ = rustix::io::read(&seat.wake, &mut [0; 8]);
                if let Some(grace) = self.pool.kill_order(key) {
                    was_killed = true;
                    if !grace.is_zero() {
                        kill_group(child, libc::SIGTERM);
                    }
                    let due = now_us().saturating_add(grace.as_micros() as u64);
                    deadline = Some(deadline.map_or(due, |earlier| earlier.min(due)));
                }
                self.answer_tails(key);
                self.flush();
            } else if self.flush_due.is_some_and(|due| due <= now_us()) {
                self.flush();
            }
            if deadline.is_some_and(|deadline| deadline <= now_us()) {
                kill_group(child, libc::SIGKILL);
                deadline = None;
            }
        }
    }

    /// Reads from a stream that has something: once or, if the task has ended, all that is there
    /// now. There may be no end to what it left behind writes.
    fn read(&mut self, at: usize, pipe: BorrowedFd<'_>, ended: bool) {
        let mut left = match ended {
            true => rustix::io::ioctl_fionread(pipe).unwrap_or(0),
            false => 1,
        };
        while left > 0 {
            // Only this thread reads from the pipe, so the read does not wait for more than there
            // is.
            let Ok(count) = rustix::io::read(pipe, &mut self.buffer[..]) else { return };
            self.streams[at].take(&self.buffer[..count]);
            left = left.saturating_sub(count as u64);
            if count == 0 {
                return;
            }
        }
    }
}

/// What is seen of a task while it runs.
#[derive(Debug)]
struct Seen {
    /// The most memory that its processes had.
    most_bytes: u64,
    /// The memory that it had when it exceeded its limit.
    over_bytes: Option<u64>,
    /// The executor has ordered its end.
    was_killed: bool,
    ranks: Vec<RankUsage>,
}

/// Kills a task that has exceeded its memory limit, with all that it has started. The kernel may
/// have ended only one of its processes, and the others may wait for that one for ever.
fn end_if_over(watch: &Watch, held: Option<&Held>, child: &Child) {
    let over = watch.over();
    if over.is_none() && held.is_none_or(|held| held.exceeded() == 0) {
        return;
    }
    kill_group(child, libc::SIGKILL);
    if let Some(group) = held.and_then(|held| held.group.as_ref()) {
        group.kill();
    }
    for pid in over.iter().flat_map(|over| &over.processes) {
        // SAFETY: A system call on plain values. The process was seen a moment ago, so it is of
        // the task or, if it has ended since, its number is not in use again yet: numbers are
        // given out in turn.
        unsafe { libc::kill(*pid, libc::SIGKILL) };
    }
}

/// Whether a file is what it was.
fn is_unchanged(path: &CStr, mark: FileMark) -> bool {
    let path = OsStr::from_bytes(path.to_bytes());
    std::fs::metadata(path).is_ok_and(|found| FileMark::of(&found) == mark)
}

/// Opens a file for standard input, a relative one from the task's working directory. A named pipe
/// must not block the slot until it is written to.
fn open_stdin(cwd: Option<&CStr>, path: &CStr) -> Result<OwnedFd, i32> {
    let open = || {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match cwd {
            Some(cwd) if !path.to_bytes().starts_with(b"/") => {
                let place = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let cwd = rustix::fs::open(cwd, place, Mode::empty())?;
                rustix::fs::openat(cwd, path, flags, Mode::empty())?
            }
            _ => rustix::fs::open(path, flags, Mode::empty())?,
        };
        rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
        Ok(file)
    };
    open().map_err(rustix::io::Errno::raw_os_error)
}

fn new_pipes() -> Result<[Pipe; 2], NotStarted> {
    let pipe = || {
        rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
            .map_err(|errno| (Stage::Pipes, errno.raw_os_error()))
    };
    Ok([pipe()?, pipe()?])
}

fn kill_group(child: &Child, signal: i32) {
    // SAFETY: A system call on plain values. The child leads its process group and has not been
    // waited for, so the number means its group and no other.
    unsafe { libc::kill(-child.pid, signal) };
}

fn time_left(us: u64) -> Timespec {
    // The time is one longer, as a poll that returns too early would be made again and again.
    let left = Duration::from_micros(us.saturating_add(1));
    Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
}
