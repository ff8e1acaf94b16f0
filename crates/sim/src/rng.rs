//! Randomness from a seed: SplitMix64 (Steele, Lea and Flood 2014).

use crate::time::Nanos;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes all bits of a number.
pub(crate) fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A number from 0 to 1, without 1, for the `index`-th thing of a kind that
/// `seed` stands for: the same whenever it is asked for.
pub(crate) fn fraction_of(seed: u64, index: u64) -> f64 {
    fraction(mix(mix(seed).wrapping_add(index.wrapping_add(1).wrapping_mul(STEP))))
}

fn fraction(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// A stream of random numbers.
#[derive(Debug)]
pub(crate) struct Rng {
    state: u64,
}

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng { state: mix(seed) }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// From 0 to 1, without 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        fraction(self.next())
    }

    /// Below `limit`; 0 if that is 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// Up to `longest`.
    pub(crate) fn span(&mut self, longest: Nanos) -> Nanos {
        Nanos(self.below(longest.0.saturating_add(1)))
    }

    /// Exponentially distributed, with this mean.
    pub(crate) fn exponential(&mut self, mean: Nanos) -> Nanos {
        Nanos((-(1.0 - self.fraction()).ln() * mean.0 as f64) as u64)
    }
}
