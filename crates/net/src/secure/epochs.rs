//! Epochs: what tells instances apart that got the same number.
//!
//! An instance's number is used again when its journal is gone (removed,
//! replaced by an older copy, or cut short by a crash of the machine), while
//! the key that all secrets follow from stays. So a dispatcher draws an epoch
//! each time it starts, for the instances that it creates from then on, and the
//! secret of an instance follows from its epoch as well. The epochs of existing
//! instances lie beside the journal: a restart keeps their secrets, and no one
//! has a secret of a number that was assigned again.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::access::to_json;
use super::private_file::{self, FileError};
use super::secret::{decode_hex, encode_hex, fill_randomly};

/// The version of `epochs.json` that this release reads and writes.
const EPOCHS_FORMAT: u32 = 1;

const EPOCHS_FILE: &str = "epochs.json";

/// The number of epochs that are kept. If all of them have instances, the next
/// start continues with the last one.
pub(super) const EPOCHS_MAX: usize = 512;

/// The bytes of an epoch for another process.
pub(super) const EPOCH_BYTES: usize = 8 + 16;

/// The epochs of a dispatcher's instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epochs {
    /// Ascending by `first`, and never empty; an epoch goes up to the next.
    all: Vec<Epoch>,
}

/// The result of [`Epochs::open`].
#[derive(Debug)]
pub struct Opened {
    /// The epochs.
    pub epochs: Epochs,
    /// Whether all instances have kept theirs.
    pub all_kept: bool,
    /// Why there is no epoch of this start, if there is none.
    pub not_written: Option<FileError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Epoch {
    /// The first instance of it.
    first: u64,
    epoch: Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Random([u8; 16]);

impl Serialize for Random {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&encode_hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for Random {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut bytes = [0; 16];
        decode_hex(&String::deserialize(deserializer)?, &mut bytes)
            .map_err(serde::de::Error::custom)?;
        Ok(Random(bytes))
    }
}

/// Why epochs could not be loaded or made.
#[derive(Debug, thiserror::Error)]
pub enum EpochsError {
    /// The file of epochs could not be read or written, or others may read it.
    #[error(transparent)]
    File(FileError),
    /// The file of epochs is not JSON, or holds no epochs.
    #[error(
        "{path} is damaged{}; restore it from a copy, or move it away (access files of single \
         instances then open nothing any more)",
        because(.source.as_ref())
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The JSON error, unless the order of the epochs is wrong.
        source: Option<serde_json::Error>,
    },
    /// The format of the file has another version.
    #[error(
        "{path} has format {format} and this falkon reads format {EPOCHS_FORMAT}: use the release \
         that wrote it"
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The version that it says.
        format: u32,
    },
    /// The system's random source failed.
    #[error("the system provided no random numbers: {0}")]
    Random(#[source] io::Error),
}

fn because(cause: Option<&serde_json::Error>) -> String {
    cause.map_or_else(String::new, |cause| format!(": {cause}"))
}

#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    epochs: Vec<Epoch>,
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

impl Epochs {
    /// A new epoch for all instances, of a dispatcher that keeps none.
    ///
    /// # Errors
    /// [`EpochsError::Random`].
    pub fn draw() -> Result<Epochs, EpochsError> {
        Ok(Epochs { all: vec![Epoch::draw(0)?] })
    }

    /// Loads the epochs that are kept in a journal's `directory`, and adds one
    /// for the instances from `next` on, which is on stable storage when this
    /// returns, unless there is no room for it. `instances` are those that there
    /// are, in any order.
    ///
    /// # Errors
    /// [`EpochsError`]; a damaged file is never replaced.
    pub fn open(
        directory: &Path,
        next: u64,
        instances: impl IntoIterator<Item = u64>,
    ) -> Result<Opened, EpochsError> {
        let path = directory.join(EPOCHS_FILE);
        let kept = match private_file::read(&path) {
            Ok(bytes) => Epochs::from_json(&bytes, &path)?,
            Err(FileError::Missing { .. }) => Vec::new(),
            Err(error) => return Err(EpochsError::File(error)),
        };
        let mut instances: Vec<u64> = instances.into_iter().collect();
        instances.sort_unstable();
        // The epochs begin with 0, or with the first instance that had one.
        let all_kept = instances
            .first()
            .is_none_or(|first| kept.first().is_some_and(|epoch| epoch.first <= *first));
        let all = with_next(kept.clone(), Epoch::draw(next)?, &instances);
        let stored = Stored { format: EPOCHS_FORMAT, epochs: all.clone() };
        let (all, not_written) = match private_file::write(&path, &to_json(&stored)) {
            Ok(()) => (all, None),
            // A full disk prevents no one from fetching existing results:
            // without an epoch of its own, this start continues with the last
            // one, unless the journal has certainly forgotten instances of it.
            Err(error) if kept.last().is_some_and(|last| last.first <= next) => (kept, Some(error)),
            Err(error) => return Err(EpochsError::File(error)),
        };
        Ok(Opened { epochs: Epochs { all }, all_kept, not_written })
    }

    fn from_json(bytes: &[u8], path: &Path) -> Result<Vec<Epoch>, EpochsError> {
        let malformed = |source| EpochsError::Malformed { path: path.to_owned(), source };
        let Format { format } =
            serde_json::from_slice(bytes).map_err(|error| malformed(Some(error)))?;
        if format != EPOCHS_FORMAT {
            return Err(EpochsError::Format { path: path.to_owned(), format });
        }
        let Stored { epochs, .. } =
            serde_json::from_slice(bytes).map_err(|error| malformed(Some(error)))?;
        if !is_ascending(&epochs) {
            return Err(malformed(None));
        }
        Ok(epochs)
    }

    /// The epoch of an instance.
    pub(super) fn of(&self, instance: u64) -> &[u8; 16] {
        let after = self.all.partition_point(|epoch| epoch.first <= instance);
        // Instances before the first epoch were created under none that is
        // known; the first is as good as any unknown one.
        &self.all[after.saturating_sub(1)].epoch.0
    }

    /// Appends the epochs to `bytes`, for another process: how many (64 bits),
    /// and each.
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&(self.all.len() as u64).to_le_bytes());
        for epoch in &self.all {
            bytes.extend_from_slice(&epoch.first.to_le_bytes());
            bytes.extend_from_slice(&epoch.epoch.0);
        }
    }

    /// The inverse of [`Epochs::encode`], and what follows.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Epochs, &[u8])> {
        let (count, bytes) = bytes.split_first_chunk()?;
        let count = usize::try_from(u64::from_le_bytes(*count)).ok()?;
        let (encoded, rest) = bytes.split_at_checked(count.checked_mul(EPOCH_BYTES)?)?;
        let epoch = |bytes: &[u8]| {
            let (first, epoch) = bytes.split_first_chunk()?;
            let epoch = Random(epoch.try_into().ok()?);
            Some(Epoch { first: u64::from_le_bytes(*first), epoch })
        };
        let all: Option<Vec<Epoch>> = encoded.chunks_exact(EPOCH_BYTES).map(epoch).collect();
        let all = all.filter(|all| !all.is_empty() && is_ascending(all))?;
        Some((Epochs { all }, rest))
    }
}

impl Epoch {
    fn draw(first: u64) -> Result<Epoch, EpochsError> {
        let mut epoch = [0; 16];
        fill_randomly(&mut epoch).map_err(EpochsError::Random)?;
        Ok(Epoch { first, epoch: Random(epoch) })
    }
}

fn is_ascending(epochs: &[Epoch]) -> bool {
    epochs.is_sorted_by(|one, other| one.first < other.first)
}

/// The epochs once `next` has begun. `instances` ascend, and are older than
/// `next`. Epochs of `next` and of later numbers are of instances that the
/// journal has forgotten.
fn with_next(mut epochs: Vec<Epoch>, next: Epoch, instances: &[u64]) -> Vec<Epoch> {
    epochs.retain(|epoch| epoch.first < next.first);
    if epochs.len() >= EPOCHS_MAX {
        let ends: Vec<u64> = epochs.iter().skip(1).map(|epoch| epoch.first).collect();
        let mut ends = ends.into_iter().chain([next.first]);
        epochs.retain(|epoch| {
            let end = ends.next().unwrap_or(next.first);
            let at = instances.partition_point(|instance| *instance < epoch.first);
            instances.get(at).is_some_and(|instance| *instance < end)
        });
    }
    if epochs.len() < EPOCHS_MAX {
        epochs.push(next);
    }
    epochs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A step in the life of a dispatcher with a journal.
    #[derive(Clone, Debug)]
    enum Step {
        /// It creates this number of instances.
        Create(u8),
        /// The instance at this place among those that there are goes.
        Destroy(prop::sample::Index),
        /// It is restarted.
        Restart,
        /// The same, and the journal has lost this part of what it knew.
        Lose(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (1u8..4).prop_map(Step::Create),
            any::<prop::sample::Index>().prop_map(Step::Destroy),
            Just(Step::Restart),
            (1u8..6).prop_map(Step::Lose),
        ];
        prop::collection::vec(step, 1..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn a_restart_keeps_epochs_and_no_instance_ever_has_that_of_another(steps in steps()) {
            let dir = tempfile::tempdir().unwrap();
            let mut epochs = Epochs::open(dir.path(), 0, []).unwrap().epochs;
            let (mut next, mut living) = (0u64, Vec::<(u64, [u8; 16])>::new());
            let mut given = std::collections::BTreeSet::new();
            for step in steps {
                match step {
                    Step::Create(count) => for _ in 0..count {
                        let epoch = *epochs.of(next);
                        prop_assert!(given.insert((next, epoch)), "{next} was given out before");
                        living.push((next, epoch));
                        next += 1;
                    },
                    Step::Destroy(which) => if !living.is_empty() {
                        living.remove(which.index(living.len()));
                    },
                    Step::Restart | Step::Lose(_) => {
                        if let Step::Lose(count) = step {
                            next = next.saturating_sub(u64::from(count));
                            living.retain(|(id, _)| *id < next);
                        }
                        let ids = living.iter().map(|(id, _)| *id);
                        let opened = Epochs::open(dir.path(), next, ids).unwrap();
                        prop_assert!(opened.all_kept && opened.not_written.is_none());
                        epochs = opened.epochs;
                    }
                }
                for (id, epoch) in &living {
                    prop_assert_eq!(epochs.of(*id), epoch);
                }
                let mut bytes = Vec::new();
                epochs.encode(&mut bytes);
                bytes.push(7);
                prop_assert_eq!(Epochs::decode(&bytes), Some((epochs.clone(), &[7][..])));
                prop_assert!(Epochs::decode(&bytes[..bytes.len() - 2]).is_none());
            }
        }
    }

    #[test]
    fn epochs_without_instances_go_when_there_are_many() {
        let epoch = |first| Epoch { first, epoch: Random([first as u8; 16]) };
        let many: Vec<Epoch> = (0..EPOCHS_MAX as u64).map(|at| epoch(2 * at)).collect();
        let next = epoch(2 * EPOCHS_MAX as u64);
        let kept = with_next(many.clone(), next, &[3, 4, 5, 800]);
        assert_eq!(kept, [many[1], many[2], many[400], next]);
        let all: Vec<u64> = (0..next.first).collect();
        assert_eq!(with_next(many.clone(), next, &all), many, "the last one goes on");
    }

    #[test]
    fn a_full_file_can_be_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let first = |at: usize| u64::MAX - 2 * EPOCHS_MAX as u64 + at as u64;
        let all = (0..EPOCHS_MAX).map(|at| Epoch { first: first(at), epoch: Random([9; 16]) });
        let stored = Stored { format: EPOCHS_FORMAT, epochs: all.collect() };
        private_file::write(&dir.path().join(EPOCHS_FILE), &to_json(&stored)).unwrap();
        let instances = (0..EPOCHS_MAX).map(first);
        let opened = Epochs::open(dir.path(), u64::MAX, instances).unwrap();
        assert_eq!((opened.epochs.all, opened.all_kept), (stored.epochs, true));
    }

    #[test]
    fn a_damaged_file_is_refused_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(EPOCHS_FILE);
        let epoch = |first| format!("{{\"first\":{first},\"epoch\":\"{}\"}}", "00".repeat(16));
        let (one, other) = (epoch(1), epoch(2));
        for text in [
            "{}".to_owned(),
            "{\"format\":1}".to_owned(),
            "{\"format\":2,\"epochs\":[]}".to_owned(),
            format!("{{\"format\":1,\"epochs\":[{other},{one}]}}"),
            format!("{{\"format\":1,\"epochs\":[{one},{one}]}}"),
        ] {
            private_file::write(&path, text.as_bytes()).unwrap();
            let error = Epochs::open(dir.path(), 7, []).unwrap_err();
            assert!(error.to_string().contains("epochs.json"), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), text.as_bytes());
        }
    }

    #[test]
    fn instances_from_before_the_first_epoch_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let open = |next, instances: &[u64]| {
            Epochs::open(dir.path(), next, instances.iter().copied()).unwrap().all_kept
        };
        assert!(!open(5, &[3]), "there was no file");
        assert!(!open(6, &[5, 3]));
        assert!(open(6, &[5]));
    }
}
