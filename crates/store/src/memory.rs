//! How much memory this process may use: what the machine has, or less if a control group limits it
//! (`MemoryMax=` of a service, a container's memory, a batch job).
//!
//! The kernel promises more memory than there is and later kills the process, so large requests are
//! compared with these figures first. A group's limit holds for all groups below it: batch systems
//! set it on the job, a few levels above the process.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use crate::sys;

/// Returns the most memory that this process can use in all, in bytes; `None` if unknown.
pub fn memory_limit_bytes() -> Option<u64> {
    let machine = Some(sys::memory_bytes()).filter(|bytes| *bytes > 0);
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limited(&groups, Path::new(GROUPS)).into_iter().map(|group| group.limit_bytes);
    machine.into_iter().chain(limits).min()
}

/// Returns how much memory is free or soon would be, in bytes, within the limits of all control
/// groups of this process; `None` if the system does not say.
pub fn memory_free_bytes() -> Option<u64> {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| of_meminfo(&text))?;
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let free = limited(&groups, Path::new(GROUPS)).into_iter().filter_map(|it| it.free_bytes());
    free.chain([machine]).min()
}

fn of_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// A control group with a limit.
struct Limited {
    folder: PathBuf,
    version: &'static Version,
    limit_bytes: u64,
}

/// Names of a group's files.
struct Version {
    limit: &'static str,
    used: &'static str,
    /// In `memory.stat`: file pages not used lately, which the kernel frees first.
    idle: &'static str,
}

impl Limited {
    fn free_bytes(&self) -> Option<u64> {
        let read = |name| read_to_string(self.folder.join(name)).ok();
        let used: u64 = read(self.version.used)?.trim().parse().ok()?;
        let stat = read("memory.stat").unwrap_or_default();
        let idle = stat.lines().find_map(|line| {
            line.strip_prefix(self.version.idle)?.strip_prefix(' ')?.trim().parse::<u64>().ok()
        });
        Some(self.limit_bytes.saturating_sub(used.saturating_sub(idle.unwrap_or(0))))
    }
}

/// Returns the groups with a limit that contain a process, directly or as ancestors. `groups` are
/// lines of `/proc/self/cgroup`: `0::/path` in version 2, `5:memory:/path` in version 1.
fn limited(groups: &str, root: &Path) -> Vec<Limited> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let parts = line.split_once(':').and_then(|(_, rest)| rest.split_once(':'));
        let Some((controllers, path)) = parts else { continue };
        let (root, version) = match controllers {
            "" => (root.to_owned(), &SECOND),
            _ if controllers.split(',').any(|one| one == "memory") => (root.join("memory"), &FIRST),
            _ => continue,
        };
        let own = root.join(path.trim_start_matches('/'));
        for folder in own.ancestors().take_while(|folder| folder.starts_with(&root)) {
            // Without a limit the value is `max`, or larger than any memory.
            let limit = read_to_string(folder.join(version.limit)).ok();
            let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
            let folder = folder.to_owned();
            found.extend(limit.map(|limit_bytes| Limited { folder, version, limit_bytes }));
        }
    }
    found
}

static FIRST: Version = Version {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    idle: "total_inactive_file",
};
static SECOND: Version =
    Version { limit: "memory.max", used: "memory.current", idle: "inactive_file" };
/// Mount point of control groups with systemd and in containers.
const GROUPS: &str = "/sys/fs/cgroup";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_on_the_way_to_a_group_is_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let of = |groups: &str| limited(groups, root).iter().map(|it| it.limit_bytes).min();
        put("system.slice/relay.service/memory.max", "max\n");
        assert_eq!(of("0::/system.slice/relay.service\n"), None);
        put("system.slice/memory.max", "3000\n");
        assert_eq!(of("0::/system.slice/relay.service\n"), Some(3000));
        put("system.slice/relay.service/memory.max", "2000\n");
        assert_eq!(of("0::/system.slice/relay.service\n"), Some(2000));
        assert_eq!(of("0::/user.slice\n"), None);
        // The older version, and both at once; a container sees its own group as the root.
        put("memory/memory.limit_in_bytes", "1000\n");
        let both = "7:cpu,memory:/docker/1f\n1:cpu:/system.slice\n0::/system.slice\n";
        assert_eq!(of(both), Some(1000));
        for odd in ["", "nonsense", "0:", "0::", "::", "4:memory"] {
            assert!(of(odd).is_none_or(|bytes| bytes >= 1000), "{odd}");
        }
        // This machine has some.
        assert!(memory_limit_bytes().is_some_and(|bytes| bytes > 1 << 20));
        assert!(memory_free_bytes().is_none_or(|bytes| bytes > 0));
    }

    /// A batch system limited the job, two levels above the process: a transfer took a gigabyte for
    /// buffers in a job of 64 MiB, because it looked at its own group alone.
    #[test]
    fn what_is_free_is_limited_by_every_group_above_less_what_they_use() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let free =
            |groups: &str| limited(groups, root).iter().filter_map(Limited::free_bytes).min();
        put("job/step/task/memory.max", "max\n");
        put("job/memory.max", "64000\n");
        put("job/memory.current", "20000\n");
        assert_eq!(free("0::/job/step/task\n"), Some(44_000));
        // Cached pages of files are given back.
        put("job/memory.stat", "anon 5\ninactive_file 15000\n");
        assert_eq!(free("0::/job/step/task\n"), Some(59_000));
        put("memory/job/memory.limit_in_bytes", "9000\n");
        put("memory/job/memory.usage_in_bytes", "1000\n");
        assert_eq!(free("4:memory:/job/step\n0::/job\n"), Some(8000));
        assert_eq!(free("0::/other\n"), None);
    }

    #[test]
    fn the_kernels_table_is_read() {
        let text = "MemTotal:  8000 kB\nMemFree: 100 kB\nMemAvailable:    5000 kB\nBuffers: 3 kB\n";
        assert_eq!(of_meminfo(text), Some(5_120_000));
        assert_eq!(of_meminfo("MemTotal: 8000 kB\n"), None);
        assert_eq!(of_meminfo("MemAvailable: 99999999999999999999 kB\n"), None);
    }
}
