//! What may be done below a folder, path by path.
//!
//! Whoever serves a folder decides that ([`Decide`]). A [`Grant`] is such a decision for one folder. The
//! store asks it at each change, with the path that is changed, and before it reads through a link, with
//! the path that the link leads to. Users' own commands have [`Grant::everything`].

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// What is to be done with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Read what is there.
    Read,
    /// Make something that is not there yet.
    Create,
    /// Make a folder that is not there yet.
    MakeFolder,
    /// Change, replace, move or remove what is there.
    Modify,
}

/// Decides what may be done.
pub trait Decide: Send + Sync {
    /// Returns whether this may be done with `path`, which has no slashes at its ends.
    fn permits(&self, deed: Deed, path: &[u8]) -> bool;

    /// Returns whether everything may be read.
    fn permits_all_reading(&self) -> bool;
}

/// What may be done below a folder. Clones are the same.
#[derive(Clone, Default)]
pub struct Grant(Option<Granted>);

#[derive(Clone)]
struct Granted {
    by: Arc<dyn Decide>,
    /// The path of the folder, as `by` names it.
    at: Vec<u8>,
}

/// A deed is not permitted; the cause of an [`io::Error`] of the kind `PermissionDenied`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the rights of this request do not permit {}", words(*.0))]
pub struct NotPermitted(pub Deed);

impl NotPermitted {
    /// Returns the deed, if that is why something failed.
    pub fn of(error: &io::Error) -> Option<Deed> {
        let cause = error.get_ref()?.downcast_ref::<NotPermitted>()?;
        Some(cause.0)
    }
}

impl From<NotPermitted> for io::Error {
    fn from(cause: NotPermitted) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, cause)
    }
}

fn words(deed: Deed) -> &'static str {
    match deed {
        Deed::Read => "reading what is there",
        Deed::Create => "writing there",
        Deed::MakeFolder => "making a folder there",
        Deed::Modify => "replacing or removing what is there",
    }
}

impl Grant {
    /// Permits everything.
    pub const fn everything() -> Grant {
        Grant(None)
    }

    /// Permits nothing.
    pub fn nothing() -> Grant {
        Grant::of(Arc::new(Nothing), Vec::new())
    }

    /// Permits what `by` does, for a folder that has the path `at` there, without slashes at its ends.
    pub fn of(by: Arc<dyn Decide>, at: Vec<u8>) -> Grant {
        Grant(Some(Granted { by, at }))
    }

    /// Returns the grant for something below the folder.
    #[must_use]
    pub fn below(&self, path: &[u8]) -> Grant {
        Grant(self.0.as_ref().map(|it| Granted { by: Arc::clone(&it.by), at: it.path(path) }))
    }

    /// Returns whether this may be done with a path below the folder; the empty path is the folder.
    pub fn permits(&self, deed: Deed, path: &[u8]) -> bool {
        self.0.as_ref().is_none_or(|it| it.by.permits(deed, &it.path(path)))
    }

    /// Checks the same.
    ///
    /// # Errors
    /// [`NotPermitted`].
    pub fn check(&self, deed: Deed, path: &[u8]) -> io::Result<()> {
        match self.permits(deed, path) {
            true => Ok(()),
            false => Err(NotPermitted(deed).into()),
        }
    }

    /// Returns whether there are no limits.
    pub(super) fn permits_everything(&self) -> bool {
        self.0.is_none()
    }

    /// Returns whether everything may be read, wherever a link leads.
    pub(super) fn permits_all_reading(&self) -> bool {
        self.0.as_ref().is_none_or(|it| it.by.permits_all_reading())
    }
}

impl Granted {
    fn path(&self, below: &[u8]) -> Vec<u8> {
        match (self.at.as_slice(), below) {
            (at, b"") => at.to_vec(),
            (b"", below) => below.to_vec(),
            (at, below) => [at, below].join(&b'/'),
        }
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("Grant(everything)"),
            Some(it) => write!(f, "Grant(at {})", String::from_utf8_lossy(&it.at)),
        }
    }
}

/// A grant for a place of this machine, by its path: for what lies there and below it. Elsewhere nothing
/// is permitted.
#[derive(Clone, Debug, Default)]
pub struct PlaceGrant(Option<(PathBuf, Grant)>);

impl PlaceGrant {
    /// Permits everything everywhere.
    pub const fn everything() -> PlaceGrant {
        PlaceGrant(None)
    }

    /// Permits what `grant` does, at `place` and below it.
    pub fn at(place: PathBuf, grant: Grant) -> PlaceGrant {
        PlaceGrant(Some((place, grant)))
    }

    /// Returns the grant for a path of this machine.
    pub fn of(&self, path: &Path) -> Grant {
        let Some((place, grant)) = &self.0 else { return Grant::everything() };
        let Ok(rest) = path.strip_prefix(place) else { return Grant::nothing() };
        let names: Option<Vec<&[u8]>> = rest
            .components()
            .map(|component| match component {
                Component::Normal(name) => Some(OsStr::as_bytes(name)),
                _ => None,
            })
            .collect();
        names.map_or_else(Grant::nothing, |names| grant.below(&names.join(&b'/')))
    }

    /// Makes a folder and the missing ones above it, if that is permitted.
    pub(crate) fn make_folders(&self, folder: &Path) -> io::Result<()> {
        if self.0.is_some() && !folder.is_dir() {
            self.of(folder).check(Deed::MakeFolder, b"")?;
        }
        std::fs::create_dir_all(folder)
    }
}

struct Nothing;

impl Decide for Nothing {
    fn permits(&self, _: Deed, _: &[u8]) -> bool {
        false
    }

    fn permits_all_reading(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Permits to create below `a/b`.
    struct BelowAb;

    impl Decide for BelowAb {
        fn permits(&self, deed: Deed, path: &[u8]) -> bool {
            deed == Deed::Create && path.starts_with(b"a/b")
        }

        fn permits_all_reading(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_path_is_judged_as_whoever_decides_names_it() {
        let top = Grant::of(Arc::new(BelowAb), Vec::new());
        assert!(top.permits(Deed::Create, b"a/b") && !top.permits(Deed::Create, b"a"));
        let a = top.below(b"a");
        assert!(a.permits(Deed::Create, b"b/c") && !a.permits(Deed::Create, b""));
        assert!(a.below(b"b").permits(Deed::Create, b""));
        let refused = a.check(Deed::Modify, b"b").unwrap_err();
        assert_eq!(NotPermitted::of(&refused), Some(Deed::Modify));
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(Grant::everything().below(b"x").permits(Deed::Modify, b"y"));
        assert!(!Grant::nothing().permits(Deed::Read, b""));
    }

    #[test]
    fn outside_of_its_place_nothing_is_permitted() {
        let placed = PlaceGrant::at("/p".into(), Grant::of(Arc::new(BelowAb), b"a".to_vec()));
        let may = |path: &str| placed.of(Path::new(path)).permits(Deed::Create, b"");
        assert!(may("/p/b") && may("/p/b/c") && may("/p//b/./c"));
        for path in ["/p", "/p/c", "/q/b", "/p/../p/b", "p/b", "/p/b/../../x", ""] {
            assert!(!may(path), "{path}");
        }
        assert!(PlaceGrant::everything().of(Path::new("x")).permits(Deed::Modify, b""));
    }
}
