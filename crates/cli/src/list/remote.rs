//! The folder or file that `swath ls` and `swath du` list.

use crate::failure::Failure;
use swath_transfer::{Engine, Mirror, RouteOptions, Trust};
use url::Url;

use crate::args::{Net, Ssh};
use crate::engine;
use crate::progress::{Mode, Progress};
use swath_jobs::ssh::{self, Purpose, Remote, Session, SshOptions};
use swath_jobs::{Address, Environment, Note};

/// A folder of a server, or a file.
pub struct RemoteFolder {
    pub engine: Engine,
    pub folder: Mirror,
    /// The server serves only one file, the only entry of its index.
    pub is_file: bool,
    /// The address of a file, if it is one.
    pub file: Option<Url>,
    /// The address of the folder; `None` by ssh.
    pub address: Option<Address>,
    /// Kept alive as long as this value.
    session: Option<Session>,
}

impl RemoteFolder {
    /// Names the place in a failure as the user typed it.
    pub fn renamed(&self, mut failure: Failure) -> Failure {
        if let Some(session) = &self.session {
            failure.what = session.names.shown(&failure.what);
        }
        failure
    }

    /// Connects to the server, started by ssh if necessary.
    pub async fn reach(net: &Net, ssh: &Ssh, place: &str) -> Result<RemoteFolder, Failure> {
        let session = match Remote::parse(place) {
            Some(remote) => {
                let progress = Progress::new(Mode::choose(false, false));
                let note = |note: Note| {
                    let (text, is_warning) = crate::notes::words(&note);
                    progress.note(&text, is_warning);
                };
                let options = ssh_options(net, ssh)?;
                let purpose = Purpose::Read { file_name: None };
                let session = ssh::start(&options, &remote, purpose, &note).await;
                Some(session.map_err(|error| crate::cp::ssh_failure(&error))?)
            }
            None if !place.contains("://") => {
                let text = format!(
                    "{place} is a local path: give a URL (https://host/path/) or host:path for ssh, \
                     or use the system's 'ls' and 'du'"
                );
                return Err(Failure::usage(text));
            }
            None => None,
        };
        let mut url = match &session {
            Some(session) => session.url.clone(),
            None => crate::net::parse_url(place)?,
        };
        let mut file = None;
        if !url.path().ends_with('/') {
            file = Some(url.clone());
            let path = format!("{}/", url.path());
            url.set_path(&path);
        }
        let slash = if place.ends_with('/') { "" } else { "/" };
        let address = session.is_none().then(|| Address::new(format!("{place}{slash}")));
        let own_server = session.as_ref().map(|it| (it.bearer.clone(), it.fingerprint));
        let engine = engine::start(net, MEMORY_BYTES, RouteOptions::default(), own_server)?;
        let folder = Mirror { url, priority: 1, trust: Trust::Named, holds: None };
        let is_file = session.as_ref().is_some_and(|session| session.is_file);
        Ok(RemoteFolder { engine, folder, is_file, file, address, session })
    }
}

fn ssh_options(net: &Net, ssh: &Ssh) -> Result<SshOptions, Failure> {
    let swath_jobs::Ssh { command, bootstrap } = ssh.spec();
    if command.is_empty() {
        return Err(Failure::usage("--ssh: the command is empty"));
    }
    let Environment { program, runtime, .. } = crate::net::around(Environment::default());
    let bootstrap = bootstrap.then_some(program);
    Ok(SshOptions { command, bootstrap, patience: net.timeout, runtime })
}

/// Nothing is written: the minimum of an engine is enough.
const MEMORY_BYTES: usize = 8 << 20;
