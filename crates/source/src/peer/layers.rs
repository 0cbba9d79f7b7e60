//! The piece layers of a v2 torrent from a peer (BEP 52): the hashes that the info dictionary leaves
//! out. A layer counts once its root is the one in the dictionary.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use swath_formats::peer::{Event, HashRange};
use swath_formats::torrent::Info;
use swath_formats::torrent::metainfo::Metainfo;
use swath_model::digest::sha256_tree::{MerkleHash, piece_height};

use super::error::PeerError;
use super::metadata::Talk;
use crate::net::Net;

/// Fetches all piece layers that `metainfo` needs.
///
/// # Errors
/// [`PeerError`] if the peer does not have one, sends a wrong one, or does not answer in time.
pub(super) async fn fetch_layers(
    net: &Net,
    talk: &mut Talk,
    metainfo: &mut Metainfo,
) -> Result<(), PeerError> {
    let (mut requests, mut layers) = needed(&metainfo.info);
    let mut under_way = 0;
    while !layers.is_empty() {
        while under_way < UNDER_WAY_MAX
            && let Some(range) = requests.pop_front()
        {
            talk.session.want_hashes(range);
            under_way += 1;
        }
        let answer = net.awake().within(ANSWER_WITHIN, answer(talk)).await;
        let (range, hashes) = answer.ok_or(PeerError::Slow(ANSWER_WITHIN))??;
        under_way -= 1;
        let Some(layer) = layers.get_mut(&range.pieces_root) else { continue };
        layer.parts.insert(range.index, hashes);
        layer.left -= 1;
        if layer.left == 0
            && let Some(layer) = layers.remove(&range.pieces_root)
        {
            // Behind the last piece, the peer has filled up.
            let hashes = layer.parts.into_values().flatten().take(layer.length);
            metainfo.add_piece_layer(layer.file, hashes.collect()).map_err(PeerError::Hashes)?;
        }
    }
    Ok(())
}

/// A layer that arrives.
struct Layer {
    /// The number of its file among the listed ones.
    file: usize,
    /// Its hashes.
    length: usize,
    /// Requests that are not answered.
    left: usize,
    /// The answers, by the first hash of each.
    parts: BTreeMap<u32, Vec<MerkleHash>>,
}

/// Returns the requests for all piece layers, and the layers by their roots. Files with the same
/// content share one.
fn needed(info: &Info) -> (VecDeque<HashRange>, HashMap<MerkleHash, Layer>) {
    let (mut requests, mut layers) = (VecDeque::new(), HashMap::new());
    let files = info.listed_files().iter().enumerate();
    for (number, file) in files.filter(|(_, file)| info.needs_piece_layer(file)) {
        let Some(pieces_root) = file.pieces_root.filter(|root| !layers.contains_key(root)) else {
            continue;
        };
        // `Info` allows no more pieces than fit.
        let hashes = file.length_bytes.div_ceil(info.piece_bytes()) as u32;
        let length = hashes.next_power_of_two().min(REQUEST_HASHES_MAX);
        let ranges = (0..hashes).step_by(length as usize).map(|index| HashRange {
            pieces_root,
            base_layer: piece_height(info.piece_bytes()),
            index,
            length,
            proof_layers: 0,
        });
        let before = requests.len();
        requests.extend(ranges);
        layers.insert(
            pieces_root,
            Layer {
                file: number,
                length: hashes as usize,
                left: requests.len() - before,
                parts: BTreeMap::new(),
            },
        );
    }
    (requests, layers)
}

/// Returns the answer to one of the requests.
async fn answer(talk: &mut Talk) -> Result<(HashRange, Vec<MerkleHash>), PeerError> {
    loop {
        match talk.event().await? {
            Event::Hashes { range, hashes } => return Ok((range, hashes)),
            Event::HashesRefused(_) => return Err(PeerError::NoHashes),
            _ => {}
        }
    }
}

/// A request should ask for no more (BEP 52).
const REQUEST_HASHES_MAX: u32 = 512;
/// Requests of 16 KiB of hashes each: enough for 2 MB/s at a round trip of 100 ms.
const UNDER_WAY_MAX: usize = 16;
/// A peer that has the hashes answers at once.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
