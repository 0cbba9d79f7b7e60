//! What `--served-at` stands for: the addresses of a `swath serve --swarm` for a publication.

use std::path::{Path, absolute};

use swath_formats::percent::encode;
use url::Url;

use super::args::Publish;
use crate::failure::Failure;

/// Addresses of a server.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Where it has the dataset.
    pub mirror: Option<Url>,
    /// Its tracker, by HTTP and by UDP.
    pub trackers: Vec<Url>,
    /// Where it has the folder of the publication, if it serves that.
    pub feeds: Option<Url>,
}

/// Returns the addresses of a server that has, at `url`, the folder that holds the dataset.
pub fn at(url: &Url, publish: &Publish) -> Result<Served, Failure> {
    let of = |path: &Path| absolute(path).map_err(|error| Failure::input(error.to_string()));
    let (path, output) = (of(&publish.path)?, of(&publish.output)?);
    Ok(addresses(url, &path, path.is_dir(), &output))
}

fn addresses(url: &Url, path: &Path, is_folder: bool, output: &Path) -> Served {
    let bytes = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
    let below = |path: &Path, end: &str| url.join(&format!("./{}{end}", encode(&bytes(path)))).ok();
    let name = path.file_name().map(Path::new);
    let end = if is_folder { "/" } else { "" };
    let folder = path.parent().and_then(|above| output.strip_prefix(above).ok());
    let feeds = folder.and_then(|folder| match folder == Path::new("") {
        true => Some(url.clone()),
        false => below(folder, "/"),
    });
    let http = url.join("/announce").ok();
    let host = url.host_str().zip(url.port_or_known_default());
    let udp = host.and_then(|(host, port)| Url::parse(&format!("udp://{host}:{port}")).ok());
    Served {
        mirror: name.and_then(|name| below(name, end)),
        trackers: http.into_iter().chain(udp).collect(),
        feeds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str, path: &str, is_folder: bool, output: &str) -> (String, String, String) {
        let url = Url::parse(url).unwrap();
        let served = addresses(&url, Path::new(path), is_folder, Path::new(output));
        let text = |url: Option<Url>| url.map(String::from).unwrap_or_default();
        let trackers: Vec<String> = served.trackers.into_iter().map(String::from).collect();
        (text(served.mirror), trackers.join(" "), text(served.feeds))
    }

    #[test]
    fn addresses_follow_from_that_of_the_folder() {
        let trackers = "http://a.example:8470/announce udp://a.example:8470";
        for (url, path, is_folder, output, mirror, feeds) in [
            ("", "/data/run7", true, "/data/pub", "run7/", "pub/"),
            ("raw/", "/data/run 7", true, "/data/a/b", "raw/run%207/", "raw/a/b/"),
            ("", "/data/x.h5", false, "/data", "x.h5", ""),
            ("", "/data/a:b", true, "/elsewhere", "a%3Ab/", "-"),
        ] {
            let base = "http://a.example:8470/";
            let feeds = if feeds == "-" { String::new() } else { format!("{base}{feeds}") };
            let expected = (format!("{base}{mirror}"), trackers.to_owned(), feeds);
            assert_eq!(of(&format!("{base}{url}"), path, is_folder, output), expected, "{path}");
        }
        let (_, trackers, _) = of("https://a.example/", "/data/x", false, "/");
        assert_eq!(trackers, "https://a.example/announce udp://a.example:443");
    }
}
