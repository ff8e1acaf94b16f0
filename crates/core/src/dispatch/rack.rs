//! Values by number, for numbers that are mostly given one after another.

use std::collections::VecDeque;

/// Numbers of a page.
const PAGE: u32 = 64;

/// A map from numbers, in their order. Those that lie together share a page,
/// and a page is found among few: with a hundred thousand of them a look-up
/// costs a third of what it costs in a tree of single values. Adding at the end
/// and removing at the beginning moves nothing.
#[derive(Debug)]
pub(super) struct Rack<T> {
    /// By what the numbers of each have in common; none is empty.
    pages: VecDeque<Page<T>>,
    len: usize,
}

#[derive(Debug)]
struct Page<T> {
    head: u64,
    /// A bit for each of its numbers that is there.
    used: u64,
    values: VecDeque<T>,
}

impl<T> Default for Rack<T> {
    fn default() -> Rack<T> {
        Rack { pages: VecDeque::new(), len: 0 }
    }
}

fn head_of(number: u64) -> u64 {
    number / u64::from(PAGE)
}

fn bit_of(number: u64) -> u64 {
    1 << (number % u64::from(PAGE))
}

impl<T> Page<T> {
    /// Where the value of a number is, or would be.
    fn rank(&self, number: u64) -> usize {
        (self.used & (bit_of(number) - 1)).count_ones() as usize
    }

    fn numbers(&self) -> impl Iterator<Item = u64> + use<T> {
        let first = self.head * u64::from(PAGE);
        let mut left = self.used;
        std::iter::from_fn(move || {
            let next = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            (next < PAGE).then(|| first + u64::from(next))
        })
    }
}

impl<T> Rack<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn page_of(&self, number: u64) -> Result<usize, usize> {
        let head = head_of(number);
        // Most racks are small, and most numbers that are asked for new.
        match self.pages.back() {
            Some(last) if last.head == head => Ok(self.pages.len() - 1),
            _ => self.pages.binary_search_by_key(&head, |page| page.head),
        }
    }

    pub(super) fn find(&self, number: u64) -> Option<&T> {
        let page = &self.pages[self.page_of(number).ok()?];
        let is_there = page.used & bit_of(number) != 0;
        is_there.then(|| &page.values[page.rank(number)])
    }

    pub(super) fn find_mut(&mut self, number: u64) -> Option<&mut T> {
        let at = self.page_of(number).ok()?;
        let page = &mut self.pages[at];
        let is_there = page.used & bit_of(number) != 0;
        let rank = page.rank(number);
        is_there.then(|| &mut page.values[rank])
    }

    /// The value of a number; it is made if there is none.
    pub(super) fn find_or_add(&mut self, number: u64, make: impl FnOnce() -> T) -> &mut T {
        let at = self.page_of(number).unwrap_or_else(|at| {
            // A million of these are mostly of one value each: no room for four.
            let values = VecDeque::with_capacity(1);
            let page = Page { head: head_of(number), used: 0, values };
            if self.pages.is_empty() {
                self.pages.reserve_exact(1);
            }
            self.pages.insert(at, page);
            at
        });
        let page = &mut self.pages[at];
        let rank = page.rank(number);
        if page.used & bit_of(number) == 0 {
            page.values.insert(rank, make());
            page.used |= bit_of(number);
            self.len += 1;
        }
        &mut page.values[rank]
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let at = self.page_of(number).ok()?;
        let page = &mut self.pages[at];
        if page.used & bit_of(number) == 0 {
            return None;
        }
        let value = page.values.remove(page.rank(number));
        page.used &= !bit_of(number);
        self.len -= 1;
        if page.used == 0 {
            self.pages.remove(at);
        }
        value
    }

    /// The least number.
    pub(super) fn first(&self) -> Option<u64> {
        self.pages.front()?.numbers().next()
    }

    /// All, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.pages.iter().flat_map(|page| page.numbers().zip(&page.values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A rack is a map: with random numbers, far apart and close together, it
    /// gives what a tree gives.
    #[test]
    fn a_rack_is_a_map() {
        let mut seed = 11_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let (mut rack, mut map) = (Rack::default(), BTreeMap::new());
        for round in 0..20_000_u64 {
            let wide = if round % 4_000 < 2_000 { 300 } else { 100_000 };
            let number = match random(8) {
                0 => u64::MAX - random(100),
                _ => random(wide),
            };
            match random(3) {
                0 => assert_eq!(rack.remove(number), map.remove(&number), "round {round}"),
                1 => {
                    let value = rack.find_or_add(number, || round);
                    assert_eq!(value, map.entry(number).or_insert(round), "round {round}");
                    *value += 1;
                    map.entry(number).and_modify(|value| *value += 1);
                }
                _ => {
                    assert_eq!(rack.find(number), map.get(&number), "round {round}");
                    assert_eq!(rack.find_mut(number), map.get_mut(&number), "round {round}");
                }
            }
            assert_eq!(rack.len(), map.len());
            if round % 100 == 0 {
                assert_eq!(rack.first(), map.keys().next().copied());
                assert!(rack.iter().eq(map.iter().map(|(number, value)| (*number, value))));
            }
        }
    }
}
