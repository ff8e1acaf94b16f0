//! The state checker of an index.

use super::{Index, ObjectNo, Place};
use crate::data::object::ObjectId;
use crate::dispatch::CheckError;
use crate::dispatch::check::ensure;
use std::collections::BTreeMap;

impl Index {
    /// Checks the whole state; costs time in proportion to it. `wanted` says
    /// how many waiting tasks have each input.
    ///
    /// # Errors
    /// Says what does not hold.
    pub(crate) fn check(&self, wanted: &BTreeMap<ObjectId, u64>) -> Result<(), CheckError> {
        let mut wants = wanted.clone();
        let (mut transfers, mut used) = (0, 0);
        let mut sends: BTreeMap<(Place, ObjectNo), u32> = BTreeMap::new();
        for (at, object) in self.objects.iter().enumerate().filter(|(_, found)| found.is_used) {
            let number = ObjectNo(u32::try_from(at).unwrap_or(u32::MAX));
            let id = object.id;
            used += 1;
            ensure!(self.numbers.get(&id) == Some(&number), "{id} has another number");
            let expected = wants.remove(&id).unwrap_or(0);
            ensure!(object.wanted == expected, "{id}: wanted {}, not {expected}", object.wanted);
            let needed =
                object.wanted > 0 || !object.holders.is_empty() || !object.coming.is_empty();
            ensure!(needed, "{id} is known for nothing");
            ensure!(object.holders.is_sorted(), "{id}: its holders are in disorder");
            for holder in &object.holders {
                let holds = self.executors[holder.0 as usize].held.contains(&number);
                ensure!(holds, "{id}: a holder does not hold it");
            }
            for transfer in &object.coming {
                transfers += 1;
                let comes = self.executors[transfer.to.0 as usize].coming.contains(&number);
                ensure!(comes, "{id}: it comes to nobody");
                ensure!(!object.holders.contains(&transfer.to), "{id}: it comes to a holder");
                if let Some(from) = transfer.from {
                    *sends.entry((from, number)).or_default() += 1;
                }
            }
        }
        ensure!(wants.is_empty(), "objects that tasks wait for are not known");
        ensure!(used == self.numbers.len(), "objects are miscounted");
        ensure!(transfers == self.transfers, "transfers are miscounted");
        let held: usize = self.executors.iter().map(|executor| executor.held.len()).sum();
        let holders: usize = self.objects.iter().map(|object| object.holders.len()).sum();
        ensure!(held == holders, "{holders} holders of objects, and {held} objects held");
        let coming: usize = self.executors.iter().map(|executor| executor.coming.len()).sum();
        ensure!(coming == transfers, "{coming} objects come, in {transfers} transfers");
        for (at, executor) in self.executors.iter().enumerate() {
            let place = Place(u32::try_from(at).unwrap_or(u32::MAX));
            let mut sending = 0;
            for (object, times) in &executor.sending {
                let expected = sends.remove(&(place, *object));
                ensure!(expected == Some(*times), "an executor sends something else");
                sending += u64::from(*times);
            }
            ensure!(sending == executor.sends, "what an executor sends is miscounted");
        }
        ensure!(sends.is_empty(), "something is sent by nobody");
        Ok(())
    }
}
