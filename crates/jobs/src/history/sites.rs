//! Between which places a job transfers.

use std::collections::BTreeSet;

use swath_state::HERE;

use crate::address::Address;
use crate::copy::{CopyKind, Place};
use crate::spec::{JobSpec, Work};

/// The places of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sites {
    /// What it is called on the command line.
    pub(crate) kind: &'static str,
    /// Where the data comes from, if that is known before.
    from: Option<String>,
    /// Where it goes.
    pub(crate) to: String,
}

impl Sites {
    /// Returns the places of a job.
    pub(crate) fn of(spec: &JobSpec) -> Sites {
        let here = || HERE.to_owned();
        let Work::Copy(copy) = &spec.work else {
            return Sites { kind: "get", from: None, to: here() };
        };
        let (from, to) = match &copy.kind {
            CopyKind::Fetch { from, .. } => (Some(joined(from)), here()),
            CopyKind::FetchNamed { from, .. } => (Some(site(from)), here()),
            CopyKind::FetchBySsh { from, .. } => (Some(host(&from.host)), here()),
            CopyKind::Send { to, .. } | CopyKind::SendFile { to, .. } => (Some(here()), site(to)),
            CopyKind::SendBySsh { to, .. } => (Some(here()), host(&to.host)),
            CopyKind::ThirdParty { from, to, .. } => (Some(joined(from)), site(to)),
            CopyKind::BetweenBySsh { from, to, .. } => (Some(place(from)), place(to)),
            CopyKind::Attach { at, .. } => (None, site(at)),
            CopyKind::Local { .. } => (Some(here()), here()),
        };
        Sites { kind: "cp", from, to }
    }

    /// Returns where the data comes from; `sources` are the addresses that the transfer names.
    pub(crate) fn from(&self, sources: &[String]) -> String {
        match &self.from {
            Some(from) => from.clone(),
            None => joined(&sources.iter().map(Address::new).collect::<Vec<_>>()),
        }
    }

    /// Returns where the files of a list come from.
    pub(crate) fn list_from(&self, sites: BTreeSet<String>) -> String {
        self.from.clone().unwrap_or_else(|| joined_sites(sites))
    }
}

fn place(place: &Place) -> String {
    match place {
        Place::Server(address) => site(address),
        Place::Ssh(remote) => host(&remote.host),
    }
}

/// A host reached by ssh, without the user.
fn host(host: &str) -> String {
    host.rsplit('@').next().unwrap_or(host).to_owned()
}

/// The host and port of an address; of others than servers' nothing but that they are no servers.
fn site(address: &Address) -> String {
    match address.url() {
        Ok(url) => swath_formats::relay::site(&url).unwrap_or_default(),
        Err(_) => HERE.to_owned(),
    }
}

/// The same of several, in order and each once.
pub(crate) fn joined(addresses: &[Address]) -> String {
    let mut sites = BTreeSet::new();
    add_sites(&mut sites, addresses);
    joined_sites(sites)
}

/// Adds the sites of these addresses; the first [`SITES_MAX`] stay.
pub(crate) fn add_sites(sites: &mut BTreeSet<String>, addresses: &[Address]) {
    for address in addresses {
        sites.insert(site(address));
        if sites.len() > SITES_MAX {
            sites.pop_last();
        }
    }
}

fn joined_sites(sites: BTreeSet<String>) -> String {
    Vec::from_iter(sites).join(" ")
}

/// Mirrors that tell one list of mirrors from another.
const SITES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::CopySpec;

    #[test]
    fn places_are_hosts_and_ports_without_secrets() {
        let get = Sites::of(&JobSpec::get(["https://u:p@a.example/f?sig=1"], "/tmp"));
        assert_eq!((get.kind, get.to.as_str()), ("get", HERE));
        let sources = ["http://b.example:8080/f", "https://u:p@a.example/f?sig=1"];
        let sources = sources.map(str::to_owned);
        assert_eq!(get.from(&sources), "a.example:443 b.example:8080");
        let kind = CopyKind::ThirdParty {
            from: vec![Address::new("https://a.example/d/")],
            to: Address::new("davs://b.example:1094/d/"),
            is_alone: true,
        };
        let copy = Sites::of(&JobSpec::new(Work::Copy(CopySpec::new(kind))));
        assert_eq!((copy.from(&[]), copy.to.as_str()), ("a.example:443".into(), "b.example:1094"));
        let kind = CopyKind::Send { from: "/d".into(), to: Address::new("https://b.example/d/") };
        let copy = Sites::of(&JobSpec::new(Work::Copy(CopySpec::new(kind))));
        assert_eq!((copy.from(&[]), copy.to.as_str()), (HERE.to_owned(), "b.example:443"));
    }
}
