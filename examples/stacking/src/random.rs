//! A small seeded generator, so that the same seed writes the same bytes.
//!
//! xoshiro256++ by Blackman and Vigna, its state filled by splitmix64 as its authors advise. Each
//! image has a stream of its own, so images can be made in any order and by any number of threads.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: [u64; 4],
    spare_normal: Option<f64>,
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Random {
    /// The stream numbered `stream` of `seed`; streams of one seed are independent of each other.
    pub(crate) fn seeded(seed: u64, stream: u64) -> Random {
        let mut outer = seed;
        let mut inner = splitmix(&mut outer) ^ stream;
        Random { state: std::array::from_fn(|_| splitmix(&mut inner)), spare_normal: None }
    }

    /// The next 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// Uniform in `low..high`.
    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        // The upper 53 bits fill the mantissa of a number in 0..1.
        let unit = (self.bits() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64);
        low + (high - low) * unit
    }

    /// Uniform in `0..bound`; 0 for a bound of 0. The bias of the multiplication is below 2⁻³².
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// Normal with mean 0 and standard deviation 1 (Marsaglia's polar method).
    pub(crate) fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare_normal.take() {
            return spare;
        }
        loop {
            let (x, y) = (self.between(-1.0, 1.0), self.between(-1.0, 1.0));
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let factor = (-2.0 * square.ln() / square).sqrt();
                self.spare_normal = Some(y * factor);
                return x * factor;
            }
        }
    }

    /// Puts `items` in random order (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_reference_implementation() {
        // First outputs of xoshiro256++ 1.0 for the state 1, 2, 3, 4.
        let mut random = Random { state: [1, 2, 3, 4], spare_normal: None };
        let outputs: Vec<u64> = (0..4).map(|_| random.bits()).collect();
        assert_eq!(outputs, [41943041, 58720359, 3588806011781223, 3591011842654386]);
    }

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |seed, stream| Random::seeded(seed, stream).bits();
        assert_eq!(draw(7, 1), draw(7, 1));
        assert_ne!(draw(7, 1), draw(7, 2));
        assert_ne!(draw(7, 1), draw(8, 1));
    }

    #[test]
    fn normal_numbers_have_the_moments_of_a_normal_distribution() {
        let mut random = Random::seeded(1, 0);
        let count = 200_000;
        let mut sums = [0.0; 4];
        for _ in 0..count {
            let value = random.normal();
            for (power, sum) in sums.iter_mut().enumerate() {
                *sum += value.powi(power as i32 + 1);
            }
        }
        let moments = sums.map(|sum| sum / f64::from(count));
        // Variances of the powers of a standard normal number: 1, 2, 15, 96.
        for (moment, (mean, variance)) in
            moments.iter().zip([(0.0, 1.0), (1.0, 2.0), (0.0, 15.0), (3.0, 96.0_f64)])
        {
            let error = (variance / f64::from(count)).sqrt();
            assert!((moment - mean).abs() < 5.0 * error, "{moments:?}");
        }
    }

    #[test]
    fn shuffling_keeps_every_item() {
        let mut items: Vec<usize> = (0..100).collect();
        Random::seeded(3, 0).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
