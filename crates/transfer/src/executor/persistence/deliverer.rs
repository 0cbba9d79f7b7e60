//! Sources as the journal records them: those that brought bytes in this run or in earlier ones.

use std::fmt;

use swath_model::SourceName;
use swath_source::Source;

/// A source that brought bytes, as the journal keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deliverer {
    /// Its name.
    pub name: SourceName,
    /// Number, from 1, among sources of one name: names have no queries, so two may be equal.
    pub number: usize,
    /// Whether relays could have changed its bytes.
    pub is_exposed: bool,
}

impl Deliverer {
    /// Returns the journal's form of `source`.
    pub fn of(source: &dyn Source) -> Deliverer {
        let is_exposed = source.relaying().is_some_and(|relaying| relaying.is_exposed);
        Deliverer { name: source.name().clone(), number: 1, is_exposed }
    }

    /// Parses what [`Deliverer::text`] wrote.
    pub fn parse(text: &str) -> Deliverer {
        // Addresses and sites have no spaces.
        let (text, is_carried) = match text.strip_suffix(CARRIED) {
            Some(text) => (text, true),
            None => (text, false),
        };
        let (address, relays) = match text.split_once(" by ") {
            Some((address, relays)) => (address, relays.split(", ").map(str::to_owned).collect()),
            None => (text, Vec::new()),
        };
        let counted = address.rsplit_once(" #");
        let counted = counted.and_then(|(address, number)| Some((address, number.parse().ok()?)));
        let (address, number) = counted.unwrap_or((address, 1));
        let name = SourceName { address: address.to_owned(), relays };
        Deliverer { number, is_exposed: name.is_relayed() && !is_carried, name }
    }

    /// Returns the text for the journal.
    pub fn text(&self) -> String {
        let is_carried = self.name.is_relayed() && !self.is_exposed;
        format!("{self}{}", if is_carried { CARRIED } else { "" })
    }
}

impl fmt::Display for Deliverer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = self.name.clone();
        if self.number > 1 {
            name.address.push_str(&format!(" #{}", self.number));
        }
        name.fmt(f)
    }
}

/// Follows the name of a source whose bytes relays tunnelled and could not read.
const CARRIED: &str = ", carried";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_journal_keeps_is_read_again() {
        let relays = || vec!["r1:8471".to_owned(), "r2:8471".to_owned()];
        let address = || "http://a.example/x".to_owned();
        let direct =
            Deliverer { name: SourceName::direct(address()), number: 1, is_exposed: false };
        let name = SourceName { address: address(), relays: relays() };
        let exposed = Deliverer { name, is_exposed: true, ..direct.clone() };
        let carried = Deliverer { is_exposed: false, ..exposed.clone() };
        let second = |one: &Deliverer| Deliverer { number: 2, ..one.clone() };
        let known = [
            (&direct, "http://a.example/x"),
            (&second(&direct), "http://a.example/x #2"),
            (&exposed, "http://a.example/x by r1:8471, r2:8471"),
            (&carried, "http://a.example/x by r1:8471, r2:8471, carried"),
            (&second(&carried), "http://a.example/x #2 by r1:8471, r2:8471, carried"),
        ];
        for (deliverer, text) in known {
            assert_eq!(deliverer.text(), text);
            assert_eq!(&Deliverer::parse(text), deliverer, "{text}");
        }
    }
}
