//! Addresses as a user may see them: without credentials and without what opens something.

use swath_formats::relay::site;
use swath_model::SourceName;
use url::Url;

/// How the source at `url` is shown, with the relays that it is reached by.
pub(crate) fn name(url: &Url, relays: &[Url]) -> SourceName {
    SourceName::routed(display_name(url), relays.iter().filter_map(site))
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
