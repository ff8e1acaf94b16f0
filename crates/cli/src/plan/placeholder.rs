//! Placeholders: `{}`, `{/}`, `{.}`, `{/.}`, `{//}`, `{#}`, and with the
//! number of a source `{2}`, `{2/}`, … or its name `{column}`, `{column/.}`, …
//! Anything else in braces is itself.

use super::error::PlanError;
use super::source::Name;
use falkon_wire::command::{Form, Piece, Text};

/// One placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placeholder {
    /// `{#}`: the task's number, from 1.
    Number,
    /// The value of one source (from 0), or of all of them, joined by spaces.
    Value {
        /// The source; `None` is all.
        source: Option<u32>,
        /// The part of each value.
        form: Form,
    },
}

/// The placeholder that `text` begins with, and its length in bytes, where
/// sources have these names. Of several names the longest counts.
pub(crate) fn leading(text: &[u8], names: &[Name]) -> Option<(Placeholder, usize)> {
    if let Some(found) = unnamed(text) {
        return Some(found);
    }
    let inner = text.strip_prefix(b"{")?;
    let named = (0u32..).zip(names).filter_map(|(source, name)| {
        let name = name.as_deref().filter(|name| !name.is_empty())?;
        let (form, length) = form(inner.strip_prefix(name)?)?;
        let found = Placeholder::Value { source: Some(source), form };
        Some((name.len(), (found, 1 + name.len() + length)))
    });
    named.max_by_key(|(name_bytes, _)| *name_bytes).map(|(_, found)| found)
}

/// The placeholder without a name that `text` begins with, and its length.
/// A number of 0 or beyond `u32` is passed on as `u32::MAX`: no such source.
fn unnamed(text: &[u8]) -> Option<(Placeholder, usize)> {
    let inner = text.strip_prefix(b"{")?;
    if inner.starts_with(b"#}") {
        return Some((Placeholder::Number, 3));
    }
    let digits = inner.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let source = match digits {
        0 => None,
        _ => {
            let number = std::str::from_utf8(&inner[..digits]).ok()?.parse::<u32>().ok();
            Some(number.and_then(|number| number.checked_sub(1)).unwrap_or(u32::MAX))
        }
    };
    let (form, length) = form(&inner[digits..])?;
    Some((Placeholder::Value { source, form }, 1 + digits + length))
}

/// The form that the end of a placeholder says, and its length.
fn form(rest: &[u8]) -> Option<(Form, usize)> {
    match rest {
        [b'}', ..] => Some((Form::Whole, 1)),
        [b'/', b'}', ..] => Some((Form::Base, 2)),
        [b'.', b'}', ..] => Some((Form::Stem, 2)),
        [b'/', b'.', b'}', ..] => Some((Form::BaseStem, 3)),
        [b'/', b'/', b'}', ..] => Some((Form::Directory, 3)),
        _ => None,
    }
}

/// The sources that a placeholder stands for, once it is known that they are
/// there.
///
/// # Errors
/// There is no such source among `sources`, or none at all.
pub(crate) fn sources_of(
    source: Option<u32>,
    spelled: &[u8],
    sources: usize,
) -> Result<std::ops::Range<u32>, PlanError> {
    // Sources come from the command line: there are far fewer than 2^32.
    let count = u32::try_from(sources).unwrap_or(u32::MAX - 1);
    match source {
        None if count > 0 => Ok(0..count),
        Some(source) if source < count => Ok(source..source + 1),
        _ => Err(PlanError::NoSuchSource {
            placeholder: String::from_utf8_lossy(spelled).into_owned(),
            sources,
        }),
    }
}

/// `text` as a template over sources of these names.
///
/// # Errors
/// A placeholder names a source that is not there.
pub(crate) fn compile(text: &[u8], names: &[Name]) -> Result<Text, PlanError> {
    let mut pieces = Vec::new();
    let mut literal = Vec::new();
    let mut rest = text;
    while let Some(&first) = rest.first() {
        let Some((placeholder, length)) = leading(rest, names) else {
            literal.push(first);
            rest = &rest[1..];
            continue;
        };
        match placeholder {
            Placeholder::Number => push(&mut pieces, &mut literal, Piece::Number),
            Placeholder::Value { source, form } => {
                let range = sources_of(source, &rest[..length], names.len())?;
                for source in range.clone() {
                    if source > range.start {
                        literal.push(b' ');
                    }
                    push(&mut pieces, &mut literal, Piece::Value { source, form });
                }
            }
        }
        rest = &rest[length..];
    }
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}

/// Whether a placeholder for a value is in `text`.
pub(crate) fn has_value(text: &[u8]) -> bool {
    (0..text.len()).any(|at| matches!(unnamed(&text[at..]), Some((Placeholder::Value { .. }, _))))
}

/// Appends the literal so far, if any, and then `piece`.
pub(crate) fn push(pieces: &mut Text, literal: &mut Vec<u8>, piece: Piece) {
    if !literal.is_empty() {
        pieces.push(Piece::Literal(std::mem::take(literal)));
    }
    pieces.push(piece);
}

/// Whether `text` stands for the same in every task.
pub(crate) fn is_literal(text: &Text) -> bool {
    text.iter().all(|piece| matches!(piece, Piece::Literal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use falkon_wire::command::CommandTemplate;
    use proptest::prelude::*;

    fn filled(text: &[u8], values: &[&str], number: u64) -> Result<Vec<u8>, PlanError> {
        let text = compile(text, &vec![None; values.len()])?;
        let template = CommandTemplate { argv: vec![text], ..CommandTemplate::default() };
        let values: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
        Ok(template.fill(&values, number).unwrap().argv.remove(0))
    }

    #[test]
    fn columns_are_found_by_their_names() {
        let names = ["x", "path", "y/", "a.b", "", "2", "y"].map(|name| Some(name.into()));
        let filled = |text: &str| {
            let argv = vec![compile(text.as_bytes(), &names).unwrap()];
            let template = CommandTemplate { argv, ..CommandTemplate::default() };
            let values: [&[u8]; 7] = [b"1", b"d/e.f", b"slash", b"dots", b"none", b"two", b"a/b"];
            String::from_utf8(template.fill(&values, 1).unwrap().argv.remove(0)).unwrap()
        };
        assert_eq!(filled("{x}{a.b}"), "1dots");
        assert_eq!(filled("{path} {path/.} {path//} {path.}"), "d/e.f e d d/e");
        // The longer name counts, and a number is one.
        assert_eq!(filled("{y/} {y}"), "slash a/b");
        assert_eq!(filled("{2}"), "d/e.f");
        assert_eq!(filled("{z} {xx} {x"), "{z} {xx} {x");
    }

    #[test]
    fn other_braces_stay() {
        for text in ["{print $1}", "{ }", "{a}", "{1", "{", "}", "{{", "{.", "{-1}", "{1#}"] {
            assert_eq!(filled(text.as_bytes(), &["v"], 1).unwrap(), text.as_bytes(), "{text}");
        }
        assert_eq!(filled(b"{{}}", &["v"], 1).unwrap(), b"{v}");
    }

    #[test]
    fn an_unknown_source_is_refused() {
        for text in ["{3}", "a{0/}", "{99999999999999999999.}"] {
            let error = filled(text.as_bytes(), &["a", "b"], 1).unwrap_err();
            assert!(matches!(error, PlanError::NoSuchSource { sources: 2, .. }), "{text}");
        }
        let error = filled(b"{}", &[], 1).unwrap_err();
        assert!(matches!(error, PlanError::NoSuchSource { sources: 0, .. }));
        assert_eq!(filled(b"{#}", &[], 7).unwrap(), b"7");
    }

    /// What a placeholder stands for, by rules written independently of
    /// [`Form::of`].
    fn reference(form: &str, value: &str) -> String {
        let (folder, base) = match value.rsplit_once('/') {
            Some((folder, base)) => (if folder.is_empty() { "/" } else { folder }, base),
            None => (".", value),
        };
        let prefix = &value[..value.len() - base.len()];
        let base_stem = base.rsplit_once('.').map_or(base, |(stem, _)| stem);
        match form {
            "" => value.to_owned(),
            "/" => base.to_owned(),
            "." => format!("{prefix}{base_stem}"),
            "/." => base_stem.to_owned(),
            _ => folder.to_owned(),
        }
    }

    #[derive(Debug, Clone)]
    enum Token {
        Literal(String),
        Number,
        Value(Option<usize>, &'static str),
    }

    fn token(sources: usize) -> impl Strategy<Value = Token> {
        let form = prop::sample::select(vec!["", "/", ".", "/.", "//"]);
        prop_oneof![
            "[a-z ./$'\"é]{0,4}".prop_map(Token::Literal),
            Just(Token::Number),
            (prop::option::of(0..sources), form)
                .prop_map(|(source, form)| Token::Value(source, form)),
        ]
    }

    proptest! {
        #[test]
        fn expansion_agrees_with_a_plain_reference(
            values in prop::collection::vec("[a./é '-]{0,6}", 1..4),
            picks in prop::collection::vec(token(1), 0..6),
            shift in 0usize..3,
            number in 1u64..1000,
        ) {
            let mut text = String::new();
            let mut expected = String::new();
            for pick in &picks {
                match pick {
                    Token::Literal(literal) => {
                        text.push_str(literal);
                        expected.push_str(literal);
                    }
                    Token::Number => {
                        text.push_str("{#}");
                        expected.push_str(&number.to_string());
                    }
                    Token::Value(Some(_), form) => {
                        let source = shift % values.len();
                        text.push_str(&format!("{{{}{form}}}", source + 1));
                        expected.push_str(&reference(form, &values[source]));
                    }
                    Token::Value(None, form) => {
                        text.push_str(&format!("{{{form}}}"));
                        let all: Vec<_> = values.iter().map(|value| reference(form, value)).collect();
                        expected.push_str(&all.join(" "));
                    }
                }
            }
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            let found = filled(text.as_bytes(), &values, number).unwrap();
            prop_assert_eq!(String::from_utf8(found).unwrap(), expected);
        }
    }
}
