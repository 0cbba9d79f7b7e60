//! Lanes and control requests against servers on loopback: honest, odd, real and hostile ones.

mod conformance;
mod control;
mod http2_only;
mod joined;
mod kinds;
mod nginx;
mod own_lane;
mod peers;
mod privacy;
mod sharing;
mod storm;
mod support;
