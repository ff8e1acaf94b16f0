//! XML as LRMs write it: elements with texts; what else there may be in XML is
//! passed over.

use super::{AnswerError, Row};
use crate::lrm::description::Query;

/// The rows: one for each element that the query names, with the texts of the
/// elements within it.
pub(super) fn rows(answer: &str, query: &Query) -> Result<Vec<Row>, AnswerError> {
    let mut rows = Vec::new();
    let mut open: Vec<&str> = Vec::new();
    let mut row: Option<Row> = None;
    let mut rest = answer;
    while let Some((text, after)) = rest.split_once('<') {
        if let (Some(row), Some(name)) = (row.as_mut(), open.last()) {
            for (field, places) in &query.fields {
                if places.iter().any(|place| place == *name) && !text.trim().is_empty() {
                    row.0.entry(*field).or_insert_with(|| unescaped(text.trim()));
                }
            }
        }
        if let Some(after) = after.strip_prefix("!--") {
            rest = after.split_once("-->").ok_or_else(|| unclosed("a comment"))?.1;
            continue;
        }
        let (tag, after) = after.split_once('>').ok_or_else(|| unclosed("a tag"))?;
        rest = after;
        if tag.starts_with(['?', '!']) {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            let name = name.trim();
            if open.pop() != Some(name) {
                return Err(AnswerError::Xml(format!("</{name}> closes nothing")));
            }
            if name == query.rows {
                rows.extend(row.take());
            }
            continue;
        }
        let name = tag.split([' ', '\t', '\n', '\r', '/']).next().unwrap_or_default();
        let closed = tag.ends_with('/');
        if name == query.rows && !closed {
            row = Some(Row::default());
        }
        if !closed {
            open.push(name);
        }
    }
    match open.last() {
        Some(name) => Err(unclosed(&format!("<{name}>"))),
        None => Ok(rows),
    }
}

fn unclosed(what: &str) -> AnswerError {
    AnswerError::Xml(format!("{what} is not closed"))
}

fn unescaped(text: &str) -> String {
    let mut plain = text.to_owned();
    for (escaped, is) in
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")]
    {
        plain = plain.replace(escaped, is);
    }
    plain
}
