//! `falkon data mount`: objects that are in caches alone, as files.

mod keys;
mod read;

use super::Asking;
use super::list::counted;
use crate::access::{connect, only_instance};
use crate::exit::{Exit, runtime, say};
use crate::mounting::{Signals, refused, wait};
use clap::Args;
use falkon_core::data::object::Object;
use falkon_core::dispatch::ObjectStatus;
use falkon_core::task::InstanceId;
use falkon_fuse::{Mounted, serve};
use falkon_net::secure::AccessFile;
use keys::Tree;
use read::{Place, Shelf};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Threads that answer the kernel.
const THREADS: usize = 4;
/// What URLs of objects that are in caches alone begin with.
const SCHEME: &str = "cache:";

/// `falkon data mount`
#[derive(Args, Debug)]
pub(super) struct MountArgs {
    #[command(flatten)]
    asking: Asking,
    /// The directory where they are shown, until Ctrl-C or `fusermount3 -u DIR`
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Shows objects as files.
pub(super) fn mount(args: &MountArgs) -> Exit {
    show(args).unwrap_or_else(|exit| exit)
}

fn show(args: &MountArgs) -> Result<Exit, Exit> {
    let access = args.asking.access.load_or_exit()?;
    let instance = args.asking.instance.map(InstanceId).or_else(|| only_instance(&access));
    let runtime = runtime()?;
    let objects = runtime.block_on(held(&access, instance))?;
    let (tree, left_out) = Tree::of(objects);
    let signals = Signals::new()?;
    let mounted = Mounted::new(&args.directory, "falkon").map_err(|error| {
        refused(error, "`falkon data get` copies an object to a file without FUSE")
    })?;
    let (files, path) = (tree.files(), mounted.path().to_owned());
    let (runtime_here, client) = (runtime.handle().clone(), Default::default());
    let place = Place { access, instance, runtime: runtime_here, client };
    let shelf = Arc::new(Shelf::new(tree, place));
    // The event loop carries the bytes, until nobody reads any more.
    let (ending, ended) = oneshot::channel::<()>();
    let started = std::thread::Builder::new().name("objects".to_owned()).spawn(move || {
        // It ends with the sender, whether or not that sends anything.
        let _ = runtime.block_on(ended);
    });
    let served = started.and_then(|_| serve(&mounted, &shelf, THREADS));
    let exit = match served {
        Ok(threads) => {
            let shown = counted(files, "object is shown as a file", "objects are shown as files");
            say(format_args!("{shown} at {}", path.display()));
            if left_out > 0 {
                let left_out = counted(left_out, "object", "objects");
                say(format_args!("left out {left_out} whose size or key makes no file"));
            }
            wait(mounted, threads, signals)
        }
        Err(error) => {
            let failed = format!("cannot show files at {}: {error}", mounted.path().display());
            // That it fails counts for more than what becomes of the mount.
            let _ = mounted.unmount();
            Err(Exit::failure(failed))
        }
    };
    drop(ending);
    exit
}

/// The objects that executors hold and that are in no store.
async fn held(
    access: &AccessFile,
    instance: Option<InstanceId>,
) -> Result<Vec<ObjectStatus>, Exit> {
    let (client, _deliveries) = connect(access, instance).await.map_err(Exit::client)?;
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let asked = client.objects(instance, None, SCHEME, after);
        let (objects, next) = asked.await.map_err(Exit::client)?;
        all.extend(objects.into_iter().filter(|object| object.holders > 0));
        match next {
            Some(next) => after = Some(next),
            None => return Ok(all),
        }
    }
}

/// The object that the dispatcher described.
fn object_of(status: ObjectStatus) -> Object {
    Object { id: status.id, url: status.url, version: status.version, size: status.size }
}
