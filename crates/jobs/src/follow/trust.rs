//! Checks a version against the index that its publisher has signed.

use std::path::Path;

use swath_formats::minisign::{PublicKey, Signature};
use swath_formats::torrent::Info;
use swath_publish::{Index, Progress, check_index};
use swath_source::{Net, fetch_small};
use swath_transfer::Trust;
use url::Url;

use super::FollowError;
use crate::get::feed::Newest;

/// Fetches and verifies the index of a version.
///
/// # Errors
/// [`FollowError`], if it is not the index of this version, signed by `key`.
pub async fn signed_index(
    net: &Net,
    key: &PublicKey,
    newest: &Newest,
) -> Result<Index, FollowError> {
    let version = || newest.announced.version.clone();
    let (Some(index), Some(signature)) = (&newest.index, &newest.signature) else {
        return Err(FollowError::Unsigned(version()));
    };
    let index = fetch(net, index, INDEX_BYTES_MAX).await?;
    let signature = fetch(net, signature, SIGNATURE_BYTES_MAX).await?;
    verified(key, &index, &signature, newest)
}

fn verified(
    key: &PublicKey,
    index: &[u8],
    signature: &[u8],
    newest: &Newest,
) -> Result<Index, FollowError> {
    let version = || newest.announced.version.clone();
    let invalid = || FollowError::BadIndex(version());
    let signature = str::from_utf8(signature).ok().and_then(|text| Signature::read(text).ok());
    key.verify(index, &signature.ok_or_else(invalid)?)
        .map_err(|error| FollowError::Signature { version: version(), error })?;
    let index = str::from_utf8(index).ok().and_then(|text| Index::read(text).ok());
    let index = index.ok_or_else(invalid)?;
    let is_it = index.name == newest.announced.dataset
        && index.version.as_ref().is_none_or(|signed| *signed == newest.announced.version);
    if is_it { Ok(index) } else { Err(FollowError::OtherIndex(version())) }
}

/// Checks that a torrent is that of the index, which names its info-hashes.
///
/// # Errors
/// [`FollowError::OtherIndex`].
pub fn is_torrent_of(index: &Index, info: &Info, version: &str) -> Result<(), FollowError> {
    let differs = |signed: &Option<String>, hash: Option<String>| {
        signed.as_ref().is_some_and(|signed| hash.is_none_or(|hash| hash != *signed))
    };
    let names_none = index.btih.is_none() && index.btmh.is_none();
    match names_none
        || differs(&index.btih, info.hash_v1().map(|hash| hash.to_string()))
        || differs(&index.btmh, info.hash_v2().map(|hash| hash.to_string()))
    {
        true => Err(FollowError::OtherIndex(version.to_owned())),
        false => Ok(()),
    }
}

/// Checks the files of a version against its index.
///
/// # Errors
/// [`FollowError::Mismatch`], [`FollowError::Check`].
pub fn check(place: &Path, index: &Index, version: &str) -> Result<(), FollowError> {
    let version = || version.to_owned();
    let checked = check_index(place, index, &Progress::default());
    let checked = checked.map_err(|error| FollowError::Check { version: version(), error })?;
    match (checked.wrong.len() + checked.others.len()) as u64 {
        0 => Ok(()),
        wrong => Err(FollowError::Mismatch { version: version(), wrong }),
    }
}

async fn fetch(net: &Net, url: &Url, limit_bytes: usize) -> Result<Vec<u8>, FollowError> {
    let fetched = fetch_small(net, url, Trust::Discovered, "*/*", limit_bytes).await;
    Ok(fetched.map_err(FollowError::Index)?.bytes)
}

/// As much as a metafile: some million files.
const INDEX_BYTES_MAX: usize = 256 << 20;
/// minisign's comments have at most 9 KiB.
const SIGNATURE_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::get::feed::{Announced, Metafile};
    use swath_formats::minisign::{SECRET_RANDOM_BYTES, SecretKey};

    fn newest(dataset: &str, version: &str) -> Newest {
        let url = Url::parse("https://a.example/x.torrent").unwrap();
        let (dataset, version) = (dataset.to_owned(), version.to_owned());
        let announced = Announced { dataset, version, metafile: Metafile::Torrent(url) };
        Newest {
            announced,
            published: None,
            times: Default::default(),
            index: None,
            signature: None,
        }
    }

    fn index() -> Index {
        let (name, version) = ("run7".to_owned(), Some("2".to_owned()));
        Index { name, version, published: 5, btih: None, btmh: None, files: Vec::new() }
    }

    #[test]
    fn an_index_counts_if_it_is_signed_and_that_of_the_version() {
        let key = SecretKey::from_random(&[7; SECRET_RANDOM_BYTES]).unwrap();
        let other = SecretKey::from_random(&[8; SECRET_RANDOM_BYTES]).unwrap();
        let text = index().write();
        let signature = key.sign(text.as_bytes(), "").unwrap().write();
        let check = |key: &SecretKey, text: &str, signature: &str, newest| {
            verified(key.public(), text.as_bytes(), signature.as_bytes(), &newest)
        };
        assert_eq!(check(&key, &text, &signature, newest("run7", "2")).unwrap(), index());
        for (dataset, version) in [("run7", "3"), ("run8", "2")] {
            let checked = check(&key, &text, &signature, newest(dataset, version));
            assert!(matches!(checked, Err(FollowError::OtherIndex(_))), "{checked:?}");
        }
        let checked = check(&other, &text, &signature, newest("run7", "2"));
        assert!(matches!(checked, Err(FollowError::Signature { .. })), "{checked:?}");
        let forged = text.replace("version 2", "version 3");
        let checked = check(&key, &forged, &signature, newest("run7", "3"));
        assert!(matches!(checked, Err(FollowError::Signature { .. })), "{checked:?}");
        for (text, signature) in [(&*text, "rubbish"), (&*text, "")] {
            let checked = check(&key, text, signature, newest("run7", "2"));
            assert!(matches!(checked, Err(FollowError::BadIndex(_))), "{checked:?}");
        }
        let rubbish = key.sign(b"rubbish", "").unwrap().write();
        let checked = check(&key, "rubbish", &rubbish, newest("run7", "2"));
        assert!(matches!(checked, Err(FollowError::BadIndex(_))), "{checked:?}");
    }
}
