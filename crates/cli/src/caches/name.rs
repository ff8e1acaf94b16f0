//! How people name data objects.

use falkon_core::data::object::ObjectId;
use falkon_data::store::{StoreUrl, UrlError};
use falkon_wire::declared::CACHE_SCHEME;
use std::path::Path;

/// An object as a command line names it: as dispatchers know it, if they do.
///
/// # Errors
/// The text is no id, key, path or URL.
pub(super) fn dispatcher_name(text: &str) -> Result<String, UrlError> {
    if ObjectId::parse(text).is_some() || text.as_bytes().starts_with(CACHE_SCHEME) {
        return Ok(text.to_owned());
    }
    // Relative paths are seen from here, as those of tasks are.
    let here = std::env::current_dir().unwrap_or_else(|_| Path::new("/").to_owned());
    StoreUrl::parse_in(text, &here).map(|url| url.to_string())
}

/// A pattern that begins like a path is seen from here.
pub(super) fn absolute_pattern(pattern: &str) -> String {
    let is_relative = pattern.starts_with("./") || pattern.starts_with("../");
    let here = std::env::current_dir().ok().filter(|_| is_relative);
    match here {
        Some(here) => format!("{}/{}", here.display(), pattern.trim_start_matches("./")),
        None => pattern.to_owned(),
    }
}
