//! Filters: which entries of a tree take part.
//!
//! A pattern without `/` (except at its end) matches names anywhere; one with a `/` matches paths
//! from the tree's top. One that ends in `/` matches folders only. `*` and `?` do not match a `/`,
//! `**` does. A matching folder includes everything below it.
//!
//! What an exclusion matches is out. If there are inclusions, what none of them matches is out too,
//! except folders that lead to something that is in.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};

/// Selects the entries of a tree that take part. Default: all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    include: Patterns,
    exclude: Patterns,
}

/// Why patterns cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// A pattern is empty, begins with `!`, or is invalid.
    #[error("'{pattern}' is not a valid pattern: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// The reason.
        reason: String,
    },
    /// Nothing would be selected.
    #[error("excluding '{pattern}' leaves nothing (to select only some entries, include them)")]
    Nothing {
        /// The pattern.
        pattern: String,
    },
    /// The patterns are too long.
    #[error("the patterns are too long: at most {PATTERNS_BYTES_MAX} bytes in all")]
    TooLong,
}

/// The decision about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It takes part, and so does everything below it unless excluded.
    In,
    /// A folder that takes part only if something below it does.
    Leads,
    /// Neither it nor anything below it takes part.
    Out,
}

#[derive(Clone, Debug, Default)]
struct Patterns {
    texts: Vec<String>,
    names: GlobSet,
    paths: GlobSet,
    folder_names: GlobSet,
    folder_paths: GlobSet,
}

impl Filter {
    /// Selects what `include` matches (everything if empty), except what `exclude` matches.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Filter, FilterError> {
        let all_bytes: usize = include.iter().chain(exclude).map(|text| text.len() + 1).sum();
        if all_bytes > PATTERNS_BYTES_MAX {
            return Err(FilterError::TooLong);
        }
        let nothing = |text: &&String| ["*", "**", "/*", "/**", "**/*"].contains(&text.as_str());
        if let Some(pattern) = exclude.iter().find(nothing) {
            return Err(FilterError::Nothing { pattern: pattern.clone() });
        }
        Ok(Filter { include: Patterns::new(include)?, exclude: Patterns::new(exclude)? })
    }

    /// Returns whether all entries take part.
    pub fn is_all(&self) -> bool {
        self.include.texts.is_empty() && self.exclude.texts.is_empty()
    }

    /// Returns the inclusions.
    pub fn include(&self) -> &[String] {
        &self.include.texts
    }

    /// Returns the exclusions.
    pub fn exclude(&self) -> &[String] {
        &self.exclude.texts
    }

    /// Judges the entry of this path, including the folders that it lies in.
    pub fn judge_whole(&self, path: &str, is_folder: bool) -> Verdict {
        let mut is_within = false;
        for (end, _) in path.match_indices('/') {
            match self.judge(&path.as_bytes()[..end], true, is_within) {
                Verdict::In => is_within = true,
                Verdict::Leads => {}
                Verdict::Out => return Verdict::Out,
            }
        }
        self.judge(path.as_bytes(), is_folder, is_within)
    }

    /// Judges an entry in a folder that takes part; `is_within` if that folder itself is
    /// [in](Verdict::In).
    pub(super) fn judge(&self, path: &[u8], is_folder: bool, is_within: bool) -> Verdict {
        if self.exclude.has(path, is_folder) {
            return Verdict::Out;
        }
        if is_within || self.include.texts.is_empty() || self.include.has(path, is_folder) {
            return Verdict::In;
        }
        if is_folder { Verdict::Leads } else { Verdict::Out }
    }
}

impl PartialEq for Filter {
    fn eq(&self, other: &Filter) -> bool {
        self.include() == other.include() && self.exclude() == other.exclude()
    }
}

impl Eq for Filter {}

impl Patterns {
    fn new(texts: &[String]) -> Result<Patterns, FilterError> {
        let mut sets = [(); 4].map(|()| GlobSetBuilder::new());
        for text in texts {
            let failed = |reason: String| FilterError::Pattern { pattern: text.clone(), reason };
            let (pattern, folder) = match text.strip_suffix('/') {
                Some(pattern) => (pattern, 2),
                None => (text.as_str(), 0),
            };
            if pattern.is_empty() {
                return Err(failed("it is empty".to_owned()));
            }
            if pattern.starts_with('!') {
                return Err(failed("a '!' at its beginning has to be written '\\!'".to_owned()));
            }
            let path = usize::from(pattern.contains('/'));
            let pattern = pattern.strip_prefix('/').unwrap_or(pattern);
            if pattern.split('/').any(|part| matches!(part, "" | "." | "..")) {
                return Err(failed("no path in a tree is like that".to_owned()));
            }
            let glob = GlobBuilder::new(pattern)
                .literal_separator(true)
                .backslash_escape(true)
                .build()
                .map_err(|error| failed(error.kind().to_string()))?;
            sets[folder + path].add(glob);
        }
        let texts = texts.to_vec();
        let built = |set: &GlobSetBuilder| {
            set.build().map_err(|error| FilterError::Pattern {
                pattern: texts.join(" "),
                reason: error.kind().to_string(),
            })
        };
        let [names, paths, folder_names, folder_paths] = &sets;
        let (names, paths) = (built(names)?, built(paths)?);
        let (folder_names, folder_paths) = (built(folder_names)?, built(folder_paths)?);
        Ok(Patterns { names, paths, folder_names, folder_paths, texts })
    }

    fn has(&self, path: &[u8], is_folder: bool) -> bool {
        if self.texts.is_empty() {
            return false;
        }
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let matches = |set: &GlobSet, text: &[u8]| {
            !set.is_empty() && set.is_match_candidate(&Candidate::new(OsStr::from_bytes(text)))
        };
        matches(&self.names, name)
            || matches(&self.paths, path)
            || (is_folder
                && (matches(&self.folder_names, name) || matches(&self.folder_paths, path)))
    }
}

/// They are sent in the head of a request, where a byte may take three.
const PATTERNS_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str]) -> Result<Filter, FilterError> {
        let texts = |of: &[&str]| of.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        Filter::new(&texts(include), &texts(exclude))
    }

    /// Judges a path as a walk does: from the top down.
    fn is_in(filter: &Filter, path: &str) -> bool {
        let (path, is_folder) =
            path.strip_suffix('/').map_or((path, false), |folder| (folder, true));
        let mut is_within = false;
        for (at, _) in path.match_indices('/') {
            match filter.judge(&path.as_bytes()[..at], true, is_within) {
                Verdict::In => is_within = true,
                Verdict::Leads => {}
                Verdict::Out => return false,
            }
        }
        filter.judge(path.as_bytes(), is_folder, is_within) == Verdict::In
    }

    #[test]
    fn patterns_mean_what_people_expect() {
        for (pattern, matched, others) in [
            ("*.log", &["a.log", "x/y/a.log", "d.log/within"][..], &["a.logs", "log"][..]),
            ("/*.log", &["a.log"], &["x/a.log"]),
            ("cache", &["cache", "x/cache/y", "cache/z"], &["cached", "x/acache"]),
            ("cache/", &["cache/", "cache/z", "x/cache/z"], &["cache", "x/cache"]),
            ("x/cache", &["x/cache", "x/cache/z"], &["cache", "y/x/cache"]),
            ("/x/cache/", &["x/cache/z"], &["x/cache", "y/x/cache/z"]),
            ("**/x/cache", &["x/cache", "y/x/cache/z", "a/b/x/cache"], &["x/y/cache"]),
            ("x/**/z", &["x/z", "x/a/z", "x/a/b/z"], &["z", "y/x/z"]),
            ("x/**", &["x/a", "x/a/b"], &["x", "y/x/a"]),
            ("x/*", &["x/a", "x/a/b"], &["x", "xx/a"]),
            ("?.[ab]", &["1.a", "x/2.b"], &["12.a", "1.c"]),
            ("*.{h5,nc}", &["a.h5", "x/b.nc"], &["a.h6"]),
            ("\\!a\\*", &["!a*"], &["!ab", "a*"]),
            (".*", &[".git/x", "a/.b"], &["a.b"]),
        ] {
            let (exclude, include) =
                (filter(&[], &[pattern]).unwrap(), filter(&[pattern], &[]).unwrap());
            for path in matched {
                assert!(!is_in(&exclude, path), "{pattern} excludes {path}");
                assert!(is_in(&include, path), "{pattern} includes {path}");
            }
            for path in others {
                assert!(is_in(&exclude, path), "{pattern} does not exclude {path}");
                assert!(!is_in(&include, path), "{pattern} does not include {path}");
            }
        }
    }

    #[test]
    fn what_is_excluded_is_out_whatever_includes_it() {
        let both = filter(&["*.h5", "docs/"], &["tmp", "docs/old"]).unwrap();
        for (path, expected) in [
            ("a.h5", true),
            ("x/a.h5", true),
            ("tmp/a.h5", false),
            ("x/tmp/a.h5", false),
            ("docs/a.txt", true),
            ("docs/old/a.h5", false),
            ("a.txt", false),
        ] {
            assert_eq!(is_in(&both, path), expected, "{path}");
        }
        assert_eq!(both.judge(b"x", true, false), Verdict::Leads);
        assert!(!both.is_all() && Filter::default().is_all());
        assert!(is_in(&Filter::default(), "whatever/there/is"));
    }

    #[test]
    fn names_need_not_be_text() {
        let odd = filter(&[], &["*.log"]).unwrap();
        assert_eq!(odd.judge(b"x/\xff\xfe.log", false, true), Verdict::Out);
        assert_eq!(odd.judge(b"x/\xff\xfe.dat", false, true), Verdict::In);
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for bad in ["", "/", "!a", "a[", "{a", "a//b", "../a", "./a", "a\\"] {
            let refused = filter(&[bad], &[]);
            assert!(matches!(refused, Err(FilterError::Pattern { .. })), "{bad}: {refused:?}");
        }
        for all in ["*", "**", "/**"] {
            assert!(matches!(filter(&["*.h5"], &[all]), Err(FilterError::Nothing { .. })));
        }
        let long = "x".repeat(PATTERNS_BYTES_MAX);
        assert!(matches!(filter(&[], &[&long]), Err(FilterError::TooLong)));
    }
}
