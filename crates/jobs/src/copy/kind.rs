//! Kinds of copies, by source and destination.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use swath_formats::percent;
use swath_source::display_name;
use swath_store::tells_no_sizes;
use url::Url;

use super::error::{LocationError, MissingSource};
use crate::address::{Address, AddressError, parse_url, shown_text};
use crate::ssh::Remote;

/// Source and destination of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CopyKind {
    /// The contents of a folder on servers.
    Fetch {
        /// The addresses of its replicas, which end in `/`.
        from: Vec<Address>,
        /// The destination folder.
        to: PathBuf,
    },
    /// The folder or file at an address, under its own name.
    FetchNamed {
        /// Its address, without final `/`.
        from: Address,
        /// The destination folder.
        to: PathBuf,
        /// Whether a file may get the name `to`, if that is not a folder.
        is_alone: bool,
    },
    /// A local folder to a server.
    Send {
        /// The folder.
        from: PathBuf,
        /// The address of the destination folder, which ends in `/`.
        to: Address,
    },
    /// A local file to a server.
    SendFile {
        /// The file.
        from: PathBuf,
        /// Its destination address.
        to: Address,
    },
    /// A folder or a file on a host reached by ssh.
    FetchBySsh {
        /// Its location.
        from: Remote,
        /// The destination folder for its contents.
        to: PathBuf,
        /// The destination if it turns out to be a file.
        file: Option<FileDestination>,
    },
    /// A local folder or file to a host reached by ssh.
    SendBySsh {
        /// The folder or the file.
        from: PathBuf,
        /// The destination folder.
        to: Remote,
        /// The name of the file, if it is one.
        file: Option<LocalFile>,
    },
    /// From servers to another server, which fetches from them.
    ThirdParty {
        /// The addresses of replicas of one folder, which end in `/`; or one address without final `/`.
        from: Vec<Address>,
        /// The address of the destination: a folder if it ends in `/`.
        to: Address,
        /// Whether a file may get the name `to`, if that is not a folder.
        is_alone: bool,
    },
    /// Between two other machines, at least one of them reached by ssh.
    BetweenBySsh {
        /// The source; a folder's contents if it ends in `/`.
        from: Place,
        /// The destination.
        to: Place,
        /// Whether a file may get the name `to`, if that is not a folder.
        is_alone: bool,
    },
    /// A copy that a server carries out already.
    Attach {
        /// Its name there.
        job: String,
        /// The server.
        at: Address,
    },
    /// A local copy.
    Local {
        /// The folder or the file.
        from: PathBuf,
        /// The destination folder for its contents, or for the file.
        to: PathBuf,
        /// The destination name of a single file.
        single: Option<String>,
    },
}

/// A place on another machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Place {
    /// On a server.
    Server(Address),
    /// On a host reached by ssh.
    Ssh(Remote),
}

impl Place {
    /// Reads a place; `None` for one on this machine.
    fn parse(text: &str) -> Result<Option<Place>, LocationError> {
        if text.contains("://") {
            return Ok(Some(Place::Server(address(text)?)));
        }
        Ok(Remote::parse(text).map(Place::Ssh))
    }
}

/// The destination of a single file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileDestination {
    /// Its folder.
    pub folder: PathBuf,
    /// Its name.
    pub name: String,
    /// Whether the name differs from that of the source.
    pub is_new_name: bool,
}

/// A local file that is sent by ssh; only the remote side knows its destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalFile {
    /// Its own name.
    pub name: String,
    /// Whether it is the only source, and may get the name of the destination.
    pub is_alone: bool,
}

impl CopyKind {
    /// Returns the folder that the user named, if the copy goes into a folder in it whose name comes from
    /// the source: a link of that name is not followed.
    pub fn beneath(&self) -> Option<PathBuf> {
        let above = |to: &Path| to.parent().map(Path::to_owned);
        match self {
            CopyKind::FetchNamed { to, .. } => Some(to.clone()),
            CopyKind::FetchBySsh { from, to, .. } => {
                let is_content = from.path.is_empty() || from.path.ends_with('/');
                above(to).filter(|_| !is_content)
            }
            CopyKind::Local { from, to, single: None } => {
                let is_content = from.as_os_str().as_encoded_bytes().ends_with(b"/");
                above(to).filter(|_| !is_content)
            }
            _ => None,
        }
    }

    /// Whether the address of its first source says that this is a WebDAV server (`davs://`).
    pub fn is_webdav(&self) -> bool {
        match self {
            CopyKind::Fetch { from, .. } | CopyKind::ThirdParty { from, .. } => {
                from.first().is_some_and(Address::is_webdav)
            }
            CopyKind::FetchNamed { from, .. } => from.is_webdav(),
            _ => false,
        }
    }

    /// Whether this machine sends.
    pub fn sends(&self) -> bool {
        matches!(
            self,
            CopyKind::Send { .. } | CopyKind::SendFile { .. } | CopyKind::SendBySsh { .. }
        )
    }

    /// Whether it is sent to a running server.
    pub fn sends_to_server(&self) -> bool {
        matches!(self, CopyKind::Send { .. } | CopyKind::SendFile { .. })
    }

    /// Whether it is known to be a single file.
    pub fn is_single(&self) -> bool {
        match self {
            CopyKind::Local { single, .. } => single.is_some(),
            CopyKind::SendBySsh { file, .. } => file.is_some(),
            CopyKind::SendFile { .. } => true,
            _ => false,
        }
    }

    /// Returns the destination without secrets.
    pub fn destination(&self) -> String {
        match self {
            CopyKind::Fetch { to, .. }
            | CopyKind::FetchNamed { to, .. }
            | CopyKind::FetchBySsh { to, .. }
            | CopyKind::Local { to, .. } => to.display().to_string(),
            CopyKind::Send { to, .. }
            | CopyKind::SendFile { to, .. }
            | CopyKind::ThirdParty { to, .. }
            | CopyKind::Attach { at: to, .. } => {
                to.url().map_or_else(|_| format!("{to:?}"), |url| display_name(&url))
            }
            CopyKind::BetweenBySsh { to: Place::Server(to), .. } => {
                to.url().map_or_else(|_| format!("{to:?}"), |url| display_name(&url))
            }
            CopyKind::SendBySsh { to, .. } | CopyKind::BetweenBySsh { to: Place::Ssh(to), .. } => {
                format!("{}:{}", to.host, to.path)
            }
        }
    }

    /// Checks that a local source can be copied.
    ///
    /// # Errors
    /// [`LocationError::Special`] or [`LocationError::NoSizes`].
    pub fn check_source(&self) -> Result<(), LocationError> {
        let (CopyKind::Local { from, .. }
        | CopyKind::Send { from, .. }
        | CopyKind::SendFile { from, .. }
        | CopyKind::SendBySsh { from, .. }) = self
        else {
            return Ok(());
        };
        let Ok(found) = from.metadata() else { return Ok(()) };
        if !found.is_file() && !found.is_dir() {
            return Err(LocationError::Special(from.clone()));
        }
        match tells_no_sizes(from) {
            true => Err(LocationError::NoSizes(from.clone())),
            false => Ok(()),
        }
    }

    /// Checks a local copy.
    ///
    /// # Errors
    /// [`LocationError`].
    pub fn check(&self, deletes: bool) -> Result<(), LocationError> {
        let CopyKind::Local { from, to, single } = self else { return Ok(()) };
        if let Some(name) = single {
            let same = (from.canonicalize().ok()).zip(to.join(name).canonicalize().ok());
            return match same {
                Some((own, to)) if own == to => Err(LocationError::OntoItself(from.clone())),
                _ => Ok(()),
            };
        }
        let whole = from.canonicalize();
        let missing = |error| LocationError::Missing { place: from.display().to_string(), error };
        let whole = whole.map_err(missing)?;
        let to_whole = settled(to);
        if to_whole.starts_with(&whole) {
            return Err(LocationError::IntoItself { from: from.clone(), to: to.clone() });
        }
        match deletes && whole.starts_with(&to_whole) {
            true => Err(LocationError::WouldRemoveSource { from: from.clone(), to: to.clone() }),
            false => Ok(()),
        }
    }
}

/// Reads the sources and the destination of a command. Several sources are one copy if they are replicas
/// of one folder, else one copy each; one of several that is missing is a separate error.
///
/// # Errors
/// [`LocationError`].
pub fn copies(places: &[String]) -> Result<Vec<Result<CopyKind, MissingSource>>, LocationError> {
    let Some((destination, sources)) = places.split_last() else {
        return Err(LocationError::NoPlaces);
    };
    if let [source] = sources {
        return Ok(vec![Ok(one(source, destination, true)?)]);
    }
    if sources.is_empty() {
        return Err(LocationError::NoPlaces);
    }
    let contents = sources.iter().filter(|source| means_content(source)).count();
    if contents == 0 {
        return several(sources, destination);
    }
    if contents < sources.len() {
        return Err(LocationError::ReplicasAndOthers);
    }
    if let Some(place) = sources.iter().find(|source| !source.contains("://")) {
        return Err(LocationError::NoReplica(place.clone()));
    }
    let from = sources.iter().map(|text| address(text)).collect::<Result<_, _>>()?;
    if destination.contains("://") {
        return Ok(vec![Ok(third_party(from, destination, true)?)]);
    }
    if !is_here(destination) {
        return Err(LocationError::ReplicasBySsh);
    }
    Ok(vec![Ok(CopyKind::Fetch { from, to: PathBuf::from(destination) })])
}

/// Reads several sources, which keep their names.
fn several(
    sources: &[String],
    destination: &str,
) -> Result<Vec<Result<CopyKind, MissingSource>>, LocationError> {
    let are_addresses = sources.iter().all(|source| source.contains("://"));
    let mut names: Vec<String> = Vec::new();
    let mut copies = Vec::new();
    for source in sources {
        let to = shown(destination);
        if let Some(error) = missing(source) {
            let why = LocationError::Missing { place: source.clone(), error };
            copies.push(Err(MissingSource { why, to }));
            continue;
        }
        let name = own_name(source)?;
        if names.contains(&name) {
            if are_addresses {
                return Err(LocationError::AddressesAlike(name));
            }
            let why = LocationError::NameTwice { place: source.clone(), name };
            copies.push(Err(MissingSource { why, to }));
            continue;
        }
        names.push(name);
        copies.push(Ok(one(source, destination, false)?));
    }
    Ok(copies)
}

fn one(source: &str, destination: &str, is_alone: bool) -> Result<CopyKind, LocationError> {
    let places = (Place::parse(source)?, Place::parse(destination)?);
    if let (Some(from), Some(to)) = places
        && [&from, &to].into_iter().any(|place| matches!(place, Place::Ssh(_)))
    {
        return Ok(CopyKind::BetweenBySsh { from, to, is_alone });
    }
    if source.contains("://") {
        let from = address(source)?;
        if destination.contains("://") {
            return third_party(vec![from], destination, is_alone);
        }
        let to = PathBuf::from(destination);
        return Ok(match means_content(source) {
            true => CopyKind::Fetch { from: vec![from], to },
            false => CopyKind::FetchNamed { from, to, is_alone },
        });
    }
    if let Some(from) = Remote::parse(source) {
        let to = PathBuf::from(destination);
        if means_content(source) {
            return Ok(CopyKind::FetchBySsh { from, to, file: None });
        }
        let own = own_name(source)?;
        let file = landing(destination, &own, is_alone).ok();
        return Ok(CopyKind::FetchBySsh { from, to: to.join(own), file });
    }
    let from = PathBuf::from(source);
    if from.is_file() {
        return file(source, destination, is_alone);
    }
    if let Some(error) = missing(source) {
        return Err(LocationError::Missing { place: source.to_owned(), error });
    }
    let name = if means_content(source) { None } else { Some(own_name(source)?) };
    if destination.contains("://") {
        let mut to = parse_url(destination)?;
        go_below(&mut to, name.as_deref().unwrap_or_default());
        go_below(&mut to, "");
        return Ok(CopyKind::Send { from, to: Address::new(to) });
    }
    if let Some(mut to) = Remote::parse(destination) {
        if let Some(name) = &name {
            if !to.path.is_empty() && !to.path.ends_with('/') {
                to.path.push('/');
            }
            to.path.push_str(name);
        }
        return Ok(CopyKind::SendBySsh { from, to, file: None });
    }
    let mut to = PathBuf::from(destination);
    if let Some(name) = name {
        to.push(name);
    }
    Ok(CopyKind::Local { from, to, single: None })
}

/// Returns a copy between servers. The contents of folders go into a folder.
fn third_party(
    from: Vec<Address>,
    destination: &str,
    is_alone: bool,
) -> Result<CopyKind, LocationError> {
    let mut to = parse_url(destination)?;
    let is_content = from.iter().all(|from| from.is_folder());
    if (is_content || !is_alone) && !to.path().ends_with('/') {
        to.set_path(&format!("{}/", to.path()));
    }
    Ok(CopyKind::ThirdParty { from, to: Address::new(to), is_alone })
}

/// Returns the copy of a local file: into a folder, or to a file name.
fn file(source: &str, destination: &str, is_alone: bool) -> Result<CopyKind, LocationError> {
    let from = PathBuf::from(source);
    if let Some(to) = Remote::parse(destination) {
        let file = LocalFile { name: own_name(source)?, is_alone };
        return Ok(CopyKind::SendBySsh { from, to, file: Some(file) });
    }
    if is_here(destination) {
        let FileDestination { folder, name, .. } =
            landing(destination, &own_name(source)?, is_alone)?;
        return Ok(CopyKind::Local { from, to: folder, single: Some(name) });
    }
    let mut to = parse_url(destination)?;
    if !is_alone || to.path().ends_with('/') {
        go_below(&mut to, &own_name(source)?);
    }
    Ok(CopyKind::SendFile { from, to: Address::new(to) })
}

/// Appends an encoded name to the address of a folder; an empty name adds the final `/`.
pub fn go_below(to: &mut Url, name: &str) {
    let path = format!("{}/{}", to.path().trim_end_matches('/'), percent::encode(name.as_bytes()));
    to.set_path(&path);
}

/// Splits an address into a folder and the name of a file in it.
pub fn in_folder(to: &Url) -> Option<(Url, String)> {
    // An address with a query, such as a signature, cannot be changed.
    let last = to.path_segments()?.next_back().filter(|_| to.query().is_none())?;
    let name = String::from_utf8(percent::decode(last)).ok()?;
    let is_name = !matches!(&*name, "" | "." | "..") && !name.contains(['/', '\0']);
    let mut folder = to.clone();
    folder.path_segments_mut().ok()?.pop().push("");
    is_name.then_some((folder, name))
}

/// Returns the local destination of a single file: in a folder, or a file name.
fn landing(destination: &str, own: &str, is_alone: bool) -> Result<FileDestination, LocationError> {
    let to = Path::new(destination);
    if !is_alone || destination.ends_with('/') || to.is_dir() {
        return Ok(FileDestination {
            folder: to.to_owned(),
            name: own.to_owned(),
            is_new_name: false,
        });
    }
    let name = last_name(destination)?;
    let folder = match to.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    Ok(FileDestination { folder, is_new_name: name != own, name })
}

/// Whether a source means the contents of a folder.
fn means_content(source: &str) -> bool {
    if source.contains("://") {
        let path = parse_url(source).map(|url| url.path().to_owned());
        return path.is_ok_and(|path| path.ends_with('/'));
    }
    match Remote::parse(source) {
        Some(remote) => remote.path.is_empty() || remote.path.ends_with('/'),
        None => source.ends_with('/'),
    }
}

/// Returns a location without secrets.
pub fn shown(place: &str) -> String {
    if is_here(place) { place.to_owned() } else { shown_text(place) }
}

/// Returns the error of a missing local path.
fn missing(source: &str) -> Option<io::Error> {
    is_here(source).then(|| Path::new(source).canonicalize())?.err()
}

/// Whether a location is local.
pub fn is_here(place: &str) -> bool {
    !place.contains("://") && Remote::parse(place).is_none()
}

/// Returns the name under which a source is copied.
fn own_name(source: &str) -> Result<String, LocationError> {
    if source.contains("://") {
        return name_there(&parse_url(source)?);
    }
    if let Some(remote) = Remote::parse(source) {
        return last_name(&remote.path);
    }
    // A link keeps its own name; the names of "." and ".." come from the system.
    let whole = Path::new(source).canonicalize();
    let whole =
        whole.map_err(|error| LocationError::Missing { place: source.to_owned(), error })?;
    last_name(source).or_else(|_| last_name(&whole.to_string_lossy()))
}

/// Returns the decoded last part of an address.
pub fn name_there(url: &Url) -> Result<String, LocationError> {
    let place = || display_name(url);
    let last = url.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default();
    let Ok(name) = String::from_utf8(percent::decode(last)) else {
        return Err(LocationError::NoText(place()));
    };
    match &*name {
        "" | "." | ".." => Err(LocationError::NoName(place())),
        name if name.contains(['/', '\0']) => Err(LocationError::BadName(place())),
        _ => Ok(name),
    }
}

fn last_name(path: &str) -> Result<String, LocationError> {
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    match name {
        "" | "." | ".." | "~" => Err(LocationError::NoName(format!("'{path}'"))),
        name => Ok(name.to_owned()),
    }
}

/// Checks an address.
fn address(text: &str) -> Result<Address, AddressError> {
    parse_url(text).map(Address::new)
}

/// Resolves the links of a path, as far as it exists.
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

    fn of(places: &[&str]) -> Result<Vec<CopyKind>, LocationError> {
        let places: Vec<String> = places.iter().map(|&place| place.to_owned()).collect();
        Ok(copies(&places)?.into_iter().map(|copy| copy.unwrap()).collect())
    }

    #[test]
    fn a_slash_at_the_end_means_what_lies_in_it() {
        let url = |text: &str| Address::new(text);
        let to = || PathBuf::from("to");
        assert_eq!(
            of(&["https://a/x/", "https://b/y/", "to"]).unwrap(),
            [CopyKind::Fetch { from: vec![url("https://a/x/"), url("https://b/y/")], to: to() }]
        );
        assert_eq!(
            of(&["https://a/x", "to"]).unwrap(),
            [CopyKind::FetchNamed { from: url("https://a/x"), to: to(), is_alone: true }]
        );
        assert_eq!(
            of(&["https://a/x", "https://b/y%20z", "to"]).unwrap(),
            [
                CopyKind::FetchNamed { from: url("https://a/x"), to: to(), is_alone: false },
                CopyKind::FetchNamed { from: url("https://b/y%20z"), to: to(), is_alone: false },
            ]
        );
        let remote = |path: &str| Remote { host: "h".to_owned(), path: path.to_owned() };
        let landing = |folder: &str, name: &str| {
            let (folder, name) = (folder.into(), name.to_owned());
            Some(FileDestination { folder, name, is_new_name: false })
        };
        assert_eq!(
            of(&["h:/x", "h:y", "to"]).unwrap(),
            [
                CopyKind::FetchBySsh {
                    from: remote("/x"),
                    to: to().join("x"),
                    file: landing("to", "x")
                },
                CopyKind::FetchBySsh {
                    from: remote("y"),
                    to: to().join("y"),
                    file: landing("to", "y")
                },
            ]
        );
        let here = std::env::current_dir().unwrap();
        let name = here.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(
            of(&[".", "h:/y"]).unwrap(),
            [CopyKind::SendBySsh {
                from: ".".into(),
                to: remote(&format!("/y/{name}")),
                file: None
            }]
        );
        assert_eq!(
            of(&["./", "https://a/y"]).unwrap(),
            [CopyKind::Send { from: "./".into(), to: url("https://a/y/") }]
        );
        let third_party = |from: &[&str], to, is_alone| {
            let from = from.iter().map(|from| url(from)).collect();
            [CopyKind::ThirdParty { from, to: url(to), is_alone }]
        };
        assert_eq!(
            of(&["https://a/x/", "https://b/x/", "https://c/y"]).unwrap(),
            third_party(&["https://a/x/", "https://b/x/"], "https://c/y/", true)
        );
        assert_eq!(
            of(&["https://a/x", "https://c/y"]).unwrap(),
            third_party(&["https://a/x"], "https://c/y", true)
        );
        assert_eq!(
            of(&["https://a/x", "https://a/z", "https://c/y"]).unwrap().len(),
            2,
            "each under its own name"
        );
        let place = |text: &str| Place::parse(text).unwrap().unwrap();
        for (from, to) in [("h:x/", "g:y/"), ("h:x/", "https://b/y/"), ("https://b/y/", "h:x/")] {
            let (from_place, to_place) = (place(from), place(to));
            let kind = CopyKind::BetweenBySsh { from: from_place, to: to_place, is_alone: true };
            assert_eq!(of(&[from, to]).unwrap(), [kind], "{from} {to}");
        }
        let file = |to| [CopyKind::SendFile { from: "Cargo.toml".into(), to: url(to) }];
        assert_eq!(of(&["Cargo.toml", "https://a"]).unwrap(), file("https://a/Cargo.toml"));
        assert_eq!(of(&["Cargo.toml", "https://a/y/"]).unwrap(), file("https://a/y/Cargo.toml"));
        assert_eq!(of(&["Cargo.toml", "https://a/y"]).unwrap(), file("https://a/y"));
        assert_eq!(
            of(&["Cargo.toml", "src", "https://a/y"]).unwrap(),
            [
                file("https://a/y/Cargo.toml").into_iter().next().unwrap(),
                CopyKind::Send { from: "src".into(), to: url("https://a/y/src/") },
            ]
        );
        assert_eq!(
            of(&["./", "to"]).unwrap(),
            [CopyKind::Local { from: "./".into(), to: to(), single: None }]
        );
        assert_eq!(
            of(&[".", "to"]).unwrap(),
            [CopyKind::Local { from: ".".into(), to: to().join(&name), single: None }]
        );
    }

    #[test]
    fn a_single_file_goes_into_a_folder_or_has_the_name() {
        let here = |to: &str, name: &str| {
            let single = Some(name.to_owned());
            [CopyKind::Local { from: "Cargo.toml".into(), to: to.into(), single }]
        };
        assert_eq!(of(&["Cargo.toml", "src"]).unwrap(), here("src", "Cargo.toml"));
        assert_eq!(of(&["Cargo.toml", "none/"]).unwrap(), here("none/", "Cargo.toml"));
        assert_eq!(of(&["Cargo.toml", "src/other"]).unwrap(), here("src", "other"));
        assert_eq!(of(&["Cargo.toml", "other"]).unwrap(), here(".", "other"));
        assert_eq!(of(&["Cargo.toml", ".."]).unwrap(), here("..", "Cargo.toml"));
        let remote = |path: &str| Remote { host: "h".to_owned(), path: path.to_owned() };
        let own = |is_alone| Some(LocalFile { name: "Cargo.toml".to_owned(), is_alone });
        assert_eq!(
            of(&["Cargo.toml", "h:to"]).unwrap(),
            [CopyKind::SendBySsh { from: "Cargo.toml".into(), to: remote("to"), file: own(true) }]
        );
        // Several are copied into a folder, whether it is there or not.
        assert_eq!(
            of(&["Cargo.toml", "src/lib.rs", "to"]).unwrap(),
            [
                here("to", "Cargo.toml")[0].clone(),
                CopyKind::Local {
                    from: "src/lib.rs".into(),
                    to: "to".into(),
                    single: Some("lib.rs".to_owned())
                },
            ]
        );
        for (to, folder, name) in
            [("src", "src", "b"), ("d/", "d/", "b"), ("d/c", "d", "c"), ("c", ".", "c")]
        {
            let landing = FileDestination {
                folder: folder.into(),
                name: name.to_owned(),
                is_new_name: name != "b",
            };
            let to_folder = PathBuf::from(to).join("b");
            assert_eq!(
                of(&["h:a/b", to]).unwrap(),
                [CopyKind::FetchBySsh { from: remote("a/b"), to: to_folder, file: Some(landing) }]
            );
        }
    }

    #[test]
    fn of_two_that_are_called_the_same_the_second_is_left_and_named() {
        let places = ["Cargo.toml", "./Cargo.toml", "src/lib.rs", "to"].map(str::to_owned);
        let all = copies(&places).unwrap();
        let [
            Ok(CopyKind::Local { .. }),
            Err(MissingSource { why, .. }),
            Ok(CopyKind::Local { .. }),
        ] = &all[..]
        else {
            panic!("{all:?}");
        };
        let is_twice = |why: &LocationError| matches!(why, LocationError::NameTwice { place, .. } if place == "./Cargo.toml");
        assert!(is_twice(why), "{why}");
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        for (places, words) in [
            (&["https://a/x", "https://b/x", "to"][..], "two sources are called 'x'"),
            (&["https://a/x/", "https://b/y", "to"], "or none does"),
            (&["https://a/x/", "./", "to"], "only URLs can be replicas"),
            (&["https://a/x/", "https://b/x/", "h:to"], "several replicas"),
            (&["h:..", "to"], "has no name"),
        ] {
            let refused = of(places).unwrap_err();
            assert!(refused.to_string().contains(words), "{places:?}: {refused}");
        }
    }

    #[test]
    fn a_copy_into_itself_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let at = |path: &str| home.path().join(path);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::os::unix::fs::symlink(at("a"), at("link")).unwrap();
        let check = |from: &str, to: &str, deletes| {
            CopyKind::Local { from: at(from), to: at(to), single: None }.check(deletes).is_ok()
        };
        assert!(check("a", "c/d", true) && check("a", "ab", true) && check("a/b", "a", false));
        assert!(!check("a", "a", false) && !check("a", "a/b/new/er", false));
        assert!(!check("a", "link/new", false), "by way of a link");
        assert!(!check("a/b", "a", true), "the source would be removed");
        std::fs::write(at("a/file"), "x").unwrap();
        std::os::unix::fs::symlink("file", at("a/to")).unwrap();
        let check = |to: &str, name: &str| {
            let single = Some(name.to_owned());
            CopyKind::Local { from: at("a/file"), to: at(to), single }.check(false).is_ok()
        };
        assert!(check("a", "other") && check("a/b", "file"));
        assert!(!check("a", "file") && !check("link", "file") && !check("a", "to"));
    }
}
