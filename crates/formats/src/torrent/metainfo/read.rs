//! Reads a metafile: what stands around the info dictionary.
//!
//! Trackers, web seeds and remarks are optional, and many programs write them in their own ways:
//! what cannot be used is left out. Piece layers are checked against the roots of the files.

use std::collections::BTreeMap;
use std::sync::Arc;

use swath_model::digest::sha256_tree::{self, MerkleHash};
use url::Url;

use super::read_info::{fields, hints, lossy, required};
use super::{Info, METAFILE_BYTES_MAX, Metainfo, MetainfoError, PieceLayerError, layer_error};
use crate::mirror_url::mirror_url;
use crate::torrent::bencode::{self, Value};
use crate::torrent::tracker_url;
use crate::torrent::unused::{Unused, unused};

impl Metainfo {
    /// Reads a metafile.
    ///
    /// # Errors
    /// [`MetainfoError`] with the field and the problem.
    pub fn read(bytes: &[u8]) -> Result<Metainfo, MetainfoError> {
        check_size(bytes)?;
        let root = bencode::read(bytes)?.value;
        let [announce, announce_list, comment, created_by, creation_date, info, layers, url_list] =
            fields(root, &"torrent file", OUTER)?;
        let [similar, collections, whole_file_list] =
            fields(root, &"torrent file", [b"similar", b"collections", b"whole-file-list"])?;
        let info = Info::read(required(info, &"info")?.raw())?;
        let mut metainfo = Metainfo::of(info);
        if metainfo.info.kind.has_v2() {
            metainfo.piece_layers = piece_layers(&metainfo.info, layers)?;
        }
        let noted = &mut metainfo.unused;
        metainfo.trackers = trackers(announce, announce_list, noted);
        metainfo.web_seeds = web_seeds(url_list, "url-list", noted);
        metainfo.whole_file_mirrors = web_seeds(whole_file_list, "whole-file-list", noted);
        // Seeds of another kind (BEP 17), and machines that find peers without trackers (BEP 5).
        for field in ["httpseeds", "nodes"] {
            let mut items = root.get(field.as_bytes()).and_then(Value::list).into_iter().flatten();
            if items.next().is_some() {
                unused(noted, field, "");
            }
        }
        metainfo.comment = comment.and_then(lossy);
        metainfo.created_by = created_by.and_then(lossy);
        let date = creation_date.and_then(Value::int);
        metainfo.creation_date_s = date.and_then(|date| u64::try_from(date).ok());
        hints(similar, collections, &mut metainfo.similar, &mut metainfo.collections);
        Ok(metainfo)
    }
}

pub(super) fn check_size(bytes: &[u8]) -> Result<(), MetainfoError> {
    if bytes.len() > METAFILE_BYTES_MAX {
        let (bytes, max_bytes) = (bytes.len(), METAFILE_BYTES_MAX);
        return Err(MetainfoError::TooLarge { bytes, max_bytes });
    }
    Ok(())
}

/// Returns the layer of each file that needs one, checked once for each root.
fn piece_layers(
    info: &Info,
    layers: Option<Value<'_>>,
) -> Result<BTreeMap<MerkleHash, Arc<[MerkleHash]>>, MetainfoError> {
    let found: BTreeMap<&[u8], &[u8]> = match layers {
        None => BTreeMap::new(),
        Some(layers) => {
            let not =
                || MetainfoError::Not { at: "piece layers".to_owned(), expected: "a dictionary" };
            let entries = layers.dict().ok_or_else(not)?;
            let layers = entries.filter_map(|(root, layer)| Some((root, layer.bytes()?)));
            layers.filter(|(root, layer)| root.len() == 32 && layer.len() >= 64).collect()
        }
    };
    let mut verified: BTreeMap<MerkleHash, Arc<[MerkleHash]>> = BTreeMap::new();
    for file in info.files.iter().filter(|file| info.needs_piece_layer(file)) {
        let error = |why| layer_error(file, why);
        let root = file.pieces_root.ok_or_else(|| error(PieceLayerError::Missing))?;
        if let Some(layer) = verified.get(&root) {
            info.check_piece_layer(file, layer)?;
            continue;
        }
        let packed = *found.get(&root[..]).ok_or_else(|| error(PieceLayerError::Missing))?;
        let (layer, []) = packed.as_chunks() else { return Err(error(PieceLayerError::Length)) };
        info.check_piece_layer(file, layer)?;
        if sha256_tree::root_of_layer(layer, info.piece_bytes) != root {
            return Err(error(PieceLayerError::Root));
        }
        verified.insert(root, layer.into());
    }
    Ok(verified)
}

/// Returns the tiers of trackers. `announce` counts only without a list, as BEP 12 says.
fn trackers(
    announce: Option<Value<'_>>,
    list: Option<Value<'_>>,
    noted: &mut Vec<Unused>,
) -> Vec<Vec<Url>> {
    let mut tracker = |value: Value<'_>| {
        let bytes = value.bytes().filter(|bytes| !bytes.trim_ascii().is_empty())?;
        let tracker = value.text().and_then(tracker_url);
        if tracker.is_none() {
            unused(noted, "announce", &String::from_utf8_lossy(bytes));
        }
        tracker
    };
    let tiers = list.and_then(Value::list).into_iter().flatten().take(TRACKERS_MAX);
    let tiers = tiers.filter_map(|tier| {
        let tier: Vec<Url> = tier.list()?.take(TRACKERS_MAX).filter_map(&mut tracker).collect();
        (!tier.is_empty()).then_some(tier)
    });
    let mut left = TRACKERS_MAX;
    let tiers: Vec<Vec<Url>> = tiers
        .map_while(|mut tier| {
            tier.truncate(left);
            left -= tier.len();
            (!tier.is_empty()).then_some(tier)
        })
        .collect();
    if tiers.is_empty() {
        return announce.and_then(tracker).map(|only| vec![vec![only]]).unwrap_or_default();
    }
    tiers
}

/// Returns the web seeds of a list, or a single one.
fn web_seeds(list: Option<Value<'_>>, field: &str, noted: &mut Vec<Unused>) -> Vec<Url> {
    let Some(value) = list else { return Vec::new() };
    let mut seeds: Vec<Url> = Vec::new();
    let single = value.bytes().map(|_| value);
    for seed in value.list().into_iter().flatten().chain(single).take(WEB_SEEDS_MAX) {
        match seed.text().and_then(|text| mirror_url(text, None).ok()) {
            Some(url) if !seeds.contains(&url) => seeds.push(url),
            Some(_) => {}
            // Some programs write an empty one where there is none.
            None => {
                let bytes = seed.bytes().filter(|bytes| !bytes.trim_ascii().is_empty());
                if let Some(bytes) = bytes {
                    unused(noted, field, &String::from_utf8_lossy(bytes));
                }
            }
        }
    }
    seeds
}

const OUTER: [&[u8]; 8] = [
    b"announce",
    b"announce-list",
    b"comment",
    b"created by",
    b"creation date",
    b"info",
    b"piece layers",
    b"url-list",
];

/// More are never asked in time.
const TRACKERS_MAX: usize = 1_000;
const WEB_SEEDS_MAX: usize = 1_000;
