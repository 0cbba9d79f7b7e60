//! `swath publish`: makes the files that others need to fetch a dataset.

pub mod args;
mod served;

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use swath_formats::torrent::metainfo::Kind;
use swath_formats::torrent::{Info, MetainfoError};
use swath_model::path::visible;
use swath_model::units;
use swath_publish::{Content, HashError, Output, Progress, Publication, PublishError, Published};
use swath_transfer::Filter;

use crate::exit::{self, Exit, chain};
use crate::failure::Failure;
use crate::keys;
use crate::say;
use args::{Piece, Publish, TorrentKind, Which};

/// Runs the command.
pub fn run(publish: &Publish) -> Result<Exit, Failure> {
    let filter = Filter::new(&publish.include, &publish.exclude);
    let filter = filter.map_err(|error| Failure::usage(error.to_string()))?;
    let mut content = Content::list(&publish.path, filter).map_err(|error| {
        Failure::input(format!("cannot read {}: {error}", publish.path.display()))
    })?;
    let publication = publication(publish)?;
    let left_out = publication.leave_out_own_files(&mut content, &publish.path, &publish.output);
    left_out.map_err(failure)?;
    let progress = Progress::default();
    let begun = Instant::now();
    let published = std::thread::scope(|scope| {
        let making = scope.spawn(|| publication.make(&content, &publish.output, &progress));
        if !publish.quiet && !publish.json && io::stderr().is_terminal() {
            show(&progress, content.bytes(), || making.is_finished());
        }
        making.join()
    });
    // The thread has reported its panic.
    let published = published.map_err(|_| Failure::new(Exit::Internal, "publishing failed"))?;
    let published = published.map_err(failure)?;
    warn_of_left_out(&content);
    published.warnings.iter().for_each(|warning| exit::warn(warning));
    let elapsed_s = begun.elapsed().as_secs_f64();
    let text = match (publish.quiet, publish.json) {
        (true, _) => return Ok(Exit::Done),
        (_, true) => json(&content, &published, elapsed_s),
        _ => summary(&publication, &content, &published, elapsed_s),
    };
    Ok(say::out(text.as_bytes(), Exit::Done))
}

fn publication(publish: &Publish) -> Result<Publication, Failure> {
    let named = || {
        let path = std::path::absolute(&publish.path).ok()?;
        Some(path.file_name()?.to_string_lossy().into_owned())
    };
    let name = publish.name.clone().or_else(named).ok_or_else(|| {
        let path = publish.path.display();
        Failure::usage(format!("{path} has no name: give the dataset one with --name"))
    })?;
    let outputs = match &publish.only[..] {
        [] => Output::ALL.to_vec(),
        only => {
            let is_wanted = |output: &Output| only.iter().any(|which| output_of(*which) == *output);
            Output::ALL.into_iter().filter(is_wanted).collect()
        }
    };
    let key = publish.sign.as_deref().map(keys::secret_key).transpose()?;
    if key.is_some() && !outputs.contains(&Output::Index) {
        return Err(Failure::usage("--sign signs the index: add --only index"));
    }
    if let (Some(segment), Piece::Bytes(piece)) = (publish.segment, publish.piece)
        && piece > segment
    {
        return Err(Failure::usage("--segment must not be shorter than --piece"));
    }
    if publish.segment.is_some() && !outputs.contains(&Output::Torrent) {
        return Err(Failure::usage("--segment is for the torrent: add --only torrent"));
    }
    let served = publish.served_at.as_ref().map(|url| served::at(url, publish)).transpose()?;
    let served = served.unwrap_or_default();
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(Publication {
        name,
        version: publish.version.clone(),
        mirrors: served.mirror.into_iter().chain(publish.mirror.iter().cloned()).collect(),
        trackers: served.trackers.into_iter().chain(publish.tracker.iter().cloned()).collect(),
        is_private: publish.private,
        outputs,
        kind: match publish.torrent {
            TorrentKind::V1 => Kind::V1,
            TorrentKind::V2 => Kind::V2,
            TorrentKind::Hybrid => Kind::Hybrid,
        },
        piece_bytes: match publish.piece {
            Piece::Auto => None,
            Piece::Bytes(bytes) => Some(bytes),
        },
        segment_bytes: publish.segment,
        segment_mirrors: publish.segment_mirror.clone(),
        comment: publish.comment.clone(),
        created_by: Some(concat!("swath/", env!("CARGO_PKG_VERSION")).to_owned()),
        published: since.map_or(0, |since| since.as_secs()),
        key: key.map(Arc::new),
        address: publish.feed_url.clone().or(served.feeds),
        replace: publish.replace,
    })
}

fn output_of(which: Which) -> Output {
    match which {
        Which::Torrent => Output::Torrent,
        Which::Metalink => Output::Metalink,
        Which::Index => Output::Index,
    }
}

/// Shows how far it is, in one line of the terminal, until it is done.
pub fn show(progress: &Progress, all_bytes: u64, is_done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_done() {
        std::thread::sleep(SHOW_EVERY);
        let (done, elapsed_s) = (progress.load(Ordering::Relaxed), begun.elapsed().as_secs_f64());
        let rate = units::rate(done as f64 / elapsed_s);
        let percent = units::percent_done(done, all_bytes);
        // The terminal may be gone; the work goes on.
        let _ = write!(
            io::stderr(),
            "\r\x1b[Khashing: {percent} of {}, {rate}",
            units::bytes(all_bytes)
        );
    }
    let _ = write!(io::stderr(), "\r\x1b[K");
}

fn warn_of_left_out(content: &Content) {
    let count = content.left_out.len();
    let Some(first) = content.left_out.first() else { return };
    let first = visible(&String::from_utf8_lossy(first));
    let others = if count > 1 {
        format!(" and {} more", units::count(count as u64 - 1))
    } else {
        String::new()
    };
    exit::warn(&format!(
        "not published: {first}{others} (links that leave the folder, devices, unreadable entries)"
    ));
}

fn failure(error: PublishError) -> Failure {
    let exit = match &error {
        PublishError::Name { .. } => Exit::Usage,
        PublishError::Exists(_)
        | PublishError::Taken { .. }
        | PublishError::Catalogue { .. }
        | PublishError::Write { .. } => Exit::Target,
        _ => Exit::Input,
    };
    let failure = Failure::new(exit, chain(&error));
    match &error {
        PublishError::Exists(_) | PublishError::Taken { .. } => failure
            .hint("--version gives the new files another name; --replace replaces the old ones"),
        PublishError::Hash(HashError::Changed(_)) => {
            failure.hint("publish again when nobody writes to the dataset")
        }
        PublishError::Torrent(MetainfoError::LikeSegments { .. }) => {
            failure.hint("nothing was written; choose another --segment, or rename these files")
        }
        PublishError::Write { .. } => failure,
        _ => failure.hint("nothing was written"),
    }
}

fn summary(
    publication: &Publication,
    content: &Content,
    published: &Published,
    elapsed_s: f64,
) -> String {
    let version = publication.version.as_ref().map(|version| format!(" version {version}"));
    let bytes = content.bytes();
    let mut out = format!(
        "{}{}: {}, {}, hashed in {} at {}\n",
        visible(&publication.name),
        version.unwrap_or_default(),
        units::counted(content.files.len() as u64, "file"),
        units::bytes(bytes),
        units::duration(elapsed_s),
        units::rate(bytes as f64 / elapsed_s.max(1e-3)),
    );
    for (output, path, bytes) in &published.written {
        let about = match (output, &published.torrent) {
            (Output::Torrent, Some(torrent)) => format!(
                ", {} of {}{}",
                units::counted(torrent.info.piece_count(), "piece"),
                units::bytes(torrent.info.piece_bytes()),
                segments(&torrent.info),
            ),
            _ => String::new(),
        };
        out += &format!("  {} ({}{about})\n", path.display(), units::bytes(*bytes));
    }
    if let Some(torrent) = &published.torrent {
        let hashes = [("v1", torrent.info.hash_v1().map(|hash| hash.to_string()))];
        let v2 = [("v2", torrent.info.hash_v2().map(|hash| hash.to_string()))];
        for (version, hash) in hashes.into_iter().chain(v2) {
            if let Some(hash) = hash {
                out += &format!("  info-hash {version} {hash}\n");
            }
        }
    }
    if let Some(magnet) = &published.magnet {
        out += &format!("  {magnet}\n");
    }
    out
}

/// Returns what a torrent lists in place of long files.
fn segments(info: &Info) -> String {
    let Some(segment_bytes) = info.segment_bytes() else { return String::new() };
    let counts = (0..info.files().len()).map(|file| info.segments(file).len() as u64);
    let count: u64 = counts.filter(|count| *count > 1).sum();
    format!(", {} of {}", units::counted(count, "segment"), units::bytes(segment_bytes))
}

fn json(content: &Content, published: &Published, elapsed_s: f64) -> String {
    let info = published.torrent.as_ref().map(|torrent| &torrent.info);
    let files: Vec<_> =
        published.written.iter().map(|(_, path, _)| path.display().to_string()).collect();
    let json = json!({
        "event": "published",
        "files": content.files.len(),
        "bytes": content.bytes(),
        "elapsed_s": elapsed_s,
        "written": files,
        "piece_bytes": info.map(|info| info.piece_bytes()),
        "segment_bytes": info.and_then(|info| info.segment_bytes()),
        "infohash_v1": info.and_then(|info| info.hash_v1()).map(|hash| hash.to_string()),
        "infohash_v2": info.and_then(|info| info.hash_v2()).map(|hash| hash.to_string()),
        "magnet": published.magnet.as_ref().map(|magnet| magnet.to_string()),
    });
    format!("{json}\n")
}

/// How often the line on the terminal changes.
const SHOW_EVERY: Duration = Duration::from_millis(100);
