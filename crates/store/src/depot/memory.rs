//! How much memory there is for what is leased in it: the machine's, or less where a control group has
//! less. (`MemoryMax=` of a service is one, the memory of a container is another.)

use std::path::Path;

use crate::sys;

/// How much memory this process can have at most, all that it does included; `None` if that cannot be
/// told.
pub fn memory_limit_bytes() -> Option<u64> {
    let machine = Some(sys::memory_bytes()).filter(|bytes| *bytes > 0);
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    machine.into_iter().chain(of_groups(&groups, Path::new(GROUPS))).min()
}

/// The least that one of the groups may have which a process is in, or one that these lie in. `groups`
/// are lines of `/proc/self/cgroup`: `0::/path` in the second version, `5:memory:/path` in the first.
fn of_groups(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (root, name) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let own = root.join(path.trim_start_matches('/'));
        let within = own.ancestors().take_while(|folder| folder.starts_with(&root));
        // Without a limit the word is `max`, or a number beyond all memory.
        let told = within.filter_map(|folder| std::fs::read_to_string(folder.join(name)).ok());
        told.filter_map(|text| text.trim().parse::<u64>().ok()).min()
    });
    limits.min()
}

/// Where they are, as systemd and containers have it.
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
        let of = |groups: &str| of_groups(groups, root);
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
    }
}
