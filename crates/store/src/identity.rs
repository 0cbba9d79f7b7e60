//! Whether a journal belongs to the content that is requested now.
//!
//! Sources come and go between runs, so not everything known can be equal. What can be compared
//! decides, the strongest first; see the table at [`Identity::compare`].

use swath_model::{Likeness, Validators, counted};

/// What is known about a file's content, apart from its size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Whole-file digests as `algorithm:value`, in one spelling (lower-case hexadecimal).
    pub digests: Vec<String>,
    /// Validators by the source's address.
    pub versions: Vec<(String, Validators)>,
    /// A fingerprint of the table of piece digests as `algorithm:piece length:value`.
    pub pieces: Option<String>,
}

/// The outcome of comparing two identities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A digest, the pieces or a validator match.
    Same,
    /// Nothing contradicts, but only the size matches, or nothing could be compared.
    Unproven,
    /// Different content; the text says what differs.
    Different(String),
}

impl Identity {
    /// Returns whether a digest will prove every byte, from any source.
    pub fn proves(&self) -> bool {
        !self.digests.is_empty() || self.pieces.is_some()
    }

    /// Compares what a journal says with what is known now.
    ///
    /// | first that applies | verdict |
    /// | --- | --- |
    /// | both sizes known and unequal | different |
    /// | a digest of one algorithm on both sides, unequal | different |
    /// | a digest of one algorithm on both sides, equal | same |
    /// | pieces of one algorithm and length on both sides | same or different |
    /// | one source's entity tag on both sides, unequal | different |
    /// | any two validators alike ([`Validators::compare`]) | same |
    /// | any two validators different, and no digest to prove the bytes now | different |
    /// | otherwise | unproven |
    pub fn compare(
        &self,
        size_bytes: Option<u64>,
        now: &Identity,
        size_bytes_now: Option<u64>,
    ) -> Verdict {
        if let (Some(before), Some(after)) = (size_bytes, size_bytes_now)
            && before != after
        {
            return Verdict::Different(format!(
                "the size was {} and is {}",
                counted(before, "byte"),
                counted(after, "byte")
            ));
        }
        let mut agreed = false;
        for before in &self.digests {
            let algorithm = key(before);
            for after in now.digests.iter().filter(|after| key(after) == algorithm) {
                if before != after {
                    return Verdict::Different(format!("the digest was {before} and is {after}"));
                }
                agreed = true;
            }
        }
        if agreed {
            return Verdict::Same;
        }
        if let (Some(before), Some(after)) = (&self.pieces, &now.pieces)
            && key(before) == key(after)
        {
            return match before == after {
                true => Verdict::Same,
                false => Verdict::Different("the digests of its pieces have changed".to_owned()),
            };
        }
        self.compare_versions(now)
    }

    fn compare_versions(&self, now: &Identity) -> Verdict {
        let mut difference = None;
        let mut alike = false;
        for (source, before) in &self.versions {
            for (other, after) in &now.versions {
                // One server makes its tags by one rule, whatever the time says.
                if let (true, Some(before), Some(after)) =
                    (source == other, &before.etag, &after.etag)
                    && before != after
                {
                    return Verdict::Different(format!(
                        "at {source} it was {before} and is {after}"
                    ));
                }
                match before.compare(after) {
                    Likeness::Same | Likeness::SameTime => alike = true,
                    Likeness::Different(before, after) => {
                        difference = Some(format!(
                            "at {source} it was of version {before}, at {other} it is {after}"
                        ));
                    }
                    Likeness::Unknown => {}
                }
            }
        }
        match difference {
            // If only a digest allowed the journal's sources beside each other, only a digest can
            // accept their bytes now.
            Some(difference) if !now.proves() && (!alike || self.proves()) => {
                Verdict::Different(difference)
            }
            _ if alike => Verdict::Same,
            // Mirrors may describe the same content differently; a digest will decide.
            _ => Verdict::Unproven,
        }
    }

    /// Adds the facts of `newer`; on conflict, the newer one counts.
    pub(crate) fn merge(&mut self, newer: &Identity) {
        for digest in &newer.digests {
            self.digests.retain(|known| key(known) != key(digest));
            self.digests.push(digest.clone());
        }
        for (source, version) in &newer.versions {
            self.versions.retain(|(known, _)| known != source);
            self.versions.push((source.clone(), version.clone()));
        }
        if newer.pieces.is_some() {
            self.pieces.clone_from(&newer.pieces);
        }
    }
}

/// Returns everything before the last colon, which must be equal to compare two values.
fn key(text: &str) -> &str {
    text.rsplit_once(':').map_or(text, |(key, _)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Versions are (source, tag, time); an empty text is one that was not told.
    fn identity(
        digests: &[&str],
        versions: &[(&str, &str, &str)],
        pieces: Option<&str>,
    ) -> Identity {
        let told = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Identity {
            digests: digests.iter().map(|&d| d.to_owned()).collect(),
            versions: versions
                .iter()
                .map(|&(source, etag, time)| {
                    let version = Validators { etag: told(etag), last_modified: told(time) };
                    (source.to_owned(), version)
                })
                .collect(),
            pieces: pieces.map(str::to_owned),
        }
    }

    fn is_different(verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Different(_))
    }

    #[test]
    fn the_strongest_comparable_fact_decides() {
        let nothing = Identity::default();
        let a = identity(&["sha-256:aa", "md5:11"], &[("u", "1", "")], Some("sha-1:1024:p"));
        let different = |verdict: Verdict| is_different(&verdict);
        assert_eq!(a.compare(Some(5), &a, Some(5)), Verdict::Same);
        assert!(different(a.compare(Some(5), &a, Some(6))));
        assert_eq!(a.compare(Some(5), &nothing, Some(5)), Verdict::Unproven);
        assert_eq!(a.compare(None, &nothing, Some(5)), Verdict::Unproven);
        // A digest outweighs a changed validator (a mirror that restarted with other tags).
        let restarted = identity(&["md5:11"], &[("u", "2", "")], None);
        assert_eq!(a.compare(None, &restarted, None), Verdict::Same);
        assert!(different(a.compare(None, &identity(&["md5:11", "sha-256:ab"], &[], None), None)));
        assert_eq!(a.compare(None, &identity(&["sha-512:1"], &[], None), None), Verdict::Unproven);
        assert!(different(a.compare(None, &identity(&[], &[], Some("sha-1:1024:q")), None)));
        assert_eq!(
            a.compare(None, &identity(&[], &[], Some("sha-1:2048:q")), None),
            Verdict::Unproven
        );
    }

    /// A file that changed at its source, and a second run that named another mirror of it: the
    /// two were joined, for only tags of one address were compared.
    #[test]
    fn versions_are_compared_between_runs_as_between_mirrors() {
        let before = identity(&[], &[("u", "1", "Mon")], None);
        let versions = |versions: &[(&str, &str, &str)]| identity(&[], versions, None);
        let verdict = |now: &Identity| before.compare(Some(5), now, Some(5));
        for same in [("v", "1", ""), ("v", "2", "Mon"), ("v", "", "Mon"), ("u", "1", "Tue")] {
            assert_eq!(verdict(&versions(&[same])), Verdict::Same, "{same:?}");
        }
        for other in [("v", "2", "Tue"), ("v", "2", ""), ("v", "", "Tue"), ("u", "2", "Mon")] {
            assert!(is_different(&verdict(&versions(&[other]))), "{other:?}");
        }
        assert_eq!(verdict(&versions(&[("u", "", "")])), Verdict::Unproven);
        assert_eq!(verdict(&versions(&[("v", "2", "Tue"), ("w", "1", "")])), Verdict::Same);
        // Where a digest proves the bytes, other mirrors may say other things of them.
        let proved = identity(&["sha-256:aa"], &[("v", "2", "Tue")], None);
        let mixed = identity(&["sha-256:aa"], &[("u", "1", "Mon"), ("v", "2", "Tue")], None);
        assert!(is_different(&mixed.compare(Some(5), &versions(&[("u", "1", "Mon")]), Some(5))));
        assert_eq!(verdict(&proved), Verdict::Unproven);
        let changed = identity(&["sha-256:aa"], &[("u", "2", "Tue")], None);
        assert!(is_different(&verdict(&changed)));
    }

    #[test]
    fn merging_keeps_the_newer_of_two_and_everything_else() {
        let mut a = identity(&["sha-256:aa"], &[("u", "1", "x"), ("v", "1", "")], None);
        a.merge(&identity(&["sha-256:bb", "md5:1"], &[("u", "2", "")], Some("x:1:y")));
        let merged =
            identity(&["sha-256:bb", "md5:1"], &[("v", "1", ""), ("u", "2", "")], Some("x:1:y"));
        assert_eq!(a, merged);
    }
}
