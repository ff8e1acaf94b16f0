//! Amounts as people write them: durations, memory, CPUs, named counts.

use falkon_core::limits::{CAPTURE_BYTES_MAX, NAME_BYTES_MAX};
use falkon_core::task::{AUTO_CPUS, AUTO_MEMORY, AUTO_TIME, DISK, MILLI, UNLIMITED};

/// Microseconds in a second.
const SECOND_MICROS: f64 = 1e6;

/// Why a text is not an amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuantityError {
    /// Not a length of time.
    #[error("`{0}` is not a duration: write seconds (30, 0.5) or units (250ms, 5m, 1h30m, 2d)")]
    Duration(String),
    /// Not the time that a task is expected to run.
    #[error(
        "`{0}` is not a duration: write seconds (30, 0.5) or units (250ms, 5m, 1h30m, 2d), or auto"
    )]
    TaskDuration(String),
    /// Not an amount of memory.
    #[error(
        "`{0}` is not an amount of memory: write bytes or a unit (512MiB, 2GiB, 1.5G; kB, MB and \
         GB count in thousands)"
    )]
    Memory(String),
    /// Not an amount of memory for a task.
    #[error(
        "`{0}` is not an amount of memory: write bytes or a unit (512MiB, 2GiB, 1.5G; kB, MB and \
         GB count in thousands), or auto"
    )]
    TaskMemory(String),
    /// Not a limit on memory.
    #[error(
        "`{0}` is not a limit on memory: write bytes or a unit (512MiB, 2GiB, 1.5G; kB, MB and GB \
         count in thousands), or none"
    )]
    MemoryLimit(String),
    /// Not an amount of disk space.
    #[error(
        "`{0}` is not an amount of disk space: write bytes or a unit (512MiB, 20GiB, 1.5T; kB, MB \
         and GB count in thousands)"
    )]
    Disk(String),
    /// A custom resource with the name of one that has an option of its own.
    #[error("`{DISK}` is no custom resource: it is given as a size, with --disk or --offer-disk")]
    DiskAsCustom,
    /// Not a number of CPUs.
    #[error(
        "`{0}` is not a number of cpus: write a number above 0 with at most three decimals, such \
         as 4 or 0.5"
    )]
    Cpus(String),
    /// Not a number of CPUs for a task.
    #[error(
        "`{0}` is not a number of cpus: write a number above 0 with at most three decimals, such \
         as 4 or 0.5, or auto"
    )]
    TaskCpus(String),
    /// Not `NAME=COUNT`.
    #[error("`{0}` is not a resource: write NAME=COUNT with a whole count, such as licences=2")]
    Resource(String),
    /// Not an amount of data per second.
    #[error("`{0}` is not a bandwidth: write bits or bytes per second (1Gb/s, 125MB/s, 100MiB/s)")]
    Bandwidth(String),
    /// Not an amount of output that can be sent.
    #[error(
        "`{0}` is not an amount of output that can be kept with a result: write a number of bytes \
         up to {CAPTURE_BYTES_MAX}; what is longer goes to a file"
    )]
    Capture(String),
    /// A name of so many bytes, which nobody could show.
    #[error("the name is {0} bytes, and at most {NAME_BYTES_MAX} are kept: choose a shorter one")]
    LongName(usize),
}

/// Splits a number (digits, perhaps with one point) off the front of `text`.
fn number(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if !digits.bytes().any(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((digits.parse().ok()?, rest))
}

/// `value` as a whole number in `0..=u64::MAX`, rounded up: what is asked for
/// is never rounded down to nothing.
fn whole(value: f64) -> Option<u64> {
    // 2^64 is exact in a double; everything below it converts.
    (value.is_finite() && (0.0..18_446_744_073_709_551_616.0).contains(&value))
        .then(|| value.ceil() as u64)
}

/// Microseconds in so many seconds; `None` for what is negative, not finite or
/// beyond 64 bits.
pub(crate) fn seconds_to_micros(seconds: f64) -> Option<u64> {
    // Decimal fractions are not exact in binary: round to a thousandth of a
    // microsecond before rounding up, so that 0.3 s is 300,000 µs.
    let micros = seconds * SECOND_MICROS;
    if micros > 0.0 && micros < 1e12 {
        return whole((micros * 1e3).round() / 1e3).map(|micros| micros.max(1));
    }
    whole(micros)
}

/// How long something is kept, in microseconds; `None` is for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeepFor(pub(crate) Option<u64>);

/// A duration as [`duration_micros`] reads it, or `forever`.
///
/// # Errors
/// The text is neither.
pub(crate) fn keep_for(text: &str) -> Result<KeepFor, QuantityError> {
    match text.trim() {
        "forever" => Ok(KeepFor(None)),
        text => duration_micros(text).map(|micros| KeepFor(Some(micros))),
    }
}

/// Microseconds in a duration: plain seconds (`90`, `0.5`) or numbers with
/// units (`250ms`, `30s`, `1h30m`, `2d`).
///
/// # Errors
/// The text is no such duration, or beyond 64 bits of microseconds.
pub(crate) fn duration_micros(text: &str) -> Result<u64, QuantityError> {
    let mut total = 0u64;
    let add = |seconds| {
        total = total.checked_add(seconds_to_micros(seconds)?)?;
        Some(())
    };
    for_each_part(text, add)?;
    Ok(total)
}

/// Seconds in a duration, as for [`duration_micros`]; parts of a microsecond count.
///
/// # Errors
/// The text is no duration, or not a finite one.
pub(crate) fn duration_seconds(text: &str) -> Result<f64, QuantityError> {
    let mut total = 0.0;
    let add = |seconds| {
        total += seconds;
        f64::is_finite(total).then_some(())
    };
    for_each_part(text, add)?;
    Ok(total)
}

/// Hands out the parts of a duration, in seconds, as long as they are taken.
fn for_each_part(text: &str, mut add: impl FnMut(f64) -> Option<()>) -> Result<(), QuantityError> {
    let wrong = || QuantityError::Duration(text.to_owned());
    let mut rest = text.trim();
    let mut plain = true;
    loop {
        let (value, after) = number(rest).ok_or_else(wrong)?;
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let seconds = match unit {
            "" if plain && after.is_empty() => 1.0,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" | "sec" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86400.0,
            _ => return Err(wrong()),
        };
        add(value * seconds).ok_or_else(wrong)?;
        plain = false;
        if after.is_empty() {
            return Ok(());
        }
        rest = after;
    }
}

/// Bytes in an amount of memory: plain bytes, or a number with a unit. `KiB`,
/// `MiB`, … and `K`, `M`, … count in 1024s, `kB`, `MB`, … in thousands.
///
/// # Errors
/// The text is no such amount, or beyond 64 bits.
pub(crate) fn memory_bytes(text: &str) -> Result<u64, QuantityError> {
    let wrong = || QuantityError::Memory(text.to_owned());
    let (value, unit) = number(text.trim()).ok_or_else(wrong)?;
    let unit = unit.trim_start().to_ascii_lowercase();
    let (prefix, thousands) = match unit.as_str() {
        "" | "b" => ("", false),
        unit => match unit.strip_suffix("ib") {
            Some(prefix) => (prefix, false),
            None => match unit.strip_suffix('b') {
                Some(prefix) => (prefix, true),
                None => (unit, false),
            },
        },
    };
    let power = match prefix {
        "" if unit.is_empty() || unit == "b" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(wrong()),
    };
    let factor: f64 = if thousands { 1000.0 } else { 1024.0 };
    whole(value * factor.powi(power)).ok_or_else(wrong)
}

/// The time that a task is expected to run, in microseconds: as [`duration_micros`], or `auto`.
///
/// # Errors
/// The text is neither.
pub(crate) fn task_duration_micros(text: &str) -> Result<u64, QuantityError> {
    match text {
        "auto" => Ok(AUTO_TIME),
        text => duration_micros(text).map_err(|_| QuantityError::TaskDuration(text.to_owned())),
    }
}

/// The memory that a task holds, in bytes: as [`memory_bytes`], or `auto`.
///
/// # Errors
/// The text is neither.
pub(crate) fn task_memory_bytes(text: &str) -> Result<u64, QuantityError> {
    match text {
        "auto" => Ok(AUTO_MEMORY),
        text => memory_bytes(text).map_err(|_| QuantityError::TaskMemory(text.to_owned())),
    }
}

/// The most memory that a task may have, in bytes: as [`memory_bytes`], or `none`.
///
/// # Errors
/// The text is neither, or no memory at all.
pub(crate) fn memory_limit_bytes(text: &str) -> Result<u64, QuantityError> {
    match text {
        "none" => Ok(UNLIMITED),
        text => (memory_bytes(text).ok().filter(|bytes| *bytes > 0))
            .ok_or_else(|| QuantityError::MemoryLimit(text.to_owned())),
    }
}

/// Bytes of scratch disk space: as [`memory_bytes`].
///
/// # Errors
/// The text is no such amount.
pub(crate) fn disk_bytes(text: &str) -> Result<u64, QuantityError> {
    memory_bytes(text).map_err(|_| QuantityError::Disk(text.to_owned()))
}

/// The CPUs that a task holds, in thousandths: as [`cpus_milli`], or `auto`.
///
/// # Errors
/// The text is neither.
pub(crate) fn task_cpus_milli(text: &str) -> Result<u32, QuantityError> {
    match text {
        "auto" => Ok(AUTO_CPUS),
        text => cpus_milli(text).map_err(|_| QuantityError::TaskCpus(text.to_owned())),
    }
}

/// Thousandths of a CPU in a number of CPUs, which may be a fraction.
///
/// # Errors
/// The number is not above 0, or too large.
pub(crate) fn cpus_milli(text: &str) -> Result<u32, QuantityError> {
    text.trim()
        .parse::<f64>()
        .ok()
        .and_then(cpus_to_milli)
        .ok_or_else(|| QuantityError::Cpus(text.to_owned()))
}

/// Thousandths of a CPU in `cpus`; `None` unless it is above 0, has at most
/// three decimals and is less than [`AUTO_CPUS`].
pub(crate) fn cpus_to_milli(cpus: f64) -> Option<u32> {
    let milli = cpus * f64::from(MILLI);
    let rounded = milli.round();
    let exact = (milli - rounded).abs() < 1e-6 * milli.abs().max(1.0);
    (exact && rounded >= 1.0 && rounded < f64::from(AUTO_CPUS)).then_some(rounded as u32)
}

/// A custom resource, `NAME=COUNT`.
///
/// # Errors
/// There is no name, or the count is not a whole number.
pub(crate) fn resource(text: &str) -> Result<(String, u64), QuantityError> {
    let wrong = || QuantityError::Resource(text.to_owned());
    let (name, count) = text.split_once('=').ok_or_else(wrong)?;
    let name = name.trim();
    if name.is_empty() {
        return Err(wrong());
    }
    if name == DISK {
        return Err(QuantityError::DiskAsCustom);
    }
    Ok((self::name(name)?, count.trim().parse().map_err(|_| wrong())?))
}

/// A name of an instance, an executor or a resource, as a command line gives it.
pub(crate) fn name(text: &str) -> Result<String, QuantityError> {
    match text.len() {
        0..=NAME_BYTES_MAX => Ok(text.to_owned()),
        bytes => Err(QuantityError::LongName(bytes)),
    }
}

/// Bytes of an output stream that are kept with a result.
pub(crate) fn capture_bytes(text: &str) -> Result<u64, QuantityError> {
    let bytes = text.parse().ok().filter(|bytes| *bytes <= CAPTURE_BYTES_MAX);
    bytes.ok_or_else(|| QuantityError::Capture(text.to_owned()))
}

/// An estimate of run time, rounded to within a sixteenth of itself. Tasks
/// that differ only in their estimate by less share a class, and there can be
/// only some hundreds of classes however many tasks give one.
pub(crate) fn coarse_estimate(micros: u64) -> u64 {
    if micros == AUTO_TIME {
        return micros;
    }
    let bits = u64::BITS - micros.leading_zeros();
    let Some(shift) = bits.checked_sub(4).filter(|shift| *shift > 0) else { return micros };
    let half = 1u64 << (shift - 1);
    (micros.saturating_add(half) >> shift) << shift
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_of_a_microsecond_count_where_they_are_meant() {
        for (text, seconds) in [("0.25us", 0.25e-6), ("1h0.5us", 3_600.000_000_5), ("2.5", 2.5)] {
            let read = duration_seconds(text).unwrap();
            assert!((read - seconds).abs() <= 1e-12 * seconds, "{text}: {read}");
        }
        for text in ["", "us", "1x", "-1s", "1s2"] {
            assert!(duration_seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_read() {
        for (text, micros) in [
            ("30", 30_000_000),
            ("30s", 30_000_000),
            ("0.5", 500_000),
            ("0.3", 300_000),
            ("0", 0),
            ("0.0000001", 1),
            ("5m", 300_000_000),
            ("1h30m", 5_400_000_000),
            ("250ms", 250_000),
            ("1d1s", 86_401_000_000),
            ("7us", 7),
        ] {
            assert_eq!(duration_micros(text), Ok(micros), "{text}");
        }
        for text in ["", "s", "-5", "1h30", "5 fortnights", "1e3", ".", "1..2", "nan", "1e400d"] {
            assert_eq!(duration_micros(text), Err(QuantityError::Duration(text.to_owned())));
        }
        assert!(duration_micros("99999999999999999999d").is_err());
    }

    #[test]
    fn memory_is_read() {
        for (text, bytes) in [
            ("12", 12),
            ("12B", 12),
            ("2GiB", 2 << 30),
            ("2G", 2 << 30),
            ("2 gib", 2 << 30),
            ("2GB", 2_000_000_000),
            ("1.5KiB", 1536),
            ("3kB", 3000),
        ] {
            assert_eq!(memory_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["12Q", "", "GiB", "-1", "ib", "1ib", "1iB2", "999999P"] {
            assert_eq!(memory_bytes(text), Err(QuantityError::Memory(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn limits_on_memory_are_read() {
        for (text, bytes) in [("1", 1), ("2GiB", 2 << 30), ("none", UNLIMITED)] {
            assert_eq!(memory_limit_bytes(text), Ok(bytes), "{text}");
        }
        assert_eq!(task_memory_bytes("auto"), Ok(AUTO_MEMORY));
        assert_eq!(task_memory_bytes("1GiB"), Ok(1 << 30));
        let wrong = QuantityError::TaskMemory("Auto".to_owned());
        assert_eq!(task_memory_bytes("Auto"), Err(wrong));
        for text in ["0", "0GiB", "12Q", "", "None", "-1"] {
            let wrong = QuantityError::MemoryLimit(text.to_owned());
            assert_eq!(memory_limit_bytes(text), Err(wrong), "{text}");
        }
    }

    #[test]
    fn disk_space_is_read_and_is_no_custom_resource() {
        assert_eq!(disk_bytes("20GiB"), Ok(20 << 30));
        assert_eq!(disk_bytes("0"), Ok(0));
        for text in ["", "auto", "none", "-1", "20 gigs"] {
            assert_eq!(disk_bytes(text), Err(QuantityError::Disk(text.to_owned())), "{text}");
        }
        assert_eq!(resource("disk=5"), Err(QuantityError::DiskAsCustom));
    }

    #[test]
    fn cpus_and_resources_are_read() {
        assert_eq!(cpus_milli("0.5"), Ok(500));
        assert_eq!(cpus_milli("4"), Ok(4000));
        assert_eq!(cpus_milli("0.1"), Ok(100));
        assert_eq!(cpus_milli("4294967.294"), Ok(AUTO_CPUS - 1));
        for text in ["0", "-1", "", "x", "0.0001", "inf", "nan", "1e20", "auto", "4294967.295"] {
            assert!(cpus_milli(text).is_err(), "{text}");
        }
        assert_eq!(task_cpus_milli("auto"), Ok(AUTO_CPUS));
        assert_eq!(task_duration_micros("auto").map(coarse_estimate), Ok(AUTO_TIME));
        assert_eq!(task_duration_micros("2s"), Ok(2_000_000));
        assert!(task_duration_micros("soon").is_err());
        assert_eq!(task_cpus_milli("0.5"), Ok(500));
        let wrong = QuantityError::TaskCpus("Auto".to_owned());
        assert_eq!(task_cpus_milli("Auto"), Err(wrong));
        assert_eq!(resource("licences=2"), Ok(("licences".to_owned(), 2)));
        for text in ["licences", "=2", "a=-1", "a=1.5"] {
            assert!(resource(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn coarse_estimates_stay_near(micros in any::<u64>()) {
            let coarse = coarse_estimate(micros);
            prop_assert!(coarse.abs_diff(micros) <= micros / 16 + 1);
            prop_assert_eq!(coarse_estimate(coarse), coarse);
        }
    }
}
