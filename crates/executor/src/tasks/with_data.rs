//! Calls of functions that read or write data objects: one at a time, each in a
//! directory of its own, whose path its worker receives; and the outputs of
//! tasks.

use super::prepare::{NotStarted, names_of, output_paths};
use super::{Bundle, Call, Tasks, Written, in_directory, texts_payload};
use crate::granted::alternative;
use crate::values::{Left, url_of};
use falkon_core::data::object::Object;
use falkon_core::execute::{Event, Start, StartData, TaskKey};
use falkon_core::result::Outcome;
use falkon_net::clock::Clock;
use falkon_wire::command::Command;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Tasks {
    /// Passes a call on to a worker.
    pub(super) fn start_call_with_data(
        &mut self,
        start: &Start,
        data: &StartData,
        clock: &Clock,
    ) -> Result<(), NotStarted> {
        let command = self.command(start, 0)?;
        let directory = self.make_sandbox(start, &command, data)?;
        let mut more = self.gpus.environment(&start.grant.gpus);
        more.extend(alternative(&start.class));
        let tree = first_tree(&directory, &command, data);
        let instance = start.key.instance;
        let home = Arc::new(self.workers.home(&command, instance, more, tree.as_deref())?);
        let writes: Vec<&Object> = data.outputs.iter().map(|object| &**object).collect();
        let names = names_of(&command.outputs, &writes, true).into_iter();
        let written: Written = names
            .map(|name| directory.join(OsString::from_vec(name)))
            .zip(data.outputs.iter().cloned())
            .collect();
        let mut outputs: Vec<PathBuf> = written.iter().map(|(path, _)| path.clone()).collect();
        outputs.extend(output_paths(&command).into_iter().map(|path| directory.join(path)));
        let call = command.call.ok_or_else(|| "the task names no function".to_owned())?;
        let payload = match call.payload.is_empty() {
            true => texts_payload(&command.argv),
            false => call.payload,
        };
        let payload = in_directory(directory.as_os_str().as_bytes(), &payload).into();
        let call = Call { home, function: call.function, payload, outputs };
        self.call_objects.insert(start.key, written);
        self.workers.start(Bundle::new(start.key, call), clock);
        Ok(())
    }

    /// The event for the core after an event of calls. That of a call that has
    /// written objects comes later.
    pub(super) fn call_event(&mut self, event: Event) -> Option<Event> {
        match &event {
            Event::Ended { key, outcome, .. } => {
                let (key, ended_well) = (*key, *outcome == Outcome::Exit(0));
                // A successful call that has written objects is reported once
                // they have been seen.
                let written = self.call_objects.remove(&key).unwrap_or_default();
                if ended_well { self.wrote(key, written, Vec::new(), event) } else { Some(event) }
            }
            Event::Returned { key, count: 1 } => {
                self.call_objects.remove(key);
                Some(event)
            }
            _ => Some(event),
        }
    }

    /// A call has returned more than can be sent: it ends when that is in the cache.
    pub(super) fn leave(&mut self, left: Left) {
        let Event::Ended { key, .. } = &left.event else { return };
        let (key, value) = (*key, left.value.clone());
        let number = self.values.add(key, left);
        let found = self.outputs.left(&value);
        match (found, &self.objects) {
            (Ok(incarnation), Some(objects)) => {
                objects.take_in(key, value, url_of(key, incarnation, number));
            }
            (Ok(_), None) => self.value_left(key, Err("this executor has no cache".to_owned())),
            (Err(error), _) => self.value_left(key, Err(error)),
        }
    }

    /// The value of a call is in the cache, or cannot be stored there.
    pub(super) fn value_left(&mut self, key: TaskKey, result: Result<Object, String>) {
        let is_there = result.is_ok();
        let Some((event, outputs)) = self.values.end(key, result) else { return };
        if is_there && !outputs.is_empty() {
            self.workers.unseen.push((event, outputs));
        } else {
            self.workers.events.push_back(event);
        }
    }

    /// A task has succeeded, which is reported when its outputs are stored;
    /// `sizes` are those of the files. Returns the event for the core by now.
    pub(super) fn wrote(
        &mut self,
        key: TaskKey,
        written: Written,
        sizes: Vec<u64>,
        event: Event,
    ) -> Option<Event> {
        if written.is_empty() {
            return Some(event);
        }
        let Some(objects) = &mut self.objects else { return Some(event) };
        if objects.put(key, written) {
            self.events.push_back(event);
            return Some(Event::Wrote { key, sizes });
        }
        self.putting.insert(key, (sizes, event));
        None
    }
}

/// The first archive that a call finds unpacked in its directory, where it is in the
/// cache: the same path for all calls.
fn first_tree(directory: &Path, command: &Command, data: &StartData) -> Option<PathBuf> {
    data.inputs.first().filter(|staged| staged.is_unpacked)?;
    let reads: Vec<&Object> = data.inputs.iter().map(|staged| &*staged.object).collect();
    let name = names_of(&command.inputs, &reads, false).into_iter().next()?;
    std::fs::read_link(directory.join(OsString::from_vec(name))).ok()
}
