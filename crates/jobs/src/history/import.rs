//! Learning from logs that other programs kept.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::IpAddr;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flate2::bufread::MultiGzDecoder;
use swath_formats::transfer_log::{
    LogError, LogPlace, LogProblem, LoggedTransfer, TransferLog, is_json, read_json,
};
use swath_state::{Ended, Figures, HERE, History, Imported, KeepError, TRANSFERS_MAX, Transfer};

/// What became of a log.
#[derive(Debug)]
pub struct ImportedLog {
    /// Its transfers.
    pub imported: Imported,
    /// Lines or records that cannot be used, …
    pub unusable: u64,
    /// … and the first of them.
    pub first_unusable: Option<LogError>,
    /// Transfers that begin in the future, which are left out too.
    pub future: u64,
}

/// Why a log was not imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// It cannot be opened.
    #[error("cannot be opened")]
    Open(#[source] io::Error),
    /// It cannot be read to its end, or has not the needed columns.
    #[error(transparent)]
    Log(LogError),
    /// The history cannot be changed.
    #[error(transparent)]
    Keep(#[from] KeepError),
}

/// Opens a log; one whose name ends in `.gz` is decompressed.
///
/// # Errors
/// As [`File::open`].
pub fn open_log(path: &Path) -> io::Result<Box<dyn BufRead + Send>> {
    let file = BufReader::new(File::open(path)?);
    Ok(match path.extension().is_some_and(|extension| extension == "gz") {
        true => Box::new(BufReader::new(MultiGzDecoder::new(file))),
        false => Box::new(file),
    })
}

/// Adds the transfers of a log, as a table or as JSON, to a history.
///
/// # Errors
/// [`ImportError`]; nothing is added then.
pub fn import_log(history: &Path, log: &Path) -> Result<ImportedLog, ImportError> {
    let mut input = open_log(log).map_err(ImportError::Open)?;
    let is_json = is_json(&mut input).map_err(|error| {
        let (place, problem) = (LogPlace::Line(1), LogProblem::Read(error));
        ImportError::Log(LogError { place, problem })
    });
    if !is_json? {
        return import(history, TransferLog::new(input).map_err(ImportError::Log)?);
    }
    std::thread::scope(|scope| {
        let (tell, told) = sync_channel(READ_AHEAD);
        scope.spawn(move || read_json(input, &mut |transfer| tell.send(transfer).is_ok()));
        import(history, told.into_iter())
    })
}

fn import(
    history: &Path,
    log: impl Iterator<Item = Result<LoggedTransfer, LogError>>,
) -> Result<ImportedLog, ImportError> {
    let (mut unusable, mut first_unusable, mut older) = (0, None, 0);
    let (mut newest, mut future) = (Vec::new(), 0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let until_s = (now + DAY).as_secs_f64();
    for transfer in log {
        match transfer {
            Ok(transfer) if transfer.start_s > until_s => future += 1,
            Ok(transfer) => newest.push(told(transfer)),
            Err(error) if error.problem.is_final() => return Err(ImportError::Log(error)),
            Err(error) => {
                unusable += 1;
                first_unusable.get_or_insert(error);
            }
        }
        // A log of any length must not fill the memory.
        if newest.len() >= 2 * TRANSFERS_MAX {
            older += keep_newest(&mut newest);
        }
    }
    older += keep_newest(&mut newest);
    // Others can write meanwhile: the history is changed only now, and all at once.
    let mut imported = History::open(history)?.import(&newest)?;
    imported.older += older;
    Ok(ImportedLog { imported, unusable, first_unusable, future })
}

/// Drops all but the newest that a history keeps; returns how many.
fn keep_newest(transfers: &mut Vec<(Transfer, Ended)>) -> u64 {
    let over = transfers.len().saturating_sub(TRANSFERS_MAX);
    if over > 0 {
        let newest_first =
            |a: &(Transfer, Ended), b: &(Transfer, Ended)| b.0.begun_s.total_cmp(&a.0.begun_s);
        transfers.select_nth_unstable_by(TRANSFERS_MAX - 1, newest_first);
        transfers.truncate(TRANSFERS_MAX);
    }
    over as u64
}

/// Some logs leave out the time zone.
const DAY: Duration = Duration::from_secs(86_400);

/// Transfers that are read ahead.
const READ_AHEAD: usize = 64;

fn told(logged: LoggedTransfer) -> (Transfer, Ended) {
    let LoggedTransfer { start_s: begun_s, took_s, bytes, files, from, to, kind, .. } = logged;
    let own = rustix::system::uname();
    let own = own.nodename().to_string_lossy();
    let is_own = |name: &str| is_of_machine(name, &own);
    let from = if is_own(&from) { HERE.to_owned() } else { from };
    // A log that names no destination is that of the machine that fetched.
    let to = if to.is_empty() || is_own(&to) { HERE.to_owned() } else { to };
    let limit_bytes_per_s = logged.limit_bytes_per_s;
    let transfer =
        Transfer { begun_s, kind, from, to, bytes, files, limit_bytes_per_s, forecast: None };
    (transfer, Ended { took_s, is_complete: true, bytes, figures: Figures::default() })
}

/// Whether a place of a log is this machine, whose own name is `own`.
fn is_of_machine(place: &str, own: &str) -> bool {
    let first = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    match place {
        "localhost" | "127.0.0.1" | "::1" => true,
        _ if own.contains('.') && place.contains('.') => place.eq_ignore_ascii_case(own),
        _ => !place.is_empty() && first(place) == first(own) && place.parse::<IpAddr>().is_err(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_known_by_its_names() {
        for (place, own, is_own) in [
            ("node7", "node7", true),
            ("node7.cluster.example", "node7", true),
            ("Node7", "node7.cluster.example", true),
            ("node7.cluster.example", "node7.cluster.example", true),
            ("node7.other.example", "node7.cluster.example", false),
            ("node8", "node7", false),
            ("localhost", "node7", true),
            ("10.0.0.1", "10", false),
            ("", "node7", false),
        ] {
            assert_eq!(is_of_machine(place, own), is_own, "{place} {own}");
        }
    }
}
