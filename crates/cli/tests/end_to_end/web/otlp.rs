//! Metrics for a collector of OpenTelemetry.

use super::head;
use crate::fixture::{Site, poll_for};
use falkon_trials::trial;
use serde_json::Value;
use std::io::{BufReader, Read, Write};
use std::net::TcpListener;

/// A collector: what it was sent last, with the head of the request.
struct Collector(TcpListener);

impl Collector {
    /// Answers the next request, and returns it.
    fn answer(&self, status: &str) -> (String, Value) {
        let (stream, _) = self.0.accept().unwrap();
        let mut reader = BufReader::new(stream);
        let (_, head) = head(&mut reader);
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        let mut body = Vec::new();
        reader.by_ref().take(length.unwrap()).read_to_end(&mut body).unwrap();
        let answer =
            format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}");
        reader.get_mut().write_all(answer.as_bytes()).unwrap();
        (head, serde_json::from_slice(&body).unwrap())
    }
}

/// The value of a metric, whose label has a value.
fn value(document: &Value, metric: &str, label: &str) -> Option<f64> {
    let scope = &document["resourceMetrics"][0]["scopeMetrics"][0];
    let metric = scope["metrics"].as_array()?.iter().find(|one| one["name"] == metric)?;
    let points = metric["gauge"]["dataPoints"].as_array()?;
    let is_it = |point: &&Value| point["attributes"][0]["value"]["stringValue"] == label;
    points.iter().find(is_it)?["asDouble"].as_f64()
}

#[trial]
fn a_collector_is_sent_the_counts_of_tasks_whatever_it_answered_before() {
    let mut site = Site::new();
    let collector = Collector(TcpListener::bind("127.0.0.1:0").unwrap());
    let url = format!("http://me:secret@{}", collector.0.local_addr().unwrap());
    site.set("OTEL_EXPORTER_OTLP_HEADERS", "api-key=k%20ey");
    let dispatcher = site.dispatcher("d", &["--otlp", &url, "--otlp-every", "1s"]);
    let (head, first) = collector.answer("503 Service Unavailable");
    assert!(head.starts_with("POST /v1/metrics HTTP/1.1\r\n"), "{head}");
    for line in ["content-type: application/json", "api-key: k ey"] {
        assert!(head.lines().any(|one| one == line), "no {line:?} in {head}");
    }
    assert_eq!(value(&first, "falkon_tasks", "done"), Some(0.0));
    let resource = &first["resourceMetrics"][0]["resource"]["attributes"];
    assert_eq!(resource[0]["value"]["stringValue"], "falkon");
    let said = dispatcher.service().wait_for("metrics are not sent to");
    assert!(said.contains("it answers 503 Service Unavailable"), "{said}");
    assert!(!said.contains("secret"), "{said}");
    let executor = dispatcher.executor("node", &["--slots", "1"]);
    let instance = dispatcher.access().submit(&["--range", "0-99", "--", "test", "{}", "-ge", "7"]);
    dispatcher.access().run("wait", &[&instance]).exits(1);
    poll_for("the collector has all ends", || {
        let (_, document) = collector.answer("200 OK");
        let count = |state| value(&document, "falkon_tasks", state);
        (count("done") == Some(93.0) && count("failed") == Some(7.0)).then_some(())
    });
    dispatcher.service().wait_for("again");
    drop(executor);
}

#[trial]
fn what_is_no_collector_is_refused() {
    let mut site = Site::new();
    let dir = site.text("d");
    let start = |site: &Site, more: &[&str]| {
        site.run([&["start", "--dir", &dir, "--listen", "127.0.0.1:0"], more].concat()).exits(2)
    };
    start(&site, &["--otlp", "collector:4318"]).says_only(1, "it takes http://HOST:PORT");
    let often = ["--otlp", "http://127.0.0.1:1", "--otlp-every", "10ms"];
    start(&site, &often).says_only(1, "--otlp-every takes 1s or more");
    site.set("OTEL_EXPORTER_OTLP_HEADERS", "a b=secret");
    let refused = start(&site, &["--otlp", "http://127.0.0.1:1"]);
    let refused =
        refused.says_only(1, "OTEL_EXPORTER_OTLP_HEADERS: the header \"a b\" cannot be sent");
    assert!(!refused.err.contains("secret"), "{}", refused.err);
}
