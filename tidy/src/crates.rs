//! Which crate may depend on which.

use crate::Finding;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Each of our crates, with all that it may depend on; `*` is anything that is
/// not ours.
const MAY: [(&str, &[&str]); 20] = [
    ("falkon-core", &["thiserror"]),
    ("falkon-wire", &["falkon-core", "rmp", "thiserror"]),
    ("falkon-lock", &["*"]),
    ("falkon-process", &["*"]),
    ("falkon-net", &["falkon-core", "falkon-wire", "*"]),
    (
        "falkon-data",
        &[
            "falkon-core",
            "falkon-wire",
            "falkon-lock",
            "falkon-process",
            "falkon-net",
            "falkon-archive",
            "*",
        ],
    ),
    ("falkon-archive", &["falkon-core", "falkon-lock", "*"]),
    ("falkon-fuse", &["*"]),
    ("falkon-provision", &["falkon-core", "falkon-wire", "falkon-process", "falkon-net", "*"]),
    (
        "falkon-dispatcher",
        &["falkon-core", "falkon-wire", "falkon-lock", "falkon-net", "falkon-provision", "*"],
    ),
    (
        "falkon-executor",
        &[
            "falkon-core",
            "falkon-wire",
            "falkon-process",
            "falkon-net",
            "falkon-data",
            "falkon-archive",
            "falkon-fuse",
            "*",
        ],
    ),
    (
        "falkon-relay",
        &["falkon-core", "falkon-wire", "falkon-net", "falkon-dispatcher", "falkon-data", "*"],
    ),
    ("falkon-web", &["*"]),
    ("falkon-sim", &["falkon-core", "falkon-wire", "thiserror"]),
    (
        "falkon-cli",
        &[
            "falkon-core",
            "falkon-wire",
            "falkon-lock",
            "falkon-process",
            "falkon-net",
            "falkon-data",
            "falkon-archive",
            "falkon-fuse",
            "falkon-provision",
            "falkon-dispatcher",
            "falkon-executor",
            "falkon-relay",
            "falkon-web",
            "falkon-sim",
            "*",
        ],
    ),
    (
        "falkon-lab",
        &[
            "falkon-core",
            "falkon-wire",
            "falkon-process",
            "falkon-net",
            "falkon-data",
            "falkon-executor",
            "falkon-sim",
            "falkon-cli",
            "*",
        ],
    ),
    ("falkon-trials", &["falkon-trials-macros", "*"]),
    ("falkon-trials-macros", &[]),
    ("falkon-stacking", &["*"]),
    ("falkon-tidy", &["*"]),
];

/// What cargo knows about the workspace; with the packages that it builds upon
/// on this machine if `with_dependencies`.
///
/// # Errors
/// Says what went wrong.
pub fn metadata(root: &Path, with_dependencies: bool) -> Result<Value, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(["metadata", "--format-version", "1", "--locked"]);
    if with_dependencies {
        command.args(["--filter-platform", env!("TIDY_TARGET")]);
    } else {
        command.arg("--no-deps");
    }
    let output = command.output().map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

/// Checks what each package of the workspace depends on, tests aside.
#[must_use]
pub fn directions(metadata: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in list(&metadata["packages"]) {
        let name = text(&package["name"]);
        let Some((_, may)) = MAY.iter().find(|(of, _)| *of == name) else {
            findings.push(Finding::new(name, 0, "a new crate: say in tidy what it may depend on"));
            continue;
        };
        for dependency in list(&package["dependencies"]) {
            let on = text(&dependency["name"]);
            let ours = on.starts_with("falkon-");
            if text(&dependency["kind"]) == "dev" || may.contains(&on) {
                continue;
            }
            if ours || !may.contains(&"*") {
                let what = format!("it must not depend on {on} (see ARCHITECTURE.md, Parts)");
                findings.push(Finding::new(name, 0, what));
            }
        }
    }
    findings
}

/// The entries of a JSON list.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A JSON text; empty for anything else.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_wrong_direction_is_found() {
        let on = |name: &str, kind: Value| json!({ "name": name, "kind": kind });
        let package = |name: &str, on: Vec<Value>| json!({ "name": name, "dependencies": on });
        let found = |package: Value| directions(&json!({ "packages": [package] })).len();
        assert_eq!(found(package("falkon-core", vec![on("proptest", json!("dev"))])), 0);
        assert_eq!(found(package("falkon-core", vec![on("smallvec", Value::Null)])), 1);
        assert_eq!(found(package("falkon-wire", vec![on("falkon-core", Value::Null)])), 0);
        assert_eq!(found(package("falkon-wire", vec![on("tokio", Value::Null)])), 1);
        assert_eq!(found(package("falkon-net", vec![on("tokio", Value::Null)])), 0);
        assert_eq!(found(package("falkon-net", vec![on("falkon-data", Value::Null)])), 1);
        assert_eq!(
            found(package("falkon-executor", vec![on("falkon-dispatcher", Value::Null)])),
            1
        );
        assert_eq!(found(package("falkon-new", vec![])), 1);
    }
}
