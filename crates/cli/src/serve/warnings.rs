//! Prints internal warnings of servers, such as disk errors, on standard error. Clients get no details.

use std::io::{self, Write};

use swath_formats::depot;
use tracing_subscriber::EnvFilter;

use crate::say;

/// Prints swath's own warnings, and with `SWATH_LOG` (`debug`, `swath_serve=trace`, …) a debug log.
pub fn to_standard_error() {
    let wish = std::env::var("SWATH_LOG").ok().filter(|wish| !wish.is_empty());
    let told = tracing_subscriber::fmt().with_ansi(false);
    // Libraries warn of every odd request.
    let _ = match wish {
        None => told
            .with_env_filter(EnvFilter::new(OURS))
            .with_writer(|| Line { begins_with: "warning: " })
            .without_time()
            .with_level(false)
            .with_target(false)
            .try_init(),
        Some(wish) => told
            .with_env_filter(EnvFilter::new(format!("{OURS},{wish}")))
            .with_writer(|| Line { begins_with: "" })
            .try_init(),
    };
}

/// The crates of this program.
const OURS: &str = "swath=warn";

/// A line of standard error.
struct Line {
    begins_with: &'static str,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Each event comes in one piece.
        let text = String::from_utf8_lossy(bytes);
        for line in text.lines() {
            // Addresses of depots are secret.
            say::err(&depot::redacted(&format!("{}{line}", self.begins_with)));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
