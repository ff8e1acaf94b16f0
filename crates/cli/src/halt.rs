//! `--halt`: when a run ends before all of its tasks have.

use falkon_core::result::Counts;
use std::str::FromStr;

/// The ended tasks that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Failed,
    Succeeded,
    Any,
}

/// How many are enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Enough {
    Tasks(u64),
    /// Of all tasks of the run.
    Percent(u64),
}

/// A run ends, and its other tasks are cancelled, as soon as so many tasks have ended so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Halt {
    ended: Ended,
    enough: Enough,
}

/// Why a text says no such thing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HaltError {
    /// Not a condition.
    #[error(
        "`{0}` is no condition: write now,fail=N, now,success=N or now,done=N, where N is a number \
         of tasks or a percentage, such as 3 or 10%"
    )]
    Malformed(String),
    /// GNU parallel's `soon`.
    #[error("running tasks are cancelled as well: write now{rest} instead of soon{rest}")]
    Soon {
        /// What follows the word.
        rest: String,
    },
}

impl FromStr for Halt {
    type Err = HaltError;

    fn from_str(text: &str) -> Result<Halt, HaltError> {
        let malformed = || HaltError::Malformed(text.to_owned());
        if let Some(rest) = text.strip_prefix("soon") {
            return Err(HaltError::Soon { rest: rest.to_owned() });
        }
        let (ended, number) = text
            .strip_prefix("now,")
            .and_then(|rest| rest.split_once('='))
            .ok_or_else(malformed)?;
        let ended = match ended {
            "fail" => Ended::Failed,
            "success" => Ended::Succeeded,
            "done" => Ended::Any,
            _ => return Err(malformed()),
        };
        let number_of = |text: &str| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u64>().ok().filter(|number| is_number && *number > 0).ok_or_else(malformed)
        };
        let enough = match number.strip_suffix('%') {
            Some(percent) => Enough::Percent(number_of(percent)?),
            None => Enough::Tasks(number_of(number)?),
        };
        match enough {
            Enough::Percent(101..) => Err(malformed()),
            enough => Ok(Halt { ended, enough }),
        }
    }
}

impl Halt {
    /// Whether enough of a run's `total` tasks have ended so.
    pub(crate) fn is_reached(self, counts: &Counts, total: u64) -> bool {
        let ended = match self.ended {
            Ended::Failed => counts.failed,
            Ended::Succeeded => counts.done,
            Ended::Any => counts.failed.saturating_add(counts.done),
        };
        match self.enough {
            Enough::Tasks(tasks) => ended >= tasks,
            // Both are far below 2^64.
            Enough::Percent(percent) => {
                ended > 0 && u128::from(ended) * 100 >= u128::from(percent) * u128::from(total)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_and_reached() {
        let counts = Counts { done: 7, failed: 2, cancelled: 50, ..Counts::default() };
        for (text, is_reached) in [
            ("now,fail=1", true),
            ("now,fail=2", true),
            ("now,fail=3", false),
            ("now,success=7", true),
            ("now,success=8", false),
            ("now,done=9", true),
            ("now,done=10", false),
            ("now,fail=2%", true),
            ("now,fail=3%", false),
            ("now,done=9%", true),
        ] {
            let halt: Halt = text.parse().unwrap();
            assert_eq!(halt.is_reached(&counts, 100), is_reached, "{text}");
            assert!(!halt.is_reached(&Counts::default(), 0), "{text}");
        }
        for text in [
            "",
            "now",
            "now,fail",
            "now,fail=0",
            "now,fail=-1",
            "now,fail=+1",
            "now,x=1",
            "now,fail=101%",
            "fail=1",
        ] {
            assert_eq!(text.parse::<Halt>(), Err(HaltError::Malformed(text.to_owned())), "{text}");
        }
        let soon = "soon,fail=1".parse::<Halt>().unwrap_err().to_string();
        assert!(soon.contains("write now,fail=1"), "{soon}");
    }
}
