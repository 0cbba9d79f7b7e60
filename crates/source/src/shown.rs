//! Addresses as a user may see them: without credentials and without what opens something.

use swath_formats::relay::site;
use url::Url;

/// How a source is shown: with the relays that it is reached by, the nearest first.
pub(crate) fn name(url: &Url, relays: &[Url]) -> String {
    let mut name = display_name(url);
    if !relays.is_empty() {
        let relays: Vec<String> = relays.iter().filter_map(site).collect();
        name.push_str(&format!(" by {}", relays.join(", ")));
    }
    name
}

/// `url` without user and password.
pub(crate) fn without_credentials(url: &Url) -> Url {
    let mut url = url.clone();
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
}

/// `url` without credentials, query and fragment, and without what opens a depot.
pub fn display_name(url: &Url) -> String {
    let mut shown = without_credentials(url);
    shown.set_query(None);
    shown.set_fragment(None);
    swath_formats::depot::redacted(shown.as_str())
}
