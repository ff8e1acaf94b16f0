//! Outputs that are folders: when the task has succeeded, the files in each are written
//! as one archive beside it, and that is the output.

use super::{Tasks, Written};
use crate::folders::Folder;
use falkon_core::execute::{Event, TaskKey};
use falkon_core::result::{Detail, Outcome};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A task whose folders are being written.
struct Packing {
    event: Event,
    did: &'static str,
    paths: Vec<PathBuf>,
    objects: Written,
    folders: Vec<Folder>,
}

/// All of them.
#[derive(Default)]
pub(super) struct Packings {
    of: BTreeMap<TaskKey, Packing>,
}

impl Tasks {
    /// A task has ended well. Its outputs are looked at when its folders are archives.
    pub(super) fn pack_outputs(
        &mut self,
        event: Event,
        did: &'static str,
        paths: Vec<PathBuf>,
        objects: Written,
    ) {
        let Event::Ended { key, .. } = event else { return };
        let of_call = self.call_objects.get(&key).into_iter().flatten();
        let written = objects.iter().chain(of_call);
        let folders: Vec<Folder> = written.filter_map(|(path, _)| Folder::of(path)).collect();
        match &self.objects {
            Some(store) if !folders.is_empty() => {
                store.pack(key, folders.clone());
                self.packings.of.insert(key, Packing { event, did, paths, objects, folders });
            }
            _ => self.see_outputs(event, did, paths, objects),
        }
    }

    /// The folders of a task are archives, or cannot be. Returns the event for the core, if
    /// the task has failed by that.
    pub(super) fn packed(&mut self, key: TaskKey, result: Result<(), String>) -> Option<Event> {
        let packing = self.packings.of.remove(&key)?;
        let Packing { mut event, did, mut paths, mut objects, folders } = packing;
        let Err(error) = result else {
            let of_call = self.call_objects.get_mut(&key).into_iter().flatten();
            let written = objects.iter_mut().chain(of_call).map(|(path, _)| path);
            for path in paths.iter_mut().chain(written) {
                if let Some(folder) = folders.iter().find(|folder| folder.is_at(path)) {
                    *path = folder.archive();
                }
            }
            self.see_outputs(event, did, paths, objects);
            return None;
        };
        self.call_objects.remove(&key);
        if let Event::Ended { outcome, detail, .. } = &mut event {
            *outcome = Outcome::NoOutput;
            let mut said = detail.take().map_or_else(Detail::default, Arc::unwrap_or_clone);
            said.error = format!("{did}, but its output cannot be written: {error}");
            *detail = Some(Arc::new(said));
        }
        Some(event)
    }
}
