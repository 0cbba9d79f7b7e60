//! Whether a journal belongs to the content that is asked for now.
//!
//! Sources come and go between two runs, so equality of everything known cannot be asked for.
//! What can be compared decides, the strongest first; see the table at [`Identity::compare`].

/// What is known about a file's content, apart from its size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Whole-file digests as `algorithm:value`, in one spelling (lower-case hexadecimal).
    pub digests: Vec<String>,
    /// What sources said about the content's version: (source's address, strong validator). The
    /// same value from two addresses counts as agreement.
    pub validators: Vec<(String, String)>,
    /// A fingerprint of the table of piece digests as `algorithm:piece length:value`.
    pub pieces: Option<String>,
}

/// The outcome of comparing two identities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A digest, the pieces or a validator agree.
    Same,
    /// Nothing contradicts, but only the size agrees, or nothing could be compared.
    Unproven,
    /// Another content; the text says what differs.
    Different(String),
}

impl Identity {
    /// Compare what a journal says with what is known now.
    ///
    /// | first that applies | verdict |
    /// | --- | --- |
    /// | both sizes known and unequal | different |
    /// | a digest of one algorithm on both sides, unequal | different |
    /// | a digest of one algorithm on both sides, equal | same |
    /// | pieces of one algorithm and length on both sides | same or different |
    /// | one source's validator on both sides, unequal | different |
    /// | any validator value on both sides | same |
    /// | otherwise | unproven |
    pub(crate) fn compare(
        &self,
        size_bytes: Option<u64>,
        now: &Identity,
        size_bytes_now: Option<u64>,
    ) -> Verdict {
        if let (Some(before), Some(after)) = (size_bytes, size_bytes_now)
            && before != after
        {
            return Verdict::Different(format!("the size was {before} bytes and is {after} bytes"));
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
        for (source, before) in &self.validators {
            for (_, after) in now.validators.iter().filter(|(other, _)| other == source) {
                if before != after {
                    return Verdict::Different(format!(
                        "at {source} it was {before} and is {after}"
                    ));
                }
            }
        }
        let agreed = self
            .validators
            .iter()
            .any(|(_, before)| now.validators.iter().any(|(_, after)| before == after));
        if agreed { Verdict::Same } else { Verdict::Unproven }
    }

    /// Add what `newer` knows; where both speak of the same thing, the newer one counts.
    pub(crate) fn merge(&mut self, newer: &Identity) {
        for digest in &newer.digests {
            self.digests.retain(|known| key(known) != key(digest));
            self.digests.push(digest.clone());
        }
        for (source, value) in &newer.validators {
            self.validators.retain(|(known, _)| known != source);
            self.validators.push((source.clone(), value.clone()));
        }
        if newer.pieces.is_some() {
            self.pieces.clone_from(&newer.pieces);
        }
    }
}

/// Everything before the last colon: what has to be equal for two values to be comparable.
fn key(text: &str) -> &str {
    text.rsplit_once(':').map_or(text, |(key, _)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(digests: &[&str], validators: &[(&str, &str)], pieces: Option<&str>) -> Identity {
        Identity {
            digests: digests.iter().map(|&d| d.to_owned()).collect(),
            validators: validators.iter().map(|&(s, v)| (s.to_owned(), v.to_owned())).collect(),
            pieces: pieces.map(str::to_owned),
        }
    }

    #[test]
    fn the_strongest_comparable_fact_decides() {
        let nothing = Identity::default();
        let a = identity(&["sha-256:aa", "md5:11"], &[("u", "\"1\"")], Some("sha-1:1024:p"));
        let different = |v: Verdict| matches!(v, Verdict::Different(_));
        assert_eq!(a.compare(Some(5), &a, Some(5)), Verdict::Same);
        assert!(different(a.compare(Some(5), &a, Some(6))));
        assert_eq!(a.compare(Some(5), &nothing, Some(5)), Verdict::Unproven);
        assert_eq!(a.compare(None, &nothing, Some(5)), Verdict::Unproven);
        // A digest outweighs a changed validator (a mirror that restarted with other tags).
        assert_eq!(
            a.compare(None, &identity(&["md5:11"], &[("u", "\"2\"")], None), None),
            Verdict::Same
        );
        assert!(different(a.compare(None, &identity(&["md5:11", "sha-256:ab"], &[], None), None)));
        assert_eq!(a.compare(None, &identity(&["sha-512:1"], &[], None), None), Verdict::Unproven);
        assert!(different(a.compare(None, &identity(&[], &[], Some("sha-1:1024:q")), None)));
        assert_eq!(
            a.compare(None, &identity(&[], &[], Some("sha-1:2048:q")), None),
            Verdict::Unproven
        );
        assert!(different(a.compare(None, &identity(&[], &[("u", "\"2\"")], None), None)));
        assert_eq!(a.compare(None, &identity(&[], &[("v", "\"1\"")], None), None), Verdict::Same);
        assert_eq!(
            a.compare(None, &identity(&[], &[("v", "\"2\"")], None), None),
            Verdict::Unproven
        );
    }

    #[test]
    fn merging_keeps_the_newer_of_two_and_everything_else() {
        let mut a = identity(&["sha-256:aa"], &[("u", "1"), ("v", "1")], None);
        a.merge(&identity(&["sha-256:bb", "md5:1"], &[("u", "2")], Some("x:1:y")));
        assert_eq!(a, identity(&["sha-256:bb", "md5:1"], &[("v", "1"), ("u", "2")], Some("x:1:y")));
    }
}
