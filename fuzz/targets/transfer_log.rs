//! Any bytes as a log of transfers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::transfer_log::{LoggedTransfer, TransferLog, read_json};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(log) = TransferLog::new(bytes) {
        log.flatten().for_each(|transfer| check(&transfer));
    }
    read_json(bytes, &mut |transfer| {
        transfer.iter().for_each(check);
        true
    });
});

fn check(transfer: &LoggedTransfer) {
    assert!(transfer.took_s > 0.0 && transfer.took_s.is_finite());
    assert!(transfer.start_s >= 0.0);
}
