//! The dispatcher's metrics, for programs that collect them.

use super::{Page, get, with_page};
use crate::fixture::{Running, Site, poll};
use falkon_trials::trial;
use serde_json::Value;
use std::process::{Command, Stdio};

/// The value of a metric with its label, in a text of metrics.
fn value(text: &str, metric: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(metric)?.trim().parse().ok())
}

#[trial]
fn metrics_are_exact_and_for_those_who_have_the_token() {
    let site = Site::new();
    let dispatcher = with_page(&site);
    let access = dispatcher.access();
    let observer = dispatcher.access_of("access-observer.json");
    let page = Page::of(&observer);
    let token = observer.run("web", &["--token"]).exits(0).text().trim().to_owned();
    let scraped =
        |token: &str| get(&page.address, "/metrics", &format!("Authorization: Bearer {token}\r\n"));
    let first = scraped(&token);
    assert_eq!(first.status, 200, "{first:?}");
    assert!(first.head.contains("application/openmetrics-text; version=1.0.0"), "{}", first.head);
    assert!(first.body.ends_with("\n# EOF\n"), "{}", first.body);
    assert_eq!(get(&page.address, "/metrics", "").status, 401);
    assert_eq!(scraped(&token.replace(|of: char| of != '0', "0")).status, 401);
    assert_eq!(page.get("/metrics").status, 200);
    // It opens nothing else.
    let headers = format!("Authorization: Bearer {token}\r\n");
    assert_eq!(get(&page.address, "/api/instances", &headers).status, 401);
    assert_eq!(get(&page.address, "/", &headers).status, 401);
    dispatcher.access_of("access-client.json").run("web", &["--token"]).exits(2).says("observer");
    let executor = dispatcher.executor("node", &["--slots", "2"]);
    let instance = access.submit(&["--range", "0-99", "--", "test", "{}", "-ge", "7"]);
    access.submit(&["--range", "1-1000000000", "--cpus", "1000", "--", "@noop"]);
    access.run("wait", &[&instance]).exits(1);
    poll("the metrics have all ends", || {
        let text = scraped(&token).body;
        value(&text, "falkon_tasks{state=\"failed\"}") == Some(7.0)
            && value(&text, "falkon_tasks{state=\"done\"}") == Some(93.0)
            && value(&text, "falkon_tasks{state=\"ready\"}") == Some(1e9)
            && value(&text, "falkon_executors{state=\"idle\"}") == Some(1.0)
            && value(&text, "falkon_cpus{state=\"free\"}") == Some(2.0)
            && value(&text, "falkon_instances{state=\"complete\"}") == Some(1.0)
    });
    drop(executor);
}

/// A real Prometheus scrapes the dispatcher, and a query has what has ended.
#[trial]
fn prometheus_has_the_count_of_ended_tasks() {
    let mut asked = Command::new("prometheus");
    asked.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    if !asked.status().is_ok_and(|status| status.success()) {
        falkon_trials::skip("it needs prometheus");
    }
    let site = Site::new();
    let dispatcher = with_page(&site);
    let access = dispatcher.access();
    let observer = dispatcher.access_of("access-observer.json");
    let token = observer.run("web", &["--token"]).exits(0).text().to_owned();
    let token = site.write("token", token);
    let address = Page::of(&observer).address;
    let config = site.write(
        "prometheus.yml",
        format!(
            "scrape_configs:\n- job_name: falkon\n  scrape_interval: 1s\n  authorization: \
             {{ credentials_file: {token} }}\n  static_configs: [{{ targets: [\"{address}\"] }}]\n"
        ),
    );
    let mut command = site.program("prometheus");
    command.args(["--web.listen-address=127.0.0.1:0", &format!("--config.file={config}")]);
    command.arg(format!("--storage.tsdb.path={}", site.text("prometheus")));
    let prometheus = Running::start(command);
    let said = prometheus.wait_for("TLS is disabled");
    let listening = said.split_once("\"Listening on\" address=").unwrap().1;
    let (listening, _) = listening.split_once('\n').unwrap();
    let executor = dispatcher.executor("node", &["--slots", "2"]);
    let instance = access.submit(&["--range", "0-99", "--", "test", "{}", "-ge", "7"]);
    access.run("wait", &[&instance]).exits(1);
    let asked = |query: &str| -> Value {
        let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let path = format!("/api/v1/query?query={query}");
        let response = get(listening, &path, "Connection: close\r\n");
        serde_json::from_str(&response.body).unwrap_or_default()
    };
    let answer = |query: &str| asked(query)["data"]["result"][0]["value"][1].clone();
    let ended = "sum(falkon_tasks{state=~\"done|failed|cancelled\"})";
    poll("a query has all ends", || answer(ended) == "100");
    poll("a query has those that failed", || answer("falkon_tasks{state=\"failed\"}") == "7");
    // Each query of the dashboard is one that has an answer; slopes need two points.
    let dashboard = include_str!("../../../../../packaging/grafana/falkon.json");
    let dashboard: Value = serde_json::from_str(dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    for target in panels.flat_map(|panel| panel["targets"].as_array().unwrap()) {
        let query = target["expr"].as_str().unwrap();
        let query = query.replace("$job", "falkon").replace("$dispatcher", &address);
        let query = query.replace("$__rate_interval", "1h");
        poll(&query, || !asked(&query)["data"]["result"][0].is_null());
    }
    // Prometheus has refused no line of what it read.
    poll("a whole scrape", || answer("up{job=\"falkon\"}") == "1");
    drop(executor);
}
