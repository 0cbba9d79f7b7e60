//! `swath verify DIR --index FILE|URL`: checks a copied tree against its index.

use crate::failure::Failure;
use swath_model::path::visible;
use swath_transfer::{Against, Filter, Mirror, RouteOptions, Trust, Wrong};

use crate::args::Verify;
use crate::engine;
use crate::exit::{self, Exit};
use crate::progress::units;
use crate::say;

/// Runs the command.
pub async fn run(verify: Verify, index: String) -> Result<Exit, Failure> {
    let against = against(&verify, &index)?;
    let folder = verify.file().display().to_string();
    if !verify.file().is_dir() {
        return Err(Failure::new(Exit::Input, format!("{folder} is not a folder")));
    }
    let engine = engine::start(&verify.net, MEMORY_BYTES, RouteOptions::default(), None)?;
    let (mut wrong, mut others, mut doubtful) = (0u64, 0u64, 0u64);
    let strict = verify.strict;
    let tell = |what: Wrong, path: &[u8]| {
        if matches!(what, Wrong::Mode | Wrong::Mtime | Wrong::Xattrs) && !strict {
            others += 1;
            return;
        }
        if what == Wrong::Doubtful && !strict {
            doubtful += 1;
            return;
        }
        wrong += 1;
        if wrong <= NAMED_MAX {
            let path = visible(&String::from_utf8_lossy(path));
            say::err(&format!("{path}: {}", words(what)));
        }
    };
    let counts = match engine.verify_tree(verify.file(), &against, tell).await {
        Ok(counts) => counts,
        Err(error) => {
            let exit = match (&against, &error) {
                (Against::Kept(_), swath_transfer::GetError::Index { .. }) => Exit::Input,
                (_, swath_transfer::GetError::Thread(_)) => Exit::Input,
                _ => exit::of(&error, 0),
            };
            let text = exit::about(&folder, &exit::words_of_all(&error));
            return Err(Failure::new(exit, text));
        }
    };
    if wrong > NAMED_MAX {
        say::err(&format!("and {} more", units::count(wrong - NAMED_MAX)));
    }
    let in_doubt = (doubtful > 0).then(|| in_doubt(doubtful, wrong > 0));
    if let (Some(in_doubt), true) = (&in_doubt, wrong > 0) {
        say::err(&format!("{in_doubt} (--strict lists them)"));
    }
    if others > 0 && !verify.quiet {
        let words = "modes, times or attributes differ (--strict lists them)";
        exit::warn(&format!("{folder}: {} {words}", units::count(others)));
    }
    if wrong > 0 {
        let entries = if wrong == 1 { "entry does" } else { "entries do" };
        let text = format!("{folder}: {} {entries} not match the index", units::count(wrong));
        return Err(Failure::new(Exit::Mismatch, text));
    }
    if let Some(in_doubt) = in_doubt {
        let text = format!("{folder} does not match the index: {in_doubt} (--strict lists them)");
        return Err(Failure::new(Exit::Mismatch, text));
    }
    if verify.quiet {
        return Ok(Exit::Done);
    }
    let (files, bytes) = (units::count(counts.files), units::bytes(counts.file_bytes));
    let word = if counts.files == 1 { "file" } else { "files" };
    let text = format!("{folder}: everything matches the index: {files} {word}, {bytes}\n");
    Ok(say::out(text.as_bytes(), Exit::Done))
}

fn against(verify: &Verify, index: &str) -> Result<Against, Failure> {
    let filter = Filter::new(&verify.include, &verify.exclude);
    let filter = filter.map_err(|error| Failure::usage(error.to_string()))?;
    if !index.contains("://") {
        return match filter.is_all() {
            true => Ok(Against::Kept(index.into())),
            false => Err(Failure::usage(
                "--include and --exclude are for --index URL: a kept index lists only what was copied",
            )),
        };
    }
    let mut url = crate::net::parse_url(index)?;
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    Ok(Against::Now(
        Mirror { url, priority: 1, trust: Trust::Named, holds: None },
        Box::new(filter),
    ))
}

/// Describes files that share a wrong block, and may themselves be correct.
fn in_doubt(count: u64, has_others: bool) -> String {
    let other = if has_others { "other " } else { "" };
    match count {
        1 => format!("1 {other}file shares a wrong block and may be wrong too"),
        _ => {
            let count = units::count(count);
            format!("{count} {other}files share wrong blocks and may be wrong too")
        }
    }
}

fn words(what: Wrong) -> &'static str {
    match what {
        Wrong::Missing => "missing",
        Wrong::Kind => "another kind of entry",
        Wrong::Size => "different size",
        Wrong::Target => "different link target",
        Wrong::Content => "different content",
        Wrong::Likely => "probably different content: its time differs, and its block is wrong",
        Wrong::Doubtful => "possibly different content: it shares a wrong block",
        Wrong::Mode => "different mode",
        Wrong::Mtime => "different modification time",
        Wrong::Xattrs => "different extended attributes",
    }
}

/// For control requests and small reads.
const MEMORY_BYTES: usize = 16 << 20;
/// Most entries that are listed.
const NAMED_MAX: u64 = 1000;
