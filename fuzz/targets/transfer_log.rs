//! Any bytes as a log of transfers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::transfer_log::TransferLog;

fuzz_target!(|bytes: &[u8]| {
    let Ok(log) = TransferLog::new(bytes) else { return };
    let mut last = 0;
    for transfer in log {
        let Ok(transfer) = transfer else { continue };
        assert!(transfer.took_s > 0.0 && transfer.took_s.is_finite());
        assert!(transfer.start_s >= 0.0 && transfer.line > last);
        last = transfer.line;
    }
});
