//! When flows are complete: a heap in which a flow's time can be changed.

use crate::time::Nanos;

/// No place in the heap.
const NOWHERE: u32 = u32::MAX;

/// A binary heap of flows by time, then number, with the place of each.
#[derive(Debug, Default)]
pub(super) struct Due {
    heap: Vec<(Nanos, u32)>,
    places: Vec<u32>,
}

impl Due {
    /// The first.
    pub(super) fn first(&self) -> Option<(Nanos, u32)> {
        self.heap.first().copied()
    }

    /// Puts a flow in, or changes its time.
    pub(super) fn set(&mut self, flow: u32, at: Nanos) {
        if self.places.len() <= flow as usize {
            self.places.resize(flow as usize + 1, NOWHERE);
        }
        let place = match self.places[flow as usize] {
            NOWHERE => {
                self.heap.push((at, flow));
                self.heap.len() - 1
            }
            place => {
                self.heap[place as usize].0 = at;
                place as usize
            }
        };
        self.places[flow as usize] = place as u32;
        self.sift(place);
    }

    /// Takes a flow out.
    pub(super) fn remove(&mut self, flow: u32) {
        let place = std::mem::replace(&mut self.places[flow as usize], NOWHERE) as usize;
        self.heap.swap_remove(place);
        if let Some((_, moved)) = self.heap.get(place) {
            self.places[*moved as usize] = place as u32;
            self.sift(place);
        }
    }

    /// Brings what is at `place` to where it belongs.
    fn sift(&mut self, mut place: usize) {
        while place > 0 {
            let above = (place - 1) / 2;
            if self.heap[above] <= self.heap[place] {
                break;
            }
            self.swap(above, place);
            place = above;
        }
        loop {
            let below = 2 * place + 1;
            let right = below + 1;
            let Some(left) = self.heap.get(below) else { return };
            let least = match self.heap.get(right) {
                Some(other) if other < left => right,
                _ => below,
            };
            if self.heap[place] <= self.heap[least] {
                return;
            }
            self.swap(place, least);
            place = least;
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.places[self.heap[one].1 as usize] = one as u32;
        self.places[self.heap[other].1 as usize] = other as u32;
    }
}
