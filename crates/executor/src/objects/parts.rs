//! Parts of objects in this executor's cache, for the dispatcher, which passes them on to
//! executors that cannot reach this one.

use super::{FromObjects, Objects};
use falkon_core::data::stage::Event;
use falkon_core::part::{PartAnswer, PartQuestion};
use falkon_data::cache::{CacheError, DiskCache};
use std::os::unix::fs::FileExt;

impl Objects {
    /// Reads a part in a thread that owes no heartbeat; [`FromObjects::Read`] has it.
    pub(crate) fn read_part(&self, number: u64, question: PartQuestion) {
        let (cache, say) = (self.cache.clone(), self.say.clone());
        self.blocking(move || {
            let answer = match read(&cache, question) {
                Ok(answer) => answer,
                Err(error) => {
                    if matches!(error, CacheError::Lost { .. }) {
                        // The receiver is gone only when the executor ends.
                        let _ = say.send(FromObjects::Stage(Event::Lost(question.object)));
                    }
                    PartAnswer::Gone
                }
            };
            FromObjects::Read(number, answer)
        });
    }
}

fn read(cache: &DiskCache, question: PartQuestion) -> Result<PartAnswer, CacheError> {
    let (file, whole) = cache.read(question.object)?;
    let length = question.length_of(whole).unwrap_or(0);
    // No more than a part has.
    let mut bytes = vec![0; length as usize];
    Ok(match file.read_exact_at(&mut bytes, question.from) {
        Ok(()) => PartAnswer::Here { whole, bytes },
        Err(_) => PartAnswer::Unreached,
    })
}
