//! Finds the processors near a disk.
//!
//! On a machine with several memory nodes, a thread on one node that hands buffers to a device on
//! another crosses the link between them for every byte. sysfs describes the topology; the kernel
//! learns which processors to use before the process starts its threads.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Numbers of processors, as the kernel counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpus(BTreeSet<usize>);

/// A list of processors that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a list of processors (example: 0-3,8)")]
pub struct BadCpus(String);

/// Where a process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pin {
    /// Near the disk, if the machine has several nodes.
    #[default]
    Auto,
    /// Where the system puts it.
    Off,
    /// On these processors.
    On(Cpus),
}

/// A machine's topology by sysfs.
#[derive(Clone, Debug)]
pub struct Topology {
    sysfs: PathBuf,
}

impl Default for Topology {
    fn default() -> Self {
        Topology::at(Path::new("/sys"))
    }
}

impl Topology {
    /// Returns the topology described below this folder, which has the form of `/sys`.
    pub fn at(sysfs: &Path) -> Topology {
        Topology { sysfs: sysfs.to_owned() }
    }

    /// Returns the processors of each node that has any, by the node's number.
    pub fn nodes(&self) -> Vec<(u32, Cpus)> {
        let folder = self.sysfs.join("devices/system/node");
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        let mut nodes: Vec<(u32, Cpus)> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let number = name.strip_prefix("node")?.parse().ok()?;
                let cpus = read(&entry.path().join("cpulist"))?.parse::<Cpus>().ok()?;
                (!cpus.0.is_empty()).then_some((number, cpus))
            })
            .collect();
        nodes.sort_by_key(|&(number, _)| number);
        nodes
    }

    /// Returns the node of the disk with this device number; `None` if it has none, as in memory,
    /// on the network, or on a machine with one node.
    pub fn node_of_device(&self, major: u32, minor: u32) -> Option<u32> {
        let link = self.sysfs.join(format!("dev/block/{major}:{minor}"));
        self.node_of(&link.canonicalize().ok()?, DEPTH_MAX)
    }

    /// Returns a device's node: its own, or the one of all disks that it is made of.
    fn node_of(&self, device: &Path, depth: u32) -> Option<u32> {
        let above = device.ancestors().take_while(|path| path.starts_with(&self.sysfs));
        let known = above.filter_map(|path| {
            let own =
                read(&path.join("numa_node")).or_else(|| read(&path.join("device/numa_node")));
            own?.parse::<i64>().ok()
        });
        // A device without a node says -1.
        if let Some(node) = known.into_iter().find_map(|node| u32::try_from(node).ok()) {
            return Some(node);
        }
        let parts = std::fs::read_dir(device.join("slaves")).ok()?;
        let mut nodes: BTreeSet<Option<u32>> = parts
            .flatten()
            .filter_map(|part| part.path().canonicalize().ok())
            .map(|part| depth.checked_sub(1).and_then(|depth| self.node_of(&part, depth)))
            .collect();
        // Parts on several nodes are near none of them.
        if nodes.len() == 1 { nodes.pop_first().flatten() } else { None }
    }

    /// Returns the processors near the disk that holds `path`, or its nearest existing folder
    /// above; `None` if all are alike.
    pub fn near(&self, path: &Path) -> Option<Cpus> {
        let nodes = self.nodes();
        if nodes.len() < 2 {
            return None;
        }
        let path = std::path::absolute(path).ok()?;
        let device = path.ancestors().find_map(|path| path.metadata().ok())?.dev();
        let node = self.node_of_device(libc::major(device), libc::minor(device))?;
        nodes.into_iter().find_map(|(number, cpus)| (number == node).then_some(cpus))
    }
}

impl Pin {
    /// Lets this thread, and those that it starts later, run where the setting says; `path` is on
    /// the disk in question. Returns the processors if that is a choice, without those that the
    /// process may not use; `auto` changes nothing if fewer than two would be left.
    ///
    /// # Errors
    /// For a list: none of its processors may be used here.
    pub fn apply(&self, topology: &Topology, path: &Path) -> io::Result<Option<Cpus>> {
        let (wanted, least) = match self {
            Pin::Off => return Ok(None),
            Pin::Auto => match topology.near(path) {
                Some(cpus) => (cpus, 2),
                None => return Ok(None),
            },
            Pin::On(cpus) => (cpus.clone(), 1),
        };
        let allowed = sched_getaffinity(None)?;
        let usable = Cpus(
            wanted
                .0
                .into_iter()
                .filter(|&cpu| cpu < CpuSet::MAX_CPU && allowed.is_set(cpu))
                .collect(),
        );
        if usable.0.len() < least {
            return match self {
                Pin::On(_) => Err(io::Error::from(io::ErrorKind::InvalidInput)),
                _ => Ok(None),
            };
        }
        let mut set = CpuSet::new();
        usable.0.iter().for_each(|&cpu| set.set(cpu));
        sched_setaffinity(None, &set)?;
        Ok(Some(usable))
    }
}

impl FromStr for Pin {
    type Err = BadCpus;

    fn from_str(text: &str) -> Result<Pin, BadCpus> {
        match text {
            "auto" => Ok(Pin::Auto),
            "off" => Ok(Pin::Off),
            list => match list.parse::<Cpus>()? {
                Cpus(cpus) if cpus.is_empty() => Err(BadCpus(list.to_owned())),
                cpus => Ok(Pin::On(cpus)),
            },
        }
    }
}

impl FromStr for Cpus {
    type Err = BadCpus;

    /// Parses the kernel's form, `0-3,8`; an empty text is the empty list.
    fn from_str(text: &str) -> Result<Cpus, BadCpus> {
        let bad = || BadCpus(text.to_owned());
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<usize>().map_err(|_| bad());
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last >= CPUS_MAX {
                return Err(bad());
            }
            cpus.extend(first..=last);
        }
        Ok(Cpus(cpus))
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while rest.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            match last == first {
                true => write!(f, "{separator}{first}")?,
                false => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

/// Returns a small file's content, trimmed.
fn read(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Levels of disks made of disks.
const DEPTH_MAX: u32 = 4;
/// More than any machine has.
const CPUS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A machine as recorded: files with their contents, links with their targets.
    struct Recorded(tempfile::TempDir);

    impl Recorded {
        fn new(files: &[(&str, &str)], links: &[(&str, &str)]) -> Recorded {
            let folder = tempfile::tempdir().unwrap();
            let make = |path: &str| {
                let path = folder.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                path
            };
            for (path, content) in files {
                std::fs::write(make(path), format!("{content}\n")).unwrap();
            }
            for (path, target) in links {
                std::fs::create_dir_all(folder.path().join(target)).unwrap();
                symlink(folder.path().join(target), make(path)).unwrap();
            }
            Recorded(folder)
        }

        fn topology(&self) -> Topology {
            Topology::at(&self.0.path().canonicalize().unwrap())
        }
    }

    /// Two sockets of 16 cores with two threads each, an NVMe disk at the second one.
    fn two_sockets() -> Recorded {
        let nvme = "devices/pci0000:80/0000:80:03.1/0000:83:00.0/nvme/nvme0/nvme0n1";
        let partition = format!("{nvme}/nvme0n1p2");
        let mapped = "devices/virtual/block/dm-0";
        Recorded::new(
            &[
                ("devices/system/node/node0/cpulist", "0-15,32-47"),
                ("devices/system/node/node1/cpulist", "16-31,48-63"),
                ("devices/system/node/has_cpu", "0-1"),
                ("devices/pci0000:80/0000:80:03.1/numa_node", "1"),
                ("devices/pci0000:80/0000:80:03.1/0000:83:00.0/numa_node", "1"),
                ("devices/pci0000:00/0000:00:17.0/numa_node", "0"),
            ],
            &[
                ("dev/block/259:0", nvme),
                ("dev/block/259:2", &partition),
                ("dev/block/8:0", "devices/pci0000:00/0000:00:17.0/ata1/host0/block/sda"),
                ("dev/block/253:0", mapped),
                ("devices/virtual/block/dm-0/slaves/nvme0n1p2", &partition),
                ("dev/block/9:0", "devices/virtual/block/md0"),
                ("devices/virtual/block/md0/slaves/nvme0n1", nvme),
                (
                    "devices/virtual/block/md0/slaves/sda",
                    "devices/pci0000:00/0000:00:17.0/ata1/host0/block/sda",
                ),
                ("dev/block/9:1", "devices/virtual/block/md1"),
                ("devices/virtual/block/md1/slaves/dm-0", mapped),
            ],
        )
    }

    #[test]
    fn a_disk_is_near_the_node_of_its_controller() {
        let machine = two_sockets();
        let topology = machine.topology();
        let nodes = topology.nodes();
        assert_eq!(nodes.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(nodes[1].1.to_string(), "16-31,48-63");
        assert_eq!(topology.node_of_device(259, 0), Some(1));
        assert_eq!(topology.node_of_device(259, 2), Some(1), "a partition");
        assert_eq!(topology.node_of_device(8, 0), Some(0));
        assert_eq!(topology.node_of_device(253, 0), Some(1), "encrypted, on a partition");
        assert_eq!(topology.node_of_device(9, 1), Some(1), "one upon the other");
        assert_eq!(topology.node_of_device(9, 0), None, "striped over both nodes");
        assert_eq!(topology.node_of_device(0, 42), None, "no disk at all");
    }

    #[test]
    fn what_belongs_to_no_node_is_near_none() {
        // A virtual machine: its controller says -1, and there is one node.
        let machine = Recorded::new(
            &[
                ("devices/system/node/node0/cpulist", "0-7"),
                ("devices/pci0000:00/0000:00:04.0/numa_node", "-1"),
            ],
            &[("dev/block/254:0", "devices/pci0000:00/0000:00:04.0/virtio1/block/vda")],
        );
        assert_eq!(machine.topology().node_of_device(254, 0), None);
        assert_eq!(machine.topology().near(machine.0.path()), None);
        // Memory without processors is a node too, as on machines with persistent memory.
        let machine = Recorded::new(
            &[
                ("devices/system/node/node0/cpulist", "0-3"),
                ("devices/system/node/node2/cpulist", ""),
            ],
            &[],
        );
        assert_eq!(machine.topology().nodes().len(), 1);
        let nothing = Recorded::new(&[], &[]);
        assert!(nothing.topology().nodes().is_empty());
    }

    #[test]
    fn a_loop_of_disks_ends() {
        let ring = "devices/virtual/block/dm-7";
        let machine = Recorded::new(
            &[],
            &[("dev/block/253:7", ring), ("devices/virtual/block/dm-7/slaves/dm-7", ring)],
        );
        assert_eq!(machine.topology().node_of_device(253, 7), None);
    }

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        for text in ["0", "0-3,8", "1,3,5", ""] {
            assert_eq!(text.parse::<Cpus>().unwrap().to_string(), text);
        }
        assert_eq!(" 0-1,2\n".parse::<Cpus>().unwrap().to_string(), "0-2");
        for text in ["3-1", "x", "0-", "0,,1", "99999999", "-1"] {
            assert!(text.parse::<Cpus>().is_err(), "{text}");
        }
        assert_eq!("auto".parse::<Pin>(), Ok(Pin::Auto));
        assert!("".parse::<Pin>().is_err(), "no processor at all");
    }

    #[test]
    fn a_list_holds_for_this_thread_and_those_it_starts() {
        let pinned = std::thread::spawn(|| {
            let allowed = sched_getaffinity(None).unwrap();
            let first = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
            let pin: Pin = first.to_string().parse().unwrap();
            let topology = Topology::default();
            let cpus = pin.apply(&topology, Path::new("/")).unwrap().unwrap();
            assert_eq!(cpus.to_string(), first.to_string());
            let child = std::thread::spawn(|| sched_getaffinity(None).unwrap().count());
            assert_eq!(child.join().unwrap(), 1);
            let nobodys: Pin = (CpuSet::MAX_CPU - 1).to_string().parse().unwrap();
            assert!(nobodys.apply(&topology, Path::new("/")).is_err());
            assert_eq!(Pin::Off.apply(&topology, Path::new("/")).unwrap(), None);
        });
        pinned.join().unwrap();
    }
}
