//! Objects of a web server.

use super::{all_sources, nothing_is_left, without_proxy};
use crate::fixture::Site;
use falkon_trials::trial;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// A web server with one file, `/file`, which has a version.
struct WebServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    file: Mutex<(String, String)>,
    reads: AtomicU32,
    ended: AtomicBool,
}

impl WebServer {
    fn start() -> WebServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let serving = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.ended.load(Ordering::Relaxed) {
                    return;
                }
                let serving = serving.clone();
                // Whoever goes away in the middle is of no concern.
                std::thread::spawn(move || stream.map(|stream| serve(stream, &serving)));
            }
        });
        WebServer { address, shared }
    }

    fn set(&self, version: &str, text: &str) {
        *self.shared.file.lock().unwrap() = (version.to_owned(), text.to_owned());
    }

    fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// How often the file was read since the last time this was asked.
    fn reads(&self) -> u32 {
        self.shared.reads.swap(0, Ordering::Relaxed)
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // It notices with the next connection.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let mut stream = stream;
    while let Some(request) = lines.next().transpose()? {
        while lines.next().transpose()?.is_some_and(|header| !header.is_empty()) {}
        let (version, text) = shared.file.lock().unwrap().clone();
        let head = match request.contains(" /file ") {
            true => format!("200 OK\r\nETag: \"{version}\"\r\nContent-Length: {}", text.len()),
            false => "404 Not Found\r\nContent-Length: 0".to_owned(),
        };
        write!(stream, "HTTP/1.1 {head}\r\n\r\n")?;
        if request.starts_with("GET /file ") {
            shared.reads.fetch_add(1, Ordering::Relaxed);
            stream.write_all(text.as_bytes())?;
        }
    }
    Ok(())
}

#[trial]
fn an_object_of_a_web_server_is_read_once() {
    let site = Site::new();
    let server = WebServer::start();
    server.set("v1", "from the web\n");
    let cache = format!("{}=1MiB", site.text("cache"));
    let input = format!("in={}", server.url("file"));
    let args = ["run", "--json", "--cache", &cache, "--range", "1-10", "--input", &input];
    let args = [&args[..], &["--", "sh", "-c", "cat in"]].concat();
    let results = without_proxy(&site, &args).exits(0).results();
    assert!(results.iter().all(|result| result["stdout"] == "from the web\n"));
    assert_eq!(all_sources(&results), [9, 0, 1]);
    assert_eq!(server.reads(), 1);
    // Again: the version says that it is the same, or another.
    without_proxy(&site, &args).exits(0);
    assert_eq!(server.reads(), 0);
    server.set("v2", "something else\n");
    let results = without_proxy(&site, &args).exits(0).results();
    assert!(results.iter().all(|result| result["stdout"] == "something else\n"));
    assert_eq!(server.reads(), 1);
    // What is not there is named.
    let input = format!("in={}", server.url("other"));
    let ran = without_proxy(&site, &["run", "--input", &input, "--", "cat", "in"]).exits(1);
    ran.says(&format!("there is no {}", server.url("other")));
    nothing_is_left(&site);
}
