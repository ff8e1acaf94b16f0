//! Whether what documents point at is there.

use crate::Finding;
use crate::tree::File;
use std::path::Path;

/// Checks that the files and folders that a Markdown text links to exist.
#[must_use]
pub fn links(file: &File, root: &Path) -> Vec<Finding> {
    if !file.path.ends_with(".md") {
        return Vec::new();
    }
    let folder = root.join(&file.path);
    let folder = folder.parent().unwrap_or(root);
    let mut findings = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        for target in targets(line) {
            let path = target.split('#').next().unwrap_or_default();
            let elsewhere = target.contains("://") || target.starts_with("mailto:");
            if !path.is_empty() && !elsewhere && !folder.join(path).exists() {
                findings.push(Finding::new(&file.path, at + 1, format!("there is no `{path}`")));
            }
        }
    }
    findings
}

/// The targets of the links in a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_are_found() {
        let text = "[a](src/lib.rs) [b](src/none.rs#x) [c](https://example.org/x) [d](#top)";
        let file = File { path: "a.md".to_owned(), text: text.to_owned() };
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let found = links(&file, root);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].what, "there is no `src/none.rs`");
    }
}
