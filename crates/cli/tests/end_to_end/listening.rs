//! What somebody gets to know who listens in on connections.

use crate::fixture::{Access, Site, heard_along, listen_in};
use falkon_core::data::object::Object;
use falkon_core::dispatch::Purpose;
use falkon_data::peer::{Peer, Visitor};
use falkon_net::client::Client;
use falkon_net::ids::object_id;
use falkon_net::secure::{AccessFile, Level, Role};
use falkon_trials::trial;
use falkon_wire::message::Ticket;
use std::path::Path;

/// Puts a file into a cache over connections that `listen` leads through
/// somebody who listens in. Returns the ticket for that.
async fn put(site: &Site, access: &AccessFile, listen: impl Fn(&str) -> String) -> Ticket {
    let (url, content) = ("cache:the-key-that-travels", b"content");
    let version = format!("blake3:{}", blake3::hash(content));
    let id = object_id(url, &version);
    let size = content.len() as u64;
    let object = Object { id, url: url.into(), version: version.into(), size: Some(size) };
    let (client, _) = Client::connect(access, Role::Owner).await.unwrap();
    let (ticket, reached) = client.reach(None, &object, Purpose::Put).await.unwrap();
    let visitor = Visitor::new(access.level, Purpose::Put.into(), id, &ticket);
    let serves = &reached[0].serves;
    let fingerprint = serves.fingerprint.clone().try_into().ok();
    let peer = Peer { address: listen(&serves.address), fingerprint };
    let file = std::fs::File::open(site.write("content", content)).unwrap();
    visitor.put(&peer, &object, &file, size).await.unwrap();
    ticket
}

#[trial]
fn no_secret_travels_readable_at_any_level() {
    for (level, readable) in
        [(Level::None, true), (Level::Authenticate, true), (Level::Encrypt, false)]
    {
        for concentrators in ["0", "1"] {
            let site = Site::new();
            let args = ["--security", &level.to_string(), "--concentrators", concentrators];
            let dispatcher = site.dispatcher("d", &args);
            let owner = dispatcher.access();
            let (via, heard) = heard_along(&site, &owner.file, "via.json");
            let access = Access::at(&site, &via);
            let cache = format!("{}=1MiB", site.text("cache"));
            let _executor = access.start("executor", &["--name", "worker", "--cache", &cache]);
            dispatcher.service().wait_for("executor worker joined");
            let own = site.text("own.json");
            access.run("submit", &["--wait", "--instance-access", &own, "--", "true"]).exits(0);

            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let among_peers = std::sync::Mutex::new(Vec::new());
            let listen = |to: &str| {
                let (address, heard) = listen_in(to.to_owned());
                among_peers.lock().unwrap().push(heard);
                address
            };
            let ticket = runtime.block_on(put(&site, &AccessFile::load(&via).unwrap(), listen));

            let mut secrets = vec![ticket.secret.0, owner.peer_secret()];
            for file in [&owner.file, Path::new(&own)] {
                let access = AccessFile::load(file).unwrap();
                let roles: Vec<Role> = access.roles().collect();
                secrets.extend(roles.iter().map(|role| *access.secret(*role).unwrap().as_bytes()));
            }
            assert_eq!(secrets.len(), 7);
            let mut travelled = heard.lock().unwrap().clone();
            for heard in &*among_peers.lock().unwrap() {
                travelled.extend_from_slice(&heard.lock().unwrap());
            }
            let holds = |part: &[u8]| travelled.windows(part.len()).any(|window| window == part);
            assert_eq!(holds(b"the-key-that-travels"), readable, "{level}");
            for secret in secrets {
                let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
                let told = holds(&secret) || holds(hex.as_bytes());
                assert!(!told, "a secret travels at {level}, {concentrators} concentrators");
                // Nor a half of it: what is left could be tried.
                assert!(!holds(&secret[..16]) && !holds(&secret[16..]), "{level}");
            }
        }
    }
}
