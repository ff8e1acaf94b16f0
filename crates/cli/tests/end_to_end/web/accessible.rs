//! Pages for everybody: axe-core finds nothing wrong with them, in light and dark colours.

use super::driver::Browser;
use super::transfers::exchange;
use super::with_page;
use crate::fixture::Site;
use falkon_trials::trial;
use std::path::PathBuf;

/// axe-core, which tests/all.sh fetches; FALKON_AXE names another file.
fn axe() -> String {
    let fetched = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/axe/package/axe.min.js");
    let file = std::env::var_os("FALKON_AXE").map_or_else(|| fetched.into(), PathBuf::from);
    std::fs::read_to_string(file).unwrap_or_else(|_| {
        falkon_trials::skip("it needs axe-core in target/axe (npm pack axe-core)")
    })
}

/// The defects of the page that a browser shows, as axe-core names them.
fn check(browser: &Browser, axe: &str, what: &str) -> String {
    browser.run(axe);
    browser.run(
        "window.found = null; axe.run(document, { resultTypes: ['violations'] }).then((all) => { \
         window.found = all.violations.map((one) => `${one.id}: ${one.help}\\n` + \
         one.nodes.map((node) => `  ${node.html}\\n  ${node.failureSummary}`).join('\\n')); }, \
         (error) => { window.found = [String(error)]; })",
    );
    browser.wait("window.found");
    let found = browser.run("return window.found.join('\\n')");
    match found.as_str().unwrap() {
        "" => String::new(),
        found => format!("{what}:\n{found}\n"),
    }
}

#[trial]
fn the_dashboard_has_no_violations() {
    let axe = axe();
    let site = Site::new();
    let dispatcher = with_page(&site);
    let access = dispatcher.access();
    let executors = exchange(&site, &dispatcher);
    std::fs::write(site.path("in"), "in").unwrap();
    let input = format!("in={}", site.text("in"));
    let read = ["--wait", "--range", "1-4", "--input", &input, "--", "sh", "-c", "cat in"];
    access.run("submit", &read).exits(0);
    access.run("submit", &["--wait", "--range", "1-9", "--", "sh", "-c", "exit 3"]).exits(1);
    access.submit(&["--name", "<b>", "--range", "1-1000", "--", "@sleep", "100"]);
    let mut found = String::new();
    for (width, is_dark) in [(1280, false), (500, true)] {
        let browser = Browser::start(&site, width, 900, is_dark);
        let link = access.run("web", &["--print"]).exits(0).text().trim().to_owned();
        let home = link.split("/login").next().unwrap();
        browser.go(&format!("{home}/"));
        browser.wait("document.title === 'Falkon: log in'");
        found += &check(&browser, &axe, &format!("the page of strangers, dark: {is_dark}"));
        // The refusal itself is one.
        browser.complaints();
        browser.go(&link);
        browser.wait("document.querySelectorAll('.plot canvas').length === 5");
        browser.wait("document.getElementById('failures-table').textContent.includes('status 3')");
        browser.wait("document.getElementById('executors-table').rows.length === 3");
        browser.wait("document.getElementById('transfers-table').rows.length === 3");
        browser.run("document.getElementById('timeline-show').click()");
        browser.wait("document.querySelector('#timeline-plot canvas')");
        browser.run(
            "const f = document.getElementById('tasks-form'); f.elements.instance.value = 2; \
             f.requestSubmit()",
        );
        browser.wait("document.getElementById('tasks-table').rows.length === 10");
        found += &check(&browser, &axe, &format!("the dashboard, dark: {is_dark}"));
        browser.run("document.querySelector('#instances-table button').click()");
        browser.wait("document.getElementById('detail').open");
        browser.wait("document.querySelector('#control button')");
        found += &check(&browser, &axe, &format!("an instance, dark: {is_dark}"));
        assert_eq!(browser.complaints(), Vec::<String>::new());
    }
    assert_eq!(found, "", "{found}");
    drop(executors);
}

#[trial]
fn reports_and_simulations_have_no_violations() {
    let axe = axe();
    let site = Site::new();
    let script = "sleep 0.0$0; test $0 != 3 || exit 7";
    site.run(["run", "--out", "o", "--range", "1-9", "--", "sh", "-c", script]).exits(1);
    site.run(["report", "o", "-o", "report.html"]).exits(0);
    let scenario = "[workload]\ntasks = 40\nrun_min = 1\nrun_max = 3\n[[nodes]]\ncount = 4\n";
    let file = site.write("small.toml", scenario);
    site.run(["sim", &file, "--html", "sim.html"]).exits(0);
    let grid = site.write("grid.toml", format!("{scenario}[grid]\nnodes = [1, 2, 4]\n"));
    site.run(["sim", &grid, "--html", "grid.html"]).exits(0);
    let mut found = String::new();
    for (width, is_dark) in [(1000, false), (500, true)] {
        let browser = Browser::start(&site, width, 900, is_dark);
        for page in ["report.html", "sim.html", "grid.html"] {
            browser.go(&format!("file://{}", site.text(page)));
            browser.wait("document.querySelector('.plot canvas')");
            found += &check(&browser, &axe, &format!("{page}, dark: {is_dark}"));
        }
    }
    assert_eq!(found, "", "{found}");
}
