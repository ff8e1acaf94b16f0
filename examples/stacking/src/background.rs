//! The local sky background of a cut-out: a plane, fitted to the pixels away from the object in a
//! way that a star among them does not spoil.

/// Samples further from the fit than this many standard deviations are left out of the next one.
const CLIP_SIGMAS: f64 = 3.0;
/// After so many fits the set of samples is taken as settled.
const FITS_MAX: usize = 8;
/// The standard deviation of a normal distribution over its median absolute deviation.
const SIGMAS_PER_MAD: f64 = 1.4826;
/// A plane through fewer samples says little about the noise.
const SAMPLES_MIN: usize = 16;

/// A pixel: its place, from the point where the level is wanted, and its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) value: f64,
}

/// A plane of sky and the noise upon it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Background {
    /// The plane's height where x = y = 0.
    pub(crate) level: f64,
    /// What it rises by per pixel along x and along y.
    pub(crate) slope: [f64; 2],
    /// The standard deviation of a pixel, by the median absolute deviation.
    pub(crate) noise: f64,
}

impl Background {
    /// The plane's height at a place.
    pub(crate) fn at(&self, x: f64, y: f64) -> f64 {
        self.level + self.slope[0] * x + self.slope[1] * y
    }
}

/// Fits a plane by least squares again and again, each time without the samples that lie too far
/// from the fit before. The first is the median: half of the samples may be anything.
///
/// `None` where there are too few samples, or they do not vary at all.
pub(crate) fn fit(samples: &[Sample]) -> Option<Background> {
    if samples.len() < SAMPLES_MIN || samples.iter().any(|sample| !sample.value.is_finite()) {
        return None;
    }
    let mut values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
    let mut plane = Background { level: median(&mut values), slope: [0.0; 2], noise: 0.0 };
    plane.noise = deviation(samples, &plane, &mut values);
    let mut kept_before = usize::MAX;
    for _ in 0..FITS_MAX {
        let clip = CLIP_SIGMAS * plane.noise;
        let kept = |sample: &&Sample| (sample.value - plane.at(sample.x, sample.y)).abs() <= clip;
        let kept_count = samples.iter().filter(kept).count();
        if kept_count == kept_before || kept_count < SAMPLES_MIN {
            break;
        }
        kept_before = kept_count;
        plane = plane_through(samples.iter().filter(kept))?;
        plane.noise = deviation(samples, &plane, &mut values);
    }
    (plane.noise > 0.0 && plane.noise.is_finite()).then_some(plane)
}

/// The least squares plane, by the normal equations; its noise is left at 0.
fn plane_through<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<Background> {
    // Rows of the symmetric 3 × 3 matrix for (1, x, y), and the right side as a fourth column.
    let mut rows = [[0.0; 4]; 3];
    for sample in samples {
        let terms = [1.0, sample.x, sample.y];
        for (row, term) in rows.iter_mut().zip(terms) {
            for (element, other) in row.iter_mut().zip([1.0, sample.x, sample.y, sample.value]) {
                *element += term * other;
            }
        }
    }
    // The matrix is positive definite unless the places lie on a line, so no pivoting is needed.
    for pivot in 0..3 {
        let pivot_row = rows[pivot];
        for (place, row) in rows.iter_mut().enumerate() {
            if place != pivot {
                let factor = row[pivot] / pivot_row[pivot];
                for (element, above) in row.iter_mut().zip(pivot_row) {
                    *element -= factor * above;
                }
            }
        }
    }
    let [level, slope_x, slope_y] = [0, 1, 2].map(|place| rows[place][3] / rows[place][place]);
    let finite = level.is_finite() && slope_x.is_finite() && slope_y.is_finite();
    finite.then_some(Background { level, slope: [slope_x, slope_y], noise: 0.0 })
}

/// The robust standard deviation about a plane; `buffer` is overwritten.
fn deviation(samples: &[Sample], plane: &Background, buffer: &mut Vec<f64>) -> f64 {
    buffer.clear();
    buffer.extend(samples.iter().map(|s| (s.value - plane.at(s.x, s.y)).abs()));
    SIGMAS_PER_MAD * median(buffer)
}

/// The upper median; 0 for no values. The values are put in another order.
fn median(values: &mut [f64]) -> f64 {
    let middle = values.len() / 2;
    if values.is_empty() {
        return 0.0;
    }
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn samples(random: &mut Random, plane: &Background) -> Vec<Sample> {
        let places = (-20..=20).flat_map(|y| (-20..=20).map(move |x| (f64::from(x), f64::from(y))));
        places
            .map(|(x, y)| Sample { x, y, value: plane.at(x, y) + plane.noise * random.normal() })
            .collect()
    }

    #[test]
    fn a_plane_under_noise_and_a_star_is_found() {
        for seed in 0..100 {
            let mut random = Random::seeded(seed, 0);
            let truth = Background {
                level: random.between(-100.0, 1000.0),
                slope: [random.between(-0.5, 0.5), random.between(-0.5, 0.5)],
                noise: random.between(0.5, 20.0),
            };
            let mut samples = samples(&mut random, &truth);
            for sample in samples.iter_mut().take(60) {
                sample.value += 5000.0;
            }
            let found = fit(&samples).unwrap();
            let error = truth.noise / (samples.len() as f64).sqrt();
            assert!((found.level - truth.level).abs() < 6.0 * error, "seed {seed}: {found:?}");
            for axis in 0..2 {
                let apart = (found.slope[axis] - truth.slope[axis]).abs();
                assert!(apart < 6.0 * error / 11.0, "seed {seed}: {found:?} for {truth:?}");
            }
            assert!((found.noise / truth.noise - 1.0).abs() < 0.25, "seed {seed}: {found:?}");
        }
    }

    #[test]
    fn samples_that_say_nothing_give_nothing() {
        let flat = |value| vec![Sample { x: 1.0, y: 2.0, value }; 100];
        assert_eq!(fit(&[]), None);
        assert_eq!(fit(&flat(1.0)), None);
        assert_eq!(fit(&flat(f64::NAN)), None);
        assert_eq!(fit(&flat(f64::INFINITY)), None);
    }
}
