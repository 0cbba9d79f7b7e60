//! What is copied where, by the places of the command line.

use std::path::{Path, PathBuf};

use url::Url;

use super::ssh::Remote;

/// One copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// What lies in a folder, from its replicas.
    Fetch {
        /// Addresses that end in `/`.
        from: Vec<Url>,
        /// What they are to lie in.
        to: PathBuf,
    },
    /// A folder or a file, whichever has this address, under its own name.
    Named {
        /// Without `/` at its end.
        from: Url,
        /// The folder in which it is to lie.
        to: PathBuf,
        /// A file may have this for its name, if no folder has.
        is_alone: bool,
    },
    /// A folder of ours to a server.
    Send {
        /// What lies in it.
        from: PathBuf,
        /// Ends in `/`.
        to: Url,
    },
    /// A file of ours to a server.
    SendFile {
        /// The file.
        from: PathBuf,
        /// Its address there.
        to: Url,
    },
    /// A tree from a machine that ssh leads to.
    FetchBySsh {
        /// What lies in it.
        from: Remote,
        /// What it is to lie in.
        to: PathBuf,
    },
    /// A folder of ours to such a machine.
    SendBySsh {
        /// What lies in it.
        from: PathBuf,
        /// What it is to lie in.
        to: Remote,
    },
    /// From one folder of ours to another.
    Here {
        /// What lies in it.
        from: PathBuf,
        /// What it is to lie in.
        to: PathBuf,
    },
}

impl Job {
    /// Whether it is somebody else who fetches.
    pub fn sends(&self) -> bool {
        matches!(self, Job::Send { .. } | Job::SendFile { .. } | Job::SendBySsh { .. })
    }

    /// Look whether a copy between two folders of ours makes sense; the error is a sentence.
    pub fn check(&self, deletes: bool) -> Result<(), String> {
        let Job::Here { from, to } = self else { return Ok(()) };
        let whole = from.canonicalize().map_err(|error| format!("{}: {error}", from.display()))?;
        let to_whole = settled(to);
        if to_whole.starts_with(&whole) {
            return Err(format!(
                "{} lies in {}, which would never end",
                to.display(),
                from.display()
            ));
        }
        if deletes && whole.starts_with(&to_whole) {
            let (from, to) = (from.display(), to.display());
            return Err(format!("--delete: {from} lies in {to}, and would be removed"));
        }
        Ok(())
    }
}

/// Read the places: sources, and last where they go. The error is a sentence.
pub fn jobs(places: &[String]) -> Result<Vec<Job>, String> {
    let Some((destination, sources)) = places.split_last() else {
        return Err("say where from and where to".to_owned());
    };
    if let [source] = sources {
        return Ok(vec![one(source, destination, true)?]);
    }
    let contents = sources.iter().filter(|source| means_content(source)).count();
    if contents == 0 {
        let mut names: Vec<String> = Vec::new();
        for source in sources {
            let name = own_name(source)?;
            if names.contains(&name) {
                return Err(format!("two of the sources are called '{name}'"));
            }
            names.push(name);
        }
        return sources.iter().map(|source| one(source, destination, false)).collect();
    }
    if contents < sources.len() {
        let what = "with '/' at their ends sources are replicas of one tree, without they are copied one after another";
        return Err(format!("{what}: not both at once"));
    }
    if let Some(other) = sources.iter().find(|source| !source.contains("://")) {
        return Err(format!(
            "{other}: only addresses of servers can be replicas; without '/' at their ends folders are copied one after another"
        ));
    }
    if !is_here(destination) {
        return Err("one of the two places must be here".to_owned());
    }
    let from = sources.iter().map(|text| crate::net::parse_url(text)).collect::<Result<_, _>>()?;
    Ok(vec![Job::Fetch { from, to: PathBuf::from(destination) }])
}

fn one(source: &str, destination: &str, is_alone: bool) -> Result<Job, String> {
    let nobody = || Err("one of the two places must be here".to_owned());
    if source.contains("://") {
        if !is_here(destination) {
            return nobody();
        }
        let from = crate::net::parse_url(source)?;
        let to = PathBuf::from(destination);
        return Ok(match means_content(source) {
            true => Job::Fetch { from: vec![from], to },
            false => Job::Named { from, to, is_alone },
        });
    }
    if let Some(mut from) = Remote::parse(source) {
        if !is_here(destination) {
            return nobody();
        }
        let mut to = PathBuf::from(destination);
        if !means_content(source) {
            to.push(own_name(source)?);
            from.path.push('/');
        }
        return Ok(Job::FetchBySsh { from, to });
    }
    let from = PathBuf::from(source);
    if from.is_file() {
        return file(source, destination, is_alone);
    }
    let name = if means_content(source) { None } else { Some(own_name(source)?) };
    if destination.contains("://") {
        let mut to = crate::net::parse_url(destination)?;
        if let Ok(mut segments) = to.path_segments_mut() {
            segments.pop_if_empty();
            if let Some(name) = &name {
                segments.push(name);
            }
            segments.push("");
        }
        return Ok(Job::Send { from, to });
    }
    if let Some(mut to) = Remote::parse(destination) {
        if let Some(name) = &name {
            if !to.path.is_empty() && !to.path.ends_with('/') {
                to.path.push('/');
            }
            to.path.push_str(name);
        }
        return Ok(Job::SendBySsh { from, to });
    }
    let mut to = PathBuf::from(destination);
    if let Some(name) = name {
        to.push(name);
    }
    Ok(Job::Here { from, to })
}

/// A single file of ours: into a folder, or it has that name.
fn file(source: &str, destination: &str, is_alone: bool) -> Result<Job, String> {
    if !destination.contains("://") {
        return Err(format!(
            "{source}: it is a file, and single files are only sent to addresses of servers"
        ));
    }
    let mut to = crate::net::parse_url(destination)?;
    if !is_alone || to.path().ends_with('/') {
        let name = own_name(source)?;
        if let Ok(mut segments) = to.path_segments_mut() {
            segments.pop_if_empty().push(&name);
        }
    }
    Ok(Job::SendFile { from: PathBuf::from(source), to })
}

/// Whether what lies in a folder is meant, and not the folder itself.
fn means_content(source: &str) -> bool {
    if source.contains("://") {
        let path = crate::net::parse_url(source).map(|url| url.path().to_owned());
        return path.is_ok_and(|path| path.ends_with('/'));
    }
    match Remote::parse(source) {
        Some(remote) => remote.path.is_empty() || remote.path.ends_with('/'),
        None => source.ends_with('/'),
    }
}

pub fn is_here(place: &str) -> bool {
    !place.contains("://") && Remote::parse(place).is_none()
}

/// The name under which a folder is copied.
fn own_name(source: &str) -> Result<String, String> {
    if source.contains("://") {
        let url = crate::net::parse_url(source)?;
        let name = crate::get::name_of(&url).map(|name| name.as_str().to_owned());
        return name.ok_or_else(|| {
            let shown = swath_source::display_name(&url);
            format!("{shown} has no name: put '/' behind it to copy what lies in it")
        });
    }
    if let Some(remote) = Remote::parse(source) {
        return last_name(&remote.path);
    }
    let whole = Path::new(source).canonicalize().map_err(|error| format!("{source}: {error}"))?;
    last_name(&whole.to_string_lossy())
}

fn last_name(path: &str) -> Result<String, String> {
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    match name {
        "" | "." | ".." | "~" => {
            Err(format!("'{path}' has no name: put '/' behind it to copy what lies in it"))
        }
        name => Ok(name.to_owned()),
    }
}

/// A path without links, as far as it is there.
fn settled(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    match there {
        Some((above, whole)) => whole.join(path.strip_prefix(above).unwrap_or(Path::new(""))),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(places: &[&str]) -> Result<Vec<Job>, String> {
        jobs(&places.iter().map(|&place| place.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_slash_at_the_end_means_what_lies_in_it() {
        let url = |text| Url::parse(text).unwrap();
        let to = || PathBuf::from("to");
        assert_eq!(
            of(&["https://a/x/", "https://b/y/", "to"]).unwrap(),
            [Job::Fetch { from: vec![url("https://a/x/"), url("https://b/y/")], to: to() }]
        );
        assert_eq!(
            of(&["https://a/x", "to"]).unwrap(),
            [Job::Named { from: url("https://a/x"), to: to(), is_alone: true }]
        );
        assert_eq!(
            of(&["https://a/x", "https://b/y%20z", "to"]).unwrap(),
            [
                Job::Named { from: url("https://a/x"), to: to(), is_alone: false },
                Job::Named { from: url("https://b/y%20z"), to: to(), is_alone: false },
            ]
        );
        let remote = |path: &str| Remote { host: "h".to_owned(), path: path.to_owned() };
        assert_eq!(
            of(&["h:/x", "h:y", "to"]).unwrap(),
            [
                Job::FetchBySsh { from: remote("/x/"), to: to().join("x") },
                Job::FetchBySsh { from: remote("y/"), to: to().join("y") },
            ]
        );
        let here = std::env::current_dir().unwrap();
        let name = here.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(
            of(&[".", "h:/y"]).unwrap(),
            [Job::SendBySsh { from: ".".into(), to: remote(&format!("/y/{name}")) }]
        );
        assert_eq!(
            of(&["./", "https://a/y"]).unwrap(),
            [Job::Send { from: "./".into(), to: url("https://a/y/") }]
        );
        let file = |to| [Job::SendFile { from: "Cargo.toml".into(), to: url(to) }];
        assert_eq!(of(&["Cargo.toml", "https://a"]).unwrap(), file("https://a/Cargo.toml"));
        assert_eq!(of(&["Cargo.toml", "https://a/y/"]).unwrap(), file("https://a/y/Cargo.toml"));
        assert_eq!(of(&["Cargo.toml", "https://a/y"]).unwrap(), file("https://a/y"));
        assert_eq!(
            of(&["Cargo.toml", "src", "https://a/y"]).unwrap(),
            [
                file("https://a/y/Cargo.toml").into_iter().next().unwrap(),
                Job::Send { from: "src".into(), to: url("https://a/y/src/") },
            ]
        );
        assert_eq!(of(&["./", "to"]).unwrap(), [Job::Here { from: "./".into(), to: to() }]);
        assert_eq!(
            of(&[".", "to"]).unwrap(),
            [Job::Here { from: ".".into(), to: to().join(&name) }]
        );
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        for (places, words) in [
            (&["https://a/x/", "https://b/y/"][..], "must be here"),
            (&["h:x/", "https://b/y/"], "must be here"),
            (&["h:x/", "g:y/"], "must be here"),
            (&["https://a/x", "https://b/x", "to"], "two of the sources are called 'x'"),
            (&["https://a/x/", "https://b/y", "to"], "not both at once"),
            (&["https://a/x/", "./", "to"], "only addresses of servers can be replicas"),
            (&["https://a", "https://b/y/", "h:to"], "must be here"),
            (&["h:..", "to"], "has no name"),
            (&["Cargo.toml", "to"], "it is a file"),
            (&["Cargo.toml", "h:to"], "it is a file"),
        ] {
            let refused = of(places).unwrap_err();
            assert!(refused.contains(words), "{places:?}: {refused}");
        }
    }

    #[test]
    fn a_copy_into_itself_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let at = |path: &str| home.path().join(path);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::os::unix::fs::symlink(at("a"), at("link")).unwrap();
        let check = |from: &str, to: &str, deletes| {
            Job::Here { from: at(from), to: at(to) }.check(deletes).is_ok()
        };
        assert!(check("a", "c/d", true) && check("a", "ab", true) && check("a/b", "a", false));
        assert!(!check("a", "a", false) && !check("a", "a/b/new/er", false));
        assert!(!check("a", "link/new", false), "by way of a link");
        assert!(!check("a/b", "a", true), "the source would be removed");
    }
}
