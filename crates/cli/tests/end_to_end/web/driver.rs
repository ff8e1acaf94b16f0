//! A browser, driven over WebDriver.

use super::{Response, asked};
use crate::fixture::{PATIENCE, Running, Site, poll_for};
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Drivers that are started until one has a port.
const DRIVERS_MAX: usize = 5;

/// A browser with one window; it ends with its driver.
pub(super) struct Browser {
    address: String,
    session: String,
    _driver: Running,
}

/// Whether a program is there.
fn has(program: &str) -> bool {
    let mut asked = Command::new(program);
    asked.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    asked.status().is_ok_and(|status| status.success())
}

/// The port that a driver has said that it listens at.
fn port_of(said: &str) -> Option<String> {
    let (_, rest) = said.split_once("started successfully on port ")?;
    let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
    (!port.is_empty() && rest.contains('.')).then_some(port)
}

impl Browser {
    /// Starts a browser, or says that there is none.
    pub(super) fn start(site: &Site, width: u32, height: u32, is_dark: bool) -> Browser {
        if !has("chromedriver") || !has("chromium") {
            falkon_trials::skip("it needs chromium and chromedriver");
        }
        // The port that a driver has chosen may be another one's by now: then it ends at once.
        let started = (0..DRIVERS_MAX).find_map(|_| {
            let mut command = site.program("chromedriver");
            command.arg("--port=0");
            let mut driver = Running::start(command);
            let found = poll_for("the port of chromedriver, or its end", || {
                let port = port_of(&driver.printed());
                let has_ended = || driver.ended_within(Duration::ZERO).map(|_| None);
                port.map(Some).or_else(has_ended)
            });
            found.map(|port| (port, driver))
        });
        let (port, driver) = started.expect("a driver finds a port");
        let address = format!("127.0.0.1:{port}");
        let mut args = vec![
            "--headless".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-quic".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--no-first-run".to_owned(),
            "--disable-background-networking".to_owned(),
            "--disable-component-update".to_owned(),
            "--disable-sync".to_owned(),
            "--hide-scrollbars".to_owned(),
            format!("--window-size={width},{height}"),
            format!("--user-data-dir={}", site.text(&format!("browser-{width}-{is_dark}"))),
        ];
        if is_dark {
            args.push("--blink-settings=preferredColorScheme=0".to_owned());
        }
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "args": args },
        } } });
        let mut browser = Browser { address, session: String::new(), _driver: driver };
        let made = browser.call("POST", "/session", &wanted);
        browser.session = made["sessionId"].as_str().expect("a session has a number").to_owned();
        browser
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let Response { status, body, .. } = asked(&self.address, &request);
        let answer: Value = serde_json::from_str(&body).unwrap_or_default();
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer["value"].clone()
    }

    fn within(&self, method: &str, path: &str, body: &Value) -> Value {
        self.call(method, &format!("/session/{}{path}", self.session), body)
    }

    /// Goes to a page.
    pub(super) fn go(&self, url: &str) {
        self.within("POST", "/url", &json!({ "url": url }));
    }

    /// What a script returns.
    pub(super) fn run(&self, script: &str) -> Value {
        self.within("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until a script returns what is true.
    #[track_caller]
    pub(super) fn wait(&self, script: &str) {
        let until = std::time::Instant::now() + PATIENCE;
        while self.run(&format!("return Boolean({script})")) != true {
            let text = || self.run("return document.body.innerText").as_str().map(str::to_owned);
            assert!(std::time::Instant::now() < until, "never {script}: {:?}", text());
        }
    }

    /// Presses keys where the focus is.
    pub(super) fn press(&self, keys: &[&str]) {
        let pressed = keys.iter().flat_map(|key| {
            [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]
        });
        let actions: Vec<Value> = pressed.collect();
        let body = json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] });
        self.within("POST", "/actions", &body);
    }

    /// What the browser complained about: errors of scripts, and what its policy refused.
    pub(super) fn complaints(&self) -> Vec<String> {
        let log = self.within("POST", "/se/log", &json!({ "type": "browser" }));
        let lines = log.as_array().cloned().unwrap_or_default();
        let severe = lines.into_iter().filter(|line| line["level"] == "SEVERE");
        severe.map(|line| line["message"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let path = format!("/session/{}", self.session);
        let request = format!(
            "DELETE {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            self.address
        );
        // The driver may have ended, and the browser with it.
        if std::net::TcpStream::connect(&self.address).is_ok() {
            let _ = asked(&self.address, &request);
        }
    }
}
