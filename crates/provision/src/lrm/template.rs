//! Templates with placeholders: `{{name}}`.
//!
//! Values come from configurations, names and the machine; none of them may
//! change the meaning of what surrounds it. In a word of a command a value is
//! part of that word whatever it holds, for no shell reads it. In a script it
//! is quoted for the shell. In a description of lines it must not leave its
//! line. Nothing that was filled in is looked through for placeholders again.

use std::collections::BTreeMap;

/// Placeholders that a driver fills besides the settings.
pub(super) const PLACEHOLDERS: [&str; 26] = [
    "job_name",
    "name_prefix",
    "nodes",
    "total_cpus",
    "walltime_seconds",
    "walltime_seconds_or_0",
    "walltime_minutes",
    "walltime_hms",
    "walltime_hm",
    "log",
    "user",
    "user_id",
    "jobs",
    "node_script",
    "script_file",
    "state_dir",
    "allocation",
    "binary",
    "own_binary",
    "sent_binary",
    "job",
    "dispatcher",
    "queue",
    "queue_label",
    "deadline_seconds",
    "document",
];

/// The value of a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// Several words: in a command each becomes an argument, in a script each
    /// is quoted and they are separated by blanks.
    List(Vec<String>),
}

/// The values of placeholders, by name. A name without a value is known, and
/// leaves out the group of words that it stands in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values {
    known: BTreeMap<String, Option<Value>>,
}

impl Values {
    /// Sets a text.
    pub fn set(&mut self, name: &str, text: impl Into<String>) {
        self.known.insert(name.to_owned(), Some(Value::Text(text.into())));
    }

    /// Sets a text that there may not be.
    pub(crate) fn set_some(&mut self, name: &str, text: Option<String>) {
        self.known.insert(name.to_owned(), text.map(Value::Text));
    }

    /// Sets a list of words.
    pub(crate) fn set_list(&mut self, name: &str, words: Vec<String>) {
        self.known.insert(name.to_owned(), Some(Value::List(words)));
    }

    /// Whether there is such a placeholder.
    #[must_use]
    pub fn knows(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    fn at(&self, name: &str) -> Result<Option<&Value>, FillError> {
        match self.known.get(name) {
            Some(value) => Ok(value.as_ref()),
            None => Err(FillError::Unknown(name.to_owned())),
        }
    }
}

/// The surroundings of a value in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quoting {
    /// A POSIX shell reads it: values are quoted.
    #[default]
    Shell,
    /// A program reads it line by line: a value with a line's end or a `$` in
    /// it is refused.
    Line,
}

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// `{{` without `}}` after a name.
    #[error("`{0}`: a placeholder is {{{{name}}}}, of letters, digits and _")]
    Open(String),
}

/// Why a template cannot be filled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FillError {
    /// There is no such placeholder.
    #[error("there is no placeholder {{{{{0}}}}}")]
    Unknown(String),
    /// The placeholder has no value, and the text makes no sense without it.
    #[error("{0} is not set: set it in the queue's file")]
    Unset(String),
    /// The value cannot stand where it is to stand.
    #[error("{name} {why}")]
    Unfit {
        /// The placeholder.
        name: String,
        /// Why not.
        why: &'static str,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Hole(String),
}

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// A placeholder is not closed, or what it holds is no name.
    pub fn new(text: &str) -> Result<Template, TemplateError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let near = || TemplateError::Open(format!("{{{{{}", first_line(after)));
            let (name, after) = after.split_once("}}").ok_or_else(near)?;
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(is_name) {
                return Err(near());
            }
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            pieces.push(Piece::Hole(name.to_owned()));
            rest = after;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Template { pieces })
    }

    /// The names of its placeholders.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Hole(name) => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }

    /// Whether it stands for a list.
    pub(super) fn is_list(&self, values: &Values) -> bool {
        let [Piece::Hole(name)] = self.pieces.as_slice() else { return false };
        matches!(values.at(name), Ok(Some(Value::List(_))))
    }

    /// Fills it as an argument of a command: `None` if a placeholder in it has
    /// no value, several words if it is nothing but a list.
    ///
    /// # Errors
    /// A placeholder is not known, or its value has no place in an argument.
    pub fn words(&self, values: &Values) -> Result<Option<Vec<String>>, FillError> {
        if let [Piece::Hole(name)] = self.pieces.as_slice()
            && let Some(Value::List(words)) = values.at(name)?
        {
            for word in words {
                without_nul(name, word)?;
            }
            return Ok(Some(words.clone()));
        }
        let mut filled = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Hole(name) => match values.at(name)? {
                    None => return Ok(None),
                    Some(Value::Text(text)) => {
                        without_nul(name, text)?;
                        filled.push_str(text);
                    }
                    Some(Value::List(_)) => {
                        let why = "is a list: it is an argument of its own";
                        return Err(FillError::Unfit { name: name.clone(), why });
                    }
                },
            }
        }
        Ok(Some(vec![filled]))
    }

    /// Fills it as a text that is read with `quoting`.
    ///
    /// # Errors
    /// A placeholder is not known, has no value, or one that cannot stand there.
    pub fn text(&self, values: &Values, quoting: Quoting) -> Result<String, FillError> {
        let mut filled = String::new();
        for piece in &self.pieces {
            let name = match piece {
                Piece::Text(text) => {
                    filled.push_str(text);
                    continue;
                }
                Piece::Hole(name) => name,
            };
            let value = values.at(name)?.ok_or_else(|| FillError::Unset(name.clone()))?;
            let words = match value {
                Value::Text(text) => std::slice::from_ref(text),
                Value::List(words) => words.as_slice(),
            };
            for (at, word) in words.iter().enumerate() {
                if at > 0 {
                    filled.push(' ');
                }
                without_nul(name, word)?;
                match quoting {
                    Quoting::Shell => filled.push_str(&quoted(word)),
                    Quoting::Line => {
                        if word.contains(|c: char| c.is_control() || c == '$') {
                            let why = "must not hold a control character or a `$`";
                            return Err(FillError::Unfit { name: name.clone(), why });
                        }
                        filled.push_str(word);
                    }
                }
            }
        }
        Ok(filled)
    }
}

/// No argument, script or line can hold a NUL.
fn without_nul(name: &str, text: &str) -> Result<(), FillError> {
    if text.contains('\0') {
        let why = "must not hold a NUL character";
        return Err(FillError::Unfit { name: name.to_owned(), why });
    }
    Ok(())
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(40).collect()
}

/// `text` as one word for a POSIX shell (XCU 2.2.2: between single quotes
/// nothing is special but the single quote).
#[must_use]
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(pairs: &[(&str, &str)]) -> Values {
        let mut values = Values::default();
        for (name, text) in pairs {
            values.set(name, *text);
        }
        values
    }

    #[test]
    fn placeholders_are_filled_and_lists_become_words() {
        let mut values = values(&[("a", "x y"), ("b", "{{a}}")]);
        values.set_some("none", None);
        values.set_list("list", vec!["1".into(), "2 3".into()]);
        let words = |text: &str| Template::new(text).unwrap().words(&values).unwrap();
        assert_eq!(words("--a={{a}}{{b}}"), Some(vec!["--a=x y{{a}}".to_owned()]));
        assert_eq!(words("--a={{none}}"), None);
        assert_eq!(words("{{list}}"), Some(vec!["1".to_owned(), "2 3".to_owned()]));
        let text = Template::new("f {{a}} {{list}};").unwrap();
        assert_eq!(text.text(&values, Quoting::Shell).unwrap(), "f 'x y' 1 '2 3';");
        assert_eq!(text.text(&values, Quoting::Line).unwrap(), "f x y 1 2 3;");
    }

    #[test]
    fn what_is_no_template_is_refused() {
        for text in ["{{", "{{a", "a {{a b}}", "{{}}", "{{a;b}}"] {
            assert!(matches!(Template::new(text), Err(TemplateError::Open(_))), "{text}");
        }
        // Braces of shells and formats are text.
        for text in ["${a} {b} $((1+2)) }}", "{id.f58}|{state}"] {
            let template = Template::new(text).unwrap();
            assert_eq!(template.text(&Values::default(), Quoting::Shell).unwrap(), text);
        }
        let unknown = Template::new("{{nonesuch}}").unwrap();
        assert_eq!(
            unknown.words(&Values::default()),
            Err(FillError::Unknown("nonesuch".to_owned()))
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever the value is, the shell hands it on as it was, once.
        #[test]
        fn no_value_breaks_out_of_a_script(text in "[^\0]{0,40}", other in "[ -~\n]{0,40}") {
            let values = values(&[("text", &text), ("other", &other)]);
            let template = Template::new("printf '%s\\0' {{text}} {{other}} end").unwrap();
            let script = template.text(&values, Quoting::Shell).unwrap();
            let ran = std::process::Command::new("sh").arg("-c").arg(&script).output().unwrap();
            let expected = format!("{text}\0{other}\0end\0");
            prop_assert_eq!(String::from_utf8(ran.stdout).unwrap(), expected);
            prop_assert!(ran.stderr.is_empty());
        }

        /// A value stays in its line, or is refused.
        #[test]
        fn no_value_breaks_out_of_a_line(text in any::<String>()) {
            let values = values(&[("text", &text)]);
            let template = Template::new("key = {{text}}\nqueue").unwrap();
            match template.text(&values, Quoting::Line) {
                Ok(filled) => {
                    prop_assert_eq!(filled.lines().count(), 2);
                    prop_assert!(!filled.contains('$'));
                }
                Err(error) => prop_assert!(matches!(error, FillError::Unfit { .. }), "{}", error),
            }
        }

        /// A value is part of the one argument it stands in.
        #[test]
        fn no_value_breaks_out_of_an_argument(text in "[^\0]*") {
            let values = values(&[("text", &text)]);
            let words = Template::new("--x={{text}}").unwrap().words(&values).unwrap();
            prop_assert_eq!(words, Some(vec![format!("--x={text}")]));
        }
    }
}
