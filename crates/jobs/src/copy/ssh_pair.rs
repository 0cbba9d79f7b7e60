//! Copies between two other machines if at least one of them is reached by ssh. A server is started there;
//! then it is a copy between servers.

use swath_source::{HostPattern, ServerAccess};
use url::Url;

use super::error::{CopyError, CopyOption, Unfit};
use super::kind::{LocalFile, Place, go_below, in_folder, name_there};
use super::names::DisplayNames;
use crate::error::JobError;
use crate::event::{JobEvent, Note};
use crate::run::{JobContext, Jobs};
use crate::spec::CopySpec;
use crate::ssh::{self, Purpose, Session};

/// Two machines, ready for a copy from one to the other.
pub struct SshPair {
    /// The address of the source here.
    pub from: Url,
    /// Its address for the destination.
    pub from_there: Url,
    /// The address of the destination here.
    pub to: Url,
    /// Whether a file may get the name `to`, if that is not a folder.
    pub is_alone: bool,
    /// The names of both for the user.
    pub names: DisplayNames,
    /// Both servers end when this is dropped.
    sessions: Vec<Session>,
}

impl SshPair {
    /// Starts the servers.
    pub async fn start(
        jobs: &Jobs,
        context: JobContext<'_>,
        copy: &CopySpec,
        (from, to, is_alone): (&Place, &Place, bool),
    ) -> Result<SshPair, JobError> {
        if copy.detach {
            let (option, unfit) = (CopyOption::Detach, Unfit::Ssh);
            return Err(CopyError::Option { option, unfit, address: None }.into());
        }
        let options = jobs.ssh_options(&copy.ssh, &context.spec.network);
        let note = |note: Note| context.observer.observe(JobEvent::Note(note));
        let starting = async {
            let mut sessions = Vec::new();
            let own_name = from.name()?;
            let own_file = own_name.clone().map(|name| LocalFile { name, is_alone });
            // Where a folder goes, and where a file does: the destination knows whether `to` is a folder.
            let (mut to_url, file_there) = match to {
                Place::Server(address) => {
                    let url = address.url()?;
                    let named = in_folder(&url).filter(|_| is_alone);
                    let file = named.or(own_name.clone().map(|name| (url.clone(), name)));
                    (url, file)
                }
                Place::Ssh(remote) => {
                    let file_name = own_file.as_ref().and_then(|file| ssh::new_name(remote, file));
                    let purpose = Purpose::Write { file_name, fetches: !copy.through_here };
                    let session = ssh::start(&options, remote, purpose, &note).await;
                    let session = session.map_err(CopyError::from)?;
                    let url = session.url.clone();
                    sessions.push(session);
                    let (folder, name) = ssh::sent_to(url.clone(), remote, own_file);
                    (url, name.map(|name| (folder, name)))
                }
            };
            let (from_url, from_there, is_file) = match from {
                Place::Server(address) => {
                    let url = address.url()?;
                    // What it is will turn out; a file may get the name.
                    if let (Place::Ssh(_), Some((folder, name))) = (to, &file_there)
                        && folder.path() != to_url.path()
                    {
                        to_url = folder.clone();
                        go_below(&mut to_url, name);
                    }
                    (url.clone(), url, false)
                }
                Place::Ssh(remote) => {
                    let file_name = file_there.as_ref().map(|(_, name)| name.as_str());
                    let session = ssh::start(&options, remote, Purpose::Read { file_name }, &note);
                    let session = session.await.map_err(CopyError::from)?;
                    let found = (session.url.clone(), session.url_there.clone(), session.is_file);
                    sessions.push(session);
                    found
                }
            };
            let (to, is_alone) = match (from, is_file, file_there) {
                // It is a dataset of one entry, which has the new name.
                (Place::Ssh(_), true, Some((folder, _))) => (folder, false),
                (Place::Ssh(_), _, _) => {
                    go_below(&mut to_url, own_name.as_deref().unwrap_or_default());
                    go_below(&mut to_url, "");
                    (to_url, false)
                }
                (Place::Server(_), _, _) => (to_url, is_alone),
            };
            let names = sessions.iter().map(|session| session.names.clone());
            let names = names.reduce(DisplayNames::and).unwrap_or_default();
            Ok(SshPair { from: from_url, from_there, to, is_alone, names, sessions })
        };
        tokio::select! {
            biased;
            () = context.control.cancelled() => Err(JobError::Stopped),
            started = starting => started,
        }
    }

    /// Returns what opens the servers.
    pub fn access(&self) -> Vec<ServerAccess> {
        let access = self.sessions.iter().filter_map(|session| {
            Some(ServerAccess {
                token: Some(session.bearer.token.clone()),
                fingerprint: Some(session.fingerprint),
                is_for_this_run: true,
                ..ServerAccess::to(HostPattern::of(&session.url)?)
            })
        });
        access.collect()
    }
}

impl Place {
    /// Returns the name that its content keeps; `None` if it means what is in a folder.
    fn name(&self) -> Result<Option<String>, JobError> {
        Ok(match self {
            Place::Server(address) if address.is_folder() => None,
            Place::Server(address) => Some(name_there(&address.url()?).map_err(CopyError::from)?),
            Place::Ssh(remote) if means_folder(&remote.path) => None,
            Place::Ssh(remote) => Some(last(&remote.path).to_owned()),
        })
    }
}

fn means_folder(path: &str) -> bool {
    path.is_empty() || path.ends_with('/')
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
