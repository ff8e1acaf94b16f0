//! The protocol of the executor and its process host, as bytes.
//!
//! Both directions are a sequence of records: a length (u32, of what follows), a kind (u8), the
//! fields. All numbers are little-endian, all byte strings are preceded by their length (u32).
//! Many records are sent in one write. Strings that end up in system calls of the host carry
//! their closing NUL with them, so that the host can use them where they lie.
//!
//! Both ends are the same binary, so there is no version; but a garbled record is an error and
//! never a panic.

use std::ffi::CStr;
use std::time::Duration;

use super::{CAPTURE_BYTES_MAX, CPUS_MAX, Captured, Ended, FileMark, Kill, Launch, Outcome, Stage};
use super::{LAUNCH_BYTES_MAX, capture::Stream};
use super::{MemoryLimit, RankUsage, Shortage, Source, Tail, Tailed, Unchanged, Usage};

/// Longest record; a longer one means that the stream is garbled.
pub(super) const RECORD_BYTES_MAX: usize = 64 << 20;
const _: () = assert!(2 * CAPTURE_BYTES_MAX as usize + (1 << 20) < RECORD_BYTES_MAX);
// An empty argument counts as one byte of a launch and is sent as six.
const _: () = assert!(6 * LAUNCH_BYTES_MAX < RECORD_BYTES_MAX);

const HEADER_BYTES: usize = 4;

const KIND_LAUNCH: u8 = 1;
const KIND_REFUSED: u8 = 2;
const KIND_KILL: u8 = 3;
const KIND_READY: u8 = 4;
const KIND_ENDED: u8 = 5;
const KIND_TAKE_BACK: u8 = 6;
const KIND_TAIL: u8 = 7;
const KIND_TAILED: u8 = 8;

const SOURCE_PROGRAM: u8 = 0;
const SOURCE_TEMPLATE: u8 = 1;
const SOURCE_COPY: u8 = 2;
const SOURCE_FORKED: u8 = 3;

const SHORTAGE_NONE: u8 = 0;
const SHORTAGE_LIMIT: u8 = 1;
const SHORTAGE_SYSTEM: u8 = 2;

/// Most of a head that is sent at once to somebody who asks for it.
const TAIL_BYTES_MAX: usize = 64 << 10;

const OUTCOME_EXIT: u8 = 0;
const OUTCOME_SIGNAL: u8 = 1;
const OUTCOME_NOT_STARTED: u8 = 2;

/// A record that cannot be what the other side sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Garbled;

/// A record for the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForHost {
    /// A launch; the fields are read by [`LaunchRecord::read`] in the slot that runs it.
    Launch { key: u64, after: Option<u64>, source: Source },
    /// End a task.
    Kill(Kill),
    /// Do not start the task with this key, if it has not started.
    TakeBack(u64),
    /// Say what a task has written so far.
    Tail(Tail),
}

/// A record for the executor.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ForExecutor {
    /// The host is up.
    Ready,
    /// A task ended.
    Ended(Ended),
    /// What a task has written so far.
    Tailed(Tailed),
}

/// Splits the first whole record off `bytes`: its kind and fields, and how long it is with its
/// length in front. `None` if the bytes do not hold a whole one yet.
pub(super) fn split(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Garbled> {
    let Some((length, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if length == 0 || length > RECORD_BYTES_MAX {
        return Err(Garbled);
    }
    Ok(rest.get(..length).map(|record| (record, HEADER_BYTES + length)))
}

fn put_record(out: &mut Vec<u8>, kind: u8, fields: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    out.push(kind);
    fields(out);
    // The bounds above keep every record far below u32::MAX.
    let length = (out.len() - start - HEADER_BYTES) as u32;
    out[start..start + HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}

fn put_optional(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    out.push(u8::from(bytes.is_some()));
    if let Some(bytes) = bytes {
        put_bytes(out, bytes);
    }
}

fn put_terminated(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len() as u32 + 1);
    out.extend_from_slice(bytes);
    out.push(0);
}

fn put_optional_terminated(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    out.push(u8::from(bytes.is_some()));
    if let Some(bytes) = bytes {
        put_terminated(out, bytes);
    }
}

/// Why a launch cannot be passed on to the system, as an error number.
fn refusal(launch: &Launch) -> Option<i32> {
    let strings = || {
        let files = launch.unchanged.iter().map(|file| &file.path);
        let paths = [&launch.cwd, &launch.stdin, &launch.spill].into_iter().flatten().chain(files);
        let env = launch.env.iter().flat_map(|(name, value)| [name, value]);
        launch.argv.iter().chain(paths).chain(env).chain(&launch.without).chain(&launch.ranked_by)
    };
    if strings().map(|string| string.len() + 1).sum::<usize>() > LAUNCH_BYTES_MAX {
        return Some(libc::E2BIG);
    }
    let name_is_bad = |name: &Vec<u8>| name.is_empty() || name.contains(&b'=');
    let bad = launch.argv.is_empty()
        || strings().any(|string| string.contains(&0))
        || launch.env.iter().any(|(name, _)| name_is_bad(name));
    bad.then_some(libc::EINVAL)
}

/// Appends a launch; one that the system cannot take goes as a refusal, which the host only sends
/// back, so that all ends come the same way.
pub(super) fn put_launch(out: &mut Vec<u8>, launch: &Launch) {
    if let Some(errno) = refusal(launch) {
        return put_record(out, KIND_REFUSED, |out| {
            put_u64(out, launch.key);
            out.push(0);
            put_u32(out, errno as u32);
        });
    }
    put_record(out, KIND_LAUNCH, |out| {
        put_u64(out, launch.key);
        out.push(u8::from(launch.after.is_some()));
        if let Some(after) = launch.after {
            put_u64(out, after);
        }
        put_source(out, launch.source);
        put_u64(out, launch.capture_bytes_max.min(CAPTURE_BYTES_MAX));
        put_optional_terminated(out, launch.cwd.as_deref());
        put_optional_terminated(out, launch.stdin.as_deref());
        put_optional(out, launch.spill.as_deref());
        out.push(u8::from(launch.memory.is_some()));
        if let Some(MemoryLimit { bytes, in_group }) = launch.memory {
            put_u64(out, bytes);
            out.push(u8::from(in_group));
        }
        put_u32(out, launch.cpus.len() as u32);
        launch.cpus.iter().for_each(|cpu| put_u32(out, *cpu));
        put_u32(out, launch.ranked_by.len() as u32);
        launch.ranked_by.iter().for_each(|name| put_bytes(out, name));
        put_u32(out, launch.unchanged.len() as u32);
        for Unchanged { path, mark } in &launch.unchanged {
            put_terminated(out, path);
            put_u64(out, mark.bytes);
            put_u64(out, mark.inode);
            put_u64(out, mark.modified.0 as u64);
            put_u64(out, mark.modified.1 as u64);
        }
        put_u32(out, launch.without.len() as u32);
        launch.without.iter().for_each(|prefix| put_bytes(out, prefix));
        put_u32(out, launch.argv.len() as u32);
        for argument in &launch.argv {
            put_terminated(out, argument);
        }
        put_u32(out, launch.env.len() as u32);
        for (name, value) in &launch.env {
            put_u32(out, name.len() as u32);
            put_u32(out, (name.len() + value.len() + 2) as u32);
            out.extend_from_slice(name);
            out.push(b'=');
            out.extend_from_slice(value);
            out.push(0);
        }
    });
}

fn put_source(out: &mut Vec<u8>, source: Source) {
    match source {
        Source::Program => out.push(SOURCE_PROGRAM),
        Source::Template => out.push(SOURCE_TEMPLATE),
        Source::Copy { of } => {
            out.push(SOURCE_COPY);
            put_u64(out, of);
        }
        Source::Forked => out.push(SOURCE_FORKED),
    }
}

/// Appends an order to end a task.
pub(super) fn put_kill(out: &mut Vec<u8>, kill: Kill) {
    put_record(out, KIND_KILL, |out| {
        put_u64(out, kill.key);
        put_u64(out, u64::try_from(kill.grace.as_micros()).unwrap_or(u64::MAX));
    });
}

/// Appends the request not to start a task.
pub(super) fn put_take_back(out: &mut Vec<u8>, key: u64) {
    put_record(out, KIND_TAKE_BACK, |out| put_u64(out, key));
}

/// Appends the question what a task has written.
pub(super) fn put_tail(out: &mut Vec<u8>, tail: &Tail) {
    put_record(out, KIND_TAIL, |out| {
        put_u64(out, tail.key);
        put_u64(out, tail.request);
        out.push(u8::from(tail.is_error));
        put_u64(out, tail.from);
    });
}

/// Appends the answer to that.
pub(super) fn put_tailed(out: &mut Vec<u8>, tail: &Tail, stream: &Stream) {
    put_record(out, KIND_TAILED, |out| {
        put_u64(out, tail.request);
        put_u64(out, stream.total_bytes());
        put_bytes(out, stream.part(tail.from, TAIL_BYTES_MAX));
        put_optional(out, stream.spill());
        out.push(u8::from(stream.spill_error().is_some()));
    });
}

/// Appends the notice that the host is up.
pub(super) fn put_ready(out: &mut Vec<u8>) {
    put_record(out, KIND_READY, |_| {});
}

/// The report of a slot on a task, without the task's streams.
#[derive(Debug, Clone)]
pub(super) struct Report {
    pub(super) key: u64,
    pub(super) outcome: Outcome,
    pub(super) started: u64,
    pub(super) ended: u64,
    pub(super) usage: Usage,
    pub(super) shortage: Option<Shortage>,
    pub(super) ranks: Vec<RankUsage>,
}

/// Appends the end of a task.
pub(super) fn put_ended(out: &mut Vec<u8>, report: &Report, streams: [&Stream; 2]) {
    put_record(out, KIND_ENDED, |out| {
        put_u64(out, report.key);
        let (kind, stage, number) = match report.outcome {
            Outcome::Exit(status) => (OUTCOME_EXIT, 0, status),
            Outcome::Signal(signal) => (OUTCOME_SIGNAL, 0, signal),
            Outcome::NotStarted { stage, errno } => (OUTCOME_NOT_STARTED, stage as u8, errno),
        };
        out.extend_from_slice(&[kind, stage]);
        put_u32(out, number as u32);
        put_u64(out, report.started);
        put_u64(out, report.ended);
        put_usage(out, report.usage);
        let (kind, bytes) = match report.shortage {
            None => (SHORTAGE_NONE, 0),
            Some(Shortage::OverLimit { had_bytes }) => (SHORTAGE_LIMIT, had_bytes),
            Some(Shortage::OfSystem) => (SHORTAGE_SYSTEM, 0),
        };
        out.push(kind);
        put_u64(out, bytes);
        put_u32(out, report.ranks.len() as u32);
        for RankUsage { rank, usage } in &report.ranks {
            put_u32(out, *rank);
            put_usage(out, *usage);
        }
        for stream in streams {
            put_bytes(out, stream.head());
            put_u64(out, stream.total_bytes());
            put_optional(out, stream.spill());
            out.push(u8::from(stream.spill_error().is_some()));
            put_u32(out, stream.spill_error().unwrap_or(0) as u32);
        }
    });
}

fn put_usage(out: &mut Vec<u8>, usage: Usage) {
    let Usage { user_us, system_us, rss_max_bytes, read_bytes, written_bytes } = usage;
    for number in [user_us, system_us, rss_max_bytes, read_bytes, written_bytes] {
        put_u64(out, number);
    }
}

/// Reads a record that came to the host.
pub(super) fn read_for_host(record: &[u8]) -> Result<ForHost, Garbled> {
    let mut fields = Fields(record);
    match fields.u8()? {
        kind @ (KIND_LAUNCH | KIND_REFUSED) => {
            let (key, after) = (fields.u64()?, fields.optional(Fields::u64)?);
            let source = if kind == KIND_LAUNCH { fields.source()? } else { Source::Program };
            Ok(ForHost::Launch { key, after, source })
        }
        KIND_KILL => {
            let (key, grace) = (fields.u64()?, Duration::from_micros(fields.u64()?));
            fields.finish(ForHost::Kill(Kill { key, grace }))
        }
        KIND_TAKE_BACK => {
            let key = fields.u64()?;
            fields.finish(ForHost::TakeBack(key))
        }
        KIND_TAIL => {
            let (key, request) = (fields.u64()?, fields.u64()?);
            let (is_error, from) = (fields.u8()? != 0, fields.u64()?);
            fields.finish(ForHost::Tail(Tail { key, request, is_error, from }))
        }
        _ => Err(Garbled),
    }
}

/// The key of a launch that [`read_for_host`] has accepted.
pub(super) fn launch_key(record: &[u8]) -> u64 {
    match read_for_host(record) {
        Ok(ForHost::Launch { key, .. }) => key,
        _ => unreachable!("only launches are given to slots"),
    }
}

/// Reads a record that came to the executor.
pub(super) fn read_for_executor(record: &[u8]) -> Result<ForExecutor, Garbled> {
    let mut fields = Fields(record);
    match fields.u8()? {
        KIND_READY => fields.finish(ForExecutor::Ready),
        KIND_ENDED => {
            let ended = read_ended(&mut fields)?;
            fields.finish(ForExecutor::Ended(ended))
        }
        KIND_TAILED => {
            let (request, total_bytes) = (fields.u64()?, fields.u64()?);
            let bytes = fields.bytes()?.to_vec();
            let spill = fields.optional(Fields::bytes)?.map(<[u8]>::to_vec);
            let is_cut = fields.u8()? != 0;
            let tailed = Tailed { request, total_bytes, bytes, spill, is_cut };
            fields.finish(ForExecutor::Tailed(tailed))
        }
        _ => Err(Garbled),
    }
}

fn read_ended(fields: &mut Fields<'_>) -> Result<Ended, Garbled> {
    let key = fields.u64()?;
    let (kind, stage, number) = (fields.u8()?, fields.u8()?, fields.u32()? as i32);
    let outcome = match kind {
        OUTCOME_EXIT => Outcome::Exit(number),
        OUTCOME_SIGNAL => Outcome::Signal(number),
        OUTCOME_NOT_STARTED => {
            let stage = Stage::from_byte(stage).ok_or(Garbled)?;
            Outcome::NotStarted { stage, errno: number }
        }
        _ => return Err(Garbled),
    };
    let (started, ended) = (fields.u64()?, fields.u64()?);
    let usage = read_usage(fields)?;
    let shortage = match (fields.u8()?, fields.u64()?) {
        (SHORTAGE_NONE, _) => None,
        (SHORTAGE_LIMIT, had_bytes) => Some(Shortage::OverLimit { had_bytes }),
        (SHORTAGE_SYSTEM, _) => Some(Shortage::OfSystem),
        _ => return Err(Garbled),
    };
    let ranks = (0..fields.u32()?)
        .map(|_| Ok(RankUsage { rank: fields.u32()?, usage: read_usage(fields)? }));
    let ranks = ranks.collect::<Result<_, Garbled>>()?;
    let (stdout, stderr) = (read_captured(fields)?, read_captured(fields)?);
    Ok(Ended { key, outcome, started, ended, stdout, stderr, usage, shortage, ranks })
}

fn read_usage(fields: &mut Fields<'_>) -> Result<Usage, Garbled> {
    Ok(Usage {
        user_us: fields.u64()?,
        system_us: fields.u64()?,
        rss_max_bytes: fields.u64()?,
        read_bytes: fields.u64()?,
        written_bytes: fields.u64()?,
    })
}

fn read_captured(fields: &mut Fields<'_>) -> Result<Captured, Garbled> {
    let head = fields.bytes()?.to_vec();
    let total_bytes = fields.u64()?;
    let spill = fields.optional(Fields::bytes)?.map(<[u8]>::to_vec);
    let failed = fields.u8()? != 0;
    let errno = fields.u32()? as i32;
    Ok(Captured { head, total_bytes, spill, spill_error: failed.then_some(errno) })
}

/// Numbers of CPUs, as the system takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CpuSet(pub(super) [u64; CPUS_MAX / 64]);

impl Default for CpuSet {
    fn default() -> CpuSet {
        CpuSet([0; CPUS_MAX / 64])
    }
}

impl CpuSet {
    /// Adds the CPU with this number, if there can be one.
    fn add(&mut self, number: u32) {
        if let Some(word) = self.0.get_mut(number as usize / 64) {
            *word |= 1 << (number % 64);
        }
    }
}

/// A launch as the host reads it, in place.
#[derive(Debug)]
pub(super) struct LaunchRecord<'a> {
    pub(super) key: u64,
    pub(super) source: Source,
    pub(super) capture_bytes_max: usize,
    pub(super) cwd: Option<&'a CStr>,
    pub(super) stdin: Option<&'a CStr>,
    pub(super) spill: Option<&'a [u8]>,
    pub(super) memory: Option<MemoryLimit>,
    pub(super) cpus: Option<CpuSet>,
    pub(super) ranked_by: Vec<Vec<u8>>,
    unchanged: u32,
    rest: Fields<'a>,
}

/// An environment variable of a [`LaunchRecord`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Variable<'a> {
    pub(super) name: &'a [u8],
    /// `NAME=VALUE`.
    pub(super) setting: &'a CStr,
}

impl<'a> LaunchRecord<'a> {
    /// Reads a launch up to its arguments; for a refused one, the error number to send back.
    pub(super) fn read(record: &'a [u8]) -> Result<Result<LaunchRecord<'a>, i32>, Garbled> {
        let mut fields = Fields(record);
        let kind = fields.u8()?;
        let key = fields.u64()?;
        fields.optional(Fields::u64)?;
        if kind == KIND_REFUSED {
            let errno = fields.u32()? as i32;
            return fields.finish(Err(errno));
        }
        let source = fields.source()?;
        let capture_bytes_max = fields.u64()?.min(CAPTURE_BYTES_MAX) as usize;
        let cwd = fields.optional(Fields::terminated)?;
        let stdin = fields.optional(Fields::terminated)?;
        let spill = fields.optional(Fields::bytes)?;
        let memory = fields.optional(|fields| {
            Ok(MemoryLimit { bytes: fields.u64()?, in_group: fields.u8()? != 0 })
        })?;
        let mut cpus = None;
        for _ in 0..fields.u32()? {
            cpus.get_or_insert(CpuSet::default()).add(fields.u32()?);
        }
        let ranked_by = (0..fields.u32()?).map(|_| fields.bytes().map(<[u8]>::to_vec));
        let ranked_by = ranked_by.collect::<Result<_, _>>()?;
        let unchanged = fields.u32()?;
        Ok(Ok(LaunchRecord {
            key,
            source,
            capture_bytes_max,
            cwd,
            stdin,
            spill,
            memory,
            cpus,
            ranked_by,
            unchanged,
            rest: fields,
        }))
    }

    /// Reads the files that must be what they were.
    pub(super) fn unchanged(
        &mut self,
        mut file: impl FnMut(&'a CStr, FileMark),
    ) -> Result<(), Garbled> {
        for _ in 0..std::mem::take(&mut self.unchanged) {
            let path = self.rest.terminated()?;
            let (bytes, inode) = (self.rest.u64()?, self.rest.u64()?);
            let modified = (self.rest.u64()? as i64, self.rest.u64()? as i64);
            file(path, FileMark { bytes, inode, modified });
        }
        Ok(())
    }

    /// Reads the beginnings of the names of inherited variables that are left out, the arguments
    /// and the environment.
    pub(super) fn strings(
        mut self,
        mut without: impl FnMut(&'a [u8]),
        mut argument: impl FnMut(&'a CStr),
        mut variable: impl FnMut(Variable<'a>),
    ) -> Result<(), Garbled> {
        self.unchanged(|_, _| {})?;
        for _ in 0..self.rest.u32()? {
            without(self.rest.bytes()?);
        }
        for _ in 0..self.rest.u32()? {
            argument(self.rest.terminated()?);
        }
        for _ in 0..self.rest.u32()? {
            let name_len = self.rest.u32()? as usize;
            let setting = self.rest.terminated()?;
            let name = setting.to_bytes().get(..name_len).ok_or(Garbled)?;
            variable(Variable { name, setting });
        }
        self.rest.finish(())
    }
}

/// Takes fields off the front of a record.
#[derive(Debug, Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Garbled> {
        let (chunk, rest) = self.0.split_first_chunk::<N>().ok_or(Garbled)?;
        self.0 = rest;
        Ok(*chunk)
    }

    fn u8(&mut self) -> Result<u8, Garbled> {
        Ok(self.chunk::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32, Garbled> {
        Ok(u32::from_le_bytes(self.chunk()?))
    }

    fn u64(&mut self) -> Result<u64, Garbled> {
        Ok(u64::from_le_bytes(self.chunk()?))
    }

    fn source(&mut self) -> Result<Source, Garbled> {
        match self.u8()? {
            SOURCE_PROGRAM => Ok(Source::Program),
            SOURCE_TEMPLATE => Ok(Source::Template),
            SOURCE_COPY => Ok(Source::Copy { of: self.u64()? }),
            SOURCE_FORKED => Ok(Source::Forked),
            _ => Err(Garbled),
        }
    }

    fn bytes(&mut self) -> Result<&'a [u8], Garbled> {
        let length = self.u32()? as usize;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Garbled)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn terminated(&mut self) -> Result<&'a CStr, Garbled> {
        CStr::from_bytes_with_nul(self.bytes()?).map_err(|_| Garbled)
    }

    fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Fields<'a>) -> Result<T, Garbled>,
    ) -> Result<Option<T>, Garbled> {
        Ok(if self.u8()? != 0 { Some(read(self)?) } else { None })
    }

    fn finish<T>(self, value: T) -> Result<T, Garbled> {
        if self.0.is_empty() { Ok(value) } else { Err(Garbled) }
    }
}

/// Free space offered to a read, at least.
const READ_BYTES: usize = 64 << 10;

/// An emptied buffer larger than this gives its memory back.
pub(super) const BUFFER_KEPT_BYTES_MAX: usize = 1 << 20;

/// Bytes that came in, of which whole records are taken.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    bytes: Vec<u8>,
    taken: usize,
    filled: usize,
}

impl Incoming {
    /// Room for the next read; [`Self::filled`] says how much of it was used.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.taken == self.filled {
            (self.taken, self.filled) = (0, 0);
            if self.bytes.len() > BUFFER_KEPT_BYTES_MAX {
                self.bytes = Vec::new();
            }
        }
        if self.bytes.len() - self.filled < READ_BYTES {
            self.bytes.copy_within(self.taken..self.filled, 0);
            (self.taken, self.filled) = (0, self.filled - self.taken);
            let wanted = (self.filled + READ_BYTES).max(2 * self.filled);
            self.bytes.resize(wanted.max(self.bytes.len()), 0);
        }
        &mut self.bytes[self.filled..]
    }

    pub(super) fn filled(&mut self, count: usize) {
        self.filled += count;
        debug_assert!(self.filled <= self.bytes.len());
    }

    /// The next whole record, without its length.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, Garbled> {
        match split(&self.bytes[self.taken..self.filled])? {
            Some((record, length)) => {
                self.taken += length;
                Ok(Some(record))
            }
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests;
