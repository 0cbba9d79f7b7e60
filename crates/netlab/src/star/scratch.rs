//! Temporary folders that a killed laboratory cannot leave behind for good.
//!
//! A folder carries the process id of its owner in its name; whoever makes one first removes
//! those of processes that are gone.

use std::io;
use std::path::Path;

use tempfile::TempDir;

/// Makes a folder that goes away with the value; also removes those of dead laboratories.
pub fn scratch_folder() -> io::Result<TempDir> {
    scratch_folder_in(&std::env::temp_dir())
}

/// The same in a folder.
pub fn scratch_folder_in(parent: &Path) -> io::Result<TempDir> {
    remove_orphans(parent);
    tempfile::Builder::new().prefix(&format!("{PREFIX}{}-", std::process::id())).tempdir_in(parent)
}

/// Removes the folders of this process: before it ends without dropping them.
pub fn remove_own_folders_in(parent: &Path) {
    remove_where(parent, |owner| owner == std::process::id());
}

fn remove_orphans(parent: &Path) {
    remove_where(parent, |owner| !Path::new(&format!("/proc/{owner}")).exists());
}

fn remove_where(parent: &Path, is_meant: impl Fn(u32) -> bool) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let owner = owner.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        // Only real folders: nobody may lead the removal elsewhere with a link.
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && owner.is_some_and(&is_meant) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

const PREFIX: &str = "netlab-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_dead_go_and_of_the_living_stay() {
        let parent = tempfile::tempdir().unwrap();
        // Process ids end at 2^22, so the first has no owner.
        let names = ["netlab-4194999-x", &format!("netlab-{}-x", std::process::id()), "other"];
        for name in names {
            std::fs::create_dir(parent.path().join(name)).unwrap();
        }
        remove_orphans(parent.path());
        let left = names.map(|name| parent.path().join(name).exists());
        assert_eq!(left, [false, true, true]);
    }
}
