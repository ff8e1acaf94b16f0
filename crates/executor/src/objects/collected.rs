//! Outputs that are collected, and outputs that are folders: carries out what the core
//! wants done with them.

use super::message::write_error;
use super::{FromObjects, Objects, Staged};
use crate::folders::Folder;
use crate::watchdog::WaitPoint;
use falkon_core::collect::{ItemId, WriteFailure};
use falkon_core::data::cache::TierId;
use falkon_core::data::object::Object;
use falkon_core::data::stage::{Event as StageEvent, PartialId, WriteError};
use falkon_core::execute::{CollectAction, CollectEvent, TaskKey};
use falkon_core::result::Overflow;
use falkon_data::cache::{Copies, DiskCache};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Objects {
    /// Has archives made of folders that a task has left, answered with
    /// [`FromObjects::Packed`].
    pub(crate) fn pack(&self, key: TaskKey, folders: Vec<Folder>) {
        self.blocking(move || {
            let result = folders.iter().try_for_each(Folder::pack);
            FromObjects::Packed { key, result: result.map_err(|error| error.to_string()) }
        });
    }

    /// Puts an output into the cache, answered with [`StageEvent::Adopted`]. One that is
    /// staged for an archive stays there as well.
    pub(super) fn adopt(
        &self,
        tier: TierId,
        partial: PartialId,
        object: Arc<Object>,
        output: PathBuf,
    ) {
        let (repair, is_staged) = (self.repair.clone(), self.staged.has(&output));
        self.blocking(move || {
            let adopt = |output: &Path| {
                let adopt = |cache: &DiskCache| {
                    cache.adopt(tier, partial, &object, output, Copies::Elsewhere)
                };
                repair.with_cache(adopt).map_err(write_error)
            };
            let result = match is_staged {
                true => Staged::with_second_name(&output, adopt)
                    .unwrap_or_else(|error| Err(WriteError::Failed(error.to_string()))),
                false => adopt(&output),
            };
            FromObjects::Stage(StageEvent::Adopted { partial, result })
        });
    }

    /// The sizes of files that tasks have left directly in their directories; nothing if
    /// one is something else, or elsewhere.
    pub(crate) fn sizes_of_plain(&self, paths: &[PathBuf]) -> Option<Vec<u64>> {
        let _at = self.position.at(WaitPoint::Sandboxes);
        paths.iter().map(|path| self.sandboxes.size_of_plain(path)).collect()
    }

    /// Moves an output out of its task's directory without the help of another thread, if
    /// that can be done. Returns the bytes that are free.
    fn stage_plain(&self, item: ItemId, output: &Path) -> Option<u64> {
        let _at = self.position.at(WaitPoint::Sandboxes);
        let is_staged = self.sandboxes.move_plain(output, &self.staged.path(item));
        is_staged.then(|| self.staged.free())
    }

    /// Carries out what is to be done with outputs that are collected. Returns the answer
    /// if it is there already.
    pub(crate) fn collect(&mut self, action: CollectAction) -> Option<CollectEvent> {
        let staged = self.staged.clone();
        match action {
            CollectAction::Stage { item, key, object, stays } => {
                let output = self.outputs.remove(&(key, object.id));
                if stays {
                    self.outputs.insert((key, object.id), staged.path(item));
                }
                if let Some(free) = output.as_ref().and_then(|at| self.stage_plain(item, at)) {
                    return Some(CollectEvent::Staged { item, result: Ok(free) });
                }
                self.blocking(move || {
                    let gone = || "the output is gone".to_owned();
                    let result = output.ok_or_else(gone);
                    let result = result.and_then(|output| staged.stage(item, &output));
                    FromObjects::Collect(CollectEvent::Staged { item, result })
                });
            }
            CollectAction::StageStream { item, stream, captured } => {
                let (overflow, log) = (self.overflow.clone(), self.log.clone());
                self.blocking(move || {
                    let result = match captured.overflow {
                        Some(Overflow { number, .. }) => {
                            let staged = staged.stage(item, &overflow.file(number, stream));
                            // What is staged is no file of the directory any more.
                            staged.inspect(|_| drop(overflow.take(number, stream)))
                        }
                        None => staged.stage_bytes(item, &captured.head),
                    };
                    if let Err(error) = &result {
                        log(&format!("a stream is delivered with its result: {error}"));
                    }
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
        None
    }
}
