//! Ctrl-C and SIGTERM: the first one ends transfers in good order, the second one at once.

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
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stop.set();
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        std::process::exit(i32::from(crate::exit::Exit::Interrupted as u8));
    });
}
