//! Tests that a harness of their own runs: the compiler drops a `#[test]` there
//! without a word, and a `#[trial]` elsewhere is never run.

use crate::Finding;
use crate::code::bare;
use crate::tree::File;

/// How the `main` of such a program ends.
const MAINS: [&str; 3] =
    ["falkon_trials::main()", "falkon_trials::one_by_one()", "falkon_trials::while_others_wait()"];

/// The directory or file of the test program that `path` is a part of:
/// `crates/x/tests/name`.
fn program(path: &str) -> Option<&str> {
    let start = path.find("/tests/")? + "/tests/".len();
    let end = path[start..].find(['/', '.'])?;
    Some(&path[..start + end])
}

/// Checks all files together.
#[must_use]
pub fn check(files: &[File]) -> Vec<Finding> {
    let tests: Vec<(&File, &str, String)> = files
        .iter()
        .filter(|file| file.path.ends_with(".rs"))
        .filter_map(|file| Some((file, program(&file.path)?, bare(&file.text))))
        .collect();
    let own: Vec<&str> = tests
        .iter()
        .filter(|(_, _, code)| MAINS.iter().any(|main| code.contains(main)))
        .map(|(_, program, _)| *program)
        .collect();
    let mut findings = Vec::new();
    for (file, program, code) in &tests {
        let (wrong, right) =
            if own.contains(program) { ("#[test]", "#[trial]") } else { ("#[trial", "#[test]") };
        for (at, line) in code.lines().enumerate() {
            if line.contains(wrong) {
                let what = format!("no harness runs it: {right} is this program's attribute");
                findings.push(Finding::new(&file.path, at + 1, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn attributes_that_no_harness_reads_are_found() {
        let main = "fn main() -> ExitCode {\n    falkon_trials::main()\n}\n";
        let files = [
            file("crates/a/tests/own/main.rs", main),
            file("crates/a/tests/own/part.rs", "#[trial]\nfn a() {}\n#[test]\nfn b() {}\n"),
            file("crates/a/tests/standard.rs", "#[test]\nfn a() {}\n\n#[trial]\nfn b() {}\n"),
            file("crates/a/src/lib.rs", "#[test]\nfn a() {}\n"),
        ];
        let found: Vec<(String, usize)> =
            check(&files).into_iter().map(|found| (found.path, found.line)).collect();
        let at = |path: &str, line| (path.to_owned(), line);
        assert_eq!(
            found,
            [at("crates/a/tests/own/part.rs", 3), at("crates/a/tests/standard.rs", 4)]
        );
    }
}
