//! The system's randomness.

use rustix::rand::{GetRandomFlags, getrandom};

/// Returns random bytes that nobody can predict.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    // Interrupted by a signal it may give less.
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty()).unwrap_or(0);
    }
    bytes
}
