//! The dispatcher's page: who may see it, what it says, and what a browser makes of it.

mod accessible;
mod browser;
mod control;
mod driver;
mod metrics;
mod otlp;
mod transfers;

use crate::fixture::{Access, Dispatcher, PATIENCE, Site, poll, poll_for};
use falkon_trials::trial;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Response {
    status: u16,
    head: String,
    pub(crate) body: String,
}

/// A page as a browser reaches it.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    address: String,
    cookie: String,
}

fn connected(address: &str, request: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A server that has seen enough closes before it has read all.
    let _ = stream.write_all(request.as_bytes());
    BufReader::new(stream)
}

/// The head of a response: its status, and its lines.
fn head(reader: &mut impl BufRead) -> (u16, String) {
    let mut head = String::new();
    loop {
        let before = head.len();
        if reader.read_line(&mut head).unwrap_or(0) == 0 || head[before..].trim().is_empty() {
            break;
        }
    }
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or(0), head)
}

fn asked(address: &str, request: &str) -> Response {
    let mut reader = connected(address, request);
    let (status, head) = head(&mut reader);
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    // A connection may stay open behind what was asked for.
    let mut body = Vec::new();
    let _ = reader.take(length.unwrap_or(u64::MAX)).read_to_end(&mut body);
    Response { status, head, body: String::from_utf8_lossy(&body).into_owned() }
}

fn get(address: &str, path: &str, headers: &str) -> Response {
    asked(address, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"))
}

impl Page {
    /// The page of a dispatcher, for one who is logged in by a link.
    pub(crate) fn of(access: &Access<'_>) -> Page {
        Page::with(access, &["--print"])
    }

    /// The page for one who is logged in by the link that `falkon web` prints with `args`.
    fn with(access: &Access<'_>, args: &[&str]) -> Page {
        let link = access.run("web", args).exits(0).text().trim().to_owned();
        let (address, path) = parts(&link);
        let response = get(address, path, "");
        assert_eq!(response.status, 200, "{response:?}");
        let set = response.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
        for attribute in ["HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(set.contains(attribute), "{set}");
        }
        let cookie = set.split(';').next().unwrap().to_owned();
        Page { address: address.to_owned(), cookie }
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        get(&self.address, path, &format!("Cookie: other=1; {}\r\n", self.cookie))
    }

    /// The answer to a question.
    #[track_caller]
    fn ask(&self, question: &str) -> Value {
        let response = self.get(&format!("/api/{question}"));
        assert_eq!(response.status, 200, "{question}: {response:?}");
        serde_json::from_str(&response.body).unwrap()
    }

    /// The updates, from now on.
    fn updates(&self) -> Updates {
        let request = format!(
            "GET /api/updates HTTP/1.1\r\nHost: localhost\r\nCookie: {}\r\n\r\n",
            self.cookie
        );
        let mut reader = connected(&self.address, &request);
        let (status, head) = head(&mut reader);
        assert_eq!(status, 200, "{head}");
        assert!(head.contains("text/event-stream"), "{head}");
        Updates(reader)
    }
}

/// The address and the path of a link.
fn parts(link: &str) -> (&str, &str) {
    let rest = link.strip_prefix("http://").unwrap();
    let at = rest.find('/').unwrap();
    (&rest[..at], &rest[at..])
}

/// What the server sends as things change.
struct Updates(BufReader<TcpStream>);

impl Updates {
    /// The first one that is as wanted.
    #[track_caller]
    fn wait(&mut self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut last = String::new();
        poll_for(what, || {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "{what} never was: {last}");
            let text = line.strip_prefix("data: ")?;
            last = text.to_owned();
            let update: Value = serde_json::from_str(text).unwrap();
            is_so(&update).then_some(update)
        })
    }
}

pub(crate) fn with_page(site: &Site) -> Dispatcher<'_> {
    site.dispatcher("d", &["--web", "127.0.0.1:0"])
}

/// Names that would be code, an address, or a terminal's business.
const HOSTILE: &str = "<img src=x onerror=hacked=1></script>&\u{1b}]0;x\u{7}\u{202e}'\"";

#[trial]
fn nobody_sees_the_page_without_the_observers_secret() {
    let site = Site::new();
    let dispatcher = with_page(&site);
    let page = Page::of(&dispatcher.access_of("access-observer.json"));
    let address = &page.address;
    for path in ["/api/updates", "/api/instances", "/api/tasks?instance=0", "/api/none", "/none"] {
        assert_eq!(get(address, path, "").status, 401, "{path}");
    }
    let stranger = get(address, "/", "");
    assert_eq!(stranger.status, 401);
    assert!(stranger.body.contains("falkon web --print"), "{}", stranger.body);
    let (name, value) = page.cookie.split_once('=').unwrap();
    let changed = format!("{}0", &value[..value.len() - 1]);
    let changed = if changed == value { value.replace('0', "1") } else { changed };
    for cookie in [format!("{name}={changed}"), format!("{name}="), format!("other={value}")] {
        let response = get(address, "/", &format!("Cookie: {cookie}\r\n"));
        assert_eq!(response.status, 401, "{cookie}");
    }
    for code in ["", "1.00", &changed, value] {
        let response = get(address, &format!("/login?code={code}"), "");
        assert_eq!(response.status, 403, "{code}");
        assert!(!response.head.contains("set-cookie"), "{}", response.head);
    }
    // Whoever has another secret of the dispatcher has no link.
    dispatcher.access_of("access-client.json").run("web", &["--print"]).exits(2).says("observer");
    assert_eq!(page.get("/").status, 200);
    assert_eq!(page.get("/none").status, 404);
    assert_eq!(page.get("/api/none").status, 404);
    for path in ["/", "/files/dashboard.js", "/api/history", "/login", "/files/none"] {
        let head = page.get(path).head;
        for wanted in [
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
        ] {
            assert!(head.contains(wanted), "{path}: {head}");
        }
    }
}

#[trial]
fn updates_come_as_tasks_end_and_lists_are_exact() {
    let site = Site::new();
    let dispatcher = with_page(&site);
    let access = dispatcher.access();
    let page = Page::of(&dispatcher.access_of("access-observer.json"));
    let mut updates = page.updates();
    let first = updates.wait("a first update", |update| update["now"].as_f64().unwrap() > 0.0);
    assert_eq!((&first["tasks"]["total"], &first["executors"]["count"]), (&0.into(), &0.into()));
    // An array that no executor could ever finish, and that costs nothing to show.
    let paused =
        access.submit(&["--name", "billion", "--range", "1-1000000000", "--", "@sleep", "60"]);
    let update =
        updates.wait("a billion tasks", |update| update["tasks"]["total"] == 1_000_000_000);
    assert_eq!(update["tasks"]["ready"], 1_000_000_000);
    access.run("pause", &[&paused]).exits(0);
    let script =
        "test $1 -ne 7 -a $1 -ne 8 || exit 3; test $1 != 9 || { echo no 9 >&2; kill -9 $$; }";
    let instance = access
        .submit(&["--name", HOSTILE, "--range", "0-199", "--", "sh", "-c", script, "sh", "{}"]);
    let explained = page.ask(&format!("task?instance={instance}&task=5"));
    assert!(
        explained["explained"].as_str().unwrap().contains("no executor is connected"),
        "{explained}"
    );
    let executor = dispatcher.executor("node<1>", &["--slots", "2"]);
    let update = updates.wait("all ends", |update| {
        update["tasks"]["done"] == 197
            && update["tasks"]["failed"] == 3
            && update["failures"]["classes"] == 2
    });
    assert_eq!(update["tasks"]["total"], 1_000_000_200u64);
    let shown = update["instances"]["shown"].as_array().unwrap();
    assert!(shown.iter().any(|one| one["name"] == HOSTILE), "{update}");
    let classes = update["failures"]["shown"].as_array().unwrap();
    // Two tasks run at a time: either of these may fail first.
    let first = classes[0]["first"].as_u64();
    assert!(classes[0]["count"] == 2 && [Some(7), Some(8)].contains(&first), "{classes:?}");
    assert_eq!(
        (&classes[1]["count"], &classes[1]["how"]),
        (&1.into(), &"failed by signal 9".into())
    );
    assert_eq!(classes[0]["executors"][0], "node<1>");
    assert!(classes[0]["command"].as_str().unwrap().starts_with("sh -c"), "{classes:?}");
    // What ended is in the history, to the last task.
    poll("the history of all ends", || {
        let history = page.ask("history?scale=3");
        let sum = |name: &str| -> f64 {
            history[name].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).sum()
        };
        (sum("done"), sum("failed"), sum("submitted")) == (197.0, 3.0, 1_000_000_200.0)
    });
    let tasks = page.ask(&format!("tasks?instance={instance}&state=failed"));
    let indices = |tasks: &Value| -> Vec<u64> {
        tasks["shown"]
            .as_array()
            .unwrap()
            .iter()
            .map(|task| task["index"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(indices(&tasks), [7, 8, 9]);
    assert!(tasks["next"].is_null());
    let some = page.ask(&format!("tasks?instance={instance}&state=failed&count=2"));
    assert_eq!((indices(&some), some["next"].as_u64()), (vec![7, 8], Some(9)));
    let done = page.ask(&format!("tasks?instance={instance}&state=done&from=5&count=4"));
    assert_eq!((indices(&done), done["next"].as_u64()), (vec![5, 6, 10, 11], Some(12)));
    let all = page.ask(&format!("tasks?instance={paused}&from=999999990&count=200"));
    assert_eq!(indices(&all).len(), 10);
    let task = page.ask(&format!("task?instance={instance}&task=9"));
    assert_eq!(task["signal"], 9);
    assert!(task["explained"].as_str().unwrap().contains("failed"), "{task}");
    // The timeline has each of them, and a window around one has that one.
    let timeline = page.ask("timeline");
    assert_eq!((&timeline["tasks"], &timeline["executors"]), (&200.into(), &1.into()));
    let runs = timeline["runs"].as_array().unwrap();
    let counts = runs.iter().map(|run| run["count"].as_u64().unwrap());
    assert_eq!(counts.sum::<u64>(), 200);
    let number = |value: &Value, name: &str| value[name].as_f64().unwrap();
    let ran: f64 = runs
        .iter()
        .map(|run| (number(run, "ended") - number(run, "started")) * number(run, "count"))
        .sum();
    let row = &timeline["rows"][0];
    let bins: Vec<f64> =
        row["busy"].as_array().unwrap().iter().map(|busy| busy.as_f64().unwrap()).collect();
    let wide = (number(&timeline, "until") - number(&timeline, "from")) / bins.len() as f64;
    let drawn = bins.iter().sum::<f64>() * wide;
    // Bins are rounded to a thousandth of a task.
    let rounding = 0.0005 * wide * bins.len() as f64 + 1e-3;
    assert!((drawn - ran).abs() <= rounding, "{drawn} s of {ran} s are drawn");
    assert_eq!((&row["ended"], &row["failed"]), (&200.into(), &3.into()));
    let nine = runs.iter().find(|run| run["first"] == 9).unwrap();
    assert_eq!((&nine["good"], &nine["how"]), (&false.into(), &"failed by signal 9".into()));
    let (from, until) = (number(nine, "started"), number(nine, "ended"));
    let zoomed = page.ask(&format!("timeline?from={from}&until={until}"));
    let zoomed = zoomed["runs"].as_array().unwrap();
    assert!(zoomed.iter().any(|run| run["first"] == 9) && zoomed.len() < runs.len());
    let waits = page.ask(&format!("explain?instance={paused}"));
    assert!(waits["explained"].as_str().unwrap().contains("paused"), "{waits}");
    assert_eq!(page.ask("executors?state=idle")["count"], 1);
    assert_eq!(page.ask("executors?text=node%3C1")["shown"][0]["name"], "node<1>");
    assert_eq!(page.ask("instances?text=billion")["count"], 1);
    for (wrong, status) in [
        ("tasks", 400),
        ("tasks?instance=x", 400),
        ("tasks?instance=0&state=none", 400),
        ("executors?state=none", 400),
        ("history?scale=4", 400),
        ("timeline?from=now", 400),
        ("task?instance=0&task=1000000000", 404),
        ("task?instance=77&task=0", 404),
        ("explain?instance=77", 404),
    ] {
        assert_eq!(page.get(&format!("/api/{wrong}")).status, status, "{wrong}");
    }
    drop(executor);
}

/// Whoever looks over the observer's access may see how tasks are, and do nothing.
#[trial]
fn observers_see_tasks_and_change_none() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let instance = dispatcher.access().submit(&["--range", "1-3", "--", "echo", "{}"]);
    let observer = dispatcher.access_of("access-observer.json");
    let shown = observer.run("tasks", &[&instance]).exits(0);
    assert_eq!(shown.lines().len(), 3);
    observer.run("explain", &[&format!("{instance}/1")]).exits(0);
    for (command, args) in [
        ("cancel", vec![instance.as_str()]),
        ("pause", vec![&instance]),
        ("results", vec![&instance]),
        ("destroy", vec![&instance]),
        ("submit", vec!["--", "true"]),
        ("stop", vec![]),
    ] {
        observer.run(command, &args).exits(2);
    }
    // Nor is there a page where one was before.
    std::fs::write(site.path("d/web.txt"), "http://127.0.0.1:1").unwrap();
    let mut dispatcher = dispatcher;
    dispatcher.kill();
    dispatcher.start();
    let none = dispatcher.access().run("web", &["--print"]).exits(2);
    none.says("start the dispatcher with --web");
    site.run(["start", "--dir", &site.text("e"), "--web", "0.0.0.0:0"]).exits(2).says("ssh -L");
    site.run(["start", "--dir", &site.text("e"), "--web", "nowhere"]).exits(2).says("HOST:PORT");
}

/// Requests that are no requests, too long, or never end cost the page nothing, and
/// dispatchers even less.
#[trial]
fn strangers_hold_nothing_up() {
    let site = Site::new();
    let dispatcher = with_page(&site);
    let page = Page::of(&dispatcher.access());
    let address = &page.address;
    let long = "x".repeat(1 << 20);
    for (request, status) in [
        (format!("GET /{long} HTTP/1.1\r\n\r\n"), 414),
        (format!("GET / HTTP/1.1\r\nCookie: {long}\r\n\r\n"), 431),
        ("POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\nx".to_owned(), 405),
        ("PUT /api/stop HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".to_owned(), 405),
        ("nonsense\r\n\r\n".to_owned(), 400),
        ("\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}".repeat(9), 400),
    ] {
        let response = asked(address, &request);
        // A server that closes with input unread may take its answer with it.
        assert!([status, 0, 431, 414].contains(&response.status), "{status}: {response:?}");
    }
    let _silent: Vec<TcpStream> = (0..32).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut many: Vec<Updates> = (0..64).map(|_| page.updates()).collect();
    assert_eq!(page.get("/api/updates").status, 503);
    for updates in &mut many {
        updates.wait("an update for each", |update| update["version"].is_string());
    }
    drop(many);
    poll("a place is free again", || {
        let request =
            format!("GET /api/updates HTTP/1.1\r\nHost: a\r\nCookie: {}\r\n\r\n", page.cookie);
        head(&mut connected(address, &request)).0 == 200
    });
    dispatcher.access().run("status", &[]).exits(0);
}
