//! Ctrl-C and SIGTERM, and the end of the terminal: the first one ends transfers in good order, the
//! second one at once.

use std::ptr;

use swath_transfer::Stop;
use tokio::signal::unix::{SignalKind, signal};

/// Set `stop` on the first signal, leave on the second.
pub fn watch(stop: &Stop) {
    let stop = stop.clone();
    tokio::spawn(async move {
        let (Ok(mut interrupt), Ok(mut terminate)) =
            (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        else {
            return;
        };
        // For whoever was started to outlive the terminal its end is none.
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

/// From now on a file that would be larger than the system lets it be (`ulimit -f`) is an error of
/// writing: the signal would end the program without a word, and a server with all its clients.
pub fn ignore_size_limit() {
    // SAFETY: a plain system call.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Whether whoever started us does not want us to end with the terminal, as `nohup` does not.
pub fn is_hangup_ignored() -> bool {
    // SAFETY: all zeros is a value of this plain structure, and the call only fills it.
    unsafe {
        let mut known: libc::sigaction = std::mem::zeroed();
        let asked = libc::sigaction(libc::SIGHUP, ptr::null(), &raw mut known);
        asked == 0 && known.sa_sigaction == libc::SIG_IGN
    }
}
