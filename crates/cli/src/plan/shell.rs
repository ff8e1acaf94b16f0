//! `--shell`: scripts with placeholders, and quoting for people to read.
//!
//! A value never becomes part of a script's text. It is passed to the shell as
//! an argument, the script's first words put it into a variable of its own
//! (`falkon_1`, `falkon_2`, …) and remove the arguments again, and where the
//! placeholder stood the script has a reference to that variable, quoted as
//! the place asks for: `"${falkon_1}"` in the open, `${falkon_1}` between
//! double quotes, `'"${falkon_1}"'` between single quotes. So `{}`, `"{}"`
//! and `'{}'` all give one word that is exactly the value, whatever it holds
//! (GNU parallel breaks on the latter two), inside functions and after `set`
//! too; no value can run as code, unless the script asks for that itself with
//! `eval` or an inner `sh -c "… {} …"`.

use super::error::PlanError;
use super::placeholder::{Placeholder, leading, push, sources_of};
use super::source::Name;
use falkon_wire::command::{Form, Piece, Text};

/// The shell that runs scripts.
const SHELL: &[u8] = b"/bin/sh";
/// The name that a script sees as `$0`, and puts into its error messages.
const SCRIPT_NAME: &[u8] = b"falkon";

/// The arguments that run `script` in the shell, with `parameters` as `$1`, …
pub(crate) fn command<T: From<Vec<u8>>>(script: T, parameters: Vec<T>) -> Vec<T> {
    let mut argv = vec![
        T::from(SHELL.to_vec()),
        T::from(b"-c".to_vec()),
        script,
        T::from(SCRIPT_NAME.to_vec()),
    ];
    argv.extend(parameters);
    argv
}

/// The arguments that run `script`, where placeholders stand for the values
/// of sources of these names. Values follow no script: where its last command ends,
/// nobody can tell.
///
/// # Errors
/// A placeholder names no source, or stands in a here-document.
pub(crate) fn compile(script: &[u8], names: &[Name]) -> Result<Vec<Text>, PlanError> {
    let mut walk = Walk::new(names);
    walk.run(script)?;
    let mut pieces = Vec::new();
    let mut literal = prologue(walk.values.len());
    for piece in walk.pieces {
        match piece {
            Piece::Literal(bytes) => literal.extend_from_slice(&bytes),
            piece => push(&mut pieces, &mut literal, piece),
        }
    }
    literal.extend_from_slice(&walk.literal);
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    let values = walk
        .values
        .iter()
        .map(|(source, form)| vec![Piece::Value { source: *source, form: *form }]);
    let fixed = |bytes: &[u8]| vec![Piece::Literal(bytes.to_vec())];
    let mut argv = vec![fixed(SHELL), fixed(b"-c"), pieces, fixed(SCRIPT_NAME)];
    argv.extend(values);
    Ok(argv)
}

/// The script that `argv` runs, as it was written, with values in the places of
/// its placeholders; `None` if `argv` is no such command.
pub(crate) fn script(argv: &[Vec<u8>]) -> Option<String> {
    let [program, option, script, name, values @ ..] = argv else { return None };
    let is_ours = program == SHELL && option == b"-c" && name == SCRIPT_NAME;
    let script = script.strip_prefix(prologue(values.len()).as_slice()).filter(|_| is_ours)?;
    let mut text = String::from_utf8_lossy(script).into_owned();
    // The last first, so that the variable 1 is not found in 10.
    for (number, value) in values.iter().enumerate().rev() {
        let variable = format!("${{falkon_{}}}", number + 1);
        let has_control = String::from_utf8(value.clone())
            .map_or(true, |value| value.chars().any(char::is_control));
        let plain = || String::from_utf8_lossy(value).into_owned();
        let (single, double) = match has_control {
            true => (format!("'{}'", quoted(value)), format!("\"{}\"", quoted(value))),
            false => (plain().replace('\'', "'\\''"), in_double_quotes(&plain())),
        };
        text = text
            .replace(&format!("'\"{variable}\"'"), &single)
            .replace(&format!("\"{variable}\""), &quoted(value))
            .replace(&variable, &double);
    }
    Some(text)
}

/// `value` as it is written between double quotes.
fn in_double_quotes(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for character in value.chars() {
        if matches!(character, '$' | '`' | '"' | '\\') {
            text.push('\\');
        }
        text.push(character);
    }
    text
}

/// Words that name the shell's arguments and take them away.
fn prologue(count: usize) -> Vec<u8> {
    let mut words = String::new();
    for number in 1..=count {
        words.push_str(&format!("falkon_{number}=${{{number}}} "));
    }
    if count > 0 {
        words.truncate(words.len() - 1);
        words.push_str(&format!("; shift {count}; "));
    }
    words.into_bytes()
}

/// The quoting around a place in a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Around {
    /// `(` … `)` or `$(` … `)`: code.
    Parentheses,
    /// Backquotes: code.
    Backquotes,
    Single,
    Double,
    /// `${` … `}`.
    Parameter,
    /// `$((` … `))`, and how many parentheses are open in it.
    Arithmetic(u32),
}

/// A walk along a script that keeps track of its quotes. It follows the POSIX
/// shell grammar as far as quoting goes; where a script is odder than that (a
/// `case` pattern's lone `)` inside `$(…)`), a value may be split into words
/// but never runs.
struct Walk<'a> {
    names: &'a [Name],
    around: Vec<Around>,
    pieces: Text,
    literal: Vec<u8>,
    values: Vec<(u32, Form)>,
    here_document: HereDocument,
}

#[derive(PartialEq, Eq)]
enum HereDocument {
    None,
    Announced,
    Begun,
}

impl Walk<'_> {
    fn new(names: &[Name]) -> Walk<'_> {
        Walk {
            names,
            around: Vec::new(),
            pieces: Vec::new(),
            literal: Vec::new(),
            values: Vec::new(),
            here_document: HereDocument::None,
        }
    }

    fn run(&mut self, script: &[u8]) -> Result<(), PlanError> {
        let mut at = 0;
        while at < script.len() {
            let rest = &script[at..];
            if let Some((placeholder, length)) = leading(rest, self.names) {
                self.place(placeholder, &rest[..length])?;
                at += length;
                continue;
            }
            let before = at.checked_sub(1).map(|before| script[before]);
            let length = match self.around.last() {
                Some(Around::Single) => self.in_single(rest),
                _ => self.outside_single(rest, before),
            };
            self.literal.extend_from_slice(&rest[..length]);
            at += length;
        }
        Ok(())
    }

    fn in_single(&mut self, rest: &[u8]) -> usize {
        if rest[0] == b'\'' {
            self.around.pop();
        }
        1
    }

    /// Takes note of what `rest` begins with; returns its length.
    fn outside_single(&mut self, rest: &[u8], before: Option<u8>) -> usize {
        let next = rest.get(1).copied();
        let quoted = self.quoted();
        match rest[0] {
            b'\\' if next.is_some() => {
                let escapes = !quoted || matches!(next, Some(b'$' | b'`' | b'"' | b'\\'));
                return if escapes { 2 } else { 1 };
            }
            b'$' => return self.dollar(rest),
            b'`' => self.toggle(Around::Backquotes),
            b'"' if !matches!(self.around.last(), Some(Around::Arithmetic(_))) => {
                self.toggle(Around::Double);
            }
            b'\'' if !quoted => self.around.push(Around::Single),
            b'(' | b')' => return self.parenthesis(rest),
            b'}' if self.around.last() == Some(&Around::Parameter) => {
                self.around.pop();
            }
            b'#' if !quoted && before.is_none_or(|before| b" \t\n;&|(".contains(&before)) => {
                return rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            }
            b'<' if !quoted && rest.starts_with(b"<<<") => return 3,
            b'<' if !quoted && next == Some(b'<') => {
                self.here_document = HereDocument::Announced;
                return 2;
            }
            b'\n' if self.here_document == HereDocument::Announced => {
                self.here_document = HereDocument::Begun;
            }
            _ => {}
        }
        1
    }

    fn dollar(&mut self, rest: &[u8]) -> usize {
        match rest.get(1) {
            Some(b'(') if rest.get(2) == Some(&b'(') => {
                self.around.push(Around::Arithmetic(0));
                3
            }
            Some(b'(') => {
                self.around.push(Around::Parentheses);
                2
            }
            Some(b'{') => {
                self.around.push(Around::Parameter);
                // `${#}` and `${1}` are the shell's; so is the first
                // character of any other name.
                if rest.len() > 2 && rest[2] != b'}' { 3 } else { 2 }
            }
            Some(b'$') => 2,
            _ => 1,
        }
    }

    fn parenthesis(&mut self, rest: &[u8]) -> usize {
        let opens = rest[0] == b'(';
        match self.around.last_mut() {
            Some(Around::Arithmetic(depth)) if opens => *depth += 1,
            Some(Around::Arithmetic(depth)) if *depth > 0 => *depth -= 1,
            Some(Around::Arithmetic(_)) => {
                self.around.pop();
                return if rest.get(1) == Some(&b')') { 2 } else { 1 };
            }
            Some(Around::Double | Around::Parameter) => {}
            _ if opens => self.around.push(Around::Parentheses),
            Some(Around::Parentheses) => {
                self.around.pop();
            }
            _ => {}
        }
        1
    }

    /// Ends `what` if it is the innermost, else begins it.
    fn toggle(&mut self, what: Around) {
        if self.around.last() == Some(&what) {
            self.around.pop();
        } else {
            self.around.push(what);
        }
    }

    /// Whether expansions here are already safe from splitting.
    fn quoted(&self) -> bool {
        let inner = self.around.iter().rev().find(|around| **around != Around::Parameter);
        matches!(inner, Some(Around::Double | Around::Arithmetic(_)))
    }

    fn place(&mut self, placeholder: Placeholder, spelled: &[u8]) -> Result<(), PlanError> {
        let Placeholder::Value { source, form } = placeholder else {
            push(&mut self.pieces, &mut self.literal, Piece::Number);
            return Ok(());
        };
        let sources = sources_of(source, spelled, self.names.len())?;
        if self.here_document == HereDocument::Begun {
            return Err(PlanError::HereDocument {
                placeholder: String::from_utf8_lossy(spelled).into_owned(),
            });
        }
        let (open, close, between) = match self.around.last() {
            Some(Around::Single) => ("'\"", "\"'", " "),
            _ if self.quoted() => ("", "", " "),
            _ => ("\"", "\"", "\" \""),
        };
        let references: Vec<String> =
            sources.map(|source| format!("${{{}}}", self.variable(source, form))).collect();
        let text = format!("{open}{}{close}", references.join(between));
        self.literal.extend_from_slice(text.as_bytes());
        Ok(())
    }

    /// The variable that holds this part of a source's value.
    fn variable(&mut self, source: u32, form: Form) -> String {
        let known = self.values.iter().position(|value| *value == (source, form));
        let at = known.unwrap_or_else(|| {
            self.values.push((source, form));
            self.values.len() - 1
        });
        format!("falkon_{}", at + 1)
    }
}

/// `word` so that a shell reads it back as one word, on one line: bare where
/// that is safe, else in single quotes, or in `$'…'` if it has control
/// characters or bytes that are not UTF-8.
pub(crate) fn quoted(word: &[u8]) -> String {
    let safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"@%+=:,./-_".contains(byte);
    if !word.is_empty() && word.iter().all(safe) {
        // The check has left ASCII only.
        return String::from_utf8_lossy(word).into_owned();
    }
    match std::str::from_utf8(word) {
        Ok(text) if !text.chars().any(char::is_control) => {
            format!("'{}'", text.replace('\'', "'\\''"))
        }
        _ => escaped(word),
    }
}

fn escaped(word: &[u8]) -> String {
    let mut text = String::from("$'");
    for chunk in word.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                '\r' => text.push_str("\\r"),
                '\\' | '\'' => text.extend(['\\', character]),
                character if character.is_control() => {
                    let mut buffer = [0; 4];
                    for byte in character.encode_utf8(&mut buffer).bytes() {
                        text.push_str(&format!("\\{byte:03o}"));
                    }
                }
                character => text.push(character),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\{byte:03o}"));
        }
    }
    text.push('\'');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use falkon_wire::command::CommandTemplate;
    use proptest::prelude::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    /// What `script` prints when a real shell runs it; what is shown to people
    /// prints the same.
    fn output(script: &str, values: &[&[u8]]) -> Vec<u8> {
        let argv = compile(script.as_bytes(), &vec![None; values.len()]).unwrap();
        let template = CommandTemplate { argv, ..CommandTemplate::default() };
        let argv = template.fill(values, 7).unwrap().argv;
        let ran = std::process::Command::new(OsStr::from_bytes(&argv[0]))
            .args(argv[1..].iter().map(|word| OsStr::from_bytes(word)))
            .output()
            .unwrap();
        assert!(ran.stderr.is_empty(), "{script}: {}", String::from_utf8_lossy(&ran.stderr));
        let shown = super::script(&argv).unwrap();
        if shown.contains(":-") && shown.contains("$'") {
            // Shells do not agree on quotes within a default.
            return ran.stdout;
        }
        // `$'…'` needs a shell that knows it.
        let shell = if shown.contains("$'") { "bash" } else { "sh" };
        let again = std::process::Command::new(shell)
            .args(["-c", &shown])
            .env("LC_ALL", "C")
            .output()
            .unwrap();
        assert_eq!(again.stdout, ran.stdout, "{shown}");
        ran.stdout
    }

    const NASTY: [&[u8]; 14] = [
        b"plain",
        b"two words",
        b"it's",
        b"say \"hi\"",
        b"$HOME",
        b"$(echo pwned)",
        b"`echo pwned`",
        b"a\nb",
        b"-n",
        b"back\\slash\\",
        b"*",
        b"; echo pwned #",
        b"\xff\xfe",
        b"",
    ];

    #[test]
    fn nasty_values_stay_one_word_everywhere() {
        for value in NASTY {
            let mut one = b"<".to_vec();
            one.extend_from_slice(value);
            one.push(b'>');
            for script in [
                "printf '<%s>' {}",
                "printf '<%s>' \"{}\"",
                "printf '<%s>' '{}'",
                "# don't mind {}\nprintf '<%s>' {}",
                "f() { printf '<%s>' {}; }; f a b",
                "set -- x y; shift; printf '<%s>' {}",
                "printf '<%s>' \"${X:-{}}\"",
                "printf '<%s>' ${X:-{}}",
                "(cd / && printf '<%s>' {})",
                "case x in x) printf '<%s>' {};; esac",
                "printf '<%s>' \"$(true 'a)' \")\")\"{} # '{}",
            ] {
                assert_eq!(output(script, &[value]), one, "{script}");
            }
        }
    }

    #[test]
    fn substitutions_keep_values_whole() {
        for value in NASTY {
            let mut one = b"<".to_vec();
            one.extend_from_slice(value);
            one.push(b'>');
            for script in
                ["printf '<%s>' \"$(printf %s {})\"", "printf '<%s>' \"$(printf %s '{}')\""]
            {
                assert_eq!(output(script, &[value]), one, "{script}");
            }
        }
        assert_eq!(output("echo `printf %s {}`", &[b"a b"]), b"a b\n");
        assert_eq!(output("echo $(( {} + (2 * 3) )) {#}", &[b"4"]), b"10 7\n");
    }

    #[test]
    fn nothing_follows_a_script_without_placeholders() {
        assert_eq!(output("for i in a; do echo $i; done", &[b"1"]), b"a\n");
    }

    #[test]
    fn several_sources_and_parameters_of_the_shell() {
        assert_eq!(output("printf '<%s>' {} {2} '{}'", &[b"a b", b"c"]), b"<a b><c><c><a b c>");
        assert_eq!(output("f() { echo ${1} ${#} $#; }; f x {}", &[b"v"]), b"x 2 2\n");
        assert_eq!(output("echo $# \\{}", &[b"v"]), b"0 {}\n");
        assert_eq!(output("printf %s {/.}{//}", &[b"d/a b.c"]), b"a bd");
    }

    #[test]
    fn a_placeholder_in_a_here_document_is_refused() {
        let error = compile(b"cat <<E\n{}\nE", &[None]).unwrap_err();
        assert!(matches!(error, PlanError::HereDocument { .. }));
        assert!(compile(b"cat <<E {}\n$x\nE", &[None]).is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn quoted_words_are_read_back(
            words in prop::collection::vec(prop::collection::vec(1u8..=255, 0..12), 1..5)
        ) {
            // `$'…'` needs a shell that knows it.
            let script = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
            prop_assert!(!script.contains('\n'));
            let ran = std::process::Command::new("bash")
                .args(["-c", &format!("printf '%s\\0' {script}")])
                .env("LC_ALL", "C")
                .output()
                .unwrap();
            let mut expected = words.join(&0);
            expected.push(0);
            prop_assert_eq!(ran.stdout, expected);
        }
    }
}
