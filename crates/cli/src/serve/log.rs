//! The request log of servers.
//!
//! If the log cannot be written, the server continues, and warns at the first missing line and when
//! writing works again.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::failure::Failure;
use serde_json::json;
use swath_model::counted;
use swath_model::path::is_treacherous;
use swath_serve::{Log, LogLine};

use super::args::LogFormat;
use crate::exit::{Exit, warn};
use crate::say;

/// The log; clones share it.
#[derive(Clone)]
pub struct RequestLog {
    file: Arc<Mutex<LogFile>>,
    path: PathBuf,
    format: LogFormat,
}

struct LogFile {
    out: Box<dyn Write + Send>,
    /// Lines missing since the last warning.
    missing: u64,
}

impl RequestLog {
    /// Opens the log.
    pub fn open(path: &Path, format: LogFormat) -> Result<RequestLog, Failure> {
        let place = LogFile { out: writer(path)?, missing: 0 };
        Ok(RequestLog { file: Arc::new(Mutex::new(place)), path: path.to_owned(), format })
    }

    /// Reopens the log by its name, after log rotation has renamed the old file.
    pub fn open_again(&self) {
        let path = self.path.display();
        match writer(&self.path) {
            Ok(out) => {
                self.file.lock().unwrap_or_else(PoisonError::into_inner).out = out;
                say::err(&format!("reopened: {path}"));
            }
            Err(error) => warn(&format!("continuing with the old log: {error}")),
        }
    }
}

/// Whether the log is a file, and not standard output.
pub fn is_file(path: &Path) -> bool {
    path != Path::new("-")
}

fn writer(path: &Path) -> Result<Box<dyn Write + Send>, Failure> {
    if !is_file(path) {
        return Ok(Box::new(io::stdout()));
    }
    let file = OpenOptions::new().append(true).create(true).open(path);
    let file = file.map_err(|error| {
        let text = format!("cannot write to {}: {error}", path.display());
        Failure::new(Exit::Target, text)
    })?;
    Ok(Box::new(file))
}

impl LogFile {
    fn write(&mut self, line: &str, path: &Path) {
        let path = path.display();
        match self.out.write_all(line.as_bytes()).and_then(|()| self.out.flush()) {
            Ok(()) if self.missing > 0 => {
                let missing = counted(std::mem::take(&mut self.missing), "answer");
                say::err(&format!("writing the log {path} again: {missing} not logged"));
            }
            Ok(()) => {}
            // A full disk must not stop the server.
            Err(error) => {
                if self.missing == 0 {
                    warn(&format!("cannot write the log {path}: {error}"));
                }
                self.missing += 1;
            }
        }
    }
}

impl Log for RequestLog {
    fn note(&self, line: &LogLine<'_>) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let text = match self.format {
            LogFormat::Common => common(line, since.as_secs()),
            LogFormat::Json => json!({
                "at_s": since.as_secs_f64(),
                "peer": line.peer.to_string(),
                "method": line.method,
                "target": line.target,
                "version": line.version,
                "status": line.status,
                "bytes": line.bytes,
                "took_s": line.took.as_secs_f64(),
                "referer": line.referer,
                "agent": line.agent,
            })
            .to_string(),
        };
        let mut place = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        place.write(&(text + "\n"), &self.path);
    }
}

/// The "combined" log format of Apache.
fn common(line: &LogLine<'_>, now_s: u64) -> String {
    let quoted = |text: Option<&str>| match text {
        Some(text) => format!("\"{}\"", escaped(text)),
        None => "\"-\"".to_owned(),
    };
    format!(
        "{} - - [{}] \"{} {} {}\" {} {} {} {}",
        line.peer.ip().to_canonical(),
        time(now_s),
        escaped(line.method),
        escaped(line.target),
        line.version,
        line.status,
        line.bytes,
        quoted(line.referer),
        quoted(line.agent),
    )
}

/// Escapes a text of a client, so that it ends neither the line nor the quotes.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if is_treacherous(c) => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// `22/Nov/2026:03:14:15 +0000`
fn time(now_s: u64) -> String {
    // "Sun, 22 Nov 2026 03:14:15 GMT"
    let date = swath_formats::http_date::write(now_s);
    let words: Vec<&str> = date.split(' ').collect();
    match words.as_slice() {
        [_, day, month, year, time, ..] => format!("{day}/{month}/{year}:{time} +0000"),
        _ => date,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_line_is_one_line_whatever_a_client_sends() {
        let line = LogLine {
            peer: "[::ffff:192.0.2.1]:5".parse().unwrap(),
            method: "GET",
            target: "/a\"b\n",
            version: "HTTP/1.1",
            status: 206,
            bytes: 17,
            took: Duration::from_millis(5),
            referer: None,
            agent: Some("x\u{1b}[2J"),
        };
        assert_eq!(
            common(&line, 1_795_317_255),
            "192.0.2.1 - - [22/Nov/2026:03:14:15 +0000] \"GET /a\\\"b\\x0a HTTP/1.1\" 206 17 \"-\" \
             \"x\\x1b[2J\""
        );
    }
}
