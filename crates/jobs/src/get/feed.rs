//! The newest version of a dataset that a feed announces.

use std::collections::HashMap;

use swath_formats::feed::{self, Enclosure, Entry, Feed};
use swath_formats::metalink;
use swath_formats::torrent::Magnet;
use swath_source::{DocumentVersion, Net, display_name, fetch_small, fetch_small_if_changed};
use swath_transfer::Trust;
use url::Url;

use super::inputs::Inputs;
use super::metalink::{MetalinkOrigin, metalink_of};
use super::{GetJob, order, torrent};
use crate::address::Address;
use crate::error::{FeedError, JobError, SpecError};
use crate::event::Note;

/// A version of a dataset, as a feed announces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The name of the dataset.
    pub dataset: String,
    /// The version, or the title if the feed tells none.
    pub version: String,
    /// Its torrent or Metalink.
    pub metafile: Metafile,
}

/// The address of a file that leads to the content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Metafile {
    /// A torrent.
    Torrent(Url),
    /// A magnet link.
    Magnet(Box<Magnet>),
    /// A Metalink.
    Metalink(Url),
}

/// Returns the request for the newest version of `dataset`, or of the only dataset of the feed.
pub(super) async fn read(
    get_job: &GetJob<'_>,
    address: &Address,
    dataset: Option<&str>,
) -> Result<Inputs, JobError> {
    let url = address.url()?;
    let (feed, base) = fetch(get_job.job.engine.net(), &url).await?;
    let newest = newest(&feed, &base, dataset, &display_name(&url), order::now_s())?;
    get_job
        .note(Note::Announced { dataset: newest.dataset.clone(), version: newest.version.clone() });
    match newest.metafile {
        Metafile::Torrent(url) => torrent::of_address(get_job, &url, Trust::Discovered, &[]).await,
        Metafile::Magnet(link) => torrent::of_link(get_job, &link, Trust::Discovered, &[]).await,
        Metafile::Metalink(_) if !get_job.get.select.is_empty() => {
            Err(SpecError::SelectWithoutTorrent.into())
        }
        Metafile::Metalink(url) => metalink_of(get_job, &url, MetalinkOrigin::Instead).await,
    }
}

/// Fetches a feed; returns it with its address behind all redirects.
pub async fn fetch(net: &Net, url: &Url) -> Result<(Feed, Url), FeedError> {
    let name = || display_name(url);
    let fetched = fetch_small(net, url, Trust::Named, WISHES, FEED_BYTES_MAX).await;
    let document = fetched.map_err(|error| FeedError::Fetch { name: name(), error })?;
    let feed =
        feed::read(&document.bytes).map_err(|error| FeedError::Parse { name: name(), error })?;
    Ok((feed, document.final_url))
}

/// Fetches a feed as [`fetch`] does, unless it still is the `known` version: `None` then.
pub async fn fetch_if_changed(
    net: &Net,
    url: &Url,
    known: &DocumentVersion,
) -> Result<Option<(Feed, Url, DocumentVersion)>, FeedError> {
    let name = || display_name(url);
    let fetched = fetch_small_if_changed(net, url, Trust::Named, WISHES, FEED_BYTES_MAX, known);
    let fetched = fetched.await.map_err(|error| FeedError::Fetch { name: name(), error })?;
    let Some((document, version)) = fetched else { return Ok(None) };
    let feed =
        feed::read(&document.bytes).map_err(|error| FeedError::Parse { name: name(), error })?;
    Ok(Some((feed, document.final_url, version)))
}

/// Returns the newest version of each dataset, in the order of the feed.
pub fn newest_of_each(feed: &Feed, base: &Url, now_s: u64) -> Vec<Newest> {
    let mut all: Vec<Vec<(&Entry, Announced)>> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for entry in &feed.entries {
        let Some(announced) = announced(entry, base) else { continue };
        let place = *places.entry(announced.dataset.clone()).or_insert(all.len());
        match all.get_mut(place) {
            Some(versions) => versions.push((entry, announced)),
            None => all.push(vec![(entry, announced)]),
        }
    }
    let newest = |versions: Vec<(&Entry, Announced)>| {
        let times: Vec<_> = versions.iter().map(|(entry, _)| entry.published).collect();
        let (entry, announced) = versions.get(order::newest(&times, now_s)?)?.clone();
        let find = |media_type: &str, ending: &str| {
            let is_it = |file: &&Enclosure| {
                let path = file.href.split(['?', '#']).next().unwrap_or_default();
                file.media_type == media_type || path.to_ascii_lowercase().ends_with(ending)
            };
            web_url(base, entry.files.iter().find(is_it)?)
        };
        let published = |(entry, it): &(&Entry, Announced)| {
            Some((it.version.clone(), order::plausible(entry.published, now_s)?))
        };
        Some(Newest {
            published: order::plausible(entry.published, now_s),
            index: find(feed::INDEX_MEDIA_TYPE, ".index"),
            signature: find(feed::SIGNATURE_MEDIA_TYPE, ".minisig"),
            times: versions.iter().filter_map(published).collect(),
            announced,
        })
    };
    all.into_iter().filter_map(newest).collect()
}

/// The newest version of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newest {
    /// The version.
    pub announced: Announced,
    /// When it was published, in seconds since 1970, if the feed tells a time that can be true.
    pub published: Option<u64>,
    /// The same of all versions of the dataset that the feed has, as it tells them now.
    pub times: HashMap<String, u64>,
    /// Its index.
    pub index: Option<Url>,
    /// The signature of the index.
    pub signature: Option<Url>,
}

/// Returns the newest version of `dataset`, or of the only one that there is.
///
/// # Errors
/// [`FeedError::Nothing`] and others, if the feed does not say which that is. `name` is the feed's.
pub fn newest(
    feed: &Feed,
    base: &Url,
    dataset: Option<&str>,
    name: &str,
    now_s: u64,
) -> Result<Announced, FeedError> {
    let name = || name.to_owned();
    let all: Vec<(&Entry, Announced)> =
        feed.entries.iter().filter_map(|entry| Some((entry, announced(entry, base)?))).collect();
    let mut datasets: Vec<&str> = all.iter().map(|(_, it)| it.dataset.as_str()).collect();
    datasets.sort_unstable();
    datasets.dedup();
    let wanted = match (dataset, &datasets[..]) {
        (_, []) => return Err(FeedError::Nothing(name())),
        (Some(wanted), datasets) if datasets.contains(&wanted) => wanted,
        (None, [only]) => only,
        (wanted, datasets) => {
            let datasets = datasets.iter().map(|it| (*it).to_owned()).collect();
            return Err(match wanted {
                Some(wanted) => {
                    FeedError::Unknown { name: name(), wanted: wanted.to_owned(), datasets }
                }
                None => FeedError::Several { name: name(), datasets },
            });
        }
    };
    let of_it: Vec<_> = all.iter().filter(|(_, it)| it.dataset == wanted).collect();
    let times: Vec<_> = of_it.iter().map(|(entry, _)| entry.published).collect();
    let newest = order::newest(&times, now_s).and_then(|at| of_it.get(at));
    newest.map(|(_, it)| it.clone()).ok_or_else(|| FeedError::Nothing(name()))
}

/// Returns what an entry announces, if it leads to a torrent or a Metalink.
pub fn announced(entry: &Entry, base: &Url) -> Option<Announced> {
    let find = |is_it: &dyn Fn(&str, &str) -> bool| {
        let mut files = entry.files.iter().filter(|file| !Magnet::is_magnet(&file.href));
        let file = files.find(|file| {
            let path = file.href.split(['?', '#']).next().unwrap_or_default();
            is_it(&file.media_type, &path.to_ascii_lowercase())
        })?;
        web_url(base, file)
    };
    let torrent = find(&|media_type, path| {
        media_type == feed::TORRENT_MEDIA_TYPE || path.ends_with(".torrent")
    });
    let metalink = || {
        find(&|media_type, path| {
            metalink::is_media_type(media_type) || metalink::is_file_name(path)
        })
    };
    let links = entry.files.iter().filter(|file| Magnet::is_magnet(&file.href));
    let mut links = links.filter_map(|file| file.href.parse().ok());
    let metafile = match (torrent, links.next()) {
        (Some(url), _) => Metafile::Torrent(url),
        (None, Some(link)) => Metafile::Magnet(Box::new(link)),
        (None, None) => Metafile::Metalink(metalink()?),
    };
    // Feeds of others have one entry for each dataset.
    let of_title = || entry.title.clone();
    Some(Announced {
        dataset: Some(entry.dataset.clone()).filter(|it| !it.is_empty()).unwrap_or_else(of_title),
        version: entry.version.clone().unwrap_or_else(of_title),
        metafile,
    })
}

fn web_url(base: &Url, file: &Enclosure) -> Option<Url> {
    base.join(&file.href).ok().filter(|url| matches!(url.scheme(), "http" | "https"))
}

const WISHES: &str = "application/rss+xml, application/atom+xml, application/xml;q=0.9, */*;q=0.5";
/// As much as [`feed::read`] takes.
const FEED_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(dataset: &str, version: &str, published: Option<u64>, files: &[&str]) -> Entry {
        let file = |href: &&str| Enclosure {
            href: (*href).to_owned(),
            media_type: String::new(),
            bytes: None,
        };
        Entry {
            dataset: dataset.to_owned(),
            version: Some(version.to_owned()),
            published,
            files: files.iter().map(file).collect(),
            ..Entry::default()
        }
    }

    #[test]
    fn the_newest_of_the_wanted_dataset_counts() {
        let base = Url::parse("https://a.example/pub/feed.rss").unwrap();
        let entries = vec![
            entry("one", "1", Some(10), &["one-1.torrent"]),
            entry("two", "7", Some(99), &["two.index", "two.meta4?x=1"]),
            entry("one", "2", Some(20), &["one-2.index", "one-2.torrent"]),
            entry("one", "3", Some(30), &["page.html"]),
        ];
        let feed = Feed { entries, ..Feed::default() };
        let newest = |dataset| newest(&feed, &base, dataset, "feed", 1_000);
        let one = newest(Some("one")).unwrap();
        let url = Url::parse("https://a.example/pub/one-2.torrent").unwrap();
        assert_eq!((one.version.as_str(), one.metafile), ("2", Metafile::Torrent(url)));
        assert!(matches!(newest(Some("two")).unwrap().metafile, Metafile::Metalink(_)));
        let datasets = vec!["one".to_owned(), "two".to_owned()];
        assert!(
            matches!(newest(None), Err(FeedError::Several { datasets: all, .. }) if all == datasets)
        );
        assert!(matches!(newest(Some("x")), Err(FeedError::Unknown { .. })));
    }

    #[test]
    fn of_each_dataset_the_newest_is_found_with_its_index() {
        let base = Url::parse("https://a.example/pub/feed.rss").unwrap();
        let of_two = ["2.torrent", "2.index", "2.index.minisig"];
        let entries = vec![
            entry("a", "1", Some(10), &["1.torrent"]),
            entry("b", "x", None, &["x.torrent"]),
            entry("a", "2", Some(20), &of_two),
            entry("b", "y", None, &["y.torrent"]),
            entry("a", "0", Some(20), &["0.torrent", "data:,x.index"]),
            entry("c", "1", Some(1), &["page.html"]),
        ];
        let all = newest_of_each(&Feed { entries, ..Feed::default() }, &base, 1_000);
        let versions: Vec<_> = all.iter().map(|it| it.announced.version.as_str()).collect();
        assert_eq!(versions, ["2", "x"]);
        let at = |name: &str| Some(base.join(name).unwrap());
        assert_eq!((&all[0].index, &all[0].signature), (&at(of_two[1]), &at(of_two[2])));
        assert_eq!((&all[1].index, &all[1].signature), (&None, &None));
    }

    #[test]
    fn magnet_links_announce_versions_too() {
        let base = Url::parse("https://a.example/feed.rss").unwrap();
        let link = "magnet:?xt=urn:btih:c9e15763f722f23e98a29decdfae341b98d53056&dn=x.torrent";
        let entries = vec![
            entry("a", "2", Some(20), &["picture.png", link]),
            entry("b", "1", Some(10), &[link, "1.torrent"]),
            entry("c", "1", Some(10), &["magnet:?xt=urn:btih:00"]),
        ];
        let all = newest_of_each(&Feed { entries, ..Feed::default() }, &base, 1_000);
        let files: Vec<_> = all.iter().map(|it| &it.announced.metafile).collect();
        assert!(matches!(files[..], [Metafile::Magnet(_), Metafile::Torrent(_)]), "{files:?}");
    }

    #[test]
    fn a_date_that_cannot_be_true_makes_no_version_the_newest() {
        let base = Url::parse("https://a.example/feed.rss").unwrap();
        let entries = vec![
            entry("a", "3", Some(20), &["3.torrent"]),
            entry("a", "2", Some(9_000_000), &["2.torrent"]),
            entry("a", "1", None, &["1.torrent"]),
        ];
        let feed = Feed { entries, ..Feed::default() };
        let all = newest_of_each(&feed, &base, 1_000);
        assert_eq!((&*all[0].announced.version, all[0].published), ("3", Some(20)));
        assert_eq!(all[0].times, [("3".to_owned(), 20)].into());
        assert_eq!(newest(&feed, &base, None, "feed", 1_000).unwrap().version, "3");
    }

    #[test]
    fn without_times_the_first_entry_is_the_newest() {
        let base = Url::parse("https://a.example/feed.rss").unwrap();
        let entries = vec![
            entry("a", "2", None, &["2.torrent"]),
            entry("a", "1", None, &["javascript:alert(1)//.torrent"]),
            entry("a", "0", None, &["0.torrent"]),
        ];
        let feed = Feed { entries, ..Feed::default() };
        assert_eq!(newest(&feed, &base, None, "feed", 1_000).unwrap().version, "2");
    }
}
