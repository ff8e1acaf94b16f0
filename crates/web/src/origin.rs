//! Whether a request comes from a page of this server.
//!
//! Browsers send the cookie of a machine to all of its ports, and `SameSite` takes all ports for
//! one site. So a page of another server on the machine could have a browser send a request
//! with the cookie. Browsers name the origin of such a request, which no script can change.

use hyper::HeaderMap;
use hyper::header::{HOST, ORIGIN};

/// Where a browser says that a request comes from, in relation to where it goes.
const SITE: &str = "sec-fetch-site";

/// Whether a browser says that a page of this server sends a request. A request that does not
/// say where it comes from does not come from one.
pub(crate) fn is_own(headers: &HeaderMap) -> bool {
    if headers.contains_key(SITE) {
        return only(headers, SITE) == Some("same-origin");
    }
    // Browsers that are older, or reach another machine without TLS.
    let (Some(origin), Some(host)) = (only(headers, ORIGIN.as_str()), only(headers, HOST.as_str()))
    else {
        return false;
    };
    origin.split_once("://").is_some_and(|(_, from)| from.eq_ignore_ascii_case(host))
}

/// The value of a header that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, hyper::header::HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn only_a_page_of_this_server_is_of_this_origin() {
        let host = ("host", "127.0.0.1:8080");
        for own in [
            vec![host, ("origin", "http://127.0.0.1:8080")],
            vec![host, ("origin", "https://127.0.0.1:8080")],
            vec![host, ("sec-fetch-site", "same-origin")],
            // A proxy may use another name for the server than browsers do.
            vec![host, ("sec-fetch-site", "same-origin"), ("origin", "https://proxy")],
        ] {
            assert!(is_own(&headers(&own)), "{own:?}");
        }
        for other in [
            vec![],
            vec![host],
            vec![("origin", "http://127.0.0.1:8080")],
            vec![host, ("origin", "null")],
            vec![host, ("origin", "http://127.0.0.1:8081")],
            vec![host, ("origin", "http://127.0.0.1")],
            vec![host, ("origin", "http://127.0.0.1:8080"), ("origin", "http://a")],
            vec![host, ("origin", "http://127.0.0.1:8080"), ("sec-fetch-site", "same-site")],
            vec![host, ("origin", "http://127.0.0.1:8080"), ("sec-fetch-site", "none")],
            vec![host, ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
        ] {
            assert!(!is_own(&headers(&other)), "{other:?}");
        }
    }
}
