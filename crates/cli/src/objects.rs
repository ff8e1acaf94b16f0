//! The data objects of a submission at this moment: their sizes and versions,
//! and so their ids.

use falkon_core::data::declared::Declared;
use falkon_core::data::object::Object;
use falkon_data::store::{Members, Resolved, StoreUrl, Stores};
use falkon_net::ids::object_id;
use std::collections::HashMap;
use std::sync::Arc;

/// Objects that are remembered, so that what many submissions read is asked
/// for once.
const REMEMBERED_OBJECTS_MAX: usize = 1 << 20;

/// Members of one archive that are looked for one by one; then all of it is listed.
const LOOKED_FOR_MEMBERS_MAX: u32 = 64;

/// Objects of one server that are asked for in a dry run.
const SERVER_OBJECTS_MAX: u32 = 64;

/// Asks persistent stores about objects.
#[derive(Default)]
pub(crate) struct Resolver {
    stores: Option<Stores>,
    known: HashMap<Arc<str>, (Arc<str>, Option<u64>)>,
    archives: HashMap<StoreUrl, Archive>,
    /// How many objects each server may still be asked about for a dry run.
    servers: HashMap<String, u32>,
}

/// What is remembered of an archive.
#[derive(Debug)]
enum Archive {
    /// So many of its members were looked for.
    Asked(u32),
    Listed(Members),
}

impl Resolver {
    /// Gives the objects of a submission their ids. Inputs get their present
    /// version and size. An input that cannot be looked at here stays open: the
    /// executor asks again, from where it is.
    pub(crate) async fn resolve(&mut self, data: &mut Arc<Declared>) {
        let data = Arc::make_mut(data);
        for object in Arc::make_mut(&mut data.objects) {
            if object.version.is_empty() && object.is_stored() {
                self.find(object).await;
            }
            object.id = object_id(&object.url, &object.version);
        }
    }

    /// Looks up the present version and size of a dry run's inputs. It asks a server
    /// about few objects only, and stops asking one that does not answer.
    pub(crate) async fn look_over(&mut self, data: &mut Arc<Declared>) {
        let data = Arc::make_mut(data);
        for object in Arc::make_mut(&mut data.objects) {
            if !object.version.is_empty() || !object.is_stored() {
                continue;
            }
            let server = object.store().to_owned();
            if server.is_empty() {
                self.find(object).await;
                continue;
            }
            let left = *self.servers.get(&server).unwrap_or(&SERVER_OBJECTS_MAX);
            if left > 0 || self.known.contains_key(&object.url) {
                self.find(object).await;
                let left = if object.version.is_empty() { 0 } else { left.saturating_sub(1) };
                self.servers.insert(server, left);
            }
        }
    }

    async fn find(&mut self, object: &mut Object) {
        if let Some((version, size)) = self.known.get(&object.url) {
            (object.version, object.size) = (version.clone(), *size);
            return;
        }
        let Ok(url) = StoreUrl::parse(&object.url) else { return };
        let Some(found) = self.look(&url).await else { return };
        object.version = found.version.into();
        object.size = found.bytes;
        if self.known.len() < REMEMBERED_OBJECTS_MAX {
            self.known.insert(object.url.clone(), (object.version.clone(), object.size));
        }
    }
    async fn look(&mut self, url: &StoreUrl) -> Option<Resolved> {
        let stores = self.stores.get_or_insert_with(|| Stores::new(std::env::vars()));
        let StoreUrl::Member { archive, name } = url else { return stores.resolve(url).await.ok() };
        let state = match self.archives.get_mut(&**archive) {
            Some(state) => state,
            None => self.archives.entry((**archive).clone()).or_insert(Archive::Asked(0)),
        };
        match state {
            Archive::Listed(members) => return members.resolved(name),
            Archive::Asked(asked) if *asked < LOOKED_FOR_MEMBERS_MAX => *asked += 1,
            Archive::Asked(asked) => {
                *asked = 0;
                if let Ok(members) = stores.members(archive).await
                    && members.count() <= REMEMBERED_OBJECTS_MAX
                {
                    let found = members.resolved(name);
                    *state = Archive::Listed(members);
                    return found;
                }
            }
        }
        stores.resolve(url).await.ok()
    }
}
