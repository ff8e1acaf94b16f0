//! The modules of the Python package import each other without a circle, imports inside
//! functions and for type checkers included; the worker's program imports none of the others.

use crate::Finding;
use crate::tree::File;
use std::collections::{BTreeMap, BTreeSet};

/// The folder of the package.
const PACKAGE: &str = "python/falkon/";
/// The package in it that is carried to where workers run.
const WORKER: &str = "worker/";

/// A module by its path in the package, without `.py`: `worker/objects`.
type Imports<'a> = BTreeMap<&'a str, BTreeSet<String>>;

/// Finds circles of imports.
#[must_use]
pub fn check(files: &[File]) -> Vec<Finding> {
    let modules: BTreeMap<&str, &File> = files
        .iter()
        .filter_map(|file| Some((file.path.strip_prefix(PACKAGE)?.strip_suffix(".py")?, file)))
        .collect();
    let imports: Imports<'_> = modules
        .iter()
        .map(|(name, file)| (*name, imports_of(name, &file.text, &modules)))
        .collect();
    let mut findings: Vec<Finding> = imports
        .iter()
        .filter(|(name, of)| {
            name.starts_with(WORKER) && of.iter().any(|one| !one.starts_with(WORKER))
        })
        .map(|(name, _)| {
            let what = "the worker runs without the package: it may import its own modules alone";
            Finding::new(&format!("{PACKAGE}{name}.py"), 0, what)
        })
        .collect();
    let mut clear = BTreeSet::new();
    for name in modules.keys() {
        let mut way = Vec::new();
        if let Some(circle) = circle(name, &imports, &mut way, &mut clear) {
            let what = format!("modules import each other in a circle: {}", circle.join(" → "));
            findings.push(Finding::new(&format!("{PACKAGE}{name}.py"), 0, what));
            break;
        }
    }
    findings
}

/// A circle that a module leads to; `clear` are modules that lead to none.
fn circle(
    name: &str,
    imports: &Imports<'_>,
    way: &mut Vec<String>,
    clear: &mut BTreeSet<String>,
) -> Option<Vec<String>> {
    if let Some(at) = way.iter().position(|before| before == name) {
        way.push(name.to_owned());
        return Some(way.split_off(at));
    }
    if clear.contains(name) {
        return None;
    }
    way.push(name.to_owned());
    for next in imports.get(name)? {
        if let Some(found) = circle(next, imports, way, clear) {
            return Some(found);
        }
    }
    way.pop();
    clear.insert(name.to_owned());
    None
}

/// The modules of the package that one imports.
fn imports_of(name: &str, text: &str, modules: &BTreeMap<&str, &File>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut lines = text.lines().map(|line| line.split('#').next().unwrap_or(line).trim());
    while let Some(line) = lines.next() {
        let Some(rest) = line.strip_prefix("from ") else { continue };
        let Some((from, names)) = rest.split_once(" import ") else { continue };
        let mut names = names.to_owned();
        while names.contains('(') && !names.contains(')') {
            let Some(line) = lines.next() else { break };
            names.push_str(line);
        }
        let Some(from) = folder_of(name, from) else { continue };
        if modules.contains_key(from.as_str()) {
            found.insert(from);
            continue;
        }
        for one in names.split([',', '(', ')']) {
            let one = one.split_whitespace().next().unwrap_or_default();
            let inside = if from.is_empty() { one.to_owned() } else { format!("{from}/{one}") };
            let package =
                if from.is_empty() { "__init__".to_owned() } else { format!("{from}/__init__") };
            if modules.contains_key(inside.as_str()) {
                found.insert(inside);
            } else if !one.is_empty() && modules.contains_key(package.as_str()) {
                found.insert(package);
            }
        }
    }
    found.remove(name);
    found
}

/// The path that `from` of an import stands for; `None` outside of the package.
fn folder_of(name: &str, from: &str) -> Option<String> {
    let path = from.trim_start_matches('.');
    let mut folder: Vec<&str> = name.split('/').collect();
    let dots = from.len() - path.len();
    folder.truncate(folder.len().checked_sub(dots)?);
    let mut words = path.split('.').filter(|word| !word.is_empty());
    if dots == 0 {
        folder.clear();
        (words.next() == Some("falkon")).then_some(())?;
    }
    folder.extend(words);
    Some(folder.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: format!("{PACKAGE}{path}"), text: text.to_owned() }
    }

    fn circles(files: &[(&str, &str)]) -> usize {
        let files: Vec<File> = files.iter().map(|(path, text)| file(path, text)).collect();
        check(&files).len()
    }

    #[test]
    fn a_circle_is_found_wherever_an_import_stands() {
        let b = ("b.py", "X = 1\n");
        assert_eq!(circles(&[("a.py", "from .b import X\n"), b]), 0);
        let inside = ("b.py", "def f():\n    from .a import Y\n");
        assert_eq!(circles(&[("a.py", "from .b import X\n"), inside]), 1);
        let plain = ("b.py", "from . import (\n    a,  # why\n    c,\n)\n");
        assert_eq!(circles(&[("a.py", "import os\nfrom .b import X\n"), plain]), 1);
        let absolute = ("b.py", "from falkon.a import Y\n");
        assert_eq!(circles(&[("a.py", "from .b import X\n"), absolute]), 1);
        assert_eq!(circles(&[("a.py", "from falkon_other.a import X\n"), b]), 0);
    }

    #[test]
    fn packages_inside_are_modules_too() {
        let up = ("worker/b.py", "from ..a import Y\n");
        assert_eq!(circles(&[("a.py", "from .worker.b import X\n"), up]), 2);
        assert_eq!(circles(&[("a.py", ""), up]), 1);
        let beside = ("worker/c.py", "from .b import X\n");
        let back = ("worker/b.py", "from . import c\n");
        assert_eq!(circles(&[beside, back]), 1);
        assert_eq!(circles(&[beside, ("worker/b.py", "from . import d\n")]), 0);
    }

    #[test]
    fn what_leads_to_a_circle_and_what_does_not() {
        let chain =
            [("a.py", "from .b import X\nfrom .c import X\n"), ("b.py", "from .c import X\n")];
        assert_eq!(circles(&[chain[0], chain[1], ("c.py", "")]), 0);
        assert_eq!(circles(&[chain[0], chain[1], ("c.py", "from .b import Y\n")]), 1);
    }
}
