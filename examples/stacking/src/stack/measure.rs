//! What a stack says about its source: brightness, noise, and how the signal-to-noise grows.
//!
//! **The estimator.** A stack of n cut-outs is their mean, weighted by 1/noise². It is the source's
//! peak times a template, upon a plane of sky, with white noise. The template is the point spread
//! function as the stack must show it: the weighted mean of the Gaussians at the places where the
//! objects really are in their cut-outs, a fraction of a pixel from the middle. Made orthogonal to
//! all planes it becomes the matched filter f; the peak is ⟨f, stack⟩ / ⟨f, f⟩, and its standard
//! error is the noise of a pixel over √⟨f, f⟩. One filter serves all n. The noise of a pixel is
//! measured off the source, about a plane, in the very stack.
//!
//! **Groups.** For each n the cut-outs are dealt out, in a fixed random order, to as many stacks of
//! n as there are, and the measurements are averaged: a single stack of a few frames shows nothing
//! but noise. The order mixes objects and images.
//!
//! **The slope's error.** ln(S/N) is fitted against ln n by a straight line. The points are not
//! independent, since all are made of the same cut-outs, but their covariances are known. A noise
//! variance is a quadratic form of white noise; two of them, over groups a of one n and groups b of
//! another, have the relative covariance 2/d · Σ (u_a·u_b)² / (G_a G_b), with d the degrees of
//! freedom of the sky's pixels, G the numbers of groups, and u the unit vectors of the groups'
//! weights (√w_i / √Σw). The mean signals differ only by the cut-outs left over when n does not
//! divide the total; their covariance is 1 / (⟨f, f⟩ Σw), over the larger of both sets. Both
//! together give the standard error of the slope.

use std::ops::Range;

use crate::cut::{is_sky, places};

/// With fewer cut-outs there are too few points for a slope.
pub(crate) const MEMBERS_MIN: usize = 16;
/// The scatter among fewer groups than this says too little.
const SCATTER_GROUPS_MIN: usize = 32;
/// A plane's parameters, taken off the degrees of freedom of the sky's pixels.
const PLANE_PARAMETERS: f64 = 3.0;

/// A cut-out as the measurement sees it.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// Sky-subtracted pixels, rows from the lowest on.
    pub(crate) pixels: Vec<f32>,
    /// Where the object is, in pixels from the middle pixel's centre.
    pub(crate) offset_px: [f64; 2],
    /// Standard deviation of the point spread function.
    pub(crate) sigma_px: f64,
    /// 1/noise² as measured.
    pub(crate) weight: f64,
    /// The noise of a pixel as the image's header says.
    pub(crate) nominal_noise: f64,
    /// The object's peak by the catalogue.
    pub(crate) true_peak: f64,
}

/// The measurements on stacks of `n` cut-outs, averaged over all groups of n.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Level {
    pub(crate) n: usize,
    pub(crate) groups: usize,
    /// The peak's mean over the groups.
    pub(crate) signal: f64,
    /// The peak's standard error in one group, by the pixels off the source.
    pub(crate) noise: f64,
    /// The same by the scatter of the peaks among the groups, where these are many.
    pub(crate) scatter: Option<f64>,
    /// Signal-to-noise by the true peak and the nominal noise: that of one frame times √n.
    pub(crate) expected_sn: f64,
}

impl Level {
    /// Signal-to-noise as measured.
    pub(crate) fn sn(&self) -> f64 {
        self.signal / self.noise
    }

    /// The relative standard error of `scatter` over `noise`, by the theory of samples.
    pub(crate) fn scatter_error(&self, sky_freedom: f64) -> f64 {
        let groups = self.groups as f64;
        (0.5 / (groups - 1.0) + 0.5 / (groups * sky_freedom)).sqrt()
    }
}

/// A straight line's slope.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slope {
    pub(crate) value: f64,
    pub(crate) error: f64,
}

/// A stack of some of the cut-outs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stack {
    pub(crate) n: usize,
    /// The weighted mean.
    pub(crate) pixels: Vec<f64>,
    /// The sum of the weights.
    weight: f64,
    pub(crate) peak: f64,
    /// Standard deviation of a pixel off the source.
    pub(crate) pixel_noise: f64,
    /// The peak's standard error.
    pub(crate) peak_error: f64,
}

/// All that is measured.
#[derive(Clone, Debug)]
pub(crate) struct Measurement {
    pub(crate) levels: Vec<Level>,
    /// `None` if the signal is not above zero.
    pub(crate) slope: Option<Slope>,
    /// The stack of everything.
    pub(crate) whole: Stack,
    /// The peak that the stack of everything has by the catalogue.
    pub(crate) true_peak: f64,
    /// Relative standard error of the last level's signal-to-noise.
    pub(crate) sn_error: f64,
    /// Degrees of freedom of the noise in one stack.
    pub(crate) sky_freedom: f64,
}

/// The matched filter for a set of cut-outs of one size.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    size_px: usize,
    /// The template without its plane.
    weights: Vec<f64>,
    /// ⟨f, f⟩
    norm: f64,
    /// The sky's pixels: index, and x and y from the middle.
    sky: Vec<(usize, f64, f64)>,
    /// Σ x² = Σ y² over the sky's pixels, from the middle.
    sky_moment: f64,
}

impl Filter {
    /// The filter for a weighted mean of `members`, which are `size_px` wide.
    pub(crate) fn new(members: &[Member], size_px: usize) -> Filter {
        let mut template = vec![0.0; size_px * size_px];
        let total: f64 = members.iter().map(|member| member.weight).sum();
        for member in members {
            for (sum, value) in template.iter_mut().zip(point_source(member, size_px)) {
                *sum += value * member.weight / total;
            }
        }
        let (mut sums, mut moment) = ([0.0; 3], 0.0);
        for ((x, y), value) in places(size_px).zip(&template) {
            sums = [sums[0] + value, sums[1] + x * value, sums[2] + y * value];
            moment += x * x;
        }
        // The places lie symmetrically about the middle, so 1, x and y are orthogonal already.
        let [level, slope_x, slope_y] =
            [sums[0] / template.len() as f64, sums[1] / moment, sums[2] / moment];
        let weights: Vec<f64> = places(size_px)
            .zip(template)
            .map(|((x, y), value)| value - level - slope_x * x - slope_y * y)
            .collect();
        let sky: Vec<(usize, f64, f64)> = places(size_px)
            .enumerate()
            .filter(|(_, (x, y))| is_sky(size_px, *x, *y))
            .map(|(index, (x, y))| (index, x, y))
            .collect();
        Filter {
            size_px,
            norm: weights.iter().map(|weight| weight * weight).sum(),
            weights,
            sky_moment: sky.iter().map(|(_, x, _)| x * x).sum(),
            sky,
        }
    }

    /// Stacks some cut-outs and measures the result.
    pub(crate) fn stack(&self, members: &[Member]) -> Stack {
        let weight: f64 = members.iter().map(|member| member.weight).sum();
        let mut pixels = vec![0.0; self.size_px * self.size_px];
        for member in members {
            for (sum, value) in pixels.iter_mut().zip(&member.pixels) {
                *sum += member.weight * f64::from(*value);
            }
        }
        for pixel in &mut pixels {
            *pixel /= weight;
        }
        let peak = self.respond(&pixels) / self.norm;
        let pixel_noise = self.sky_variance(&pixels).sqrt();
        let peak_error = pixel_noise / self.norm.sqrt();
        Stack { n: members.len(), pixels, weight, peak, pixel_noise, peak_error }
    }

    fn respond(&self, pixels: &[f64]) -> f64 {
        self.weights.iter().zip(pixels).map(|(weight, pixel)| weight * pixel).sum()
    }

    fn sky_freedom(&self) -> f64 {
        self.sky.len() as f64 - PLANE_PARAMETERS
    }

    /// The variance of the sky's pixels about their plane.
    fn sky_variance(&self, pixels: &[f64]) -> f64 {
        let (mut sum, mut squares, mut along_x, mut along_y) = (0.0, 0.0, 0.0, 0.0);
        for &(index, x, y) in &self.sky {
            let pixel = pixels[index];
            sum += pixel;
            squares += pixel * pixel;
            along_x += x * pixel;
            along_y += y * pixel;
        }
        // The sky's pixels lie symmetrically too.
        let along = (along_x * along_x + along_y * along_y) / self.sky_moment;
        let plane = sum * sum / self.sky.len() as f64 + along;
        (squares - plane).max(0.0) / self.sky_freedom()
    }
}

/// Measures everything. The members, at least [`MEMBERS_MIN`], are taken in the order given.
pub(crate) fn measure(members: &[Member], size_px: usize) -> Measurement {
    let filter = Filter::new(members, size_px);
    let total = members.len();
    let whole = filter.stack(members);
    // What the same filter, applied in the same way, finds in a stack without noise.
    let true_peak = members
        .iter()
        .map(|member| {
            let source: Vec<f64> = point_source(member, size_px).collect();
            member.weight * member.true_peak * filter.respond(&source)
        })
        .sum::<f64>()
        / (whole.weight * filter.norm);
    let information: f64 = members.iter().map(|member| member.nominal_noise.powi(-2)).sum();
    let single_sn = true_peak * (filter.norm * information / total as f64).sqrt();
    let mut sizes: Vec<usize> = std::iter::successors(Some(1_usize), |n| n.checked_mul(2))
        .take_while(|n| *n <= total)
        .collect();
    if sizes.last() != Some(&total) {
        sizes.push(total);
    }
    let levels: Vec<Level> = sizes
        .into_iter()
        .map(|n| level(&filter, members, n, single_sn * (n as f64).sqrt()))
        .collect();
    let errors = Covariance::new(&filter, members, whole.peak);
    Measurement {
        slope: fit_slope(&levels, &errors),
        sn_error: errors.of(total, total).sqrt(),
        levels,
        true_peak,
        whole,
        sky_freedom: filter.sky_freedom(),
    }
}

/// A point source of peak 1 where a cut-out has its object.
fn point_source(member: &Member, size_px: usize) -> impl Iterator<Item = f64> + use<> {
    let ([x0, y0], sigma) = (member.offset_px, member.sigma_px);
    places(size_px).map(move |(x, y)| {
        let (dx, dy) = (x - x0, y - y0);
        (-(dx * dx + dy * dy) / (2.0 * sigma * sigma)).exp()
    })
}

fn level(filter: &Filter, members: &[Member], n: usize, expected_sn: f64) -> Level {
    let groups: Vec<Stack> = members.chunks_exact(n).map(|group| filter.stack(group)).collect();
    let count = groups.len() as f64;
    let weight: f64 = groups.iter().map(|group| group.weight).sum();
    let mean = |value: &dyn Fn(&Stack) -> f64| {
        groups.iter().map(|group| group.weight * value(group)).sum::<f64>() / weight
    };
    let signal = mean(&|group| group.peak);
    // Means weighted like this make unequal noise average out alike for every n.
    let noise = mean(&|group| group.peak_error.powi(2)).sqrt();
    let spread = mean(&|group| (group.peak - signal).powi(2));
    let scatter =
        (groups.len() >= SCATTER_GROUPS_MIN).then(|| (spread * count / (count - 1.0)).sqrt());
    Level { n, groups: groups.len(), signal, noise, scatter, expected_sn }
}

/// The covariances of ln(S/N) between levels.
struct Covariance {
    /// Sums of the weights of the first members: of none, of one, of two, …
    weight_sums: Vec<f64>,
    sky_freedom: f64,
    /// ⟨f, f⟩ times the square of the peak.
    signal_norm: f64,
}

impl Covariance {
    fn new(filter: &Filter, members: &[Member], peak: f64) -> Covariance {
        let mut weight_sums = vec![0.0];
        let mut sum = 0.0;
        weight_sums.extend(members.iter().map(|member| {
            sum += member.weight;
            sum
        }));
        let signal_norm = filter.norm * peak * peak;
        Covariance { weight_sums, sky_freedom: filter.sky_freedom(), signal_norm }
    }

    /// The covariance between groups of n and groups of m.
    fn of(&self, n: usize, m: usize) -> f64 {
        let total = self.weight_sums.len() - 1;
        let used = |n: usize| total / n * n;
        let signal = 1.0 / (self.signal_norm * self.weight(0..used(n).max(used(m))));
        signal + 0.5 * self.overlap(n, m) / self.sky_freedom
    }

    fn weight(&self, members: Range<usize>) -> f64 {
        self.weight_sums[members.end] - self.weight_sums[members.start]
    }

    /// Σ (u_a·u_b)² / (G_a G_b) over the pairs of groups that share members.
    fn overlap(&self, n: usize, m: usize) -> f64 {
        let total = self.weight_sums.len() - 1;
        let (groups_n, groups_m) = (total / n, total / m);
        let mut sum = 0.0;
        for a in 0..groups_n {
            let of_n = a * n..(a + 1) * n;
            let last = ((of_n.end - 1) / m).min(groups_m - 1);
            for b in of_n.start / m..=last {
                let of_m = b * m..(b + 1) * m;
                let shared = of_n.start.max(of_m.start)..of_n.end.min(of_m.end);
                let product = self.weight(of_n.clone()) * self.weight(of_m);
                sum += self.weight(shared).powi(2) / product;
            }
        }
        sum / (groups_n * groups_m) as f64
    }
}

/// Fits ln(S/N) against ln n. All points count alike: a floor of noise that does not average out
/// shows at large n, where the points are least certain.
fn fit_slope(levels: &[Level], errors: &Covariance) -> Option<Slope> {
    if levels.iter().any(|level| level.signal <= 0.0) {
        return None;
    }
    let places: Vec<f64> = levels.iter().map(|level| (level.n as f64).ln()).collect();
    let mean = places.iter().sum::<f64>() / places.len() as f64;
    let spread: f64 = places.iter().map(|place| (place - mean).powi(2)).sum();
    let factors: Vec<f64> = places.iter().map(|place| (place - mean) / spread).collect();
    let value = levels.iter().zip(&factors).map(|(level, factor)| factor * level.sn().ln()).sum();
    let mut variance = 0.0;
    for (a, factor_a) in levels.iter().zip(&factors) {
        for (b, factor_b) in levels.iter().zip(&factors) {
            variance += factor_a * factor_b * errors.of(a.n, b.n);
        }
    }
    Some(Slope { value, error: variance.sqrt() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const SIZE_PX: usize = 21;

    /// Cut-outs of sources of peak about 3 with white noise about 5.
    fn members(seed: u64, count: usize) -> Vec<Member> {
        let mut random = Random::seeded(seed, 0);
        (0..count)
            .map(|_| {
                let noise = random.between(4.0, 6.0);
                let mut member = Member {
                    pixels: Vec::new(),
                    offset_px: [random.between(-0.5, 0.5), random.between(-0.5, 0.5)],
                    sigma_px: 1.2,
                    weight: noise.powi(-2),
                    nominal_noise: noise,
                    true_peak: random.between(2.5, 3.5),
                };
                member.pixels = point_source(&member, SIZE_PX)
                    .map(|source| (member.true_peak * source + noise * random.normal()) as f32)
                    .collect();
                member
            })
            .collect()
    }

    /// The mean square of what should be standard normal numbers must be 1 within its error.
    fn assert_unit_variance(what: &str, deviates: &[f64]) {
        let count = deviates.len() as f64;
        let mean = deviates.iter().sum::<f64>() / count;
        let square = deviates.iter().map(|deviate| deviate * deviate).sum::<f64>() / count;
        assert!(mean.abs() < 5.0 / count.sqrt(), "{what}: mean {mean}");
        assert!((square - 1.0).abs() < 5.0 * (2.0 / count).sqrt(), "{what}: mean square {square}");
    }

    #[test]
    fn the_errors_that_are_stated_are_the_errors_that_are_made() {
        let (mut slopes, mut peaks, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for seed in 0..120 {
            // A number that no power of two divides well: the left-over members count too.
            let measured = measure(&members(seed, 90), SIZE_PX);
            let slope = measured.slope.unwrap();
            slopes.push((slope.value - 0.5) / slope.error);
            peaks.push((measured.whole.peak - measured.true_peak) / measured.whole.peak_error);
            let last = measured.levels.last().unwrap();
            ratios.push((last.sn() / last.expected_sn).ln() / measured.sn_error);
        }
        assert_unit_variance("slope", &slopes);
        assert_unit_variance("peak", &peaks);
        assert_unit_variance("signal-to-noise", &ratios);
    }

    #[test]
    fn the_scatter_among_groups_confirms_the_noise_off_the_source() {
        let mut deviates = Vec::new();
        for seed in 0..100 {
            let measured = measure(&members(seed + 1000, 128), SIZE_PX);
            let level = measured.levels[0];
            let ratio = level.scatter.unwrap() / level.noise;
            deviates.push((ratio - 1.0) / level.scatter_error(measured.sky_freedom));
        }
        // The objects' peaks differ, which adds a little to their scatter.
        let mean = deviates.iter().sum::<f64>() / 100.0;
        assert!(mean.abs() < 0.7, "{mean}");
    }

    #[test]
    fn a_pattern_that_does_not_average_out_shows_in_the_slope() {
        let mut members = members(1, 512);
        for member in &mut members {
            for (k, pixel) in member.pixels.iter_mut().enumerate() {
                *pixel += if k % 2 == 0 { 0.3 } else { -0.3 };
            }
        }
        let slope = measure(&members, SIZE_PX).slope.unwrap();
        assert!(slope.value < 0.5 - 4.0 * slope.error, "{slope:?}");
    }

    #[test]
    fn a_plane_of_sky_changes_nothing() {
        let plain = members(1, 64);
        let mut tilted = plain.clone();
        for member in &mut tilted {
            for ((x, y), pixel) in places(SIZE_PX).zip(&mut member.pixels) {
                *pixel += (10.0 + 0.5 * x - 0.25 * y) as f32;
            }
        }
        let (plain, tilted) = (measure(&plain, SIZE_PX), measure(&tilted, SIZE_PX));
        assert!((plain.whole.peak - tilted.whole.peak).abs() < 1e-5);
        assert!((plain.slope.unwrap().value - tilted.slope.unwrap().value).abs() < 1e-5);
    }

    #[test]
    fn without_a_signal_there_is_no_slope() {
        let mut members = members(1, 64);
        for member in &mut members {
            let dark: Vec<f32> = point_source(member, SIZE_PX).map(|s| -10.0 * s as f32).collect();
            member.pixels.iter_mut().zip(dark).for_each(|(pixel, dark)| *pixel += dark);
        }
        assert_eq!(measure(&members, SIZE_PX).slope, None);
    }
}
