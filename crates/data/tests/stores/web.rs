//! A web server with objects of several kinds.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) const DATE: &str = "Sat, 21 Nov 2026 10:00:00 GMT";

pub(crate) struct Web {
    pub(crate) address: SocketAddr,
    /// Bytes of the content that went out.
    pub(crate) sent: Arc<AtomicUsize>,
}

/// Serves `content` under every path until the process ends; the path says how. Only the first
/// file of a set is there.
pub(crate) fn serve(content: Vec<u8>) -> Web {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let content = Arc::new(content);
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (content, counter) = (Arc::clone(&content), Arc::clone(&counter));
            std::thread::spawn(move || converse(stream.unwrap(), &content, &counter));
        }
    });
    Web { address, sent }
}

/// Answers requests until the client leaves, or it goes wrong.
fn converse(stream: TcpStream, content: &[u8], sent: &AtomicUsize) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut stream = stream;
    while let Some(Ok(request)) = lines.next() {
        let mut range = None;
        for line in lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()) {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
                let (first, last) = value.split_once('-').unwrap();
                range = Some((first.parse().unwrap(), last.parse().ok()));
            }
        }
        let mut words = request.split(' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let path = target.split('?').next().unwrap();
        if target.contains(".part2.") {
            let nothing = "HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n";
            if stream.write_all(nothing.as_bytes()).is_err() {
                return;
            }
            continue;
        }
        if method == "GET" {
            let (first, last) = range.unwrap_or((0, None));
            let last = last.unwrap_or(content.len() - 1).min(content.len() - 1);
            sent.fetch_add((last + 1).saturating_sub(first), Ordering::Relaxed);
        }
        if answer(&mut stream, method, path, range, content).is_none() {
            return;
        }
    }
}

/// Answers one request; `None` ends the connection.
fn answer(
    stream: &mut TcpStream,
    method: &str,
    path: &str,
    range: Option<(usize, Option<usize>)>,
    content: &[u8],
) -> Option<()> {
    let status = path[1..].parse::<u16>().ok();
    if let Some(status) = status {
        return write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").ok();
    }
    let version = match path {
        "/tagged" | "/rangeless" | "/headless" | "/cut" => "ETag: \"v1\"\r\n".to_owned(),
        "/dated" => format!("Last-Modified: {DATE}\r\n"),
        _ => String::new(),
    };
    let whole = content.len();
    let range = range.filter(|_| path != "/rangeless");
    match (method, path) {
        ("HEAD", "/headless") => {
            return write!(stream, "HTTP/1.1 405 X\r\nContent-Length: 0\r\n\r\n").ok();
        }
        (_, "/moved") => {
            let head = "HTTP/1.1 302 X\r\nLocation: /tagged\r\nContent-Length: 0\r\n\r\n";
            return stream.write_all(head.as_bytes()).ok();
        }
        ("GET", "/chunked") => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").ok()?;
            for piece in content.chunks(70_000) {
                write!(stream, "{:x}\r\n", piece.len()).ok()?;
                stream.write_all(piece).ok()?;
                stream.write_all(b"\r\n").ok()?;
            }
            return stream.write_all(b"0\r\n\r\n").ok();
        }
        ("GET", "/cut") => {
            write!(stream, "HTTP/1.1 200 OK\r\n{version}Content-Length: {whole}\r\n\r\n").ok()?;
            stream.write_all(&content[..whole / 2]).ok()?;
            return None;
        }
        _ => {}
    }
    let Some((first, last)) = range else {
        write!(stream, "HTTP/1.1 200 OK\r\n{version}Content-Length: {whole}\r\n\r\n").ok()?;
        return if method == "HEAD" { Some(()) } else { stream.write_all(content).ok() };
    };
    if first >= whole {
        let head = format!(
            "HTTP/1.1 416 X\r\nContent-Range: bytes */{whole}\r\nContent-Length: 0\r\n\r\n"
        );
        return stream.write_all(head.as_bytes()).ok();
    }
    let last = last.unwrap_or(whole - 1).min(whole - 1);
    write!(
        stream,
        "HTTP/1.1 206 X\r\n{version}Content-Range: bytes {first}-{last}/{whole}\r\n\
         Content-Length: {}\r\n\r\n",
        last + 1 - first
    )
    .ok()?;
    stream.write_all(&content[first..=last]).ok()
}
