//! Patterns for names of members, as shells have them: `*` stands for anything
//! within a component, `**` for anything, `?` for one byte, `[a-z]` for one of
//! some, and a backslash takes what follows as it is.

use super::limits::PATTERN_BYTES_MAX;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// One byte that is no slash.
    Any,
    /// One byte, or none, of these ranges.
    OneOf {
        ranges: Vec<(u8, u8)>,
        is_negated: bool,
    },
    /// Any bytes but a slash.
    Star,
    /// Any bytes.
    Globstar,
}

/// A pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    tokens: Vec<Token>,
    /// What every name that matches begins with.
    prefix: Vec<u8>,
    /// What it ends with, behind that.
    suffix: Vec<u8>,
}

impl Pattern {
    /// A pattern of these bytes; `None` if it is too long.
    #[must_use]
    pub fn new(text: &[u8]) -> Option<Pattern> {
        if text.len() > PATTERN_BYTES_MAX {
            return None;
        }
        let mut tokens = Vec::new();
        let mut at = 0;
        while let Some(byte) = text.get(at) {
            let (token, bytes) = match (byte, &text[at + 1..]) {
                (b'*', [b'*', ..]) => (Token::Globstar, 2),
                (b'*', _) => (Token::Star, 1),
                (b'?', _) => (Token::Any, 1),
                (b'\\', [next, ..]) => (Token::Byte(*next), 2),
                (b'[', rest) => match one_of(rest) {
                    Some((token, bytes)) => (token, 1 + bytes),
                    None => (Token::Byte(b'['), 1),
                },
                (byte, _) => (Token::Byte(*byte), 1),
            };
            tokens.push(token);
            at += bytes;
        }
        let literal =
            |token: &Token| if let Token::Byte(byte) = token { Some(*byte) } else { None };
        let prefix: Vec<u8> = tokens.iter().map_while(literal).collect();
        let rest = &tokens[prefix.len()..];
        let mut suffix: Vec<u8> = rest.iter().rev().map_while(literal).collect();
        suffix.reverse();
        Some(Pattern { tokens, prefix, suffix })
    }

    /// What every name that matches begins with.
    #[must_use]
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Whether a pattern stands for one name only.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        self.prefix.len() == self.tokens.len()
    }

    /// Whether a name matches. Takes time in proportion to the lengths of both,
    /// multiplied.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        let rest = name.strip_prefix(self.prefix.as_slice());
        let rest = rest.and_then(|name| name.strip_suffix(self.suffix.as_slice()));
        let Some(name) = rest else { return false };
        let tokens = &self.tokens[self.prefix.len()..self.tokens.len() - self.suffix.len()];
        match tokens {
            [] => return name.is_empty(),
            [Token::Star] => return !name.contains(&b'/'),
            [Token::Globstar] => return true,
            _ => {}
        }
        // The tokens before which a match of the name so far may stand.
        let mut states = vec![false; tokens.len() + 1];
        let mut next = states.clone();
        states[0] = true;
        pass_stars(tokens, &mut states);
        for byte in name {
            next.fill(false);
            for (at, token) in tokens.iter().enumerate().filter(|(at, _)| states[*at]) {
                match token {
                    Token::Byte(this) => next[at + 1] |= this == byte,
                    Token::Any => next[at + 1] |= *byte != b'/',
                    Token::OneOf { ranges, is_negated } => {
                        let is_in = ranges.iter().any(|(from, to)| (from..=to).contains(&byte));
                        next[at + 1] |= is_in != *is_negated && *byte != b'/';
                    }
                    Token::Star => next[at] |= *byte != b'/',
                    Token::Globstar => next[at] = true,
                }
            }
            pass_stars(tokens, &mut next);
            std::mem::swap(&mut states, &mut next);
            if !states.contains(&true) {
                return false;
            }
        }
        states[tokens.len()]
    }
}

/// Stars may stand for nothing.
fn pass_stars(tokens: &[Token], states: &mut [bool]) {
    for (at, token) in tokens.iter().enumerate() {
        if states[at] && matches!(token, Token::Star | Token::Globstar) {
            states[at + 1] = true;
        }
    }
}

/// The ranges of a bracket, and the bytes behind it that they take.
fn one_of(rest: &[u8]) -> Option<(Token, usize)> {
    let is_negated = matches!(rest.first(), Some(b'!' | b'^'));
    let start = usize::from(is_negated);
    // A bracket that closes at once is one of those meant.
    let end = start + 1 + rest.get(start + 1..)?.iter().position(|byte| *byte == b']')?;
    let mut inner = &rest[start..end];
    let mut ranges = Vec::new();
    while let Some(from) = inner.first() {
        if let [from, b'-', to, ..] = inner {
            ranges.push((*from, *to));
            inner = &inner[3..];
        } else {
            ranges.push((*from, *from));
            inner = &inner[1..];
        }
    }
    Some((Token::OneOf { ranges, is_negated }, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_shells() {
        let check = |pattern: &str, yes: &[&str], no: &[&str]| {
            let pattern = Pattern::new(pattern.as_bytes()).unwrap();
            for (names, expected) in [(yes, true), (no, false)] {
                for name in names {
                    assert_eq!(pattern.matches(name.as_bytes()), expected, "{pattern:?} {name}");
                }
            }
        };
        check("a", &["a"], &["", "b", "aa"]);
        check("*", &["", "a", "abc"], &["a/b", "/"]);
        check("*/energy.dat", &["7/energy.dat", "/energy.dat"], &["7/8/energy.dat", "energy.dat"]);
        check("**", &["", "a/b/c"], &[]);
        check("**/x", &["a/x", "a/b/x"], &["x", "a/xy"]);
        check("a?c*", &["abc", "abcd"], &["a/c", "ac"]);
        check("[a-c]x", &["ax", "cx"], &["dx", "x"]);
        check("[!a-c]x", &["dx"], &["ax", "/x"]);
        check("[]]", &["]"], &["["]);
        check("[a", &["[a"], &["a"]);
        check("\\*", &["*"], &["a"]);
        check("a*a", &["aa", "aba"], &["a", "ab", "a/a"]);
        check("a**", &["a", "a/b"], &["", "ba"]);
        check("**a", &["a", "b/a"], &["", "ab"]);
        check("*a*b*c*", &["abc", "xaybzc"], &["acb"]);
        assert!(Pattern::new(b"a\\*b").unwrap().is_literal());
        assert!(!Pattern::new(b"a*b").unwrap().is_literal());
        assert_eq!(Pattern::new(b"ab*c").unwrap().prefix(), b"ab");
    }

    /// The same, by trying all that each star may stand for.
    fn matches(tokens: &[Token], name: &[u8]) -> bool {
        let Some((token, tokens)) = tokens.split_first() else { return name.is_empty() };
        let byte = name.first();
        let is_one = |is: bool| is && matches(tokens, &name[1..]);
        match token {
            Token::Byte(this) => is_one(byte == Some(this)),
            Token::Any => is_one(byte.is_some_and(|byte| *byte != b'/')),
            Token::OneOf { ranges, is_negated } => is_one(byte.is_some_and(|byte| {
                let is_in = ranges.iter().any(|(from, to)| (from..=to).contains(&byte));
                is_in != *is_negated && *byte != b'/'
            })),
            Token::Star | Token::Globstar => (0..=name.len()).any(|at| {
                let may_be = *token == Token::Globstar || !name[..at].contains(&b'/');
                may_be && matches(tokens, &name[at..])
            }),
        }
    }

    proptest::proptest! {
        #[test]
        fn patterns_match_as_their_tokens_say(
            text in r"([ab/]|\*|\*\*|\?|\[a\]|\[!b\]){0,6}",
            name in "[ab/]{0,8}",
        ) {
            let pattern = Pattern::new(text.as_bytes()).unwrap();
            let expected = matches(&pattern.tokens, name.as_bytes());
            proptest::prop_assert_eq!(pattern.matches(name.as_bytes()), expected, "{} {}", text, name);
        }
    }

    #[test]
    fn many_stars_take_no_longer_than_their_number() {
        let pattern = Pattern::new("*a".repeat(200).as_bytes()).unwrap();
        assert!(!pattern.matches(&b"a".repeat(199)));
        assert!(pattern.matches(&b"a".repeat(1000)));
    }
}
