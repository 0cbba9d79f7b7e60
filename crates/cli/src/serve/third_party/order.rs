//! Orders to fetch, as they are kept: what they mean, and how long they open their sources.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use swath_formats::delegation::Shown;
use swath_jobs::copy::CopyKind;
use swath_jobs::{Address, Compare, CopySpec, JobSpec, Preserve, Work};
use swath_model::digest::Digest;
use swath_model::path::visible;
use swath_serve::{Destination, Rights, Who};
use swath_source::{HostPattern, Secret, ServerAccess, is_token};
use swath_transfer::sending::Wishes;
use swath_transfer::third_party::{SourceAccess, Sources};
use url::Url;

use super::FetchRules;

/// An order as it is kept.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeptOrder {
    /// What the client wishes: names and values.
    pub wishes: Vec<(String, String)>,
    /// From where, with what opens it.
    pub sources: Sources,
    /// What whoever ordered it may do here, as [`Rights::to_text`] writes it.
    #[serde(default)]
    pub rights: Option<String>,
}

impl KeptOrder {
    /// Reads a kept order.
    ///
    /// # Errors
    /// What is wrong.
    pub fn of_text(text: &str) -> Result<KeptOrder, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// Returns whether another order means the same copy, whatever opens the sources.
    pub fn is_same(&self, other: &KeptOrder) -> bool {
        let bare = |order: &KeptOrder| {
            let sources = order.sources.sources.iter();
            let urls: Vec<String> = sources.map(|source| source.url.clone()).collect();
            let Sources { limit_bytes_per_s, require_digest, .. } = order.sources;
            (urls, order.wishes.clone(), limit_bytes_per_s, require_digest)
        };
        bare(self) == bare(other)
    }

    /// Returns whether another order opens the sources for notably longer. An order that is sent again after a
    /// short break does not: taking it over stops the copy for a moment.
    pub fn is_renewed_by(&self, other: &KeptOrder) -> bool {
        match (self.left(), other.left()) {
            (Some(own), Some(new)) => own < new * 3 / 4,
            (own, new) => own.is_some() != new.is_some(),
        }
    }

    /// Returns what its owner may do here; `None` if that is not known.
    pub fn rights_of(&self, owner: Who) -> Option<Rights> {
        match &self.rights {
            Some(text) => Rights::of_text(text, owner),
            None => Rights::of_earlier_order(owner),
        }
    }

    /// Returns whether nothing is to be changed.
    pub fn is_dry(&self) -> bool {
        Wishes::of(&self.wishes).dry
    }

    /// Returns whether a right to read a source has ended, or almost.
    pub fn has_ended(&self) -> bool {
        self.left().is_some_and(|left| left <= CLOCKS_DIFFER)
    }

    /// How long all rights to read still last; `None` if no right is limited.
    fn left(&self) -> Option<Duration> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let tokens = self.sources.sources.iter().filter_map(|source| source.token.as_deref());
        let ends = tokens.filter_map(|token| Some(Shown::read(token)?.until_s())).min()?;
        Some(Duration::from_secs(ends).saturating_sub(now))
    }

    /// Returns the addresses of the sources, if nothing is wrong with the order.
    ///
    /// # Errors
    /// What is wrong.
    pub fn urls(&self) -> Result<Vec<Url>, String> {
        let sources = &self.sources;
        if sources.limit_bytes_per_s == Some(0) {
            return Err("the limit must be more than zero".to_owned());
        }
        let mut fingerprints = sources.sources.iter().flat_map(|source| &source.fingerprints);
        if let Some(wrong) = fingerprints.find(|digits| fingerprint(digits).is_none()) {
            return Err(format!(
                "'{}' is not the SHA-256 of a certificate in hexadecimal digits",
                visible(wrong)
            ));
        }
        let all = sources.sources.iter().map(|SourceAccess { url, token, .. }| {
            let parsed = swath_jobs::parse_url(url).map_err(|error| error.to_string())?;
            match token {
                Some(_) if parsed.scheme() != "https" => {
                    Err("a token is not sent without encryption".to_owned())
                }
                Some(token) if !is_token(token) => {
                    Err("what is given as a token is not one word of plain characters".to_owned())
                }
                _ => Ok(parsed),
            }
        });
        let all: Vec<Url> = all.collect::<Result<_, _>>()?;
        let folders = all.iter().filter(|url| url.path().ends_with('/')).count();
        if folders > 0 && Wishes::of(&self.wishes).single.is_some() {
            return Err("a single file is wanted, and the source is a folder".to_owned());
        }
        match (all.len(), folders) {
            (0, _) => Err("an order needs a source".to_owned()),
            (1, 0) => Ok(all),
            (count, folders) if count == folders => Ok(all),
            _ => Err("several sources must be replicas of one folder, whose addresses end in '/'"
                .to_owned()),
        }
    }

    /// Returns the order as a job of this machine.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn spec(&self, rules: &FetchRules, destination: &Destination) -> Result<JobSpec, String> {
        let (sources, wishes, urls) = (&self.sources, Wishes::of(&self.wishes), self.urls()?);
        let from: Vec<Address> = urls.iter().map(|url| Address::new(url.as_str())).collect();
        let to = destination.path.clone();
        let kind = match &urls[..] {
            [url] if !url.path().ends_with('/') => {
                let (to, is_alone) = match &wishes.single {
                    Some(name) => (to.join(name), true),
                    // What is not there yet is a folder, too.
                    None => (PathBuf::from(format!("{}/", to.display())), false),
                };
                CopyKind::FetchNamed { from: from[0].clone(), to, is_alone }
            }
            _ => CopyKind::Fetch { from, to },
        };
        let swath_transfer::Preserve { mode, times, links, xattrs } = wishes.preserve;
        let copy = CopySpec {
            include: wishes.include.clone(),
            exclude: wishes.exclude.clone(),
            compare: match wishes.compare {
                swath_transfer::Compare::SizeAndTime => Compare::SizeAndTime,
                swath_transfer::Compare::Content => Compare::Content,
                swath_transfer::Compare::Nothing => Compare::Nothing,
            },
            preserve: Preserve { mode, times, links, xattrs },
            delete: wishes.delete,
            allow_empty: wishes.allow_empty,
            resume: wishes.resume,
            require_digest: sources.require_digest,
            dry_run: wishes.dry,
            ..CopySpec::new(kind)
        };
        let mut spec = JobSpec::new(Work::Copy(copy));
        if let Some(patience_s) = wishes.patience_s {
            spec.network.timeout_ms = (patience_s * 1e3) as u64;
        }
        let limits = [rules.limit_bytes_per_s, sources.limit_bytes_per_s];
        spec.network.limit_bytes_per_s = limits.into_iter().flatten().min();
        spec.disk.io = rules.io;
        spec.routes = rules.routes.clone();
        Ok(spec)
    }

    /// Returns what opens the sources.
    pub fn servers(&self) -> Vec<ServerAccess> {
        let mut servers = Vec::new();
        for source in &self.sources.sources {
            let url = swath_jobs::parse_url(&source.url).ok();
            let pattern = url.and_then(|url| HostPattern::of(&url));
            let Some(pattern) = pattern else { continue };
            let access =
                || ServerAccess { is_for_this_run: true, ..ServerAccess::to(pattern.clone()) };
            let token = source.token.as_deref().map(|token| Secret::new(token).into());
            servers.push(ServerAccess { token, ..access() });
            let trusted = source.fingerprints.iter().filter_map(|digits| fingerprint(digits));
            servers.extend(
                trusted.map(|digest| ServerAccess { fingerprint: Some(digest), ..access() }),
            );
        }
        servers
    }
}

/// Reads the SHA-256 of a certificate.
fn fingerprint(digits: &str) -> Option<Digest> {
    format!("sha-256:{digits}").parse().ok()
}

/// The clocks of two servers may differ by so much; then one of them refuses what the other takes for valid.
const CLOCKS_DIFFER: Duration = Duration::from_secs(60);
