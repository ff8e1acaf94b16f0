//! The messages that the page of troubleshooting has as headings are messages of
//! the program.

use crate::Finding;
use crate::tree::File;

/// The page.
pub const PAGE: &str = "docs/troubleshooting.md";
/// What stands for the parts of a message that differ.
const PART: &str = "…";
/// How a heading with a message begins.
const HEADING: &str = "### `";

/// Checks that each heading of the page that is a message is a part of some text of the
/// program's sources.
#[must_use]
pub fn check(files: &[File]) -> Vec<Finding> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        return vec![Finding::new(PAGE, 0, "it is missing")];
    };
    let sources = files.iter().filter(|file| {
        file.path.starts_with("crates/")
            && file.path.ends_with(".rs")
            && !file.path.contains("/tests")
    });
    let texts: Vec<String> = sources.flat_map(|file| literals(&file.text)).collect();
    let lines = page.text.lines().enumerate();
    let headings = lines.filter_map(|(at, line)| Some((at, line.strip_prefix(HEADING)?)));
    let is_known = |heading: &str| {
        let message = heading.trim_end().trim_matches('`').replace("{}", PART);
        let message = message.trim_start_matches(PART).trim_end_matches(PART).trim();
        !message.is_empty() && texts.iter().any(|text| text.contains(message))
    };
    headings
        .filter(|(_, heading)| !is_known(heading))
        .map(|(at, _)| Finding::new(PAGE, at + 1, "no text of the program has this message"))
        .collect()
}

/// The texts in Rust code, with `…` for each value that is put into them.
fn literals(code: &str) -> Vec<String> {
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    // A character that is a quotation mark begins no text.
    let code: String = lines.map(|line| line.replace("'\"'", "' '") + "\n").collect();
    let mut found = Vec::new();
    let mut chars = code.chars();
    while chars.any(|char| char == '"') {
        let mut text = String::new();
        while let Some(char) = chars.next() {
            match char {
                '"' => break,
                '\\' => match chars.next() {
                    // The text goes on in the next line, behind its blanks.
                    Some('\n') => chars = chars.as_str().trim_start().chars(),
                    escaped => text.extend(escaped),
                },
                other => text.push(other),
            }
        }
        found.push(without_values(&text));
    }
    found
}

/// A text with `…` for `{value}`; braces that are doubled stand for themselves, but `{}`
/// is `…` in any case.
fn without_values(text: &str) -> String {
    let mut found = String::new();
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '{' | '}' if chars.peek() == Some(&char) => {
                chars.next();
                found.push(char);
            }
            '{' => {
                chars.by_ref().take_while(|char| *char != '}').for_each(drop);
                found.push_str(PART);
            }
            other => found.push(other),
        }
    }
    found.replace("{}", PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_heading_that_the_program_does_not_print_is_found() {
        let source = file(
            "crates/a/src/lib.rs",
            "#[error(\"cannot run {name}: \\\n         it is {0:?} (see \\\"help\\\")\")]\nput {} there",
        );
        let page =
            "# Page\n### `cannot run …: it is … (see \"help\")`\n### `cannot walk …`\n### `…`\n";
        let found = check(&[source, file(PAGE, page)]);
        let lines: Vec<usize> = found.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [3, 4]);
        assert_eq!(check(&[]).len(), 1);
    }

    #[test]
    fn texts_are_found_with_their_values() {
        assert_eq!(literals(r#"f("a {b} c", '"', "{{d}} {} {{}}")"#), ["a … c", "{d} … …"]);
        assert_eq!(literals("// \"\n\"a \\\n    b\""), ["a b"]);
    }
}
