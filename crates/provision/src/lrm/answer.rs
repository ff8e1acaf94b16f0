//! The answers of an LRM to a query for its jobs.
//!
//! An answer is text with columns, JSON, or XML; a [`Query`] says which, and
//! where in it is what. Everything else of the answer is passed over.

mod xml;

use super::command::shortened;
use super::description::{Field, Format, Places, Query, States};
use super::job::{Job, State};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Why an answer was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The answer is not JSON.
    #[error("the answer is not JSON: {0}")]
    Json(String),
    /// The answer is not XML.
    #[error("the answer is not XML: {0}")]
    Xml(String),
    /// A row lacks what every job has.
    #[error("the answer was not understood: no {what} in `{row}`")]
    Lacks {
        /// The missing part.
        what: &'static str,
        /// The row, shortened.
        row: String,
    },
}

/// Reads the jobs out of an answer. Several rows of one job are one job, with
/// the most alive of their states; for [`Query::has_parts`] the first row says
/// whether it is over.
///
/// # Errors
/// The answer is not of the query's format, or a row has no job or no state.
pub fn jobs(answer: &str, query: &Query, states: &States) -> Result<Vec<Job>, AnswerError> {
    let rows = match query.format {
        Format::Columns => columns(answer, query),
        Format::Json => json(answer, query)?,
        Format::Xml => xml::rows(answer, query)?,
    };
    let mut jobs: Vec<Job> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    // The state of jobs that have parts: whether they are over, and whether no
    // part has been counted yet.
    let mut wholes: Vec<(bool, bool)> = Vec::new();
    for row in rows {
        let lacks = |what| AnswerError::Lacks { what, row: row.shown() };
        let job = row.at(Field::Job).ok_or_else(|| lacks("job"))?.to_owned();
        let word = row.at(Field::State).ok_or_else(|| lacks("state"))?;
        let reason = row.at(Field::Reason).map(|reason| shortened(reason.as_bytes()));
        let reason = reason.filter(|reason| !matches!(reason.as_str(), "" | "None"));
        let state = match states.of(word) {
            State::Pending => states.waiting(row.at(Field::Hold), reason.as_deref()),
            state => state,
        };
        let found = Job {
            has_reason: reason.is_some(),
            name: row.at(Field::Name).unwrap_or_default().to_owned(),
            state,
            words: reason.map_or_else(|| word.to_owned(), |reason| format!("{word}, {reason}")),
            nodes: row.at(Field::Nodes).and_then(|nodes| nodes.parse().ok()),
            left: row.at(Field::Left).and_then(duration),
            job: job.clone(),
        };
        let Some(at) = places.get(&job) else {
            places.insert(job, jobs.len());
            let nodes = found.nodes.or(query.row_per_node.then_some(1));
            wholes.push((query.has_parts && found.state == State::Ended, query.has_parts));
            jobs.push(Job { nodes, ..found });
            continue;
        };
        let known = &mut jobs[*at];
        let (is_over, is_alone) = &mut wholes[*at];
        if *is_over {
            // The job has failed because a part of it has, which has the
            // reason.
            if found.has_reason && std::mem::take(is_alone) {
                (known.words, known.has_reason) = (found.words, true);
            }
            continue;
        }
        let is_first_part = std::mem::take(is_alone);
        if query.row_per_node {
            known.nodes = known.nodes.map(|nodes| nodes.saturating_add(1));
        }
        let says_more = found.state == known.state && found.has_reason && !known.has_reason;
        if is_first_part || found.state > known.state || says_more {
            (known.state, known.words) = (found.state, found.words);
            known.has_reason = found.has_reason;
        }
    }
    Ok(jobs)
}

/// A row of an answer: what was found where the query said.
#[derive(Debug, Default)]
struct Row(BTreeMap<Field, String>);

impl Row {
    fn at(&self, field: Field) -> Option<&str> {
        self.0.get(&field).map(String::as_str)
    }

    fn shown(&self) -> String {
        let values: Vec<&str> = self.0.values().map(String::as_str).collect();
        values.join(" ").chars().take(200).collect()
    }
}

fn columns(answer: &str, query: &Query) -> Vec<Row> {
    let number = |place: &str| place.parse::<usize>().ok();
    let last = query.fields.values().flat_map(Places::iter).filter_map(number).max();
    let lines = answer.lines().skip(query.skip_lines).filter(|line| !line.trim().is_empty());
    let rows = lines.map(|line| {
        let cells: Vec<&str> = match &query.separator {
            None => line.split_whitespace().collect(),
            // The last column may hold the separator.
            Some(separator) => line.splitn(last.unwrap_or(0) + 1, separator.as_str()).collect(),
        };
        let mut row = Row::default();
        for (field, places) in &query.fields {
            let mut found = places.iter().filter_map(|place| cells.get(number(place)?));
            row.0.extend(found.next().map(|cell| (*field, cell.trim().to_owned())));
        }
        row
    });
    rows.collect()
}

fn json(answer: &str, query: &Query) -> Result<Vec<Row>, AnswerError> {
    let row = |key: Option<&str>, value: &Value| {
        let mut row = Row::default();
        let at = |place: &str| match place.strip_prefix('?') {
            Some(path) => walk(value, path).and(path.rsplit('.').next()).map(str::to_owned),
            None if place == "@key" => key.map(str::to_owned),
            None => walk(value, place).and_then(text),
        };
        for (field, places) in &query.fields {
            row.0.extend(places.iter().find_map(at).map(|found| (*field, found)));
        }
        row
    };
    let mut rows = Vec::new();
    // Some programs say nothing at all where there are no jobs, and a command
    // may be several, each with a document.
    for value in serde_json::Deserializer::from_str(answer).into_iter() {
        let value: Value = value.map_err(|error| AnswerError::Json(error.to_string()))?;
        match walk(&value, &query.rows) {
            Some(Value::Array(found)) => rows.extend(found.iter().map(|value| row(None, value))),
            Some(Value::Object(found)) => {
                rows.extend(found.iter().map(|(key, value)| row(Some(key), value)));
            }
            _ => {}
        }
    }
    Ok(rows)
}

/// The value at a path ([`Query::fields`]); the empty path is the value itself.
fn walk<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let step = |value: &'a Value, name: &str| {
        let Some((name, wanted)) = name.split_once('=') else {
            return match value {
                Value::Array(items) => items.get(name.parse::<usize>().ok()?),
                other => other.get(name),
            };
        };
        let is_it = |value: &&Value| text(value).as_deref() == Some(wanted);
        match value {
            Value::Array(items) => {
                items.iter().find(|item| item.get(name).is_some_and(|v| is_it(&v)))
            }
            other => other.get(name).filter(is_it),
        }
    };
    path.split('.').filter(|name| !name.is_empty()).try_fold(value, step)
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// A length of time as LRMs write it: seconds, `[[days-]hours:]minutes:seconds`.
fn duration(text: &str) -> Option<Duration> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (days.parse::<u64>().ok()?, clock),
        None => (0, text),
    };
    let parts: Vec<&str> = clock.split(':').collect();
    if parts.len() > 3 {
        return None;
    }
    let mut seconds = 0_u64;
    for part in &parts {
        seconds = seconds.checked_mul(60)?.checked_add(part.parse().ok()?)?;
    }
    Some(Duration::from_secs(days.checked_mul(86_400)?.checked_add(seconds)?))
}

#[cfg(test)]
mod tests {
    use super::duration;
    use std::time::Duration;

    #[test]
    fn lengths_of_time_are_read() {
        let of = |text: &str| duration(text).map(|time| time.as_secs());
        assert_eq!(of("59:59"), Some(3599));
        assert_eq!(of("1-02:03:04"), Some(93_784));
        assert_eq!(of("90"), Some(90));
        for text in ["UNLIMITED", "INVALID", "", "1:2:3:4", "-", "99999999999999999999"] {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(duration("0:00"), Some(Duration::ZERO));
    }
}
