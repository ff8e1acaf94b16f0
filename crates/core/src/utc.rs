//! Times as people read them.

use crate::task::Time;

impl Time {
    /// The time in UTC, to the millisecond, as RFC 3339 has it.
    #[must_use]
    pub fn utc(self) -> String {
        let seconds = self.0 / 1_000_000;
        let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
        let (year, month, day) = date(seconds / 86_400);
        format!(
            "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{:02}.{:03}Z",
            seconds % 60,
            self.0 / 1000 % 1000
        )
    }
}

/// The civil date of a day counted from 1970-01-01 (Howard Hinnant's
/// `civil_from_days`).
pub(crate) fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::{Time, date};

    #[test]
    fn days_become_dates() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(20_778), (2026, 11, 21));
        // Every day of four centuries is the one after the day before.
        let mut last = date(0);
        for day in 1..146_098 {
            let (year, month, of_month) = date(day);
            let next = [(last.0, last.1, last.2 + 1), (last.0, last.1 + 1, 1), (last.0 + 1, 1, 1)];
            assert!(next.contains(&(year, month, of_month)), "{day}: {year}-{month}-{of_month}");
            assert!((1..=12).contains(&month) && (1..=31).contains(&of_month));
            last = (year, month, of_month);
        }
        assert_eq!(last, (2370, 1, 1));
    }

    #[test]
    fn a_time_has_its_hour_and_its_milliseconds() {
        let time = ((20_778 * 24 + 23) * 60 + 58) * 60 + 59;
        assert_eq!(Time(time * 1_000_000 + 987_654).utc(), "2026-11-21T23:58:59.987Z");
        assert_eq!(Time(0).utc(), "1970-01-01T00:00:00.000Z");
    }
}
