//! Learning from logs that other programs kept.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use swath_formats::transfer_log::{LogError, LoggedTransfer, TransferLog};
use swath_state::{Ended, Figures, History, Imported, KeepError, Transfer};

/// What became of a log.
#[derive(Debug)]
pub struct ImportedLog {
    /// Its transfers.
    pub imported: Imported,
    /// Lines that cannot be used, …
    pub unusable: u64,
    /// … and the first of them.
    pub first_unusable: Option<LogError>,
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
pub fn open_log(path: &Path) -> io::Result<Box<dyn Read>> {
    let file = BufReader::new(File::open(path)?);
    Ok(match path.extension().is_some_and(|extension| extension == "gz") {
        true => Box::new(MultiGzDecoder::new(file)),
        false => Box::new(file),
    })
}

/// Adds the transfers of a log to a history.
///
/// # Errors
/// [`ImportError`]; nothing is added then.
pub fn import_log(history: &Path, log: &Path) -> Result<ImportedLog, ImportError> {
    let log = TransferLog::new(open_log(log).map_err(ImportError::Open)?);
    let log = log.map_err(ImportError::Log)?;
    let (mut unusable, mut first_unusable) = (0, None);
    let transfers = log.filter_map(|transfer| match transfer {
        Ok(transfer) => Some(Ok(told(transfer))),
        Err(error) if error.problem.is_final() => Some(Err(ImportError::Log(error))),
        Err(error) => {
            unusable += 1;
            first_unusable.get_or_insert(error);
            None
        }
    });
    let imported = History::open(history)?.import(transfers)?;
    Ok(ImportedLog { imported, unusable, first_unusable })
}

fn told(logged: LoggedTransfer) -> (Transfer, Ended) {
    let LoggedTransfer { start_s: begun_s, took_s, bytes, files, from, to, kind, .. } = logged;
    let transfer = Transfer { begun_s, kind, from, to, bytes, files, ..Transfer::default() };
    (transfer, Ended { took_s, is_complete: true, bytes, figures: Figures::default() })
}
