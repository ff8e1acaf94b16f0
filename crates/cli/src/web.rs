//! The dispatcher's page: `falkon start --web` serves it, `falkon web` opens it.
//!
//! What it shows comes over a connection with the rights of an observer, as `falkon top` has
//! one, on a thread of its own. The dispatcher is asked once a second, and only while somebody
//! looks. What an owner's page asks for goes over a connection of its own, with the owner's
//! rights, which ends with the answer.

mod acts;
mod answers;
mod metrics;
pub(crate) mod otlp;
mod show;
mod timeline;
mod transfers;
mod watch;

use crate::access::AccessArgs;
use crate::charts::escape;
use crate::exit::{Exit, say};
use crate::query::print;
use clap::Args;
use falkon_dispatcher::Handle;
use falkon_net::secure::{AccessFile, FileError, Role, plain, read_private, write_private};
use falkon_web::{Login, Server};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use watch::Dashboard;

/// The file with the page's address, beside the access files.
const FILE: &str = "web.txt";
/// The file that leads a browser to the page, for as long as its link can be used.
const LOGIN_FILE: &str = "web-login.html";
/// Bytes on their way between the page's server and the dispatcher.
const LINK_BYTES: usize = 1 << 20;

/// `falkon web`
#[derive(Args, Debug)]
pub(crate) struct WebArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// Print the link, and open no browser
    #[arg(long)]
    print: bool,
    /// Log in as an observer, who may look only, with the owner's access file, too
    #[arg(long)]
    observer: bool,
    /// Print the token with which Prometheus reads /metrics
    #[arg(long, conflicts_with_all = ["print", "observer", "url"])]
    token: bool,
    /// Where the page is for the browser, as http://HOST:PORT, if it is reached another way:
    /// over a tunnel of ssh, or through a proxy
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

/// The link that logs in, in a browser or on standard output.
pub(crate) fn web(args: WebArgs) -> Exit {
    let access = match args.access.load_or_exit() {
        Ok(access) => access,
        Err(exit) => return exit,
    };
    if args.token {
        return match access.secret(Role::Observer) {
            Ok(secret) => {
                let token = Login::new(secret.as_bytes()).token();
                print(&format!("{token}\n")).unwrap_or(Exit::Success)
            }
            Err(error) => Exit::usage(error),
        };
    }
    let url = match args.url.map_or_else(|| recorded(&access), Ok) {
        Ok(url) => url,
        Err(why) => return Exit::usage(why),
    };
    let is_owner = !args.observer && access.roles().any(|role| role == Role::Owner);
    let role = if is_owner { Role::Owner } else { Role::Observer };
    let secret = match access.secret(role) {
        Ok(secret) => secret,
        Err(error) => return Exit::usage(error),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let code = Login::new(secret.as_bytes()).link(now);
    let link = format!("{}/login?code={code}", url.trim_end_matches('/'));
    if !args.print && open(&access, &link) {
        say(format_args!("opening {url} in a browser"));
        return Exit::Success;
    }
    print(&format!("{link}\n")).unwrap_or(Exit::Success)
}

/// Where the dispatcher's page is, as the dispatcher wrote beside its access files.
fn recorded(access: &AccessFile) -> Result<String, String> {
    let beside = access.path().and_then(Path::parent).map(|folder| folder.join(FILE));
    let Some(path) = beside else {
        return Err("say where the page is: --url http://HOST:PORT".to_owned());
    };
    match read_private(&path) {
        Ok(text) => Ok(String::from_utf8_lossy(&text).trim().to_owned()),
        Err(FileError::Missing { .. }) => Err(format!(
            "{} does not say where the page is: start the dispatcher with --web 127.0.0.1:0, or \
             say --url http://HOST:PORT",
            path.display()
        )),
        Err(error) => Err(error.to_string()),
    }
}

/// Opens a link in the user's browser, where there is a display. False if there is none.
///
/// Everybody on a machine sees the arguments of programs, so the browser gets the name of a file
/// of the user's own that leads there.
fn open(access: &AccessFile, link: &str) -> bool {
    let has = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !has("DISPLAY") && !has("WAYLAND_DISPLAY") {
        return false;
    }
    let Some(folder) = access.path().and_then(Path::parent) else { return false };
    let Ok(file) = std::path::absolute(folder.join(LOGIN_FILE)) else { return false };
    let link = escape(link);
    let page = format!(
        "<!DOCTYPE html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0;url={link}\"><a href=\"{link}\">Go on</a>\n"
    );
    if write_private(&file, page.as_bytes()).is_err() {
        return false;
    }
    // Some browsers go on in this process: nobody waits for them.
    let opened = Command::new("xdg-open")
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    opened.is_ok()
}

/// Where to serve the page: an address of this machine, unless that is forced.
pub(crate) fn listen(text: &str, is_forced: bool) -> Result<TcpListener, String> {
    let expected = "it takes HOST:PORT, as 127.0.0.1:8080, or port 0 for a free one";
    let mut found = std::net::ToSocketAddrs::to_socket_addrs(text)
        .map_err(|error| format!("--web {text}: {error} ({expected})"))?;
    let address = found.next().ok_or_else(|| format!("--web {text}: no such address"))?;
    if !address.ip().is_loopback() && !is_forced {
        return Err(format!(
            "--web {text} is beyond this machine, where others can read what browsers send: \
             serve it at 127.0.0.1 and reach it with `ssh -L`, or through a proxy that speaks \
             TLS; --force serves it all the same"
        ));
    }
    TcpListener::bind(address).map_err(|error| format!("--web {text}: cannot listen: {error}"))
}

/// Serves the page of a dispatcher in this process, and says beside its access files where.
pub(crate) fn serve(
    listener: TcpListener,
    handle: &Handle,
    access: &AccessFile,
    folder: &Path,
) -> Result<Server, String> {
    let login = |role: Role| -> Result<Login, String> {
        let secret = access.secret(role).map_err(|error| error.to_string())?;
        Ok(Login::new(secret.as_bytes()))
    };
    let (viewers, owners) = (login(Role::Observer)?, login(Role::Owner)?);
    let handle = handle.clone();
    let connect = move |role: Role| {
        let (ours, theirs) = tokio::io::duplex(LINK_BYTES);
        let (reader, writer) = plain(theirs);
        handle.attach(role, "web", reader, writer);
        plain(ours)
    };
    let dashboard = Arc::new(Dashboard::new(connect));
    let background = Box::pin(dashboard.clone().watch());
    let options = falkon_web::Options { listener, viewers, owners, site: dashboard, background };
    let server = falkon_web::start(options).map_err(|error| error.to_string())?;
    let url = format!("http://{}\n", reached(server.address()));
    write_private(&folder.join(FILE), url.as_bytes()).map_err(|error| error.to_string())?;
    Ok(server)
}

/// There is no page: nobody is to look for one where it was before.
pub(crate) fn serve_none(folder: &Path) {
    // Where there was none, there is no file.
    let _ = std::fs::remove_file(folder.join(FILE));
}

/// Where a browser on this machine reaches a server.
fn reached(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => {
            SocketAddr::new(std::net::Ipv4Addr::LOCALHOST.into(), v4.port())
        }
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => {
            SocketAddr::new(std::net::Ipv6Addr::LOCALHOST.into(), v6.port())
        }
        address => address,
    }
}
