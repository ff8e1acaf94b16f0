//! The page in a browser.

use super::driver::Browser;
use super::{HOSTILE, with_page};
use crate::fixture::Site;
use falkon_trials::trial;

/// Keys of WebDriver.
const TAB: &str = "\u{e004}";
const RIGHT: &str = "\u{e014}";
const ESCAPE: &str = "\u{e00c}";
const ENTER: &str = "\u{e007}";

#[trial]
fn a_browser_shows_a_billion_tasks_hostile_names_and_no_complaint() {
    let site = Site::new();
    let browser = Browser::start(&site, 1280, 900, false);
    let dispatcher = with_page(&site);
    let access = dispatcher.access();
    let observer = dispatcher.access_of("access-observer.json");
    let link = observer.run("web", &["--print"]).exits(0).text().trim().to_owned();
    let home = link.split("/login").next().unwrap();
    browser.go(&format!("{home}/"));
    browser.wait("document.title === 'Falkon: log in'");
    browser.complaints();
    browser.go(&link);
    browser.wait("document.getElementById('state')?.textContent === 'live'");
    let instance =
        access.submit(&["--name", HOSTILE, "--range", "1-1000000000", "--", "@sleep", "60"]);
    browser.wait("document.getElementById('numbers').textContent.includes('Tasks1,000,000,000')");
    let executor = dispatcher.executor("<b>node</b>", &["--slots", "1"]);
    let failing = access.submit(&["--range", "0-19", "--", "sh", "-c", "exit 3", HOSTILE]);
    access.run("pause", &[&instance]).exits(0);
    access.run("cancel", &[&instance, "--tasks", "0-99"]).exits(0);
    browser.wait("document.getElementById('failures-table').textContent.includes('status 3')");
    browser.wait("document.querySelectorAll('.plot canvas').length === 5");
    let shown = browser.run("return document.getElementById('instances-table').innerText");
    assert!(shown.as_str().unwrap().contains("<img src=x"), "{shown}");
    // The list of executors is asked for after what comes once a second.
    browser.wait("document.getElementById('executors-table').innerText.includes('<b>node</b>')");
    assert_eq!(browser.run("return typeof hacked"), "undefined");
    // By keyboard: a chart says its values, and an instance opens and closes.
    browser.run("document.querySelector('#queue .plot').focus()");
    browser.press(&[RIGHT, "+", "-", ESCAPE, TAB]);
    browser.wait("document.querySelector('#queue .unseen').textContent.includes('waiting')");
    browser.run("document.querySelector('#instances-table button').focus()");
    browser.press(&[ENTER]);
    browser.wait("document.getElementById('detail').open");
    browser.press(&[ESCAPE]);
    browser.wait("!document.getElementById('detail').open");
    browser.run("document.getElementById('timeline-show').click()");
    browser.wait("document.querySelector('#timeline-plot canvas')");
    browser.run("document.getElementById('timeline-in').click()");
    browser.wait("document.getElementById('timeline-table').rows.length === 2");
    browser.run(&format!(
        "const f = document.getElementById('tasks-form'); f.elements.instance.value = {failing}; \
         f.requestSubmit()"
    ));
    browser.wait("document.getElementById('tasks-table').rows.length === 21");
    assert_eq!(browser.complaints(), Vec::<String>::new());
    drop(executor);
}

#[trial]
fn an_owner_acts_by_keyboard_and_confirms_a_cancellation() {
    let site = Site::new();
    let browser = Browser::start(&site, 1280, 900, false);
    let dispatcher = with_page(&site);
    let access = dispatcher.access();
    let executor = dispatcher.executor("node", &["--slots", "1"]);
    let instance = access.submit(&["--range", "1-10", "--", "@sleep", "100000"]);
    browser.go(access.run("web", &["--print"]).exits(0).text().trim());
    browser.wait("document.querySelector('#instances-table button')");
    browser.run("document.querySelector('#instances-table button').focus()");
    browser.press(&[ENTER]);
    let said = |text: &str| {
        let shown = "document.querySelector('#control [role=status]')?.textContent";
        browser.wait(&format!("{shown} === '{text}'"));
    };
    browser.wait("document.querySelector('#control button')");
    for (text, wanted) in [("Pause", "paused"), ("Resume", "resumed")] {
        let button = "document.querySelector('#control button')";
        browser.wait(&format!("{button}.textContent === '{text}'"));
        browser.run(&format!("{button}.focus()"));
        browser.press(&[ENTER]);
        said(&format!("instance {instance} {wanted}"));
    }
    browser.run("document.querySelector('#control input').value = '4'");
    browser.run("document.querySelector('#control input').focus()");
    browser.press(&[ENTER]);
    said(&format!("instance {instance} has priority 4"));
    // Scripts answer in place of the person whom the browser asks.
    for (answer, wanted) in [(false, "has priority 4"), (true, "cancelled")] {
        browser.run(&format!(
            "window.asked = ''; window.confirm = (text) => {{ window.asked = text; return {answer}; }}; \
             document.querySelector('#control button:last-child').focus()"
        ));
        browser.press(&[ENTER]);
        browser.wait(&format!("window.asked.startsWith('Cancel instance {instance}?')"));
        said(&format!("instance {instance} {wanted}"));
    }
    browser.press(&[ESCAPE]);
    browser.wait("!document.getElementById('detail').open");
    for text in ["Drain", "Undrain"] {
        let button = "document.querySelector('#executors-table td:last-child button')";
        browser.wait(&format!("{button}?.textContent === '{text}'"));
        let label = browser.run(&format!("return {button}.getAttribute('aria-label')"));
        assert!(label.as_str().unwrap().starts_with(&format!("{text} executor ")), "{label}");
        browser.run(&format!("{button}.focus()"));
        browser.press(&[ENTER]);
    }
    browser.wait("document.getElementById('executors-done').textContent.includes('gets tasks')");
    assert_eq!(browser.complaints(), Vec::<String>::new());
    drop(executor);
}

#[trial]
fn a_phone_scrolls_in_one_direction_and_darkness_is_dark() {
    let site = Site::new();
    let browser = Browser::start(&site, 500, 900, true);
    let dispatcher = with_page(&site);
    let long = "n".repeat(200);
    dispatcher.access().submit(&["--name", &long, "--range", "1-50", "--", "true"]);
    let executor = dispatcher.executor("node", &["--slots", "1"]);
    let link = dispatcher.access().run("web", &["--print"]).exits(0).text().trim().to_owned();
    browser.go(&link);
    browser.wait("document.querySelectorAll('.plot canvas').length === 5");
    let width =
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
    assert_eq!(browser.run(width), 0, "the page is wider than the phone");
    let colour = browser.run("return getComputedStyle(document.body).backgroundColor");
    assert_eq!(colour, "rgb(22, 24, 28)");
    assert_eq!(browser.complaints(), Vec::<String>::new());
    drop(executor);
}
