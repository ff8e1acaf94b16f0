//! Proxies: the way out of networks that let nothing else out. They see what an
//! eavesdropper sees.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::str::FromStr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Bytes of a proxy's answer, at most.
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// Characters of an answer that errors quote.
const QUOTED_CHARS_MAX: usize = 200;
/// The version of SOCKS.
const SOCKS_VERSION: u8 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Http,
    Socks5,
}

/// A proxy, as `http://HOST:PORT` or `socks5://HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    kind: Kind,
    address: String,
}

/// It is no proxy's address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a proxy: write http://HOST:PORT or socks5://HOST:PORT")]
pub struct ProxyNameError(String);

/// Why a proxy makes no connection.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// It cannot be reached, or hangs up.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It answers with another status than 200.
    #[error("it answers `{line}`")]
    Status {
        /// The status.
        status: u16,
        /// The first line of the answer.
        line: String,
    },
    /// It refuses, with a code of SOCKS.
    #[error("it answers with the code {code}: {}", socks_meaning(*.code))]
    Code {
        /// The code.
        code: u8,
    },
    /// It asks for a name and a password.
    #[error("it asks for a password, which is not supported")]
    Password,
    /// What answers is no such proxy.
    #[error("it does not answer like a proxy of that kind")]
    NoProxy,
    /// The dispatcher's address is none.
    #[error("the dispatcher's address is not HOST:PORT")]
    Target,
}

impl ProxyError {
    /// Whether trying again later may help.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            ProxyError::Io(_) => true,
            ProxyError::Status { status, .. } => *status >= 500,
            // Not by its rules, and commands and addresses that it does not know.
            ProxyError::Code { code } => !matches!(code, 2 | 7 | 8),
            ProxyError::Password | ProxyError::NoProxy | ProxyError::Target => false,
        }
    }
}

fn socks_meaning(code: u8) -> &'static str {
    match code {
        2 => "its rules do not allow the connection",
        3 => "the network is unreachable",
        4 => "the host is unreachable",
        5 => "the connection was refused",
        6 => "the connection timed out",
        7 | 8 => "it does not support the request",
        _ => "a general failure",
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.kind {
            Kind::Http => "http",
            Kind::Socks5 => "socks5",
        };
        write!(f, "{scheme}://{}", self.address)
    }
}

impl FromStr for Proxy {
    type Err = ProxyNameError;

    fn from_str(text: &str) -> Result<Proxy, ProxyNameError> {
        let wrong = || ProxyNameError(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let kind = match scheme {
            "http" => Kind::Http,
            "socks5" | "socks5h" => Kind::Socks5,
            _ => return Err(wrong()),
        };
        let address = rest.strip_suffix('/').unwrap_or(rest);
        let is_sound = divide(address).is_some() && !address.contains(['/', '@']);
        is_sound.then(|| Proxy { kind, address: address.to_owned() }).ok_or_else(wrong)
    }
}

/// The host and the port of `host:port` or `[host]:port`.
fn divide(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!host.is_empty()).then_some((host, port.parse().ok()?))
}

impl Proxy {
    /// A connection through the proxy to `host:port`.
    ///
    /// # Errors
    /// [`ProxyError`]
    pub async fn dial(&self, target: &str) -> Result<TcpStream, ProxyError> {
        let (host, port) = divide(target).ok_or(ProxyError::Target)?;
        let mut stream = TcpStream::connect(&self.address).await?;
        match self.kind {
            Kind::Http => ask_http(&mut stream, target).await?,
            Kind::Socks5 => ask_socks(&mut stream, host, port).await?,
        }
        Ok(stream)
    }
}

/// Has an HTTP proxy connect (RFC 9110, 9.3.6).
async fn ask_http(stream: &mut TcpStream, target: &str) -> Result<(), ProxyError> {
    if target.contains(|found: char| found.is_control() || found.is_whitespace()) {
        return Err(ProxyError::Target);
    }
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    // What follows the answer's head is the dispatcher's.
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= ANSWER_BYTES_MAX {
            return Err(ProxyError::NoProxy);
        }
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head);
    let line = head.lines().next().unwrap_or_default();
    let mut words = line.split(' ');
    let is_http = words.next().is_some_and(|word| word.starts_with("HTTP/1."));
    let status = words.next().and_then(|word| word.parse::<u16>().ok());
    match status.filter(|_| is_http) {
        Some(200..=299) => Ok(()),
        Some(407) => Err(ProxyError::Password),
        Some(status) => {
            let shown = line.chars().filter(|found| !found.is_control());
            Err(ProxyError::Status { status, line: shown.take(QUOTED_CHARS_MAX).collect() })
        }
        None => Err(ProxyError::NoProxy),
    }
}

/// Has a SOCKS proxy connect (RFC 1928), without authentication.
async fn ask_socks(stream: &mut TcpStream, host: &str, port: u16) -> Result<(), ProxyError> {
    stream.write_all(&[SOCKS_VERSION, 1, 0]).await?;
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).await?;
    match chosen {
        [SOCKS_VERSION, 0] => {}
        [SOCKS_VERSION, _] => return Err(ProxyError::Password),
        _ => return Err(ProxyError::NoProxy),
    }
    let mut request = vec![SOCKS_VERSION, 1, 0];
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => {
            request.push(1);
            request.extend(ip.octets());
        }
        Ok(IpAddr::V6(ip)) => {
            request.push(4);
            request.extend(ip.octets());
        }
        Err(_) => {
            request.push(3);
            request.push(u8::try_from(host.len()).map_err(|_| ProxyError::Target)?);
            request.extend(host.as_bytes());
        }
    }
    request.extend(port.to_be_bytes());
    stream.write_all(&request).await?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await?;
    let [version, code, _, kind] = answer;
    if version != SOCKS_VERSION {
        return Err(ProxyError::NoProxy);
    }
    if code != 0 {
        return Err(ProxyError::Code { code });
    }
    // The address that it connects from.
    let length = match kind {
        1 => 4,
        4 => 16,
        3 => usize::from(stream.read_u8().await?),
        _ => return Err(ProxyError::NoProxy),
    };
    let mut bound = vec![0; length + size_of::<u16>()];
    stream.read_exact(&mut bound).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// What becomes of a connection to `target` if a proxy says these things, and what
    /// it was asked.
    async fn dialled(
        scheme: &str,
        target: &str,
        says: Vec<Vec<u8>>,
    ) -> (Result<TcpStream, ProxyError>, Vec<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = format!("{scheme}://{}", listener.local_addr().unwrap());
        let proxy: Proxy = proxy.parse().unwrap();
        let answering = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            for say in says {
                let mut bytes = vec![0; 1024];
                let length = stream.read(&mut bytes).await.unwrap();
                bytes.truncate(length);
                asked.push(bytes);
                stream.write_all(&say).await.unwrap();
            }
            asked
        });
        let dialled = proxy.dial(target).await;
        (dialled, answering.await.unwrap())
    }

    #[tokio::test]
    async fn an_http_proxy_is_asked_to_connect_and_the_rest_is_the_dispatcher_s() {
        let said = b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nhello".to_vec();
        let (stream, asked) = dialled("http", "login1:7070", vec![said]).await;
        let request = "CONNECT login1:7070 HTTP/1.1\r\nHost: login1:7070\r\n\r\n";
        assert_eq!(asked, [request.as_bytes()]);
        let mut rest = Vec::new();
        stream.unwrap().read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"hello");
    }

    #[tokio::test]
    async fn a_socks_proxy_is_asked_by_name_and_by_address() {
        let bound = b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x50hello".to_vec();
        let says = || vec![b"\x05\x00".to_vec(), bound.clone()];
        let (stream, asked) = dialled("socks5", "login1:7070", says()).await;
        assert_eq!(asked[1], b"\x05\x01\x00\x03\x06login1\x1b\x9e");
        let mut rest = Vec::new();
        stream.unwrap().read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"hello");
        let (_, asked) = dialled("socks5", "10.0.0.7:80", says()).await;
        assert_eq!(asked[1], b"\x05\x01\x00\x01\x0a\x00\x00\x07\x00\x50");
        let (_, asked) = dialled("socks5", "[::1]:80", says()).await;
        assert_eq!(asked[1][..5], *b"\x05\x01\x00\x04\x00");
    }

    #[tokio::test]
    async fn refusals_say_what_and_whether_it_may_change() {
        let refusal = async |scheme, says: Vec<&[u8]>| {
            let says = says.into_iter().map(<[u8]>::to_vec).collect();
            let (stream, _) = dialled(scheme, "a:1", says).await;
            let error = stream.unwrap_err();
            (error.to_string(), error.is_transient())
        };
        let (text, again) = refusal("http", vec![b"HTTP/1.0 403 Forbidden\r\n\r\n"]).await;
        assert_eq!((text.as_str(), again), ("it answers `HTTP/1.0 403 Forbidden`", false));
        assert!(refusal("http", vec![b"HTTP/1.1 502 x\r\n\r\n"]).await.1);
        assert!(!refusal("http", vec![b"HTTP/1.1 407 x\r\n\r\n"]).await.1);
        assert!(!refusal("http", vec![b"SSH-2.0\r\n\r\n"]).await.1);
        let (text, again) = refusal("socks5", vec![b"\x05\x00", b"\x05\x02\x00\x01"]).await;
        assert!(text.contains("rules") && !again, "{text}");
        assert!(refusal("socks5", vec![b"\x05\x00", b"\x05\x05\x00\x01"]).await.1);
        assert!(!refusal("socks5", vec![b"\x05\xff"]).await.1);
        assert!(!refusal("socks5", vec![b"HT"]).await.1);
        // One that hangs up.
        assert!(refusal("http", vec![b"HTTP/1.1 200"]).await.1);
    }

    #[test]
    fn names_of_proxies_are_checked() {
        for (text, is_one) in [
            ("http://proxy:3128", true),
            ("http://proxy:3128/", true),
            ("socks5://[::1]:1080", true),
            ("proxy:3128", false),
            ("https://proxy:3128", false),
            ("http://proxy", false),
            ("http://user:secret@proxy:1", false),
            ("http://:1", false),
        ] {
            assert_eq!(text.parse::<Proxy>().is_ok(), is_one, "{text}");
        }
    }
}
