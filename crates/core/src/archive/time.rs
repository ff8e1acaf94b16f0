//! Times of members: seconds since 1970, and the date and time of MS-DOS, which
//! has no zone (here UTC), begins in 1980 and counts pairs of seconds.

use crate::utc::date;

const DAY_SECONDS: u64 = 86_400;
/// 1980-01-01T00:00:00Z.
const DOS_FIRST_SECONDS: u64 = 315_532_800;
/// 2107-12-31T23:59:58Z.
const DOS_LAST_SECONDS: u64 = 4_354_819_198;

/// Time and date as MS-DOS has them; the nearest that it can have.
pub(super) fn dos(seconds: u64) -> (u16, u16) {
    let seconds = seconds.clamp(DOS_FIRST_SECONDS, DOS_LAST_SECONDS);
    let (year, month, day) = date(seconds / DAY_SECONDS);
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    let time = hours << 11 | minutes << 5 | (seconds % 60 / 2);
    let date = (year - 1980) << 9 | month << 5 | day;
    (time as u16, date as u16)
}

/// Seconds since 1970 of a time and date of MS-DOS; of an impossible one, some
/// time near it.
pub(super) fn seconds(time: u16, date: u16) -> u64 {
    let (time, date) = (u64::from(time), u64::from(date));
    let (year, month, day) = (1980 + (date >> 9), (date >> 5 & 15).max(1), (date & 31).max(1));
    let days = days_before(year, month) + day - 1;
    days * DAY_SECONDS + (time >> 11) * 3600 + (time >> 5 & 63) * 60 + (time & 31) * 2
}

/// Days from 1970-01-01 to the first of a month (Howard Hinnant's
/// `days_from_civil`).
fn days_before(year: u64, month: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_survives_to_the_pair_of_seconds() {
        for at in (DOS_FIRST_SECONDS..DOS_LAST_SECONDS).step_by(9_999_983) {
            let (time, date) = dos(at);
            assert_eq!(seconds(time, date), at & !1, "{at}");
        }
    }

    #[test]
    fn what_ms_dos_cannot_have_becomes_its_first_or_last() {
        assert_eq!(dos(0), (0, 0x21));
        assert_eq!(seconds(0, 0x21), DOS_FIRST_SECONDS);
        let (time, date) = dos(u64::MAX);
        assert_eq!(seconds(time, date), DOS_LAST_SECONDS);
        for date in 0..=u16::MAX {
            seconds(u16::MAX, date);
        }
    }
}
