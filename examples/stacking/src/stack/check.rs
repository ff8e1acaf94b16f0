//! The program's judgement of its own result: is the stack what statistics say it must be?

use std::fmt;

use super::measure::Measurement;

/// A deviation of more standard errors than this is no accident: one in 16,000 would be.
const TOLERANCE_ERRORS: f64 = 4.0;
/// From here on a source counts as found.
const DETECTION_SN: f64 = 5.0;

/// One thing that was checked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Check {
    pub(crate) passed: bool,
    /// What was found and what was wanted.
    pub(crate) finding: String,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.passed { "ok    " } else { "FAILED" }, self.finding)
    }
}

/// Checks a measurement in all respects.
pub(crate) fn check(measured: &Measurement) -> Vec<Check> {
    let mut checks = vec![slope(measured), peak(measured)];
    if let Some(last) = measured.levels.last() {
        let ratio = last.sn() / last.expected_sn;
        let tolerance = TOLERANCE_ERRORS * measured.sn_error;
        checks.push(Check {
            passed: ratio > 0.0 && ratio.ln().abs() <= tolerance,
            finding: format!(
                "S/N of all {}: {:.2}, expected {:.2}; ratio {ratio:.3} (must be 1 within {:.1} %)",
                last.n,
                last.sn(),
                last.expected_sn,
                100.0 * tolerance,
            ),
        });
        checks.push(Check {
            passed: last.sn() >= DETECTION_SN,
            finding: if last.expected_sn < DETECTION_SN {
                format!(
                    "source found: S/N {:.2} (must be {DETECTION_SN} or more, but {} cut-outs are \
                     too few for that; generate more images)",
                    last.sn(),
                    last.n
                )
            } else {
                format!("source found: S/N {:.2} (must be {DETECTION_SN} or more)", last.sn())
            },
        });
    }
    checks.extend(scatter(measured));
    checks
}

fn slope(measured: &Measurement) -> Check {
    let Some(slope) = measured.slope else {
        let finding = "S/N against n: there is no signal above zero".to_owned();
        return Check { passed: false, finding };
    };
    let tolerance = TOLERANCE_ERRORS * slope.error;
    Check {
        // Written so that a slope that is not a number fails.
        passed: (slope.value - 0.5).abs() <= tolerance,
        finding: format!(
            "S/N grows as n^{:.4} ± {:.4} (must be √n: 0.5 within {tolerance:.4}, which is \
             {TOLERANCE_ERRORS} standard errors)",
            slope.value, slope.error
        ),
    }
}

fn peak(measured: &Measurement) -> Check {
    let (peak, error) = (measured.whole.peak, measured.whole.peak_error);
    let apart = (peak - measured.true_peak) / error;
    Check {
        passed: apart.abs() <= TOLERANCE_ERRORS,
        finding: format!(
            "peak: {peak:.3} ± {error:.3}, true {:.3}; {apart:+.2} standard errors apart (must be \
             {TOLERANCE_ERRORS} at most)",
            measured.true_peak
        ),
    }
}

/// The noise off the source must be what the peaks really scatter by; noise that is correlated
/// between pixels would show here. The worst level is reported.
fn scatter(measured: &Measurement) -> Option<Check> {
    let ratios = measured.levels.iter().filter_map(|level| {
        let ratio = level.scatter? / level.noise;
        Some((level, ratio, (ratio - 1.0) / level.scatter_error(measured.sky_freedom)))
    });
    let (level, ratio, apart) = ratios.max_by(|a, b| a.2.abs().total_cmp(&b.2.abs()))?;
    Some(Check {
        passed: apart.abs() <= TOLERANCE_ERRORS,
        finding: format!(
            "peaks scatter by {ratio:.3} of the noise off the source (n = {}, {} groups, the worst \
             of all); {apart:+.2} standard errors from 1 (must be {TOLERANCE_ERRORS} at most)",
            level.n, level.groups
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::stack::measure::{Member, measure};

    /// Measures pure Gaussian noise with a source of peak `peak` that is said to be `claimed`.
    fn measured(peak: f64, claimed: f64, smooth: bool) -> Measurement {
        let mut random = Random::seeded(3, 0);
        let members: Vec<Member> = (0..256)
            .map(|_| {
                let mut noise = 0.0;
                let pixels = crate::cut::places(21).map(|(x, y)| {
                    noise =
                        if smooth { 0.6 * noise + 0.8 * random.normal() } else { random.normal() };
                    (peak * (-(x * x + y * y) / 4.5).exp() + noise) as f32
                });
                Member {
                    pixels: pixels.collect(),
                    offset_px: [0.0; 2],
                    sigma_px: 1.5,
                    weight: 1.0,
                    nominal_noise: 1.0,
                    true_peak: claimed,
                }
            })
            .collect();
        measure(&members, 21)
    }

    fn failed(measured: &Measurement) -> Vec<String> {
        check(measured).into_iter().filter(|check| !check.passed).map(|c| c.finding).collect()
    }

    #[test]
    fn a_good_stack_passes() {
        let failures = failed(&measured(0.3, 0.3, false));
        assert!(failures.is_empty(), "{failures:?}");
    }

    #[test]
    fn a_wrong_brightness_fails() {
        let failures = failed(&measured(0.3, 0.6, false));
        assert!(failures.iter().any(|finding| finding.starts_with("peak:")), "{failures:?}");
    }

    #[test]
    fn an_empty_sky_fails() {
        let failures = failed(&measured(0.0, 0.3, false));
        assert!(failures.iter().any(|finding| finding.starts_with("source found")), "{failures:?}");
    }

    #[test]
    fn correlated_noise_fails() {
        let failures = failed(&measured(0.3, 0.3, true));
        assert!(
            failures.iter().any(|finding| finding.starts_with("peaks scatter")),
            "{failures:?}"
        );
    }
}
