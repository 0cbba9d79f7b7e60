//! Names that servers give files (`Content-Disposition`), where addresses have none: many archives call
//! every file `content`, or by a number.
//!
//! The name is known before anything of the file is opened, so that data of an earlier run is found under it.
//! A file is never replaced because a server has chosen its name.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use swath_formats::depot;
use swath_model::path::SafePath;
use swath_source::{Net, given_name};
use swath_transfer::{Destination, Mirror, Overwrite, Request};
use tokio::time::timeout;
use url::Url;

use super::inputs::name_of;

/// When a server is asked for the name of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerNames {
    /// Never: the address names the file.
    #[default]
    Never,
    /// If the last part of the address is no file name: it is empty, has no extension, or is a script's.
    Auto,
    /// Always.
    Always,
}

/// None of these words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be auto, always or never")]
pub struct UnknownServerNames;

impl FromStr for ServerNames {
    type Err = UnknownServerNames;

    fn from_str(text: &str) -> Result<ServerNames, UnknownServerNames> {
        match text {
            "never" => Ok(ServerNames::Never),
            "auto" => Ok(ServerNames::Auto),
            "always" => Ok(ServerNames::Always),
            _ => Err(UnknownServerNames),
        }
    }
}

impl ServerNames {
    /// Whether the server of one of these addresses is asked.
    pub fn asks<'u>(self, mut urls: impl Iterator<Item = &'u Url>) -> bool {
        match self {
            ServerNames::Never => false,
            ServerNames::Always => urls.any(is_web),
            ServerNames::Auto => urls.all(|url| is_web(url) && is_nameless(url)),
        }
    }
}

fn is_web(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https") && depot::brief(url.path()).is_none()
}

/// Returns whether the last part of an address is no file name.
fn is_nameless(url: &Url) -> bool {
    name_of(url).is_none_or(|name| {
        let extension = name.as_str().rsplit_once('.').map_or("", |(_, extension)| extension);
        SCRIPTS.contains(&&*extension.to_ascii_lowercase())
    })
}

/// Returns the name that the first of these servers to answer gives the file.
pub async fn of_mirrors(net: &Net, mirrors: &[Mirror]) -> Option<SafePath> {
    let limit = net.timeout().min(ANSWERS_WITHIN);
    for mirror in mirrors.iter().filter(|mirror| is_web(&mirror.url)).take(ASKED_MAX) {
        // Whoever fails says why when it is asked for the file.
        if let Ok(Ok(name)) = timeout(limit, given_name(net, &mirror.url, mirror.trust)).await {
            return name.filter(|name| !swath_store::is_reserved(name.as_path()));
        }
    }
    None
}

/// Directs a request for a file of `folder` to the name that its server has given it.
pub fn apply(request: &mut Request, folder: &Path, name: &SafePath) {
    request.destination = Destination::File(folder.join(name.as_path()));
    request.beneath.get_or_insert_with(|| folder.to_owned());
    request.overwrite = Overwrite::Never;
}

/// Endings of names of programs that send files: an empty one, too.
const SCRIPTS: [&str; 6] = ["", "php", "asp", "aspx", "cgi", "jsp"];
/// Further servers are not asked for a name.
const ASKED_MAX: usize = 3;
/// The file's own name is not worth more.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_asked_where_the_address_names_no_file() {
        let asks = |names: ServerNames, texts: &[&str]| {
            let urls: Vec<Url> = texts.iter().map(|text| Url::parse(text).unwrap()).collect();
            names.asks(urls.iter())
        };
        for nameless in [
            "https://zenodo.example/api/records/1/files/run7.h5/content",
            "https://a/ndownloader/files/123",
            "https://a/d/abc/?dl=1",
            "https://a",
            "https://a/get.PHP?file=5",
        ] {
            assert!(asks(ServerNames::Auto, &[nameless]), "{nameless}");
            assert!(!asks(ServerNames::Never, &[nameless]), "{nameless}");
        }
        let secret = format!("https://r/depot/{}", "0123456789abcdef".repeat(4));
        for named in ["https://a/run7.h5", "https://a/f.tar.gz?x=1", "file:///data/f", &secret] {
            assert!(!asks(ServerNames::Auto, &[named]), "{named}");
        }
        assert!(asks(ServerNames::Always, &["https://a/run7.h5"]));
        assert!(!asks(ServerNames::Always, &["file:///data/f"]));
        // One of the replicas has a name.
        assert!(!asks(ServerNames::Auto, &["https://a/content", "https://b/run7.h5"]));
    }
}
