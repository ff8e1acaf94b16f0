//! A real S3 server: `moto` from PyPI, installed beside what cargo builds when
//! it is first needed.

use falkon_trials::{skip, trial};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::*;

/// The server's release, so that all test the same.
const RELEASE: &str = "5.1.18";

/// The folder of a Python that has the server.
fn installed() -> Result<PathBuf, String> {
    let home = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("moto-{RELEASE}"));
    let ready = home.join("ready");
    if ready.exists() {
        return Ok(home);
    }
    let run = |command: &mut Command| match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(words.lines().last().unwrap_or("pip failed").to_owned())
        }
        Err(error) => Err(format!("no python3: {error}")),
    };
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home))?;
    let moto = format!("moto[server,s3]=={RELEASE}");
    let pip = ["install", "--quiet", "--disable-pip-version-check", "--retries", "1", &moto];
    run(Command::new(home.join("bin/pip")).args(pip))?;
    fs::write(ready, RELEASE).unwrap();
    Ok(home)
}

struct Server {
    child: Child,
    endpoint: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the server at a free port and waits until it says that it runs.
fn start() -> Result<Server, String> {
    let home = installed()?;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut child = Command::new(home.join("bin/moto_server"))
        .args(["-H", "127.0.0.1", "-p", &port.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let server = Server { child, endpoint: format!("http://127.0.0.1:{port}") };
    let mut line = String::new();
    while !line.contains("Running on") {
        line.clear();
        if said.read_line(&mut line).unwrap() == 0 {
            return Err("the server ended".to_owned());
        }
    }
    // It must not wait for somebody to read what it says.
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    Ok(server)
}

fn environment(endpoint: &str) -> Vec<(String, String)> {
    [
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// Makes a bucket: the server takes anybody's word for it.
fn make_bucket(endpoint: &str, bucket: &str) {
    use std::io::Read;
    let host = endpoint.strip_prefix("http://").unwrap();
    let mut stream = std::net::TcpStream::connect(host).unwrap();
    write!(
        stream,
        "PUT /{bucket} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\
         Authorization: AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, \
         SignedHeaders=host, Signature=0\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[trial]
fn objects_go_to_s3_and_come_back() {
    let server = match start() {
        Ok(server) => server,
        Err(reason) => skip(format!("S3 stores ({reason})")),
    };
    make_bucket(&server.endpoint, "bucket");
    let stores = Stores::new(environment(&server.endpoint));
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    run(async {
        // In one request, and in parts.
        for (key, bytes) in [("empty", 0), ("a b/small%", 100_000), ("large", 20_000_000)] {
            let content = pattern(bytes);
            fs::write(&source, &content).unwrap();
            let url = url(&format!("s3://bucket/{key}"));
            let put = stores.put(&source, &url).await.unwrap();
            let known = stores.resolve(&url).await.unwrap();
            assert_eq!(known, put, "{key}");
            assert!(!known.version.is_empty());
            let target = Target::new();
            let want = Want { version: Some(known.version.clone()), ..Want::default() };
            let fetched = stores.fetch(&url, &want, &target.landing).await.unwrap();
            assert_eq!(fetched, Fetched { bytes: bytes as u64, version: known.version });
            assert!(target.content() == content, "{key}");
        }
        let large = url("s3://bucket/large");
        let content = pattern(20_000_000);
        let target = Target::new();
        stores.fetch(&large, &piece(5_000_000, Some(3_000_000)), &target.landing).await.unwrap();
        assert!(target.content() == content[5_000_000..8_000_000]);
        let target = Target::new();
        stores.fetch(&large, &piece(19_999_990, None), &target.landing).await.unwrap();
        assert_eq!(target.content(), content[19_999_990..]);
        let none = stores.fetch(&large, &piece(20_000_000, None), &target.landing).await;
        assert_eq!(none.unwrap().bytes, 0);
        for beyond in [piece(20_000_001, None), piece(19_999_999, Some(2))] {
            let error = stores.fetch(&large, &beyond, &Target::new().landing).await;
            assert!(matches!(error, Err(StoreError::Refused { .. })), "{beyond:?}: {error:?}");
        }

        let error = stores.resolve(&url("s3://bucket/none")).await.unwrap_err();
        assert!(matches!(error, StoreError::NotThere { .. }), "{error:?}");
        let error = stores.put(&source, &url("s3://nobucket/x")).await.unwrap_err();
        assert!(matches!(error, StoreError::NotThere { .. }), "{error:?}");
        let want = Want { version: Some("\"other\"".to_owned()), ..Want::default() };
        let error = stores.fetch(&large, &want, &Target::new().landing).await.unwrap_err();
        assert!(matches!(error, StoreError::Changed { now: Some(_), .. }), "{error:?}");
        drop(server);
        let error = stores.resolve(&large).await.unwrap_err();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
        let error = stores.fetch(&large, &Want::default(), &Target::new().landing).await;
        assert!(matches!(error, Err(StoreError::Unreachable { .. })), "{error:?}");
    });
}
