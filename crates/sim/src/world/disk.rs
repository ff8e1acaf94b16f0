//! A node's disk, and the memory in front of it, as an operating system keeps
//! it: what was read or written last, whole objects, the least recently used
//! going first. What is written goes to memory and from there to the disk
//! beside all else, until too much waits for the disk: then whoever writes
//! goes at the disk's pace.

use super::World;
use super::objects::object_number;
use super::transfer::{Ends, Transfer};
use crate::flow::{Crossing, Flows, PartyId, ResourceId};
use crate::scenario::{Disk, Memory};
use std::collections::BTreeMap;

/// The share of memory, one in so many, that may wait to be written
/// (`vm.dirty_ratio` of Linux, 20 %).
const DIRTY_SHARE: u64 = 5;

/// What comes from the store is gathered in memory and written in pieces of so many
/// bytes (`node/store`).
const STORE_PIECE_BYTES: u64 = 1 << 20;

/// Of what comes from the store, how many bytes are written after the last has come.
fn gathered(bytes: u64) -> u64 {
    match bytes % STORE_PIECE_BYTES {
        0 => STORE_PIECE_BYTES.min(bytes),
        rest => rest,
    }
}

/// The device that a node keeps an object on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Medium {
    Disk,
    Memory,
}

/// The links and devices that transfers to and from a node cross.
#[derive(Debug)]
pub(super) struct Devices {
    pub(super) up: ResourceId,
    pub(super) down: ResourceId,
    /// Its disk as it is read and as it is written.
    disk: Option<(Crossing, Crossing)>,
    /// What one thread of its executor reads for all that it serves, and what another
    /// writes of all that others send.
    threads: (PartyId, PartyId),
    memory: Option<Crossing>,
}

impl Devices {
    pub(super) fn new(flows: &mut Flows, link: f64, disk: Option<&Disk>) -> Devices {
        let (up, down) = (flows.add_resource(link), flows.add_resource(link));
        let threads = (flows.add_party(), flows.add_party());
        let memory = disk.and_then(|disk| disk.memory);
        let disk = disk.map(|disk| {
            let resource = flows.add_resource(disk.read_bytes_per_s);
            (resource.into(), resource.weighing(disk.read_bytes_per_s / disk.write_bytes_per_s))
        });
        let memory = memory.map(|memory| flows.add_resource(memory.bytes_per_s).into());
        Devices { up, down, disk, threads, memory }
    }

    pub(super) fn has_disk(&self) -> bool {
        self.disk.is_some()
    }
}

/// The memory of a node that keeps what its disk has.
#[derive(Debug)]
pub(super) struct Pages {
    /// Objects that it holds at most, which are of one size.
    objects_max: usize,
    dirty_bytes_max: u64,
    /// Bytes that wait to be written.
    dirty_bytes: u64,
    /// When each was used last, and each by when that was.
    used: BTreeMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
    uses: u64,
}

impl Pages {
    pub(super) fn new(memory: &Memory, object_bytes: u64) -> Pages {
        let objects = memory.bytes / object_bytes.max(1);
        Pages {
            objects_max: usize::try_from(objects).unwrap_or(usize::MAX),
            dirty_bytes_max: memory.bytes / DIRTY_SHARE,
            dirty_bytes: 0,
            used: BTreeMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
        }
    }

    /// An object is used. Returns whether it is in memory.
    fn is_there(&mut self, object: u64) -> bool {
        let is_there = self.used.contains_key(&object);
        if is_there {
            self.put(object);
        }
        is_there
    }

    /// An object has been read or written.
    pub(super) fn put(&mut self, object: u64) {
        self.forget(object);
        self.uses += 1;
        self.used.insert(object, self.uses);
        self.by_use.insert(self.uses, object);
        if self.used.len() > self.objects_max
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.used.remove(&oldest);
        }
    }

    /// An object is no longer on the disk.
    pub(super) fn forget(&mut self, object: u64) {
        if let Some(use_) = self.used.remove(&object) {
            self.by_use.remove(&use_);
        }
    }

    /// The machine was started anew.
    pub(super) fn clear(&mut self) {
        self.used.clear();
        self.by_use.clear();
        self.dirty_bytes = 0;
    }
}

impl World<'_> {
    /// All that a transfer crosses from its beginning.
    pub(super) fn crosses(&mut self, transfer: &mut Transfer) -> Vec<Crossing> {
        let (own, mut crosses) = (transfer.node, Vec::with_capacity(4));
        match transfer.ends {
            Ends::Own { object, .. } => {
                transfer.reads = self.source(own, object);
                crosses.extend(self.read(own, transfer.reads));
                return crosses;
            }
            Ends::Flushed => {
                transfer.writes = Some(Medium::Disk);
                crosses.extend(self.written(own, transfer.writes));
                return crosses;
            }
            Ends::Message { dispatcher, who, way, .. } => {
                crosses.extend(self.transfers.links(dispatcher, who, way));
                return crosses;
            }
            Ends::Put { .. } | Ends::Collected { .. } => {
                crosses.extend(self.transfers.store_link());
                crosses.push(self.transfers.devices[own as usize].up.into());
                return crosses;
            }
            Ends::Handed { .. } => {
                let from = transfer.from.map(|from| &self.transfers.devices[from.node as usize]);
                crosses.extend(from.map(|devices| Crossing::from(devices.up)));
            }
            Ends::Read { .. } => crosses.extend(self.transfers.store_link()),
            Ends::Fetch { object, .. } => {
                if let Some(from) = transfer.from {
                    transfer.reads = self.source(from.node, object_number(object));
                    let devices = &self.transfers.devices[from.node as usize];
                    let (up, thread) = (devices.up.into(), devices.threads.0);
                    crosses.extend(self.read(from.node, transfer.reads).map(|at| at.of(thread)));
                    crosses.push(up);
                } else {
                    crosses.extend(self.transfers.store_link());
                }
                transfer.writes = self.sink(own);
                let mut share = 1.0;
                if transfer.from.is_none() && transfer.writes.is_some() {
                    transfer.gathered = gathered(transfer.bytes);
                    share -= transfer.gathered as f64 / transfer.bytes.max(1) as f64;
                }
                let written = self.written(own, transfer.writes);
                let thread = transfer.from.map(|_| self.transfers.devices[own as usize].threads.1);
                let written = written.map(|at| at.scaled(share)).filter(Crossing::takes);
                crosses.extend(written.map(|at| thread.map_or(at, |thread| at.of(thread))));
            }
        }
        crosses.push(self.transfers.devices[own as usize].down.into());
        crosses
    }

    /// Where a node reads an object that it has.
    fn source(&mut self, node: u32, object: u64) -> Option<Medium> {
        let pages = self.nodes[node as usize].pages.as_mut();
        let is_there = pages.is_some_and(|pages| pages.is_there(object));
        let medium = if is_there { Medium::Memory } else { Medium::Disk };
        Some(medium).filter(|_| self.transfers.has_disk(node))
    }

    /// Where a node puts what it gets.
    fn sink(&self, node: u32) -> Option<Medium> {
        let pages = self.nodes[node as usize].pages.as_ref();
        let takes = pages.is_some_and(|pages| pages.dirty_bytes < pages.dirty_bytes_max);
        let medium = if takes { Medium::Memory } else { Medium::Disk };
        Some(medium).filter(|_| self.transfers.has_disk(node))
    }

    fn read(&self, node: u32, medium: Option<Medium>) -> Option<Crossing> {
        let Devices { disk, memory, .. } = &self.transfers.devices[node as usize];
        match medium? {
            Medium::Disk => disk.map(|(read, _)| read),
            Medium::Memory => *memory,
        }
    }

    pub(super) fn written(&self, node: u32, medium: Option<Medium>) -> Option<Crossing> {
        let Devices { disk, memory, .. } = &self.transfers.devices[node as usize];
        match medium? {
            Medium::Disk => disk.map(|(_, written)| written),
            Medium::Memory => *memory,
        }
    }

    /// A transfer is complete: what it has read is in that node's memory, and
    /// what it has put into memory goes to the disk.
    pub(super) fn has_moved(&mut self, transfer: &Transfer) {
        let (node, bytes) = (transfer.node, transfer.bytes);
        let disks = &mut self.measured.disks;
        match transfer.reads {
            Some(Medium::Disk) => disks.read += bytes,
            Some(Medium::Memory) => disks.from_memory += bytes,
            None => {}
        }
        if transfer.writes == Some(Medium::Disk) {
            disks.written += bytes;
        }
        let read = match transfer.ends {
            Ends::Own { object, .. } => Some(object),
            Ends::Fetch { object, .. } => Some(object_number(object)),
            _ => None,
        };
        if let (Some(Medium::Disk), Some(object)) = (transfer.reads, read) {
            let at = transfer.from.map_or(node, |from| from.node);
            if let Some(pages) = &mut self.nodes[at as usize].pages {
                pages.put(object);
            }
        }
        let pages = self.nodes.get_mut(node as usize).and_then(|node| node.pages.as_mut());
        let Some(pages) = pages else { return };
        if matches!(transfer.ends, Ends::Flushed) {
            pages.dirty_bytes = pages.dirty_bytes.saturating_sub(bytes);
        }
        if transfer.writes == Some(Medium::Memory) {
            pages.dirty_bytes += bytes;
            let flush = self.transfers.add(node, None, bytes, Ends::Flushed);
            self.transfer_opens(flush);
        }
    }
}
