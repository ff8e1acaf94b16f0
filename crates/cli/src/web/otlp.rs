//! The dispatcher's metrics for a collector of OpenTelemetry: OTLP over HTTP, as JSON.

use super::metrics::metrics;
use falkon_dispatcher::Handle;
use falkon_net::Log;
use falkon_net::client::Client;
use falkon_net::secure::{Role, plain};
use falkon_web::{Push, PushOptions, Target};
use falkon_wire::message::Status;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::time::Duration;

/// The path, behind a collector's address, at which it takes metrics.
const PATH: &str = "/v1/metrics";
/// The variable with headers that the collector wants.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// A counter's values are sums since it began.
const CUMULATIVE: u32 = 2;
/// Bytes on their way between who sends metrics and the dispatcher.
const LINK_BYTES: usize = 64 << 10;

/// The collector at a URL, with the headers of the environment.
pub(crate) fn target(url: &str) -> Result<Target, String> {
    let target = Target::new(url, PATH).map_err(|error| format!("--otlp: {error}"))?;
    match std::env::var(HEADERS) {
        Ok(headers) => target.with_headers(&headers).map_err(|error| format!("{HEADERS}: {error}")),
        Err(_) => Ok(target),
    }
}

/// Sends the metrics of a dispatcher in this process, until what it returns is dropped.
/// `address` is where the dispatcher is.
pub(crate) fn send(
    target: Target,
    every: Duration,
    handle: &Handle,
    address: String,
    log: Log,
) -> Result<Push, String> {
    let handle = handle.clone();
    let make = move || -> std::pin::Pin<Box<dyn Future<Output = _> + Send>> {
        let (ours, theirs) = tokio::io::duplex(LINK_BYTES);
        let (reader, writer) = plain(theirs);
        handle.attach(Role::Observer, "otlp", reader, writer);
        let (reader, writer) = plain(ours);
        let address = address.clone();
        Box::pin(async move {
            let (client, _deliveries) = Client::over(reader, writer);
            let status = client.status(None).await.map_err(|error| error.to_string())?;
            Ok(document(&status, &address).to_string())
        })
    };
    let log = Box::new(move |line: &str| log(line));
    let options = PushOptions { target, every, make: Box::new(make), log };
    Push::start(options).map_err(|error| format!("cannot send metrics: {error}"))
}

/// The metrics as an `ExportMetricsServiceRequest`.
fn document(status: &Status, address: &str) -> Value {
    let at = status.now.0.saturating_mul(1000).to_string();
    let attribute =
        |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    let shown: Vec<Value> = metrics(status)
        .into_iter()
        .map(|metric| {
            let point = |(of, value): &(Cow<'static, str>, f64)| {
                let mut point = json!({ "timeUnixNano": at, "asDouble": value });
                if !metric.label.is_empty() {
                    point["attributes"] = json!([attribute(metric.label, of)]);
                }
                point
            };
            let points: Vec<Value> = metric.values.iter().map(point).collect();
            let (kind, data) = match metric.is_counter {
                true => (
                    "sum",
                    json!({
                        "dataPoints": points,
                        "aggregationTemporality": CUMULATIVE,
                        "isMonotonic": true,
                    }),
                ),
                false => ("gauge", json!({ "dataPoints": points })),
            };
            json!({
                "name": metric.name,
                "description": metric.help,
                "unit": unit(metric.unit),
                kind: data,
            })
        })
        .collect();
    json!({ "resourceMetrics": [{
        "resource": { "attributes": [
            attribute("service.name", "falkon"),
            attribute("service.version", &status.version),
            attribute("service.instance.id", address),
        ] },
        "scopeMetrics": [{
            "scope": { "name": "falkon", "version": &status.version },
            "metrics": shown,
        }],
    }] })
}

/// A unit as OpenTelemetry has it (UCUM).
fn unit(unit: &str) -> &str {
    match unit {
        "seconds" => "s",
        "bytes" => "By",
        "" => "1",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use falkon_core::task::Time;

    #[test]
    fn a_document_has_every_metric_with_its_unit_and_all_its_values() {
        let status = Status { now: Time(1_700_000_000_000_000), ..Status::default() };
        let document = document(&status, "node:4711");
        let scope = &document["resourceMetrics"][0]["scopeMetrics"][0];
        let shown = scope["metrics"].as_array().unwrap();
        assert_eq!(shown.len(), metrics(&status).len());
        for (metric, shown) in metrics(&status).iter().zip(shown) {
            assert_eq!(shown["name"], metric.name);
            assert!(["s", "By", "1"].contains(&shown["unit"].as_str().unwrap()), "{shown}");
            let kind = if metric.is_counter { "sum" } else { "gauge" };
            let points = shown[kind]["dataPoints"].as_array().unwrap();
            assert_eq!(points.len(), metric.values.len());
            for (point, (of, _)) in points.iter().zip(&metric.values) {
                assert_eq!(point["timeUnixNano"], "1700000000000000000");
                let label = &point["attributes"][0];
                match metric.label {
                    "" => assert!(label.is_null(), "{point}"),
                    key => {
                        assert_eq!(
                            (&label["key"], &label["value"]["stringValue"]),
                            (&key.into(), &of.as_ref().into())
                        );
                    }
                }
            }
        }
    }
}
