//! Scopes of tokens for storage: those of the WLCG's Common JWT profile 1 (`storage.read:/path`) and of
//! SciTokens 2.0 (`read:/path`).
//!
//! A scope is for what lies at its path and below it. Paths are compared by whole names: `/a` is for
//! `/a` and `/a/b`, and never for `/ab`. A scope that is not understood permits nothing.

use crate::percent;

/// What somebody wants to do with a path. Each of them has its scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Read what is there.
    Read,
    /// Make what is not there yet: a file, a folder.
    Create,
    /// Change, replace, move or remove what is there.
    Modify,
}

/// The words for scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The WLCG's Common JWT profile.
    Wlcg,
    /// SciTokens.
    SciTokens,
}

impl Dialect {
    /// Returns what a word permits: reading, creating, and modifying. Who may modify may create too, and
    /// who may stage may read (WLCG Common JWT profile 1.0, "Capabilities").
    fn acts(self, word: &str) -> &'static [Act] {
        match (self, word) {
            (Dialect::Wlcg, "storage.read" | "storage.stage") => &[Act::Read],
            (Dialect::Wlcg, "storage.create") => &[Act::Create],
            (Dialect::Wlcg, "storage.modify") => &[Act::Create, Act::Modify],
            (Dialect::SciTokens, "read") => &[Act::Read],
            (Dialect::SciTokens, "write") => &[Act::Create, Act::Modify],
            _ => &[],
        }
    }
}

/// What a token permits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes {
    /// Acts, and the paths at and below which they are permitted, without slashes at their ends.
    granted: Vec<(Act, Vec<u8>)>,
}

impl Scopes {
    /// Reads the value of a `scope` claim. Its paths begin at `base`, a path of the server as
    /// [`normal_path`] returns it.
    pub fn read(text: &str, dialect: Dialect, base: &[u8]) -> Scopes {
        let mut granted = Vec::new();
        for scope in text.split(' ') {
            let Some((word, path)) = scope.split_once(':') else { continue };
            let acts = dialect.acts(word);
            let Some(path) = normal_path(path).filter(|_| !acts.is_empty()) else { continue };
            let path = match (base, path.as_slice()) {
                (b"", _) => path,
                (_, b"") => base.to_vec(),
                _ => [base, &path].join(&b'/'),
            };
            granted.extend(acts.iter().map(|&act| (act, path.clone())));
        }
        Scopes { granted }
    }

    /// Returns what permits reading at and below a path, which has no slashes at its ends.
    pub fn to_read(path: &[u8]) -> Scopes {
        Scopes { granted: vec![(Act::Read, path.to_vec())] }
    }

    /// Whether this may be done with `path`, which has no slashes at its ends.
    pub fn permit(&self, act: Act, path: &[u8]) -> bool {
        self.granted.iter().any(|(granted, above)| *granted == act && covers(above, path))
    }

    /// Whether a folder may be made at `path`: also one on the way to where something may be created.
    pub fn permit_folder(&self, path: &[u8]) -> bool {
        let leads_there =
            |(act, below): &(Act, Vec<u8>)| *act == Act::Create && covers(path, below);
        self.permit(Act::Create, path) || self.granted.iter().any(leads_there)
    }

    /// Whether this may be done with any path.
    pub fn permit_somewhere(&self, act: Act) -> bool {
        self.granted.iter().any(|(granted, _)| *granted == act)
    }
}

/// As a `scope` claim of the WLCG, whose paths begin at the server's `/`.
impl std::fmt::Display for Scopes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Who may modify may create too.
        let is_implied = |(act, path): &&(Act, Vec<u8>)| {
            *act == Act::Create
                && self.granted.iter().any(|(act, other)| *act == Act::Modify && other == path)
        };
        let granted = self.granted.iter().filter(|granted| !is_implied(granted));
        for (at, (act, path)) in granted.enumerate() {
            let word = match act {
                Act::Read => "read",
                Act::Create => "create",
                Act::Modify => "modify",
            };
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}storage.{word}:/{}", percent::encode(path))?;
        }
        Ok(())
    }
}

/// Returns an absolute path as a server has it: decoded, without empty names and `.`, and without
/// slashes at its ends. `None` if it is relative, has `..`, or a name that no file can have.
pub fn normal_path(path: &str) -> Option<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    for name in path.strip_prefix('/')?.split('/') {
        let name = percent::decode(name);
        match name.as_slice() {
            b"" | b"." => {}
            // An issuer that compares beginnings alone could be tricked.
            b".." => return None,
            odd if odd.contains(&b'/') || odd.contains(&0) => return None,
            _ => names.push(name),
        }
    }
    Some(names.join(&b'/'))
}

/// Whether `path` is `above`, or lies below it.
fn covers(above: &[u8], path: &[u8]) -> bool {
    let Some(rest) = path.strip_prefix(above) else { return false };
    above.is_empty() || rest.is_empty() || rest.starts_with(b"/")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_scope_is_for_its_path_and_what_lies_below() {
        let wlcg = |text| Scopes::read(text, Dialect::Wlcg, b"");
        for (text, path, expected) in [
            ("storage.read:/", "", true),
            ("storage.read:/", "a/b", true),
            ("storage.read:/a", "a", true),
            ("storage.read:/a", "a/b", true),
            ("storage.read:/a/", "a/b", true),
            ("storage.read://a//", "a", true),
            ("storage.read:/a", "ab", false),
            ("storage.read:/a", "", false),
            ("storage.read:/a/b", "a", false),
            ("storage.read:/a/../b", "b/c", false),
            ("storage.read:/a/../b", "a", false),
            ("storage.read:/..", "", false),
            ("storage.read:/../a", "a", false),
            ("storage.read:/a/%2e%2e/%2e%2e/b", "b", false),
            ("storage.read:/a%2fb", "a/b", false),
            ("storage.read:/a%00", "a", false),
            ("storage.read:/with%20space", "with space/x", true),
            ("storage.read:a", "a", false),
            ("storage.read:", "", false),
            ("storage.read", "", false),
            ("storage.stage:/a", "a/b", true),
            ("read:/", "a", false),
            ("Storage.Read:/", "a", false),
            ("openid  offline_access compute.read storage.read:/a", "a", true),
            ("storage.create:/ storage.modify:/", "a", false),
        ] {
            assert_eq!(wlcg(text).permit(Act::Read, path.as_bytes()), expected, "{text} {path}");
        }
    }

    #[test]
    fn words_permit_what_their_profile_says() {
        let acts = [Act::Read, Act::Create, Act::Modify];
        for (text, dialect, expected) in [
            ("storage.read:/", Dialect::Wlcg, [true, false, false]),
            ("storage.stage:/", Dialect::Wlcg, [true, false, false]),
            ("storage.create:/", Dialect::Wlcg, [false, true, false]),
            ("storage.modify:/", Dialect::Wlcg, [false, true, true]),
            ("read:/", Dialect::SciTokens, [true, false, false]),
            ("write:/", Dialect::SciTokens, [false, true, true]),
            ("storage.modify:/", Dialect::SciTokens, [false; 3]),
            ("write:/", Dialect::Wlcg, [false; 3]),
            ("", Dialect::Wlcg, [false; 3]),
        ] {
            let scopes = Scopes::read(text, dialect, b"");
            assert_eq!(acts.map(|act| scopes.permit(act, b"x")), expected, "{text}");
            assert_eq!(acts.map(|act| scopes.permit_somewhere(act)), expected, "{text}");
        }
    }

    #[test]
    fn paths_begin_at_the_base_of_their_issuer_and_never_leave_it() {
        let base = normal_path("/cms/").unwrap();
        let may_read = |text: &str, path: &str| {
            Scopes::read(text, Dialect::Wlcg, &base).permit(Act::Read, path.as_bytes())
        };
        assert!(may_read("storage.read:/", "cms") && may_read("storage.read:/", "cms/a"));
        assert!(!may_read("storage.read:/", "") && !may_read("storage.read:/", "cmsx"));
        assert!(may_read("storage.read:/a", "cms/a/b") && !may_read("storage.read:/a", "a"));
        assert!(!may_read("storage.read:/../atlas", "atlas"));
        assert!(!may_read("storage.read:/../cms/a", "cms/a"));
    }

    #[test]
    fn folders_on_the_way_to_what_may_be_created_may_be_made() {
        let scopes = Scopes::read("storage.create:/a/b storage.read:/c", Dialect::Wlcg, b"");
        for (path, expected) in [
            ("a", true),
            ("a/b", true),
            ("a/b/c", true),
            ("a/x", false),
            ("ab", false),
            ("c", false),
        ] {
            assert_eq!(scopes.permit_folder(path.as_bytes()), expected, "{path}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_down_permits_the_same(text in "((storage.(read|create|modify)|read|write):/[a%/ é]{0,9} ?){0,4}") {
            for dialect in [Dialect::Wlcg, Dialect::SciTokens] {
                let scopes = Scopes::read(&text, dialect, b"base");
                let again = Scopes::read(&scopes.to_string(), Dialect::Wlcg, b"");
                for path in ["", "base", "base/a", "base/a/a", "base/%", "base/é"] {
                    for act in [Act::Read, Act::Create, Act::Modify] {
                        prop_assert_eq!(
                            scopes.permit(act, path.as_bytes()),
                            again.permit(act, path.as_bytes())
                        );
                    }
                }
            }
        }

        #[test]
        fn whatever_is_written_permits_nothing_outside_of_the_base(text in ".{0,40}", path in "[a/.]{0,8}") {
            let scopes = Scopes::read(&format!("storage.read:/{text}"), Dialect::Wlcg, b"base");
            if let Some(path) = normal_path(&format!("/{path}")) {
                prop_assert!(!scopes.permit(Act::Read, &path));
            }
        }
    }
}
