use super::*;
use crate::sim::fields::Description;
use proptest::prelude::*;

const ONE: &str = r#"
[workload]
tasks = 60
kind = "compute"
run = "300ms"
arrivals = { rate = 40 }
inputs = { objects = 12, size = "10MB" }
[policy]
name = "queue-aware"
[[nodes]]
count = 3
slots = 2
cache = "1GB"
[store]
bandwidth = "1Gb/s"
"#;

fn made(extra: &str) -> Vec<Run> {
    let description: Description = toml::from_str(&format!("{ONE}{extra}")).unwrap();
    let variants = description.variants().unwrap().into_iter();
    variants
        .map(|variant| Run { figures: falkon_sim::run(&variant.scenario, 1).unwrap(), variant })
        .collect()
}

fn named(mut runs: Vec<Run>, name: &str) -> Vec<Run> {
    for run in &mut runs {
        name.clone_into(&mut run.variant.scenario.name);
    }
    runs
}

/// A piece of text or of an attribute with its entities replaced.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut parts = text.split('&');
    out.push_str(parts.next().unwrap());
    for part in parts {
        let (entity, rest) = part.split_once(';').expect("an entity ends");
        out.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "#39" => '\'',
            other => panic!("there is no entity {other}"),
        });
        out.push_str(rest);
    }
    let fits = |c: char| !c.is_control() || c == '\n';
    assert!(out.chars().all(fits), "no XML: {out:?}");
    out
}

/// Reads well-formed XML: each element with its attributes' names and its depth,
/// in order, and the text of all.
fn read(xml: &str) -> (Vec<String>, Vec<String>) {
    let mut rest = xml.strip_prefix("<!DOCTYPE html>").expect("it says what it is");
    let (mut open, mut elements, mut texts): (Vec<&str>, Vec<String>, Vec<String>) =
        Default::default();
    while let Some(at) = rest.find('<') {
        assert!(!rest[..at].contains('>'), "stray > in {:?}", &rest[..at]);
        texts.push(plain(&rest[..at]));
        let (tag, after) = rest[at + 1..].split_once('>').expect("a tag ends");
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "elements overlap");
            continue;
        }
        let is_empty = tag.ends_with('/');
        let tag = tag.trim_end_matches('/');
        let (name, mut attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "element {name:?}");
        let mut described = format!("{} {name}", open.len());
        while !attributes.trim().is_empty() {
            let (key, after) = attributes.trim_start().split_once("=\"").expect("a value");
            let (value, after) = after.split_once('"').expect("a value ends");
            plain(value);
            described.push(' ');
            described.push_str(key);
            attributes = after;
        }
        elements.push(described);
        if !is_empty {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    assert_eq!(rest.trim(), "");
    (elements, texts)
}

#[test]
fn pages_are_well_formed_and_have_the_papers_plots() {
    let one = page(&made(""), 1);
    let (elements, texts) = read(&one);
    for title in ["Throughput", "Data by source", "Hits by source", "Queue", "Nodes", "Utilization"]
    {
        assert!(texts.iter().any(|text| text == title), "no plot of {title}");
    }
    let charts = elements.iter().filter(|element| element.contains(" svg ")).count();
    assert_eq!(charts, 6);
    for unit in ["time, s", "tasks/s", "Gb/s", "% of bytes", "tasks", "nodes"] {
        assert!(texts.iter().any(|text| text == unit), "no axis of {unit}");
    }
    assert!(one.contains("prefers-color-scheme: dark"));
    let (elements, texts) = read(&page(&made("[grid]\nnodes = [1, 2, 3]\n"), 1));
    assert!(texts.iter().any(|text| text == "nodes 3"), "no line for the third row");
    let bars = elements.iter().filter(|element| element.contains(" rect ")).count();
    assert_eq!(bars, 3);
}

#[test]
fn pages_need_nothing_from_elsewhere() {
    for text in [page(&made(""), 1), page(&made("[grid]\nnodes = [1, 2]\n"), 1)] {
        let without_names = text.replace("http://www.w3.org/", "");
        for reference in ["http", "src=", "href=", "url(", "@import", "<script"] {
            assert!(!without_names.contains(reference), "the page has {reference}");
        }
    }
}

#[test]
fn no_name_breaks_out_of_a_page() {
    let runs = [made(""), made("[grid]\nnodes = [1, 2]\n")];
    let harmless = runs.each_ref().map(|runs| read(&page(&copy(runs, "name"), 1)).0);
    let names = prop_oneof![
        any::<String>(),
        "[<>&\"'/=a-z \u{0}-\u{1f}-]{0,24}",
        Just("</title></style><script>x</script><!--".to_owned()),
        Just("]]>\u{fffe}\u{85}\" onload=\"x".to_owned()),
    ];
    let config = ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() };
    proptest!(config, |(name in names)| {
        for (runs, harmless) in runs.iter().zip(&harmless) {
            let (elements, texts) = read(&page(&copy(runs, &name), 1));
            prop_assert_eq!(&elements, harmless);
            let is_plain = |c: char| !c.is_control() && c != '\u{fffe}' && c != '\u{ffff}';
            if !name.is_empty() && name.chars().all(is_plain) {
                prop_assert!(texts.contains(&name), "{:?} is not shown", name);
            }
        }
    });
}

fn copy(runs: &[Run], name: &str) -> Vec<Run> {
    let copies = runs.iter().map(|run| Run {
        variant: Variant {
            scenario: run.variant.scenario.clone(),
            label: run.variant.label.clone(),
        },
        figures: run.figures.clone(),
    });
    named(copies.collect(), name)
}
