//! Modification times as file systems keep them: some round them down, and none can hold every year.

use rustix::fs::fstatfs;
use swath_model::index::Mtime;

use super::root::Root;

/// How a file system keeps times.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeptTimes {
    /// It only has even seconds (FAT).
    is_even: bool,
}

impl KeptTimes {
    /// Returns how the file system of this folder keeps them.
    pub fn of(folder: &Root) -> KeptTimes {
        KeptTimes { is_even: fstatfs(folder.fd()).is_ok_and(|found| found.f_type == MSDOS) }
    }

    /// Returns whether a file with the time `wanted` may have got the time `kept`.
    pub fn are_same(self, kept: Mtime, wanted: Mtime) -> bool {
        let is_beyond = |limits: &[i64], is_further: bool| {
            is_further && limits.contains(&kept.seconds) && kept.seconds != wanted.seconds
        };
        let seconds = if self.is_even { wanted.seconds & !1 } else { wanted.seconds };
        let is_rounded =
            |step: &u32| wanted.nanoseconds - wanted.nanoseconds % step == kept.nanoseconds;
        kept == wanted
            || (kept.seconds == seconds && STEPS.iter().any(is_rounded))
            || is_beyond(&LAST, wanted.seconds > kept.seconds)
            || is_beyond(&FIRST, wanted.seconds < kept.seconds)
    }
}

/// The magic number of FAT (`linux/magic.h`).
const MSDOS: i64 = 0x4d44;
/// Steps of times in nanoseconds: those of NTFS and SMB, of other network file systems, of exFAT, and whole
/// seconds (ext3, ext4 with small inodes, HFS+, Lustre, NFSv2). A time that a program has set is a multiple of
/// such a step only where the file system, or that program, has no finer ones.
const STEPS: [u32; 5] = [100, 1000, 1_000_000, 10_000_000, 1_000_000_000];
/// The first times that file systems can hold, in seconds since 1970: with 32 bits, FAT and exFAT, NTFS; and 0.
const FIRST: [i64; 4] = [i32::MIN as i64, 315_532_800, -11_644_473_600, 0];
/// The last ones: with 32 bits, with or without sign, FAT and exFAT, ext4, XFS (`s_time_max` in Linux).
const LAST: [i64; 6] = [
    i32::MAX as i64,
    u32::MAX as i64,
    4_354_819_198,
    4_354_819_199,
    15_032_385_535,
    16_299_260_424,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_the_same_as_what_a_file_system_made_of_it() {
        let time = |seconds, nanoseconds| Mtime { seconds, nanoseconds };
        let wanted = time(1_700_000_001, 123_456_789);
        for nanoseconds in [123_456_789, 123_456_700, 123_456_000, 123_000_000, 120_000_000, 0] {
            assert!(KeptTimes::default().are_same(time(1_700_000_001, nanoseconds), wanted));
        }
        for other in [
            time(1_700_000_001, 123_456_788),
            time(1_700_000_001, 123_456_800),
            time(1_700_000_001, 100_000_000),
            time(1_700_000_000, 0),
            time(1_700_000_002, 0),
        ] {
            assert!(!KeptTimes::default().are_same(other, wanted), "{other:?}");
        }
        // A coarse time at the source is that time.
        assert!(!KeptTimes::default().are_same(wanted, time(1_700_000_001, 0)));
        let fat = KeptTimes { is_even: true };
        assert!(fat.are_same(time(1_700_000_000, 0), wanted));
        assert!(!fat.are_same(time(1_700_000_002, 0), wanted));
        // Years that cannot be held.
        let (early, late) = (time(-99_000_000_000, 5), time(99_000_000_000, 5));
        for seconds in FIRST {
            assert!(KeptTimes::default().are_same(time(seconds, 0), early), "{seconds}");
            assert!(!KeptTimes::default().are_same(time(seconds, 0), late), "{seconds}");
        }
        for seconds in LAST {
            assert!(KeptTimes::default().are_same(time(seconds, 0), late), "{seconds}");
            assert!(!KeptTimes::default().are_same(time(seconds, 0), early), "{seconds}");
        }
    }
}
