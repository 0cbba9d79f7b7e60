//! How much memory this process can still have.
//!
//! The kernel promises more than there is and settles it by ending the process later, so what is
//! asked for is held against what is free before anything is reserved.

use std::path::Path;

/// Memory that is free or soon would be, in bytes, within the limits of our control group; `None`
/// where the system does not tell.
pub(crate) fn available_bytes() -> Option<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let system = read(Path::new("/proc/meminfo")).and_then(|text| of_meminfo(&text))?;
    let group = read(Path::new("/proc/self/cgroup")).and_then(|text| {
        let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let folder = Path::new("/sys/fs/cgroup").join(path);
        let number = |name| read(&folder.join(name))?.trim().parse::<u64>().ok();
        Some(number("memory.max")?.saturating_sub(number("memory.current")?))
    });
    Some(group.unwrap_or(u64::MAX).min(system))
}

fn of_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_read() {
        let text = "MemTotal:  8000 kB\nMemFree: 100 kB\nMemAvailable:    5000 kB\nBuffers: 3 kB\n";
        assert_eq!(of_meminfo(text), Some(5_120_000));
        assert_eq!(of_meminfo("MemTotal: 8000 kB\n"), None);
        assert_eq!(of_meminfo("MemAvailable: 99999999999999999999 kB\n"), None);
        assert!(available_bytes().is_none_or(|bytes| bytes > 0));
    }
}
