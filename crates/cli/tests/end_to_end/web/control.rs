//! What an owner has done from the page, and who else may not.

use super::{Page, Response, asked, with_page};
use crate::fixture::{Site, json_lines, poll};
use falkon_trials::trial;
use serde_json::Value;

impl Page {
    /// A request to have something done, with the lines that say where it comes from.
    fn sends(&self, action: &str, headers: &str) -> Response {
        let Page { address, cookie } = self;
        let request = format!(
            "POST /do/{action} HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n\
             Content-Length: 0\r\n{headers}\r\n"
        );
        asked(address, &request)
    }

    /// The same, as a browser sends it that shows this page.
    fn act(&self, action: &str) -> Response {
        self.sends(action, &format!("Origin: http://{}\r\n", self.address))
    }

    #[track_caller]
    fn done(&self, action: &str) -> String {
        let response = self.act(action);
        assert_eq!(response.status, 200, "{action}: {response:?}");
        let answer: Value = serde_json::from_str(&response.body).unwrap();
        answer["said"].as_str().unwrap().to_owned()
    }
}

#[trial]
fn an_owner_acts_from_the_page() {
    let site = Site::new();
    let dispatcher = with_page(&site);
    let access = dispatcher.access();
    let page = Page::of(&access);
    let status = || json_lines(access.run("status", &["--json"]).exits(0).text()).remove(0);
    assert!(page.get("/").body.contains("control.js"));
    let executor = dispatcher.executor("worker", &["--slots", "2"]);
    poll("the executor is there", || status()["executors"][0]["connected"] == true);
    let number = status()["executors"][0]["id"].to_string();
    let first = access.submit(&["--range", "0-3", "--", "test", "{}", "=", "0"]);
    poll("three have failed", || status()["instances"][0]["failed"] == 3);
    assert_eq!(
        page.done(&format!("drain?executor={number}")),
        format!("executor {number} drained")
    );
    assert_eq!(status()["executors"][0]["drained"], true);
    assert_eq!(page.done(&format!("retry?instance={first}")), "3 tasks retried");
    assert_eq!(status()["instances"][0]["ready"], 3);
    let second = access.submit(&["--range", "0-9", "--", "@noop"]);
    assert_eq!(page.done(&format!("pause?instance={second}")), format!("instance {second} paused"));
    page.done(&format!("prioritize?instance={second}&priority=-7"));
    let shown = status()["instances"][1].clone();
    assert_eq!((&shown["state"], &shown["priority"]), (&"paused".into(), &(-7).into()));
    page.done(&format!("prioritize?instance={second}&priority=7"));
    page.done(&format!("resume?instance={second}"));
    let shown = status()["instances"][1].clone();
    assert_eq!((&shown["priority"], shown["state"] == "paused"), (&7.into(), false));
    page.done(&format!("undrain?executor={number}"));
    access.run("wait", &[&second]).exits(0);
    let third = access.submit(&["--range", "0-9", "--", "@sleep", "100000"]);
    page.done(&format!("cancel?instance={third}"));
    poll("all are cancelled", || status()["instances"][2]["cancelled"] == 10);
    for (wrong, code) in [
        ("none", 404),
        ("pause", 400),
        ("pause?instance=x", 400),
        ("pause?instance=77", 404),
        ("drain?executor=77", 404),
        (&format!("prioritize?instance={first}"), 400),
        (&format!("prioritize?instance={first}&priority=2147483648"), 400),
    ] {
        assert_eq!(page.act(wrong).status, code, "{wrong}");
    }
    drop(executor);
}

#[trial]
fn nobody_acts_but_an_owner_from_the_page_itself() {
    let site = Site::new();
    let dispatcher = with_page(&site);
    let access = dispatcher.access();
    let instance = access.submit(&["--range", "0-9", "--", "@noop"]);
    let owner = Page::of(&access);
    let observers = [
        Page::of(&dispatcher.access_of("access-observer.json")),
        // An owner may give others a link that lets them look only.
        Page::with(&access, &["--print", "--observer"]),
    ];
    let actions = [
        "cancel?instance=0",
        "pause?instance=0",
        "resume?instance=0",
        "prioritize?instance=0&priority=1",
        "retry?instance=0",
        "drain?executor=0",
        "undrain?executor=0",
        "none",
    ];
    let stranger = Page { address: owner.address.clone(), cookie: "a=b".to_owned() };
    for action in actions {
        for observer in &observers {
            assert_eq!(observer.act(action).status, 403, "{action}");
        }
        assert_eq!(stranger.act(action).status, 401, "{action}");
        let elsewhere = "Origin: http://127.0.0.1:1\r\n";
        let own = format!("Origin: http://{}\r\n", owner.address);
        for headers in [
            "",
            elsewhere,
            "Origin: null\r\n",
            "Origin: http://example.org\r\n",
            "Sec-Fetch-Site: cross-site\r\n",
            &format!("{own}Sec-Fetch-Site: same-site\r\n"),
            &format!("{own}{elsewhere}"),
        ] {
            assert_eq!(owner.sends(action, headers).status, 403, "{action}: {headers}");
        }
        // A link, an image or a script of another page asks with GET.
        assert_eq!(owner.get(&format!("/do/{action}")).status, 404, "{action}");
    }
    for observer in &observers {
        assert!(!observer.get("/").body.contains("control.js"));
    }
    let status = json_lines(access.run("status", &["--json", &instance]).exits(0).text()).remove(0);
    let shown = &status["instances"][0];
    assert_eq!((&shown["ready"], &shown["priority"]), (&10.into(), &0.into()));
    assert_ne!(shown["state"], "paused");
    // An observer's link takes an owner's rights from a browser that comes with it.
    let link = access.run("web", &["--print", "--observer"]).exits(0).text().trim().to_owned();
    let (address, path) = super::parts(&link);
    let response = super::get(address, path, &format!("Cookie: {}\r\n", owner.cookie));
    let name = owner.cookie.split('=').next().unwrap();
    assert!(response.head.contains(&format!("{name}=; Path=/; Max-Age=0")), "{}", response.head);
}
