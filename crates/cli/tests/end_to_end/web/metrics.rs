//! The dispatcher's metrics, for programs that collect them.

use super::{Page, get, with_page};
use crate::fixture::{Site, poll};
use falkon_trials::trial;

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
