//! Links of documents, pages that any file names, and the lists of all pages.

use crate::Finding;
use crate::figures::TABLES;
use crate::tree::File;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// The folder of the pages.
const PAGES: &str = "docs/";
/// What lists every page under its kind: for readers, and for the site.
const LISTS: [&str; 2] = ["README.md", "docs/site/mkdocs.yml"];

/// Checks that each link of a Markdown text leads to a file or folder that
/// exists, and its anchor to a heading, that pages named anywhere exist, and
/// that the lists of pages have all of them.
#[must_use]
pub fn check(files: &[File], root: &Path) -> Vec<Finding> {
    // The links of the tables' templates are those of the pages with the tables.
    let pages = files.iter().filter(|file| file.path.ends_with(".md") && file.path != TABLES);
    let anchors: BTreeMap<&str, BTreeSet<String>> =
        pages.clone().map(|page| (page.path.as_str(), anchors(&page.text))).collect();
    let mut findings: Vec<Finding> = pages.flat_map(|page| links(page, &anchors, root)).collect();
    findings.extend(files.iter().flat_map(|file| mentions(file, root)));
    findings.extend(unlisted(files));
    findings
}

fn links(page: &File, anchors: &BTreeMap<&str, BTreeSet<String>>, root: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in page.text.lines().enumerate() {
        for target in targets(line) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let mut wrong = |what| findings.push(Finding::new(&page.path, at + 1, what));
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let there = target_path(&page.path, path);
            if !path.is_empty() && !root.join(&there).exists() {
                wrong(format!("there is no `{path}`"));
            } else if !anchor.is_empty()
                && !anchors.get(there.as_str()).is_some_and(|all| all.contains(anchor))
            {
                wrong(format!("`{there}` has no heading `#{anchor}`"));
            }
        }
    }
    findings
}

/// The targets of the links in a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// The path from the root that a link of `page` leads to; an empty one leads
/// to the page itself.
fn target_path(page: &str, path: &str) -> String {
    if path.is_empty() {
        return page.to_owned();
    }
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    let mut there = PathBuf::new();
    for component in folder.join(path).components() {
        match component {
            Component::ParentDir => drop(there.pop()),
            Component::CurDir => {}
            other => there.push(other),
        }
    }
    there.to_string_lossy().into_owned()
}

/// The anchors of a page's headings, as GitHub and `make docs` make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        }
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        if !in_block && (1..=6).contains(&level) && title.starts_with(' ') {
            anchors.insert(anchor(title.trim()));
        }
    }
    anchors
}

fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Checks that the pages that a file names by their path from the root exist.
fn mentions(file: &File, root: &Path) -> Vec<Finding> {
    let is_of_path = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let mut findings = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        for word in line.split(|c| !is_of_path(c)) {
            let path = word.trim_start_matches("../");
            if path.starts_with(PAGES) && path.ends_with(".md") && !root.join(path).exists() {
                findings.push(Finding::new(&file.path, at + 1, format!("there is no `{path}`")));
            }
        }
    }
    findings
}

/// The pages that a list lacks.
fn unlisted(files: &[File]) -> Vec<Finding> {
    let pages = files.iter().map(|file| file.path.as_str());
    let pages: Vec<&str> =
        pages.filter(|path| path.starts_with(PAGES) && path.ends_with(".md")).collect();
    let mut findings = Vec::new();
    for list in files.iter().filter(|file| LISTS.contains(&file.path.as_str())) {
        for page in pages.iter().filter(|page| !list.text.contains(*page)) {
            findings.push(Finding::new(&list.path, 0, format!("does not list `{page}`")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    /// What is found in files that lie beside this crate's.
    fn found(files: &[File]) -> Vec<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        check(files, root).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn dead_links_are_found() {
        let text = "[a](src/lib.rs) [b](src/none.rs#x) [c](https://example.org/x)";
        assert_eq!(found(&[file("a.md", text)]), ["there is no `src/none.rs`"]);
        assert_eq!(found(&[file("src/a.md", "[a](../src/lib.rs) [b](./lib.rs)")]).len(), 0);
    }

    #[test]
    fn dead_anchors_are_found() {
        let text = "# The `--x y` (of a)\n[a](#the---x-y-of-a) [b](#b)\n```sh\n# b\n```\n";
        assert_eq!(found(&[file("a.md", text)]), ["`a.md` has no heading `#b`"]);
        let other = file("docs/protocol.md", "# A\n## B c\n");
        let link = file("README.md", "[a](docs/protocol.md#b-c) [b](docs/protocol.md#d)");
        let found = check(&[other, link], &tree::root());
        let found: Vec<String> = found.into_iter().map(|finding| finding.what).collect();
        assert_eq!(found, ["`docs/protocol.md` has no heading `#d`"]);
    }

    #[test]
    fn pages_that_are_named_exist() {
        // In two pieces, so that this file does not find itself.
        let page = concat!("docs/", "none.md");
        let files = [file("a.rs", &format!("/// See `{page}`.\n/// see docs/ and other/{page}\n"))];
        assert_eq!(found(&files), [format!("there is no `{page}`")]);
    }

    #[test]
    fn every_page_is_listed() {
        let list = file(LISTS[1], "nav: docs/data.md");
        let files = [list, file("docs/data.md", ""), file("docs/model.md", "")];
        let found = check(&files, &tree::root());
        assert_eq!(found, [Finding::new(LISTS[1], 0, "does not list `docs/model.md`")]);
    }
}
