//! Ctrl-C, SIGTERM and SIGHUP: the first signal stops transfers in good order, the second exits.

use std::ptr;

use swath_transfer::Stop;
use tokio::signal::unix::{SignalKind, signal};

/// Sets `stop` on the first signal, exits on the second.
pub fn watch(stop: &Stop) {
    let stop = stop.clone();
    tokio::spawn(async move {
        let (Ok(mut interrupt), Ok(mut terminate)) =
            (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        else {
            return;
        };
        // Under nohup the program outlives its terminal.
        let mut hangup = match is_hangup_ignored() {
            true => None,
            false => signal(SignalKind::hangup()).ok(),
        };
        let hung_up = async {
            match &mut hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hung_up => {}
        }
        stop.set();
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        std::process::exit(i32::from(crate::exit::Exit::Interrupted as u8));
    });
}

/// Turns the signal of the file size limit (`ulimit -f`) into a write error: the signal would kill the
/// program without a message.
pub fn ignore_size_limit() {
    // SAFETY: a plain system call.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Whether SIGHUP is ignored, as under `nohup`.
pub fn is_hangup_ignored() -> bool {
    // SAFETY: all zeros is a value of this plain structure, and the call only fills it.
    unsafe {
        let mut known: libc::sigaction = std::mem::zeroed();
        let asked = libc::sigaction(libc::SIGHUP, ptr::null(), &raw mut known);
        asked == 0 && known.sa_sigaction == libc::SIG_IGN
    }
}
