//! Names of files that come from others, made safe.
//!
//! A `SafePath` is relative and stays below any folder it is joined to; nothing in it can trick a
//! terminal. Names that are legal here are accepted, even if other systems may refuse them (a
//! backslash, a dot or a space at the end). Every file name written by others goes through here, so
//! the check exists once.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// A checked relative path with `/` between its components.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SafePath(Box<str>);

impl SafePath {
    /// Checks `name`, which is accepted unchanged or refused, never repaired.
    pub fn new(name: &str) -> Result<SafePath, PathError> {
        if name.is_empty() {
            return Err(PathError::Empty);
        }
        if name.len() > PATH_BYTES_MAX {
            return Err(PathError::TooLong { bytes: name.len(), max_bytes: PATH_BYTES_MAX });
        }
        if let Some(found) = name.chars().find(|c| is_treacherous(*c)) {
            return Err(PathError::Character { code: found.into() });
        }
        if name.starts_with('/') {
            return Err(PathError::Absolute);
        }
        if name.split('/').count() > COMPONENTS_MAX {
            return Err(PathError::TooDeep);
        }
        name.split('/').try_for_each(check_component)?;
        Ok(SafePath(name.into()))
    }

    /// Returns the path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the path for the file system; relative.
    pub fn as_path(&self) -> &Path {
        Path::new(&*self.0)
    }

    /// Returns the last component.
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// Returns the folder that contains it; `None` for a single component.
    pub fn parent(&self) -> Option<SafePath> {
        let (parent, _) = self.0.rsplit_once('/')?;
        Some(SafePath(parent.into()))
    }
}

fn check_component(component: &str) -> Result<(), PathError> {
    match component {
        "" => Err(PathError::EmptyComponent),
        "." | ".." => Err(PathError::Dots),
        _ if component.len() > COMPONENT_BYTES_MAX => {
            Err(PathError::TooLong { bytes: component.len(), max_bytes: COMPONENT_BYTES_MAX })
        }
        _ => Ok(()),
    }
}

/// Returns whether a terminal obeys this character instead of showing it: controls, line and
/// paragraph separators, and changes of the writing direction (`evil\u{202e}txt.exe`).
pub fn is_treacherous(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Replaces each [treacherous](is_treacherous) character by a sign, for a terminal or a page: the
/// text may come from anyone.
pub fn visible(text: &str) -> String {
    text.chars().map(|c| if is_treacherous(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

impl AsRef<Path> for SafePath {
    fn as_ref(&self) -> &Path {
        self.as_path()
    }
}

impl fmt::Display for SafePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for SafePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl FromStr for SafePath {
    type Err = PathError;

    fn from_str(name: &str) -> Result<SafePath, PathError> {
        SafePath::new(name)
    }
}

/// Why a name is refused as a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It is empty.
    #[error("it is empty")]
    Empty,
    /// It begins with `/`.
    #[error("it is absolute")]
    Absolute,
    /// A component is `.` or `..`.
    #[error("it contains '.' or '..' as a component")]
    Dots,
    /// `//`, or a `/` at the end.
    #[error("it has an empty component ('//' or a '/' at the end)")]
    EmptyComponent,
    /// A control character or one that changes the writing direction.
    #[error("it contains the control character U+{code:04X}")]
    Character {
        /// Its code point.
        code: u32,
    },
    /// It is longer than file systems accept.
    #[error("it has {bytes} bytes where {max_bytes} are allowed")]
    TooLong {
        /// Bytes of the path or the component.
        bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// Too many components.
    #[error("it has more than {COMPONENTS_MAX} components")]
    TooDeep,
}

/// `PATH_MAX` of Linux, minus room for the folder that it is joined to.
const PATH_BYTES_MAX: usize = 3_072;
/// `NAME_MAX` of nearly all file systems. Side files get shortened names if a suffix would not fit.
const COMPONENT_BYTES_MAX: usize = 255;
/// Deep enough for every real tree.
const COMPONENTS_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Component;

    #[test]
    fn ordinary_names_pass() {
        for name in [
            "a",
            "a/b/c.tar.gz",
            ".hidden",
            "..hidden",
            "a..b",
            "x y",
            "user.jdoe:file_0001.root",
            "data/Größe 7 Ω.h5",
            "-rf",
            "~root",
            "CON",
            "Salmonella spp./reads.fq",
            "notes ",
            "...",
            "C:\\x",
            "..\\x",
        ] {
            assert_eq!(SafePath::new(name).map(|path| path.to_string()).as_deref(), Ok(name));
        }
        let path = SafePath::new("a/b/c").unwrap();
        assert_eq!(path.file_name(), "c");
        assert_eq!(path.parent().unwrap().as_str(), "a/b");
        assert_eq!(SafePath::new("a").unwrap().parent(), None);
    }

    #[test]
    fn tricks_are_refused_with_the_reason() {
        for (name, why) in [
            ("", "empty"),
            ("/etc/passwd", "absolute"),
            ("//host/share", "absolute"),
            ("..", "'..'"),
            ("../x", "'..'"),
            ("a/../../x", "'..'"),
            ("./a", "'.'"),
            ("a//b", "empty component"),
            ("a/", "empty component"),
            ("a\0b", "U+0000"),
            ("a\nb", "U+000A"),
            ("a\x1b[2Jb", "U+001B"),
            ("a\u{7f}", "U+007F"),
            ("a\u{9b}2J", "U+009B"),
            ("invoice\u{202e}fdp.exe", "U+202E"),
        ] {
            let error = SafePath::new(name).unwrap_err().to_string();
            assert!(error.contains(why), "{name:?}: {error}");
        }
        assert!(SafePath::new(&"x".repeat(256)).is_err());
        assert!(SafePath::new(&"é".repeat(127)).is_ok());
        assert!(SafePath::new(&vec!["a"; 129].join("/")).is_err());
        assert!(SafePath::new(&vec!["x".repeat(200); 16].join("/")).is_err());
    }

    proptest! {
        #[test]
        fn whatever_passes_stays_below_its_root(name in "[a./\\\\ \\x00\u{202e}é]{0,12}") {
            if let Ok(path) = SafePath::new(&name) {
                prop_assert_eq!(path.as_str(), &name);
                let components: Vec<_> = path.as_path().components().collect();
                prop_assert!(components.iter().all(|c| matches!(c, Component::Normal(_))));
                prop_assert_eq!(components.len(), name.split('/').count());
            }
        }
    }
}
