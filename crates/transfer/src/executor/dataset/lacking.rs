//! Files that differ from the index.

use std::collections::BTreeMap;

use swath_model::digest::blake3_tree::GROUP_BYTES;
use swath_model::index::{Index, Lack};
use swath_model::{Range, RangeSet};
use swath_source::{UNIT_BYTES, fetch_small};

use crate::error::GetError;
use crate::executor::dataset::in_tree;
use crate::executor::state::Run;
use crate::tree::{read, units_around};

impl Run<'_> {
    /// Removes these files from the journal.
    pub(crate) async fn forget(&mut self, changed: &[(u64, Lack)]) -> Result<(), GetError> {
        let Some(tree) = self.dataset.tree().filter(|_| !changed.is_empty()) else { return Ok(()) };
        let files: Vec<u64> = changed.iter().map(|&(number, _)| number).collect();
        tree.pass.sink.work(move |stage| stage.forget(&files)).await
    }

    /// Journals groups that their source disowned in part, except the changed files: the other
    /// bytes in them are as the source sent them. If they were fetched once more, they might be of
    /// another version than the same files' bytes in other groups.
    pub(crate) fn vouch_for_laid(&mut self, changed: &[(u64, Lack)]) {
        let Some(tree) = self.dataset.tree_mut() else { return };
        let index = read(&tree.pass.index);
        let mut right = RangeSet::new();
        for laid in tree.sources.iter().flat_map(|source| source.void_laid.iter()) {
            let (first, end) = (laid.start / UNIT_BYTES, laid.end.div_ceil(UNIT_BYTES));
            let end = (end * GROUP_BYTES).min(index.size_bytes());
            right.insert(Range::new((first * GROUP_BYTES).min(end), end));
        }
        if right.is_empty() {
            return;
        }
        for &(number, _) in changed {
            if let Some(item) = index.cursor_from(number).next() {
                right.remove(item.range());
            }
        }
        self.persistence.records.extend(right.iter().map(in_tree));
    }

    /// Asks the sources of void groups that were written which files differ from the index, and
    /// returns these files.
    pub(crate) async fn changed_files(&mut self) -> Result<Vec<(u64, Lack)>, GetError> {
        let Some(tree) = self.dataset.tree() else { return Ok(Vec::new()) };
        let mut changed = BTreeMap::new();
        let lacking = tree.sources.iter().enumerate().filter(|(_, it)| !it.void_laid.is_empty());
        for (at, source) in lacking {
            let Some(url) = &source.changed else { continue };
            let trust = self.sources[at].source.trust();
            let list =
                fetch_small(&self.engine.net, url, trust, "text/plain", LIST_BYTES_MAX).await;
            let list = list.map_err(|error| GetError::Index {
                whose: self.sources[at].source.name().to_string(),
                reason: format!("its list of changed files cannot be fetched: {error}"),
            })?;
            let text = String::from_utf8_lossy(&list.bytes).into_owned();
            let index = read(&tree.pass.index);
            for (number, lack) in text.lines().filter_map(lacking_file) {
                // Another source may have brought what this one lacks.
                let mut cursor = index.cursor_from(number);
                let plain = cursor.next().map(|item| item.range());
                let here = plain.map(|plain| units_around(plain, index.size_bytes()));
                if here.is_some_and(|here| source.void_laid.bytes_within(here) > 0) {
                    changed.entry(number).or_insert(lack);
                }
            }
            // If a source disowns a block but no file in it, all files in it count as changed.
            let void = source.void_laid.iter();
            for group in
                void.flat_map(|void| void.start / UNIT_BYTES..void.end.div_ceil(UNIT_BYTES))
            {
                let files = files_in(&index, group);
                if !files.iter().any(|number| changed.contains_key(number)) {
                    changed.extend(files.into_iter().map(|number| (number, Lack::Changed)));
                }
            }
        }
        Ok(changed.into_iter().collect())
    }
}

/// Returns the numbers of the files that have bytes in a group.
fn files_in(index: &Index, group: u64) -> Vec<u64> {
    let range = Range::of_len(group * GROUP_BYTES, GROUP_BYTES);
    let mut cursor = index.cursor_at(range.start);
    let mut files = Vec::new();
    while let Some(item) = cursor.next().filter(|item| item.start < range.end) {
        if !item.range().is_empty() {
            files.push(item.number);
        }
    }
    files
}

/// Parses a line of a source's list of files that differ from its index.
fn lacking_file(line: &str) -> Option<(u64, Lack)> {
    let mut words = line.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    Some((number, Lack::of_word(words.next().unwrap_or_default())))
}

/// Longest such list: numbers of some million files.
const LIST_BYTES_MAX: usize = 64 << 20;
