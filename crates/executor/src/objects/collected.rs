//! Outputs that are collected, and outputs that are folders: carries out what the core
//! wants done with them.

use super::{FromObjects, Objects};
use crate::folders::Folder;
use falkon_core::collect::WriteFailure;
use falkon_core::execute::{CollectAction, CollectEvent, TaskKey};

impl Objects {
    /// Has archives made of folders that a task has left, answered with
    /// [`FromObjects::Packed`].
    pub(crate) fn pack(&self, key: TaskKey, folders: Vec<Folder>) {
        self.blocking(move || {
            let result = folders.iter().try_for_each(Folder::pack);
            FromObjects::Packed { key, result: result.map_err(|error| error.to_string()) }
        });
    }

    /// Carries out what is to be done with outputs that are collected.
    pub(crate) fn collect(&mut self, action: CollectAction) {
        let staged = self.staged.clone();
        match action {
            CollectAction::Stage { item, key, object } => {
                let output = self.outputs.remove(&(key, object.id));
                self.blocking(move || {
                    let gone = || "the output is gone".to_owned();
                    let result = output.ok_or_else(gone);
                    let result = result.and_then(|output| staged.stage(item, &output));
                    FromObjects::Collect(CollectEvent::Staged { item, result })
                });
            }
            CollectAction::StageStream { item, stream, captured } => {
                let file = captured.overflow.map(|overflow| {
                    self.overflow.take(overflow.number, stream).ok_or("what it has printed is gone")
                });
                self.blocking(move || {
                    let result = match file {
                        Some(Ok(file)) => staged.stage(item, file.path()),
                        Some(Err(gone)) => Err(gone.to_owned()),
                        None => staged.stage_bytes(item, &captured.head),
                    };
                    FromObjects::Collect(CollectEvent::Staged { item, result })
                });
            }
            CollectAction::Write { write, archive, members } => {
                let log = self.log.clone();
                self.blocking(move || {
                    let result = staged.write(&archive, &members);
                    if let Err(WriteFailure::Failed(error)) = &result {
                        log(&format!("{archive} is not written yet: {error}"));
                    }
                    FromObjects::Collect(CollectEvent::Written { write, result })
                });
            }
            CollectAction::HandOver { write, to, archive, members, waited_micros } => {
                self.hand_over(write, to, archive, members, waited_micros);
            }
            CollectAction::TakeBack(write) => self.take_back(write),
            CollectAction::Accept { offer, item } => self.accept(offer, item),
            CollectAction::Answer { offer, result } => self.answer_offer(offer, result),
            CollectAction::Discard(items) => {
                self.carrier.runtime.spawn_blocking(move || staged.discard(&items));
            }
        }
    }
}
