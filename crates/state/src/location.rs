//! Where the file lies, and on what kind of file system.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where the file is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// Here.
    At(PathBuf),
    /// Nowhere: `SWATH_STATE` says so.
    Off,
    /// Nowhere: neither `SWATH_STATE`, `XDG_STATE_HOME` nor `HOME` says where.
    Homeless,
}

/// Where the environment wants the file: `$SWATH_STATE`, where `off` and nothing at all mean none;
/// else `$XDG_STATE_HOME/swath/state.db`; else `~/.local/state/swath/state.db`. As the XDG Base
/// Directory Specification has it, paths in its variables that are not absolute do not count.
pub fn locate(env: impl Fn(&str) -> Option<OsString>) -> Location {
    if let Some(named) = env("SWATH_STATE") {
        let is_off = named.is_empty() || named == "off";
        return if is_off { Location::Off } else { Location::At(named.into()) };
    }
    let folder = |name: &str| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let usual = || folder("HOME").map(|home| home.join(".local/state"));
    match folder("XDG_STATE_HOME").or_else(usual) {
        Some(folder) => Location::At(folder.join("swath/state.db")),
        None => Location::Homeless,
    }
}

/// How processes keep out of each other's way in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Journal {
    /// A write-ahead log: readers and a writer at the same time, on one machine.
    Ahead,
    /// A rollback journal: one at a time, but on several machines too.
    Rollback,
}

impl Journal {
    /// What suits this file. A write-ahead log needs memory that all processes share, so that it
    /// breaks where several machines have the same home, as on clusters.
    pub(crate) fn suits(path: &Path) -> Journal {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let found = rustix::fs::statfs(folder.unwrap_or(Path::new(".")));
        match found {
            Ok(found) if is_shared(found.f_type as u64 & 0xffff_ffff) => Journal::Rollback,
            _ => Journal::Ahead,
        }
    }
}

/// Whether several machines may have a file system with this magic number mounted.
fn is_shared(magic: u64) -> bool {
    SHARED.iter().any(|(known, _)| *known == magic)
}

/// The magic numbers of `statfs(2)` and of the file systems' own headers.
const SHARED: [(u64, &str); 14] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB 2"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "kAFS"),
    (0x0102_1997, "9P"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x6573_5546, "FUSE, which may be sshfs or GlusterFS"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(variables: &[(&str, &str)]) -> Location {
        locate(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn the_environment_says_where() {
        let at = |path: &str| Location::At(path.into());
        let (state, xdg, home) = ("SWATH_STATE", "XDG_STATE_HOME", "HOME");
        for (variables, wanted) in [
            (&[(home, "/h")][..], at("/h/.local/state/swath/state.db")),
            (&[(xdg, "/x"), (home, "/h")], at("/x/swath/state.db")),
            (&[(xdg, "x"), (home, "/h")], at("/h/.local/state/swath/state.db")),
            (&[(xdg, ""), (home, "/h")], at("/h/.local/state/swath/state.db")),
            (&[(state, "here.db"), (home, "/h")], at("here.db")),
            (&[(state, "off"), (home, "/h")], Location::Off),
            (&[(state, ""), (home, "/h")], Location::Off),
            (&[(home, "")], Location::Homeless),
            (&[(home, "h")], Location::Homeless),
            (&[], Location::Homeless),
        ] {
            assert_eq!(placed(variables), wanted, "{variables:?}");
        }
    }

    #[test]
    fn only_file_systems_of_one_machine_get_a_log_written_ahead() {
        // ext4, XFS, btrfs, tmpfs, ZFS, overlay
        for own in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x2fc1_2fc1, 0x794c_7630] {
            assert!(!is_shared(own), "{own:x}");
        }
        assert!(is_shared(0x6969) && is_shared(0x0bd0_0bd0));
        assert_eq!(Journal::suits(Path::new("/proc/x")), Journal::Ahead);
    }
}
