//! Lanes and control requests against servers on loopback: honest, odd and hostile ones.

mod certificates;
mod conformance;
mod control;
mod http2_only;
mod joined;
mod kinds;
mod own_lane;
mod peers;
mod privacy;
mod renewed;
mod sharing;
mod storm;
mod support;

/// Random servers.
const STORMS: u64 = 8;
