//! Further replicas of a tree, used once their indexes show that they hold the same tree.

use std::sync::{Arc, RwLock};

use swath_model::digest::blake3_tree::GROUP_BYTES;
use swath_model::index::Index;
use swath_model::{Range, RangeSet};
use swath_source::{display_name, sealed_bytes, to_sealed};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use super::index::{self, Growth, Taking, Wanted};
use crate::engine::Engine;
use crate::request::Mirror;

/// The result for a further replica.
#[derive(Debug)]
pub(crate) enum Joined {
    /// It holds the same tree.
    Same {
        /// Its sealed file.
        mirror: Box<Mirror>,
        /// Address of its list of changed files.
        changed: url::Url,
        /// Parts of the sealed file with files that have another modification time than in the
        /// first replica: they may differ.
        doubtful: RangeSet,
    },
    /// It cannot be used.
    Out {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
}

/// Checks further replicas, all at once. Ends with the first index, or with the receiver.
pub(crate) fn join(
    engine: &Engine,
    first: &Taking,
    others: Vec<Mirror>,
    wanted: &Wanted,
) -> UnboundedReceiver<Joined> {
    let (sender, joins) = unbounded_channel();
    for mirror in others {
        let (net, sender) = (engine.net.clone(), sender.clone());
        let (index, growth) = (Arc::clone(&first.index), first.growth.clone());
        let wanted = wanted.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = look(&net, mirror, &wanted, &index, growth, &sender) => {}
                () = sender.closed() => {}
            }
        });
    }
    joins
}

async fn look(
    net: &swath_source::Net,
    mirror: Mirror,
    wanted: &Wanted,
    first: &Arc<RwLock<Index>>,
    mut growth: watch::Receiver<Growth>,
    sender: &UnboundedSender<Joined>,
) {
    let name = display_name(&mirror.url);
    let taken = async {
        let download = index::ask(net, &mirror, wanted).await;
        let download = download.map_err(|error| error.to_string())?;
        let mut taking = index::begin(download, &mirror, 0, wanted, net)?;
        taking.wait().await.map_err(|error| error.to_string())?;
        Ok::<_, String>(taking)
    };
    let joined = match taken.await {
        Err(reason) => Joined::Out { name, reason },
        Ok(taking) => {
            let whole = growth.wait_for(|growth| growth.ended.is_some()).await;
            if !whole.is_ok_and(|growth| matches!(growth.ended, Some(Ok(())))) {
                return;
            }
            match compare(&index::read(first), &index::read(&taking.index)) {
                Err(reason) => Joined::Out { name, reason },
                Ok(doubtful) => Joined::Same {
                    mirror: Box::new(Mirror { url: taking.sealed.clone(), ..mirror }),
                    changed: taking.changed.clone(),
                    doubtful,
                },
            }
        }
    };
    let _ = sender.send(joined);
}

/// Returns where the sealed file of the other replica may differ; a reason if it is another tree.
fn compare(first: &Index, other: &Index) -> Result<RangeSet, String> {
    let (ours, theirs) = (first.digests(), other.digests());
    let mut doubtful = RangeSet::new();
    if ours == theirs {
        return Ok(doubtful);
    }
    let size_bytes = first.size_bytes();
    let same = ours.map(|it| it.layout) == theirs.map(|it| it.layout);
    let (mut ours, mut theirs) = (first.cursor(), other.cursor());
    loop {
        match (ours.next(), theirs.next()) {
            (Some(our), Some(their)) if same => {
                if our.entry.mtime != their.entry.mtime && our.start < our.end {
                    doubtful.insert(units_around(our.range(), size_bytes));
                }
            }
            (Some(our), Some(their)) => {
                if our.path != their.path || !our.entry.kind.is_laid_out_as(&their.entry.kind) {
                    let path = our.path.min(their.path);
                    return Err(other_tree(path));
                }
            }
            (Some(item), None) | (None, Some(item)) => return Err(other_tree(item.path)),
            (None, None) => return Ok(doubtful),
        }
    }
}

fn other_tree(path: &[u8]) -> String {
    format!("it holds another tree; the first difference is {}", String::from_utf8_lossy(path))
}

/// Returns the units of the sealed file that hold a range of the plain one.
pub(crate) fn units_around(plain: Range, size_bytes: u64) -> Range {
    let start = plain.start - plain.start % GROUP_BYTES;
    let end = plain.end.next_multiple_of(GROUP_BYTES).min(size_bytes.max(plain.end));
    Range::new(to_sealed(start), sealed_bytes(end))
}

#[cfg(test)]
mod tests {
    use swath_model::index::{Entry, Kind, Mtime, Xattrs};
    use swath_source::UNIT_BYTES;

    use super::*;

    fn index(files: &[(&str, u64, i64)]) -> Index {
        let mut index = Index::new();
        for &(name, size_bytes, seconds) in files {
            let kind = Kind::File { size_bytes, extents: None };
            let mtime = Mtime { seconds, nanoseconds: 0 };
            let (name, xattrs) = (name.as_bytes(), Xattrs::None);
            let entry = Entry { leaves: 0, name, kind, mode: 0o644, mtime, xattrs };
            index.push(&entry).unwrap();
        }
        index.complete();
        index
    }

    #[test]
    fn another_tree_is_named_by_what_differs_first() {
        let ours = index(&[("a", 100, 1), ("b", 300_000, 1), ("c", 400_000, 1)]);
        for (theirs, path) in [
            (index(&[("a", 100, 1), ("b", 300_001, 1), ("c", 400_000, 1)]), "b"),
            (index(&[("a", 100, 1), ("b", 300_000, 1)]), "c"),
            (index(&[("A", 1, 1), ("a", 100, 1), ("b", 300_000, 1), ("c", 400_000, 1)]), "A"),
        ] {
            let reason = compare(&ours, &theirs).unwrap_err();
            assert!(reason.ends_with(&format!(" {path}")), "{reason}");
        }
    }

    #[test]
    fn files_of_another_time_are_taken_from_the_first_alone() {
        let ours = index(&[("a", 100, 1), ("b", 300_000, 1), ("c", 400_000, 1)]);
        assert!(compare(&ours, &ours).unwrap().is_empty());
        let theirs = index(&[("a", 100, 1), ("b", 300_000, 1), ("c", 400_000, 2)]);
        let doubtful: Vec<Range> = compare(&ours, &theirs).unwrap().iter().collect();
        assert_eq!(doubtful, [Range::new(UNIT_BYTES, sealed_bytes(700_100))]);
        let theirs = index(&[("a", 100, 2), ("b", 300_000, 1), ("c", 400_000, 1)]);
        let doubtful: Vec<Range> = compare(&ours, &theirs).unwrap().iter().collect();
        assert_eq!(doubtful, [Range::new(0, UNIT_BYTES)]);
    }
}
