//! Answers to requests for hashes of a v2 torrent (BEP 52): those of piece layers, which we have.

use swath_formats::peer::HashRange;
use swath_formats::torrent::Metainfo;
use swath_model::digest::sha256_tree::{MerkleHash, piece_height, uncles, zero_hash};

/// Returns the hashes that a peer asks for, with their uncles; `None` if they are not at hand.
pub(super) fn answer(metainfo: &Metainfo, range: HashRange) -> Option<Vec<MerkleHash>> {
    let info = &metainfo.info;
    let mut files = info.listed_files().iter();
    let file = files.find(|file| file.pieces_root == Some(range.pieces_root))?;
    let layer = metainfo.piece_layer(file)?;
    let height = piece_height(info.piece_bytes());
    if !range.is_valid() || range.base_layer != height {
        return None;
    }
    let (index, length) = (range.index as usize, range.length as usize);
    let width = layer.len().next_power_of_two();
    if index >= layer.len() || length > width {
        return None;
    }
    let end = layer.len().min(index + length);
    let mut hashes = layer[index..end].to_vec();
    hashes.resize(length, zero_hash(height));
    // Of the layers of the proof, those below the top of the span are no uncles.
    let skipped = length.ilog2().saturating_sub(1);
    let count = range.proof_layers.saturating_sub(skipped) as usize;
    let (index, span) = (u64::from(range.index), u64::from(range.length));
    hashes.extend(uncles(layer, height, index, span, count)?);
    Some(hashes)
}
