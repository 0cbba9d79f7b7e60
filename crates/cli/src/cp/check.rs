//! Whether the options of `swath cp` fit what is to be copied.

use crate::failure::Failure;

use super::args::Cp;
use super::job::Job;

/// Look whether the options fit what is to be done.
pub fn check(cp: &Cp, jobs: &[Job]) -> Result<(), Failure> {
    let sends = jobs.iter().any(Job::sends);
    if sends && cp.keep_index.is_some() {
        let other = "'swath verify' takes a server's address too";
        return Err(Failure::usage(format!("--keep-index: this side only sends ({other})")));
    }
    if jobs.len() > 1 && (cp.report.is_some() || cp.keep_index.is_some()) {
        return Err(Failure::usage("--report and --keep-index are for one copy at a time"));
    }
    if cp.preserves_none_and_more() {
        return Err(Failure::usage("--preserve none goes with nothing else"));
    }
    if jobs.iter().any(Job::is_single) {
        for_trees(cp)?;
    }
    jobs.iter().try_for_each(|job| job.check(cp.delete))
}

/// What is wrong with the options if it is a single file that a server has.
pub fn for_folders(cp: &Cp) -> Option<&'static str> {
    if cp.preserve().xattrs {
        return Some("--preserve xattr is for folders");
    }
    let is_plain = cp.include.is_empty() && cp.exclude.is_empty() && cp.keep_index.is_none();
    (!is_plain || cp.dry_run || cp.delete)
        .then_some("--include, --exclude, --dry-run, --delete and --keep-index are for folders")
}

/// What is wrong with the options if a server takes a single file by `PUT` alone.
pub fn for_put(cp: &Cp) -> Option<&'static str> {
    if cp.preserve().xattrs {
        return Some(
            "the server takes files without extended attributes: leave out --preserve xattr",
        );
    }
    let dry = "the server takes files, and does not tell what it has: leave out --dry-run";
    cp.dry_run.then_some(dry)
}

/// What makes no sense with a single file, however it is copied.
pub fn for_trees(cp: &Cp) -> Result<(), Failure> {
    match cp.include.is_empty() && cp.exclude.is_empty() && !cp.delete {
        true => Ok(()),
        false => {
            let text = "a single file is copied: --include, --exclude and --delete are for folders";
            Err(Failure::usage(text))
        }
    }
}
