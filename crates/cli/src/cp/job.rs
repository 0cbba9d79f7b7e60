//! What is copied where, by the places of the command line.

use std::path::{Path, PathBuf};

use crate::exit::Exit;
use crate::failure::Failure;
use swath_formats::percent;
use swath_store::tells_no_sizes;
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
        /// A single file is all that is there; what it is called here.
        single: Option<String>,
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
        /// What lies in it; or a file, if it is sent as a single one.
        from: PathBuf,
        /// Ends in `/`.
        to: Url,
        /// What a single file is called there.
        single: Option<String>,
    },
    /// A file of ours to a server that takes files.
    SendFile {
        /// The file.
        from: PathBuf,
        /// Its address there.
        to: Url,
    },
    /// A tree or a file from a machine that ssh leads to.
    FetchBySsh {
        /// What lies in it.
        from: Remote,
        /// What it is to lie in.
        to: PathBuf,
        /// Where it goes if it turns out to be a file.
        file: Option<Landing>,
    },
    /// A folder or a file of ours to such a machine.
    SendBySsh {
        /// What lies in it, or the file.
        from: PathBuf,
        /// What it is to lie in.
        to: Remote,
        /// It is a file.
        file: Option<Own>,
    },
    /// From one place of ours to another.
    Here {
        /// What lies in it, or a file.
        from: PathBuf,
        /// What it is to lie in.
        to: PathBuf,
        /// What a single file is called there.
        single: Option<String>,
    },
    /// One of several, and it is not there: the others are copied all the same.
    Missing {
        /// What is the matter with it: a sentence.
        words: String,
        /// Where it was to go.
        to: String,
    },
}

/// Where a single file goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Landing {
    /// The folder in which it is to lie.
    pub folder: PathBuf,
    /// Its name there.
    pub name: String,
    /// Which is another one than it has.
    pub is_new_name: bool,
}

/// A file of ours that goes where only the other side can look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Its own name.
    pub name: String,
    /// It is copied alone, and may have the destination for its name.
    pub is_alone: bool,
}

impl Job {
    /// Whether it is somebody else who fetches.
    pub fn sends(&self) -> bool {
        matches!(self, Job::Send { .. } | Job::SendFile { .. } | Job::SendBySsh { .. })
    }

    /// Whether it is known to be a single file, and copied as a tree of one.
    pub fn is_single(&self) -> bool {
        match self {
            Job::Here { single, .. } | Job::Send { single, .. } | Job::Fetch { single, .. } => {
                single.is_some()
            }
            Job::SendBySsh { file, .. } => file.is_some(),
            Job::SendFile { .. } => true,
            _ => false,
        }
    }

    /// Where it goes, for people.
    pub fn destination(&self) -> String {
        match self {
            Job::Fetch { to, .. }
            | Job::Named { to, .. }
            | Job::FetchBySsh { to, .. }
            | Job::Here { to, .. } => to.display().to_string(),
            Job::Send { to, .. } | Job::SendFile { to, .. } => swath_source::display_name(to),
            Job::SendBySsh { to, .. } => format!("{}:{}", to.host, to.path),
            Job::Missing { to, .. } => shown(to),
        }
    }

    /// Look whether what is ours can be read as what it is.
    pub fn check_source(&self) -> Result<(), Failure> {
        if let Job::Missing { words, .. } = self {
            return Err(Failure::new(Exit::Input, words.clone()));
        }
        let (Job::Here { from, .. }
        | Job::Send { from, .. }
        | Job::SendFile { from, .. }
        | Job::SendBySsh { from, .. }) = self
        else {
            return Ok(());
        };
        let Ok(found) = from.metadata() else { return Ok(()) };
        let shown = from.display();
        if !found.is_file() && !found.is_dir() {
            let text = format!("{shown} is a pipe, a socket or a device: these are not copied");
            return Err(Failure::new(Exit::Input, text));
        }
        if tells_no_sizes(from) {
            let text = format!(
                "{shown}: files there do not say how long they are, so they cannot be copied: 'cat' reads them"
            );
            return Err(Failure::new(Exit::Input, text));
        }
        Ok(())
    }

    /// Look whether a copy between two places of ours makes sense.
    pub fn check(&self, deletes: bool) -> Result<(), Failure> {
        let Job::Here { from, to, single } = self else { return Ok(()) };
        if let Some(name) = single {
            let same = (from.canonicalize().ok()).zip(to.join(name).canonicalize().ok());
            return match same {
                Some((from, to)) if from == to => {
                    Err(Failure::usage(format!("{} would be copied onto itself", from.display())))
                }
                _ => Ok(()),
            };
        }
        let whole = from.canonicalize();
        let whole =
            whole.map_err(|error| Failure::usage(format!("{}: {error}", from.display())))?;
        let to_whole = settled(to);
        if to_whole.starts_with(&whole) {
            let (to, from) = (to.display(), from.display());
            return Err(Failure::usage(format!("{to} lies in {from}, which would never end")));
        }
        if deletes && whole.starts_with(&to_whole) {
            let (from, to) = (from.display(), to.display());
            return Err(Failure::usage(format!(
                "--delete: {from} lies in {to}, and would be removed"
            )));
        }
        Ok(())
    }
}

/// Read the places: sources, and last where they go.
pub fn jobs(places: &[String]) -> Result<Vec<Job>, Failure> {
    let Some((destination, sources)) = places.split_last() else {
        return Err(Failure::usage(NO_PLACES));
    };
    if sources.is_empty() {
        return Err(Failure::usage(NO_PLACES));
    }
    if let [source] = sources {
        return Ok(vec![one(source, destination, true)?]);
    }
    let contents = sources.iter().filter(|source| means_content(source)).count();
    if contents == 0 {
        let are_addresses = sources.iter().all(|source| source.contains("://"));
        let mut names: Vec<String> = Vec::new();
        let mut jobs = Vec::new();
        for source in sources {
            let name = match missing(source) {
                None => own_name(source)?,
                Some(_) => String::new(),
            };
            if !name.is_empty() && names.contains(&name) {
                if are_addresses {
                    let hint = "if they are replicas of one tree, put '/' at the end of each";
                    let text = format!("two of the sources are called '{name}': {hint}");
                    return Err(Failure::usage(text));
                }
                let words = format!("{source}: another one before it is called '{name}' too");
                jobs.push(Job::Missing { words, to: destination.clone() });
                continue;
            }
            names.push(name);
            jobs.push(one(source, destination, false)?);
        }
        return Ok(jobs);
    }
    if contents < sources.len() {
        let what = "with '/' at their ends sources are replicas of one tree, without they are copied one after another";
        return Err(Failure::usage(format!("{what}: not both at once")));
    }
    if let Some(other) = sources.iter().find(|source| !source.contains("://")) {
        return Err(Failure::usage(format!(
            "{other}: only addresses of servers can be replicas; without '/' at their ends folders are copied one after another"
        )));
    }
    if !is_here(destination) {
        return Err(Failure::usage(NOT_HERE));
    }
    let from = sources.iter().map(|text| address(text)).collect::<Result<_, _>>()?;
    Ok(vec![Job::Fetch { from, to: PathBuf::from(destination), single: None }])
}

fn one(source: &str, destination: &str, is_alone: bool) -> Result<Job, Failure> {
    let nobody = || Err(Failure::usage(NOT_HERE));
    if source.contains("://") {
        if !is_here(destination) {
            return nobody();
        }
        let from = address(source)?;
        let to = PathBuf::from(destination);
        return Ok(match means_content(source) {
            true => Job::Fetch { from: vec![from], to, single: None },
            false => Job::Named { from, to, is_alone },
        });
    }
    if let Some(from) = Remote::parse(source) {
        if !is_here(destination) {
            return nobody();
        }
        let to = PathBuf::from(destination);
        if means_content(source) {
            return Ok(Job::FetchBySsh { from, to, file: None });
        }
        let own = own_name(source)?;
        let file = landing(destination, &own, is_alone).ok();
        return Ok(Job::FetchBySsh { from, to: to.join(own), file });
    }
    let from = PathBuf::from(source);
    if from.is_file() {
        return file(source, destination, is_alone);
    }
    match missing(source) {
        Some(words) if is_alone => return Err(Failure::new(Exit::Input, words)),
        Some(words) => return Ok(Job::Missing { words, to: destination.to_owned() }),
        None => {}
    }
    let name = if means_content(source) { None } else { Some(own_name(source)?) };
    if destination.contains("://") {
        let mut to = address(destination)?;
        go_below(&mut to, name.as_deref().unwrap_or_default());
        go_below(&mut to, "");
        return Ok(Job::Send { from, to, single: None });
    }
    if let Some(mut to) = Remote::parse(destination) {
        if let Some(name) = &name {
            if !to.path.is_empty() && !to.path.ends_with('/') {
                to.path.push('/');
            }
            to.path.push_str(name);
        }
        return Ok(Job::SendBySsh { from, to, file: None });
    }
    let mut to = PathBuf::from(destination);
    if let Some(name) = name {
        to.push(name);
    }
    Ok(Job::Here { from, to, single: None })
}

/// A single file of ours: into a folder, or it has that name.
fn file(source: &str, destination: &str, is_alone: bool) -> Result<Job, Failure> {
    let from = PathBuf::from(source);
    if let Some(to) = Remote::parse(destination) {
        let file = Own { name: own_name(source)?, is_alone };
        return Ok(Job::SendBySsh { from, to, file: Some(file) });
    }
    if is_here(destination) {
        let Landing { folder, name, .. } = landing(destination, &own_name(source)?, is_alone)?;
        return Ok(Job::Here { from, to: folder, single: Some(name) });
    }
    let mut to = address(destination)?;
    if !is_alone || to.path().ends_with('/') {
        go_below(&mut to, &own_name(source)?);
    }
    Ok(Job::SendFile { from, to })
}

/// Go from the address of a folder to that of a name in it, whatever characters that has; without a
/// name the address ends in `/`.
fn go_below(to: &mut Url, name: &str) {
    let path = format!("{}/{}", to.path().trim_end_matches('/'), percent::encode(name.as_bytes()));
    to.set_path(&path);
}

/// An address as a folder, which a swath server may have, and the name of a file in it.
pub fn in_folder(to: &Url) -> Option<(Url, String)> {
    // Whoever was given an address with a signature can do nothing but what it says.
    let last = to.path_segments()?.next_back().filter(|_| to.query().is_none())?;
    let name = String::from_utf8(percent::decode(last)).ok()?;
    let is_name = !matches!(&*name, "" | "." | "..") && !name.contains(['/', '\0']);
    let mut folder = to.clone();
    folder.path_segments_mut().ok()?.pop().push("");
    is_name.then_some((folder, name))
}

/// Where a single file goes here: into a folder, or it has that name.
fn landing(destination: &str, own: &str, is_alone: bool) -> Result<Landing, Failure> {
    let to = Path::new(destination);
    if !is_alone || destination.ends_with('/') || to.is_dir() {
        return Ok(Landing { folder: to.to_owned(), name: own.to_owned(), is_new_name: false });
    }
    let name = last_name(destination)?;
    let folder = match to.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    Ok(Landing { folder, is_new_name: name != own, name })
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

/// A place as its user may see it again: without what is secret.
pub fn shown(place: &str) -> String {
    if is_here(place) { place.to_owned() } else { crate::net::shown_text(place) }
}

/// What the system says of a place of ours that is not there; a sentence.
fn missing(source: &str) -> Option<String> {
    let found = is_here(source).then(|| Path::new(source).canonicalize());
    found?.err().map(|error| format!("{source}: {error}"))
}

pub fn is_here(place: &str) -> bool {
    !place.contains("://") && Remote::parse(place).is_none()
}

/// The name under which a folder is copied.
fn own_name(source: &str) -> Result<String, Failure> {
    if source.contains("://") {
        return name_there(&address(source)?);
    }
    if let Some(remote) = Remote::parse(source) {
        return last_name(&remote.path);
    }
    // A link is called as it is itself; of "." and ".." only the system knows the names.
    let path = Path::new(source);
    let whole = path.canonicalize();
    let whole = whole.map_err(|error| Failure::usage(format!("{source}: {error}")))?;
    last_name(source).or_else(|_| last_name(&whole.to_string_lossy()))
}

/// What an address calls a thing, with whatever characters its user has written.
pub fn name_there(url: &Url) -> Result<String, Failure> {
    let shown = swath_source::display_name(url);
    let usage = |what: String| Err(Failure::usage(what));
    let last = url.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default();
    let Ok(name) = String::from_utf8(percent::decode(last)) else {
        let hint = "copy the folder in which it lies ('/' at the end)";
        return usage(format!("{shown}: its name is no text: {hint}"));
    };
    match &*name {
        "" | "." | ".." => {
            usage(format!("{shown} has no name: put '/' behind it to copy what lies in it"))
        }
        name if name.contains(['/', '\0']) => {
            usage(format!("{shown}: no file can have that name here"))
        }
        _ => Ok(name),
    }
}

fn last_name(path: &str) -> Result<String, Failure> {
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    match name {
        "" | "." | ".." | "~" => {
            let text = format!("'{path}' has no name: put '/' behind it to copy what lies in it");
            Err(Failure::usage(text))
        }
        name => Ok(name.to_owned()),
    }
}

fn address(text: &str) -> Result<Url, Failure> {
    crate::net::parse_url(text).map_err(Failure::usage)
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

const NO_PLACES: &str = "say where from and where to: swath cp SRC... DST";
const NOT_HERE: &str = "both places are on other machines, and one of the two places must be here: run swath cp on one of those machines, or copy to a folder here first and from there";

#[cfg(test)]
mod tests {
    use super::*;

    fn of(places: &[&str]) -> Result<Vec<Job>, Failure> {
        jobs(&places.iter().map(|&place| place.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_slash_at_the_end_means_what_lies_in_it() {
        let url = |text| Url::parse(text).unwrap();
        let to = || PathBuf::from("to");
        assert_eq!(
            of(&["https://a/x/", "https://b/y/", "to"]).unwrap(),
            [Job::Fetch {
                from: vec![url("https://a/x/"), url("https://b/y/")],
                to: to(),
                single: None
            }]
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
        let landing = |folder: &str, name: &str| {
            let (folder, name) = (folder.into(), name.to_owned());
            Some(Landing { folder, name, is_new_name: false })
        };
        assert_eq!(
            of(&["h:/x", "h:y", "to"]).unwrap(),
            [
                Job::FetchBySsh {
                    from: remote("/x"),
                    to: to().join("x"),
                    file: landing("to", "x")
                },
                Job::FetchBySsh { from: remote("y"), to: to().join("y"), file: landing("to", "y") },
            ]
        );
        let here = std::env::current_dir().unwrap();
        let name = here.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(
            of(&[".", "h:/y"]).unwrap(),
            [Job::SendBySsh { from: ".".into(), to: remote(&format!("/y/{name}")), file: None }]
        );
        assert_eq!(
            of(&["./", "https://a/y"]).unwrap(),
            [Job::Send { from: "./".into(), to: url("https://a/y/"), single: None }]
        );
        let file = |to| [Job::SendFile { from: "Cargo.toml".into(), to: url(to) }];
        assert_eq!(of(&["Cargo.toml", "https://a"]).unwrap(), file("https://a/Cargo.toml"));
        assert_eq!(of(&["Cargo.toml", "https://a/y/"]).unwrap(), file("https://a/y/Cargo.toml"));
        assert_eq!(of(&["Cargo.toml", "https://a/y"]).unwrap(), file("https://a/y"));
        assert_eq!(
            of(&["Cargo.toml", "src", "https://a/y"]).unwrap(),
            [
                file("https://a/y/Cargo.toml").into_iter().next().unwrap(),
                Job::Send { from: "src".into(), to: url("https://a/y/src/"), single: None },
            ]
        );
        assert_eq!(
            of(&["./", "to"]).unwrap(),
            [Job::Here { from: "./".into(), to: to(), single: None }]
        );
        assert_eq!(
            of(&[".", "to"]).unwrap(),
            [Job::Here { from: ".".into(), to: to().join(&name), single: None }]
        );
    }

    #[test]
    fn a_single_file_goes_into_a_folder_or_has_the_name() {
        let here = |to: &str, name: &str| {
            let single = Some(name.to_owned());
            [Job::Here { from: "Cargo.toml".into(), to: to.into(), single }]
        };
        assert_eq!(of(&["Cargo.toml", "src"]).unwrap(), here("src", "Cargo.toml"));
        assert_eq!(of(&["Cargo.toml", "none/"]).unwrap(), here("none/", "Cargo.toml"));
        assert_eq!(of(&["Cargo.toml", "src/other"]).unwrap(), here("src", "other"));
        assert_eq!(of(&["Cargo.toml", "other"]).unwrap(), here(".", "other"));
        assert_eq!(of(&["Cargo.toml", ".."]).unwrap(), here("..", "Cargo.toml"));
        let remote = |path: &str| Remote { host: "h".to_owned(), path: path.to_owned() };
        let own = |is_alone| Some(Own { name: "Cargo.toml".to_owned(), is_alone });
        assert_eq!(
            of(&["Cargo.toml", "h:to"]).unwrap(),
            [Job::SendBySsh { from: "Cargo.toml".into(), to: remote("to"), file: own(true) }]
        );
        // Several are copied into a folder, whether it is there or not.
        assert_eq!(
            of(&["Cargo.toml", "src/main.rs", "to"]).unwrap(),
            [
                here("to", "Cargo.toml")[0].clone(),
                Job::Here {
                    from: "src/main.rs".into(),
                    to: "to".into(),
                    single: Some("main.rs".to_owned())
                },
            ]
        );
        for (to, folder, name) in
            [("src", "src", "b"), ("d/", "d/", "b"), ("d/c", "d", "c"), ("c", ".", "c")]
        {
            let landing =
                Landing { folder: folder.into(), name: name.to_owned(), is_new_name: name != "b" };
            let to_folder = PathBuf::from(to).join("b");
            assert_eq!(
                of(&["h:a/b", to]).unwrap(),
                [Job::FetchBySsh { from: remote("a/b"), to: to_folder, file: Some(landing) }]
            );
        }
    }

    #[test]
    fn of_two_that_are_called_the_same_the_second_is_left_and_named() {
        let jobs = of(&["Cargo.toml", "./Cargo.toml", "src/main.rs", "to"]).unwrap();
        let [Job::Here { .. }, Job::Missing { words, .. }, Job::Here { .. }] = &jobs[..] else {
            panic!("{jobs:?}");
        };
        assert!(words.contains("./Cargo.toml: another one before it"), "{words}");
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
        ] {
            let refused = of(places).unwrap_err();
            assert!(refused.what.contains(words), "{places:?}: {refused}");
        }
    }

    #[test]
    fn a_copy_into_itself_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let at = |path: &str| home.path().join(path);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::os::unix::fs::symlink(at("a"), at("link")).unwrap();
        let check = |from: &str, to: &str, deletes| {
            Job::Here { from: at(from), to: at(to), single: None }.check(deletes).is_ok()
        };
        assert!(check("a", "c/d", true) && check("a", "ab", true) && check("a/b", "a", false));
        assert!(!check("a", "a", false) && !check("a", "a/b/new/er", false));
        assert!(!check("a", "link/new", false), "by way of a link");
        assert!(!check("a/b", "a", true), "the source would be removed");
        std::fs::write(at("a/file"), "x").unwrap();
        std::os::unix::fs::symlink("file", at("a/to")).unwrap();
        let check = |to: &str, name: &str| {
            let single = Some(name.to_owned());
            Job::Here { from: at("a/file"), to: at(to), single }.check(false).is_ok()
        };
        assert!(check("a", "other") && check("a/b", "file"));
        assert!(!check("a", "file") && !check("link", "file") && !check("a", "to"));
    }
}
