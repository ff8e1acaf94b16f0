//! The dispatch policies against literal transcriptions of the paper's
//! pseudo-code (of `queue-aware`: of its own description), and on its workload.

mod agreement;
mod beyond;
mod fetch;
mod offered;
mod oracle;
mod workload;

/// A small generator of numbers: the same seed gives the same numbers.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
