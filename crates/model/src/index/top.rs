//! Facts that an index leaves out: the folder itself.

use std::fmt;
use std::str::FromStr;

use super::entry::Mtime;

/// The attributes of a dataset's top folder, which is no entry of its index. They are sent beside
/// it, in a header field of the answer (`docs/protocol.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Top {
    /// Permission bits, 12 of them.
    pub mode: u32,
    /// Modification time.
    pub mtime: Mtime,
}

/// The text is not a valid [`Top`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the mode and time of a folder")]
pub struct NoTop;

impl fmt::Display for Top {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mtime { seconds, nanoseconds } = self.mtime;
        write!(f, "{:o} {seconds}.{nanoseconds:09}", self.mode)
    }
}

impl FromStr for Top {
    type Err = NoTop;

    /// Accepts only the form that this type writes; anything else has an unknown meaning.
    fn from_str(text: &str) -> Result<Top, NoTop> {
        let told = || {
            let (mode, time) = text.split_once(' ')?;
            let (seconds, nanoseconds) = time.split_once('.')?;
            let mode = u32::from_str_radix(mode, 8).ok().filter(|&mode| mode <= MODE_MAX)?;
            let (seconds, nanoseconds) = (seconds.parse().ok()?, nanoseconds.parse().ok()?);
            Some(Top { mode, mtime: Mtime { seconds, nanoseconds } })
        };
        let is_time = |top: &Top| top.mtime.nanoseconds < 1_000_000_000;
        told().filter(|top| is_time(top) && top.to_string() == text).ok_or(NoTop)
    }
}

/// All bits that a mode may have.
const MODE_MAX: u32 = 0o7777;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (mode, seconds, nanoseconds, text) in [
            (0o700, 1_234_567_890, 123_456_789, "700 1234567890.123456789"),
            (0o1777, 0, 5, "1777 0.000000005"),
            (0, -1, 999_999_999, "0 -1.999999999"),
            (0o7777, i64::MAX, 0, "7777 9223372036854775807.000000000"),
            (0o755, i64::MIN, 0, "755 -9223372036854775808.000000000"),
        ] {
            let top = Top { mode, mtime: Mtime { seconds, nanoseconds } };
            assert_eq!(top.to_string(), text);
            assert_eq!(text.parse(), Ok(top));
        }
    }

    #[test]
    fn rubbish_is_refused() {
        for text in [
            "",
            " ",
            "755",
            "755 ",
            "755 1",
            "755 1.",
            "755 1.5",
            "755 .000000000",
            " 755 1.000000000",
            "755  1.000000000",
            "755 1.000000000 ",
            "755 1.0000000000",
            "755 1.1000000000",
            "755 1.000000000.000000000",
            "755 1,000000000",
            "755 1.-00000001",
            "755 1.+00000001",
            "755 +1.000000000",
            "755 -0.000000000",
            "755 01.000000000",
            "755 9223372036854775808.000000000",
            "0755 1.000000000",
            "+755 1.000000000",
            "-755 1.000000000",
            "785 1.000000000",
            "10000 1.000000000",
            "37777777777 1.000000000",
            "777777777777777 1.000000000",
            "rwx 1.000000000",
            "755\u{a0}1.000000000",
            "755 1.00000000\u{661}",
        ] {
            assert_eq!(text.parse::<Top>(), Err(NoTop), "{text:?}");
        }
    }
}
