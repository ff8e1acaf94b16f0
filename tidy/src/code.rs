//! Rust text without its comments and literals, so that rules see code only.

/// `text` with comments, strings and characters blanked out; lines stay where
/// they are.
#[must_use]
pub fn bare(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = at + literal(&bytes[at..], at.checked_sub(1).map(|before| bytes[before]));
        if end == at {
            out.push(bytes[at]);
            at += 1;
            continue;
        }
        out.extend(bytes[at..end].iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The length of the comment or literal that `rest` begins with; 0 if it
/// begins with neither.
fn literal(rest: &[u8], before: Option<u8>) -> usize {
    let line = || rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    match rest {
        [b'/', b'/', ..] => line(),
        [b'/', b'*', ..] => block_comment(rest),
        [b'"', ..] => 1 + quoted(&rest[1..], b'"'),
        [b'\'', b'\\', ..] => 1 + quoted(&rest[1..], b'\''),
        // One character of any length between quotes; else it is a lifetime.
        [b'\'', ..] => {
            let close = rest[1..].iter().take(5).position(|byte| *byte == b'\'');
            let text = close.and_then(|close| std::str::from_utf8(&rest[1..=close]).ok());
            text.filter(|text| text.chars().count() == 1).map_or(0, |text| text.len() + 2)
        }
        [b'r', b'"' | b'#', ..] if !before.is_some_and(is_word) || before == Some(b'b') => {
            raw(rest)
        }
        _ => 0,
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of what is left of a literal, with its closing quote.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 0;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a raw string; 0 if it is a raw identifier.
fn raw(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let close = [&b"\""[..], &vec![b'#'; hashes]].concat();
    let from = hashes + 2;
    let end = rest[from..].windows(close.len()).position(|window| window == close);
    end.map_or(rest.len(), |end| from + end + close.len())
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The words of a line with the column at which each begins.
pub fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left() {
        for (text, expected) in [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("x // y", z)"#, "f(        , z)"),
            (r#"f("\"", z)"#, "f(    , z)"),
            ("f('\"', '\\'', 'a, z)", "f(   ,     , 'a, z)"),
            ("'é' b'x'", "     b   "),
            ("r#\"a \"b\" \"# r#type br\"x\" for\"y\"", "            r#type b     for   "),
            ("\"a\nb\" c", "  \n   c"),
        ] {
            assert_eq!(bare(text), expected, "{text}");
        }
    }
}
