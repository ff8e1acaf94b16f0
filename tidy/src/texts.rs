//! Nothing decides by a sentence: the text of an error is for people, and what a
//! program is to decide by travels as a variant beside it.

use crate::Finding;
use crate::code::bare;
use crate::tree::File;

/// Names that texts of errors have.
const TEXTS: [&str; 10] = [
    "error",
    "err",
    "exception",
    "raised",
    "traceback",
    "message",
    "reason",
    "trouble",
    "complaint",
    // In Python alone, where what is parsed has other names.
    "text",
];
/// Calls that look into a text.
const RUST: [&str; 9] = [
    "contains",
    "starts_with",
    "ends_with",
    "strip_prefix",
    "strip_suffix",
    "split_once",
    "matches",
    "find",
    "rfind",
];
const PYTHON: [&str; 10] = [
    "startswith",
    "endswith",
    "removeprefix",
    "removesuffix",
    "partition",
    "rpartition",
    "split",
    "find",
    "index",
    "count",
];
/// Calls between a value and its text.
const CONVERSIONS: [&str; 7] =
    ["to_string()", "as_str()", "as_deref()", "as_ref()", "trim()", "lower()", "strip()"];

/// The mark that a look into the text of another program needs on the line before.
const MARK: &str = "in words alone";

/// Code that is no test looks into no error's text.
#[must_use]
pub fn no_decision_by_an_error_s_text(file: &File) -> Vec<Finding> {
    let is_test = file.path.contains("/tests/") || file.path.ends_with("/tests.rs");
    let places = match file.path.rsplit('.').next() {
        _ if is_test => Vec::new(),
        Some("rs") if file.path.starts_with("crates/") => in_rust(&file.text),
        Some("py") if file.path.starts_with("python/falkon/") => in_python(&file.text),
        _ => Vec::new(),
    };
    let original: Vec<&str> = file.text.lines().collect();
    let line = |at: &usize| file.text[..*at].matches('\n').count() + 1;
    let is_marked = |line: &usize| *line > 1 && original[line - 2].contains(MARK);
    let what = "an error's text is for people: have what is to be decided by it travel as a \
                variant beside it, or say before that another program gives it `in words alone`";
    let lines = places.iter().map(line).filter(|line| !is_marked(line));
    lines.map(|line| Finding::new(&file.path, line, what)).collect()
}

fn in_rust(text: &str) -> Vec<usize> {
    let code = bare(text);
    // Tests stand last in a file.
    let end = code.find("#[cfg(test)]").unwrap_or(code.len());
    calls(&code[..end], &RUST, &TEXTS[..TEXTS.len() - 1])
}

fn in_python(text: &str) -> Vec<usize> {
    let mut places = calls(text, &PYTHON, &TEXTS);
    for (at, _) in text.match_indices(" in ") {
        let line = &text[text[..at].rfind('\n').map_or(0, |end| end + 1)..at];
        let after = text[at + 4..].strip_prefix("str(").unwrap_or(&text[at + 4..]);
        let end = after.find(|c: char| !is_word(c)).unwrap_or(after.len());
        let (name, rest) = after.split_at(end);
        let is_text = TEXTS.contains(&name) && !rest.starts_with(['.', '[', '(']);
        // Loops, and prose.
        let is_loop = line.contains("for ");
        let is_prose = line.contains('#') || !rest.starts_with([':', ')', ',', '\n']);
        if is_text && !is_loop && !is_prose {
            places.push(at);
        }
    }
    places.sort_unstable();
    places
}

/// Where a function of `names` is called on one of `texts`.
fn calls(code: &str, names: &[&str], texts: &[&str]) -> Vec<usize> {
    let mut places = Vec::new();
    for name in names {
        for (at, _) in code.match_indices(&format!(".{name}(")) {
            if texts.contains(&receiver(&code[..at])) {
                places.push(at);
            }
        }
    }
    places.sort_unstable();
    places
}

/// The name of what a call is made on, whose code ends there: `error` of
/// `self.error.to_string()` and of `str(error)`.
fn receiver(code: &str) -> &str {
    let mut code = code.trim_end();
    while let Some(rest) = CONVERSIONS.iter().find_map(|call| code.strip_suffix(call)) {
        let Some(rest) = rest.strip_suffix('.') else { break };
        code = rest.trim_end();
    }
    let inner = code.strip_suffix(')').unwrap_or(code);
    let start = inner.rfind(|c: char| !is_word(c)).map_or(0, |at| at + 1);
    let is_text = inner.len() == code.len() || inner[..start].ends_with("str(");
    if is_text { &inner[start..] } else { "" }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let file = File { path: path.to_owned(), text: text.to_owned() };
        let found = no_decision_by_an_error_s_text(&file);
        found.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn looks_into_texts_of_errors_are_found_in_rust() {
        let text = "if error.contains(\"x\") {}\nif detail\n    .error\n    .starts_with(\"x\") {}\n\
                    error.to_string().ends_with(\"x\");\nline.starts_with(\"error\");\n\
                    // error.contains(\nerrors.contains(&error);\nof(error).contains(\"x\");\n";
        assert_eq!(lines("crates/a/src/b.rs", text), [1, 4, 5]);
        assert!(lines("crates/a/tests/b.rs", text).is_empty());
        let marked = format!("// The library says it in words alone.\n{text}");
        assert_eq!(lines("crates/a/src/b.rs", &marked), [5, 6]);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{text}}}");
        assert!(lines("crates/a/src/b.rs", &tests).is_empty());
    }

    #[test]
    fn looks_into_texts_of_errors_are_found_in_python() {
        let text = "if error.startswith(\"x\"):\nif marker in error:\nif \"x\" not in str(error):\n\
                    for part in reason:\n# what is in error: nothing\nstr(raised).split(\"x\")\n\
                    if name in messages:\nif marker in text:\n";
        assert_eq!(lines("python/falkon/a.py", text), [1, 2, 3, 6, 8]);
        assert!(lines("python/tests/test_a.py", text).is_empty());
    }
}
