//! Files written from the table: the page of task files, and Python's module of
//! options. `FALKON_WRITE_GOLDEN=1 cargo test -p falkon-cli --lib options`
//! writes both anew.

use super::*;
use crate::plan::taskfile::fields::OWN_PAGE;
use clap::Parser;
use falkon_wire::codec::Wire;
use std::path::Path;

#[derive(Parser, Debug)]
struct Line {
    #[command(flatten)]
    options: ClassOptions,
}

/// Compares a file of the repository with what it is to be, or writes it.
fn check(path: &str, wanted: impl FnOnce(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let wanted = wanted(&found);
    if std::env::var_os("FALKON_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, wanted).unwrap();
    } else {
        let again = "FALKON_WRITE_GOLDEN=1 cargo test -p falkon-cli --lib options";
        assert!(found == wanted, "{} is not up to date: {again}", path.display());
    }
}

#[test]
fn the_page_of_task_files_has_every_field() {
    let mut table = String::from("| field | value | default |\n|---|---|---|\n");
    for [name, page, otherwise] in OWN_PAGE {
        table.push_str(&format!("| `{name}` | {page} | {otherwise} |\n"));
    }
    for OptionRow { field, flag, page, otherwise, .. } in rows() {
        table.push_str(&format!("| `{field}` | {page} | `--{flag}`, {otherwise} |\n"));
    }
    check("docs/task-files.md", |page| {
        let (before, rest) = page.split_once("| field |").unwrap();
        let (_, after) = rest.split_once("\n\n").unwrap();
        format!("{before}{table}\n{after}")
    });
}

/// The fields of a struct in a class, as Python's list; `above` leads there.
fn python_list(above: &[&str], fields: &[&str], rows: &[OptionRow], indent: &str) -> String {
    let mut list = String::from("[\n");
    for field in fields {
        let place = [above, &[*field]].concat();
        let of_place = rows.iter().filter(|row| row.place == place);
        let found: Vec<String> = of_place.map(|row| format!("found[\"{}\"]", row.field)).collect();
        let value = match &found[..] {
            [found] => found.clone(),
            // Lists of which each option gives a part.
            [_, _, ..] => format!("sorted({})", found.join(" + ")),
            [] if place == ["kind"] => "kind".to_owned(),
            // Calls name no archives.
            [] if place == ["unpacks"] || place == ["attempts_before"] => "0".to_owned(),
            // What was chosen is for executors.
            [] if place == ["alternative"] => "0".to_owned(),
            [] if place == ["resources"] => {
                python_list(&place, Resources::FIELDS, rows, &format!("{indent}    "))
            }
            [] => panic!("no option says what `{field}` of a task's class is"),
        };
        list.push_str(&format!("{indent}    {value},\n"));
    }
    list + indent + "]"
}

#[test]
fn python_has_every_option() {
    let rows = rows();
    let mut options = String::new();
    for OptionRow { field, flag, python, default, given, .. } in &rows {
        let calls = if *given == Given::Everywhere { "True" } else { "False" };
        // A name that Python has for itself.
        let flag = if *flag == "or" { "or_".to_owned() } else { flag.replace('-', "_") };
        let default = if default == "false" { "False" } else { default };
        options.push_str(&format!(
            "    TaskOption(\"{field}\", \"{flag}\", \"{python}\", {default}, {calls}),\n"
        ));
    }
    let (first, later) =
        TaskClass::FIELDS.split_at(TaskClass::FIELDS.len() - TaskClass::LATER_FIELDS);
    let list = python_list(&[], first, &rows, "    ");
    let later = python_list(&[], later, &rows, "    ");
    check("python/falkon/_task_options.py", |_| {
        format!(
            r#""""The options of a task: written from the table in crates/cli/src/plan/options.rs,
not to be edited."""

from typing import Any, List, Mapping, NamedTuple


class TaskOption(NamedTuple):
    """An option, and how it is given."""

    field: str
    """Its name: the field of a task, the option of a call."""
    flag: str
    """The option of ``falkon submit``, with underscores."""
    kind: str
    """What reads its values."""
    default: Any
    """What a task has without it, as the protocol has it."""
    is_for_calls: bool


OPTIONS = (
{options})


def class_of(kind: int, found: Mapping[str, Any]) -> List[Any]:
    """A task's class, as the protocol has it."""
    fields = {}
    later = {later}
    # Versions that do not know these have no tasks that say something there.
    return fields + later if any(later) else fields
"#,
            list.replacen("kind,", "[kind],", 1)
        )
    });
}

#[test]
fn options_say_what_they_are_without() {
    let help = <Line as clap::CommandFactory>::command().term_width(0).render_help().to_string();
    for part in [
        "also a fraction; auto is as many as others have used [default: 1]",
        "--resource <NAME=COUNT>",
        "Number of retries of a failed task [default: 0]",
        "--timeout <TIME>",
    ] {
        assert!(help.contains(part), "{part} is not in\n{help}");
    }
}

#[test]
fn the_last_of_several_counts_and_zero_is_none() {
    let words = ["falkon", "--resource=a=1", "--resource=b=2", "--resource=a=3", "--resource=c=0"];
    let mut class = TaskClass::default();
    Line::try_parse_from(words).unwrap().options.put(&mut class);
    assert_eq!(class.resources.custom, [("a".to_owned(), 3), ("b".to_owned(), 2)]);
    let words = ["falkon", "--resource=b=0"];
    Line::try_parse_from(words).unwrap().options.put(&mut class);
    assert_eq!(class.resources.custom, [("a".to_owned(), 3)]);
}

#[test]
fn disk_space_is_beside_custom_resources() {
    let words = ["falkon", "--resource=z=1", "--disk=2GiB", "--resource=a=3"];
    let mut class = TaskClass::default();
    Line::try_parse_from(words).unwrap().options.put(&mut class);
    assert_eq!(class.resources.disk_bytes(), 2 << 30);
    let names: Vec<&str> = class.resources.custom.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(names, ["a", "disk", "z"]);
    assert_eq!(class.resources.to_string(), "1 cpus, 2048 MiB disk, 3 a, 1 z");
    Line::try_parse_from(["falkon", "--disk=0"]).unwrap().options.put(&mut class);
    assert_eq!(class.resources.site_defined().count(), 2);
    assert_eq!(class.resources.disk_bytes(), 0);
}
