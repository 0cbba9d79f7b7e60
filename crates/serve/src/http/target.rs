//! The target of a request: a path below the root, and a query.

/// The target of a request, checked and decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Components divided by `/`, no `/` at either end; empty for the root. Not always text.
    pub path: Vec<u8>,
    /// The path ended in `/` (as that of the root always does): a folder is meant.
    pub is_folder: bool,
    /// Names and values, decoded, in order.
    pub query: Vec<(String, String)>,
}

/// Why a target names nothing that could be here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("the address is neither a path nor a complete URL")]
    Form,
    #[error("the address has a '%' that two hexadecimal digits do not follow")]
    Escape,
    #[error("the path leads out of the root")]
    Leaves,
    #[error("a component of the path is not a valid name")]
    Component,
}

impl Target {
    /// Reads the target of a request line: `/path?query`, `http://host/path?query` or `*`.
    pub fn parse(target: &str) -> Result<Target, TargetError> {
        let target = match target {
            "*" => "/",
            _ if target.starts_with('/') => target,
            _ => {
                let after_scheme = target.split_once("://").ok_or(TargetError::Form)?.1;
                let path_at = after_scheme.find(['/', '?']);
                path_at.map_or("/", |at| &after_scheme[at..])
            }
        };
        let target = target.split('#').next().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut components: Vec<Vec<u8>> = Vec::new();
        let mut is_folder = true;
        for component in path.split('/') {
            let component = decode(component, false)?;
            is_folder = true;
            match component.as_slice() {
                b"" | b"." => {}
                b".." => {
                    components.pop().ok_or(TargetError::Leaves)?;
                }
                name if name.contains(&0) || name.contains(&b'/') => {
                    return Err(TargetError::Component);
                }
                _ => {
                    components.push(component);
                    is_folder = false;
                }
            }
        }
        let query = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((text(decode(name, true)?), text(decode(value, true)?)))
        });
        let query = query.collect::<Result<_, TargetError>>()?;
        Ok(Target { path: components.join(&b'/'), is_folder, query })
    }

    /// The value of the first parameter of this name.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

fn decode(text: &str, plus_is_space: bool) -> Result<Vec<u8>, TargetError> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let mut digit = || {
                    let digit = char::from(bytes.next().ok_or(TargetError::Escape)?);
                    digit.to_digit(16).ok_or(TargetError::Escape)
                };
                (digit()? * 16 + digit()?) as u8
            }
            b'+' if plus_is_space => b' ',
            other => other,
        });
    }
    Ok(out)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use swath_formats::percent::encode;

    use super::*;

    #[test]
    fn paths_are_decoded_once_and_stay_below() {
        let path = |target| {
            let target = Target::parse(target).unwrap();
            (String::from_utf8_lossy(&target.path).into_owned(), target.is_folder)
        };
        for (target, expected, is_folder) in [
            ("/", "", true),
            ("*", "", true),
            ("/a/b", "a/b", false),
            ("/a/b/", "a/b", true),
            ("//a//b", "a/b", false),
            ("/a/./b/../c", "a/c", false),
            ("/a/..", "", true),
            ("/a/b/.", "a/b", true),
            ("/with%20space%2521", "with space%21", false),
            ("/a?x=/../..", "a", false),
            ("/a#part", "a", false),
            ("http://host:80/a/b?x", "a/b", false),
            ("http://host", "", true),
            ("http://host?x=1", "", true),
        ] {
            assert_eq!(path(target), (expected.to_owned(), is_folder), "{target}");
        }
        assert_eq!(Target::parse("/%ff%FE").unwrap().path, [0xff, 0xfe]);
        for (target, error) in [
            ("/..", TargetError::Leaves),
            ("/a/../../b", TargetError::Leaves),
            ("/%2e%2e/b", TargetError::Leaves),
            ("/a%2f..%2f..%2fetc", TargetError::Component),
            ("/a%00b", TargetError::Component),
            ("/a%2", TargetError::Escape),
            ("/a%", TargetError::Escape),
            ("/a%zz", TargetError::Escape),
            ("/a%+1", TargetError::Escape),
            ("a/b", TargetError::Form),
            ("", TargetError::Form),
        ] {
            assert_eq!(Target::parse(target), Err(error), "{target}");
        }
    }

    #[test]
    fn parameters_are_read() {
        let target = Target::parse("/a?swath=index&x&y=1+2%263&swath=2&&").unwrap();
        assert_eq!(target.parameter("swath"), Some("index"));
        assert_eq!(target.parameter("x"), Some(""));
        assert_eq!(target.parameter("y"), Some("1 2&3"));
        assert_eq!(target.parameter("z"), None);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(names in prop::collection::vec(prop::collection::vec(1..=255u8, 1..9), 1..5)) {
            let names: Vec<Vec<u8>> = names
                .into_iter()
                .map(|name| name.into_iter().filter(|&byte| byte != b'/').collect::<Vec<u8>>())
                .filter(|name| !name.is_empty() && name != b"." && name != b"..")
                .collect();
            let path = names.join(&b'/');
            let target = Target::parse(&format!("/{}", encode(&path))).unwrap();
            prop_assert_eq!(target.path, path);
        }

        #[test]
        fn no_target_leads_out(text in "\\PC*", dots in "(/|%2[eEfF]|[.]|a|%00|\\?){0,12}") {
            for target in [text, format!("/{dots}")] {
                if let Ok(target) = Target::parse(&target) {
                    for name in target.path.split(|&byte| byte == b'/') {
                        prop_assert!(name != b".." && name != b"." && !name.contains(&0));
                        prop_assert!(!name.is_empty() || target.path.is_empty());
                    }
                }
            }
        }
    }
}
