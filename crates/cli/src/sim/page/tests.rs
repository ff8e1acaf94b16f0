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

/// Reads well-formed elements: each with its attributes' names and its depth, in order, and
/// the text of all. What scripts and styles contain is text until they end.
fn read(page: &str) -> (Vec<String>, Vec<String>) {
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("it says what it is");
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
        if !is_empty && matches!(name, "script" | "style") {
            let ends = rest.find("</").expect("it ends");
            assert!(!rest[..ends].contains("<!--"), "a comment changes what ends a script");
            texts.push(rest[..ends].to_owned());
            rest = &rest[ends..];
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    assert_eq!(rest.trim(), "");
    (elements, texts)
}

/// The charts of a page: what is drawn from.
fn drawn_from(texts: &[String]) -> Vec<serde_json::Value> {
    texts
        .iter()
        .filter_map(|text| serde_json::from_str(text).ok())
        .filter(|value: &serde_json::Value| value.is_object())
        .collect()
}

#[test]
fn pages_are_well_formed_and_have_the_papers_plots() {
    let one = page(&made(""), 1);
    let (_, texts) = read(&one);
    let charts = drawn_from(&texts);
    let titles: Vec<&str> = charts.iter().filter_map(|chart| chart["title"].as_str()).collect();
    let plots = ["Throughput", "Data by source", "Hits by source", "Queue", "Nodes", "Utilization"];
    assert_eq!(titles, plots);
    let units: Vec<&str> = charts.iter().filter_map(|chart| chart["unit"].as_str()).collect();
    assert_eq!(units, ["tasks/s", "Gb/s", "% of bytes", "tasks", "nodes", "% of slots"]);
    for line in charts.iter().flat_map(|chart| chart["lines"].as_array().unwrap()) {
        let x: Vec<f64> =
            line["x"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        assert_eq!(x.len(), line["y"].as_array().unwrap().len());
        assert!(x.len() > 1 && x.is_sorted(), "{line}");
    }
    assert!(one.contains("prefers-color-scheme: dark"));
    let (elements, texts) = read(&page(&made("[grid]\nnodes = [1, 2, 3]\n"), 1));
    let charts = drawn_from(&texts);
    let names: Vec<&str> = charts[0]["lines"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|line| line["name"].as_str())
        .collect();
    assert_eq!(names, ["nodes 1", "nodes 2", "nodes 3"]);
    let bars = elements.iter().filter(|element| element.contains(" meter ")).count();
    assert_eq!(bars, 3);
    assert!(texts.iter().any(|text| text == "nodes 3"), "no name beside the third bar");
}

/// Busy nodes are drawn as the mean over the time between two points: tasks that are shorter
/// than that are not missed, however their instants fall.
#[test]
fn what_is_drawn_of_nodes_is_a_mean() {
    let runs = made("");
    let busy = &charts(&runs[0])[4];
    assert_eq!(busy.title, "Nodes");
    let data = serde_json::to_value(busy).unwrap();
    let line = &data["lines"][1];
    let numbers = |key: &str| -> Vec<f64> {
        line[key].as_array().unwrap().iter().map(|one| one.as_f64().unwrap()).collect()
    };
    let (x, y) = (numbers("x"), numbers("y"));
    let area: f64 = (1..x.len()).map(|at| (x[at] - x[at - 1]) * y[at]).sum();
    let last = runs[0].figures.series.last().unwrap();
    let exact = seconds(last.busy_node_time);
    assert!((area - exact).abs() < exact * 1e-3, "{area} of {exact} node-seconds are drawn");
}

#[test]
fn pages_need_nothing_from_elsewhere() {
    for text in [page(&made(""), 1), page(&made("[grid]\nnodes = [1, 2]\n"), 1)] {
        assert!(text.contains("default-src &#39;none&#39;"), "a browser may load something");
        let (elements, _) = read(&text);
        for attribute in [" src", " href", " srcset", " onload"] {
            assert!(!elements.iter().any(|element| element.contains(attribute)), "{attribute}");
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
