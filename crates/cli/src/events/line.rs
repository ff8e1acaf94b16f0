//! Events as lines of JSON. They are written by hand: there may be hundreds of millions.

use super::Names;
use falkon_core::data::stage::Count;
use falkon_core::dispatch::diffusion::PolicyName;
use falkon_core::events::{Ended, Event, NamedObject, Reserves, Run, Uses, Waits, What};
use falkon_core::result::{Outcome, Status};
use falkon_core::task::{ExecutorId, InstanceId, Resources, Time};
use std::sync::Arc;

/// Adds an event's line.
pub(crate) fn write(event: &Event, names: &Names, out: &mut Vec<u8>) {
    let mut line = Object::begin(out);
    line.time("time", event.at);
    line.text("event", name(&event.what));
    match &event.what {
        What::DispatcherStarted { version } => line.text("version", version),
        What::InstanceCreated { instance, name, policy } => {
            line.number("instance", instance.0);
            if !name.is_empty() {
                line.text("name", name);
            }
            if *policy != PolicyName::default() {
                line.text("policy", &policy.to_string());
            }
        }
        What::Waits(waits) => line.waits(waits),
        What::Uses(uses) => line.uses(uses),
        What::Reserves(reserves) => line.reserves(reserves),
        What::Submitted { instance, first, count, command } => {
            let run = Run { instance: *instance, first: *first, count: *count };
            line.run(&run);
            line.text("command", command);
        }
        What::Sealed { instance } => line.number("instance", instance.0),
        What::Assigned { run, executor, attempt } => {
            line.run(run);
            line.executor(Some(*executor), names);
            line.number("attempt", u64::from(*attempt));
        }
        What::Requeued { run, attempt } => {
            line.run(run);
            line.number("attempt", u64::from(*attempt));
        }
        What::Ended(ended) => line.ended(ended, names),
        What::Cancelling { run } | What::Retried { run } => line.run(run),
        What::Recomputed { instance, task } => {
            line.run(&Run { instance: *instance, first: *task, count: 1 });
        }
        What::Copied { instance, task, executor, first, ran_micros, median_micros } => {
            line.run(&Run { instance: *instance, first: *task, count: 1 });
            line.executor(Some(*executor), names);
            line.number("from", first.0);
            if let Some(name) = names.executor(*first) {
                line.text("from_name", name);
            }
            line.span("ran_s", *ran_micros);
            line.span("median_s", *median_micros);
        }
        What::RecomputationEnded { run, outcome } => {
            line.run(run);
            line.outcome(*outcome);
        }
        What::InstanceGone { instance, expired } => {
            line.number("instance", instance.0);
            line.word("expired", if *expired { "true" } else { "false" });
        }
        What::ExecutorJoined { executor, name, capacity, allocation, cache_bytes } => {
            line.number("executor", executor.0);
            line.text("name", name);
            line.capacity(capacity);
            if let Some(allocation) = allocation {
                line.number("allocation", allocation.0);
            }
            if *cache_bytes > 0 {
                line.number("cache_bytes", *cache_bytes);
            }
        }
        What::ExecutorGone { executor, why } => {
            line.executor(Some(*executor), names);
            line.text("why", why);
        }
        What::ExecutorSuspended { executor, until } => {
            line.executor(Some(*executor), names);
            line.time("until", *until);
        }
        What::ExecutorDrained { executor, .. } => line.executor(Some(*executor), names),
        What::Moved { executor, from, bytes } => {
            line.executor(Some(*executor), names);
            line.number("from", from.0);
            if let Some(name) = names.executor(*from) {
                line.text("from_name", name);
            }
            line.number("bytes", *bytes);
        }
        What::Paused { instance, .. } => line.number("instance", instance.0),
        What::Prioritized { instance, priority } => {
            line.number("instance", instance.0);
            line.signed("priority", *priority);
        }
        What::Provisioned { queue, text } => {
            line.text("queue", queue);
            line.text("text", text);
        }
        What::Missing { events } => line.number("events", *events),
    }
    line.end();
}

/// The name of an event's kind.
fn name(what: &What) -> &'static str {
    match what {
        What::DispatcherStarted { .. } => "dispatcher_started",
        What::InstanceCreated { .. } => "instance_created",
        What::Submitted { .. } => "submitted",
        What::Waits(_) => "waits",
        What::Uses(_) => "uses",
        What::Reserves(_) => "reserves",
        What::Sealed { .. } => "sealed",
        What::Assigned { .. } => "assigned",
        What::Requeued { .. } => "requeued",
        What::Ended(_) => "ended",
        What::Cancelling { .. } => "cancelling",
        What::Retried { .. } => "retried",
        What::Recomputed { .. } => "recomputed",
        What::Copied { .. } => "copied",
        What::RecomputationEnded { .. } => "recomputation_ended",
        What::InstanceGone { .. } => "instance_gone",
        What::ExecutorJoined { .. } => "executor_joined",
        What::ExecutorGone { .. } => "executor_gone",
        What::ExecutorSuspended { .. } => "executor_suspended",
        What::ExecutorDrained { is_drained: true, .. } => "executor_drained",
        What::ExecutorDrained { .. } => "executor_undrained",
        What::Paused { is_paused: true, .. } => "paused",
        What::Paused { .. } => "resumed",
        What::Prioritized { .. } => "prioritized",
        What::Moved { .. } => "moved",
        What::Provisioned { .. } => "provisioned",
        What::Missing { .. } => "missing",
    }
}

/// An object that is being written.
struct Object<'a> {
    out: &'a mut Vec<u8>,
    is_first: bool,
}

impl<'a> Object<'a> {
    fn begin(out: &'a mut Vec<u8>) -> Object<'a> {
        out.push(b'{');
        Object { out, is_first: true }
    }

    fn end(self) {
        self.out.extend_from_slice(b"}\n");
    }

    /// Begins a field, whose name needs no escapes.
    fn key(&mut self, key: &str) {
        if !std::mem::replace(&mut self.is_first, false) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    fn number(&mut self, key: &str, number: u64) {
        self.key(key);
        digits(number, self.out);
    }

    /// A word of JSON.
    fn word(&mut self, key: &str, word: &str) {
        self.key(key);
        self.out.extend_from_slice(word.as_bytes());
    }

    fn text(&mut self, key: &str, text: &str) {
        self.key(key);
        quoted(text, self.out);
    }

    /// Seconds since 1970, to the microsecond.
    fn time(&mut self, key: &str, time: Time) {
        self.key(key);
        seconds(time.0, self.out);
    }

    fn span(&mut self, key: &str, micros: u64) {
        self.key(key);
        seconds(micros, self.out);
    }

    fn run(&mut self, run: &Run) {
        let Run { instance: InstanceId(instance), first, count } = run;
        self.number("instance", *instance);
        self.number("first", first.0);
        self.number("count", *count);
    }

    fn executor(&mut self, executor: Option<ExecutorId>, names: &Names) {
        let Some(executor) = executor else { return };
        self.number("executor", executor.0);
        if let Some(name) = names.executor(executor) {
            self.text("executor_name", name);
        }
    }

    fn waits(&mut self, waits: &Waits) {
        self.run(&waits.run);
        self.list("after", waits.before.iter(), |item, before| {
            item.number("first", before.first.0);
            item.number("count", before.count);
            if before.moves {
                item.word("moves", "true");
            }
        });
    }

    fn uses(&mut self, uses: &Uses) {
        self.run(&uses.run);
        let object = |item: &mut Object, object: &Arc<NamedObject>| {
            item.text("object", &object.id.to_string());
            item.text("url", &object.url);
            if let Some(size) = object.size {
                item.number("bytes", size);
            }
        };
        self.list("inputs", uses.inputs.iter(), object);
        self.list("outputs", uses.outputs.iter(), object);
    }

    fn reserves(&mut self, reserves: &Reserves) {
        self.run(&reserves.run);
        self.capacity(&reserves.resources);
        self.number("nodes", u64::from(reserves.nodes));
    }

    /// A list of objects, unless it is empty.
    fn list<T>(
        &mut self,
        key: &str,
        items: impl ExactSizeIterator<Item = T>,
        each: impl Fn(&mut Object, T),
    ) {
        if items.len() == 0 {
            return;
        }
        self.key(key);
        for (number, item) in items.enumerate() {
            self.out.extend_from_slice(if number == 0 { b"[{" } else { b",{" });
            each(&mut Object { out: self.out, is_first: true }, item);
            self.out.push(b'}');
        }
        self.out.push(b']');
    }

    fn outcome(&mut self, outcome: Outcome) {
        let status = match outcome.status() {
            Status::Done => "done",
            Status::Failed => "failed",
            Status::Cancelled => "cancelled",
        };
        self.text("status", status);
        let word = match outcome {
            Outcome::Exit(code) => return self.signed("exit_code", code),
            Outcome::Signal(signal) => return self.signed("signal", signal),
            Outcome::UpstreamFailed(task) => return self.number("upstream", task.0),
            Outcome::Cancelled => return,
            Outcome::TimedOut => "timed_out",
            Outcome::NotRun => "not_run",
            Outcome::NoOutput => "no_output",
            Outcome::NoInput => "no_input",
            Outcome::Lost => "lost",
            Outcome::Unschedulable => "unschedulable",
            Outcome::Unreadable => "unreadable",
        };
        self.text("outcome", word);
    }

    fn signed(&mut self, key: &str, number: i32) {
        self.key(key);
        if number < 0 {
            self.out.push(b'-');
        }
        digits(u64::from(number.unsigned_abs()), self.out);
    }

    fn ended(&mut self, ended: &Ended, names: &Names) {
        self.run(&ended.run);
        self.outcome(ended.outcome);
        self.executor(ended.executor, names);
        self.number("attempts", u64::from(ended.attempts));
        self.time("queued", ended.queued);
        if ended.executor.is_some() {
            self.time("dispatched", ended.dispatched);
            self.time("started", ended.started);
        }
        self.time("ended", ended.ended);
        let usage = &ended.usage;
        if ended.staging_micros > 0 || usage.all().objects > 0 {
            self.span("staging_s", ended.staging_micros);
            for (key, count) in
                [("local", usage.local), ("peer", usage.peer), ("store", usage.store)]
            {
                let Count { objects, bytes } = count;
                self.key(key);
                let mut part = Object { out: self.out, is_first: true };
                part.out.push(b'{');
                part.number("objects", objects);
                part.number("bytes", bytes);
                part.out.push(b'}');
            }
        }
        if let Some(used) = &ended.resources {
            self.span("user_s", used.user_micros);
            self.span("system_s", used.system_micros);
            self.number("rss_max_bytes", used.rss_max_bytes);
            self.number("read_bytes", used.read_bytes);
            self.number("written_bytes", used.written_bytes);
            if let Some(bytes) = used.disk_max_bytes {
                self.number("disk_max_bytes", bytes);
            }
        }
        if let Some(error) = &ended.error {
            self.text("error", error);
        }
    }

    fn capacity(&mut self, capacity: &Resources) {
        self.thousandths("cpus", capacity.cpus_milli);
        self.number("gpus", u64::from(capacity.gpus));
        self.number("memory_bytes", capacity.memory_bytes);
        if capacity.disk_bytes() > 0 {
            self.number("disk_bytes", capacity.disk_bytes());
        }
        if capacity.site_defined().next().is_none() {
            return;
        }
        self.key("custom");
        for (number, (name, count)) in capacity.site_defined().enumerate() {
            self.out.push(if number == 0 { b'{' } else { b',' });
            quoted(name, self.out);
            self.out.push(b':');
            digits(*count, self.out);
        }
        self.out.push(b'}');
    }

    fn thousandths(&mut self, key: &str, milli: u32) {
        self.key(key);
        digits(u64::from(milli / 1000), self.out);
        if !milli.is_multiple_of(1000) {
            self.out.extend_from_slice(format!(".{:03}", milli % 1000).as_bytes());
        }
    }
}

/// A number's digits.
fn digits(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Microseconds as seconds.
fn seconds(micros: u64, out: &mut Vec<u8>) {
    digits(micros / 1_000_000, out);
    let mut rest = micros % 1_000_000;
    if rest == 0 {
        return;
    }
    let mut digits = [b'0'; 6];
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    out.push(b'.');
    out.extend_from_slice(&digits);
}

/// A string of JSON.
fn quoted(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..0x20 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}
