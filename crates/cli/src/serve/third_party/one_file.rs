//! Copies of single files that others order by `COPY`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use swath_jobs::copy::{CopyError, CopyKind};
use swath_jobs::{
    Address, Control, CopySpec, Environment, GetFrom, GetSpec, GetTo, Header, JobError, JobEvent,
    JobObserver, JobSpec, Jobs, SecretRef, Streams, Work,
};
use swath_model::digest::{Digest, Hasher};
use swath_serve::{CopyOrder, CopyWay, Refused};
use swath_source::{NetOptions, Secret};
use swath_store::tree::{Grant, PlaceGrant};
use swath_transfer::observe::Event;
use tokio::sync::watch;
use url::Url;

use super::FetchRules;
use super::told::ToldNames;
use crate::exit::{self, chain};
use crate::failure::Failure;

/// A copy of one file from or to another server.
pub struct OneFile {
    way: CopyWay,
    url: Url,
    headers: Vec<(String, String)>,
    overwrites: bool,
    digests: Vec<Digest>,
}

impl OneFile {
    /// Checks an order.
    ///
    /// # Errors
    /// [`Refused::Order`].
    pub fn of(order: CopyOrder) -> Result<OneFile, Refused> {
        let CopyOrder { way, remote, headers, overwrites, digests, .. } = order;
        let url =
            swath_jobs::parse_url(&remote).map_err(|error| Refused::Order(error.to_string()))?;
        if url.scheme() != "https" {
            let refused =
                |what: &str| Err(Refused::Order(format!("{what} is not sent without encryption")));
            let may_be_secret = |name: &str| {
                !HARMLESS_FIELDS.iter().any(|harmless| name.eq_ignore_ascii_case(harmless))
            };
            if !url.username().is_empty() || url.password().is_some() {
                return refused("a password");
            }
            if headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
                return refused("a token");
            }
            if let Some((name, _)) = headers.iter().find(|(name, _)| may_be_secret(name)) {
                let name: String = name.chars().filter(|c| c.is_ascii_graphic()).collect();
                return refused(&format!("the field {name}, which may hold a secret,"));
            }
        }
        for (name, value) in &headers {
            let checked = swath_source::check_header(name, value);
            checked.map_err(|error| Refused::Order(error.to_string()))?;
        }
        Ok(OneFile { way, url, headers, overwrites, digests })
    }

    /// Returns it as a job of this machine.
    pub fn job(&self, rules: &FetchRules, net: NetOptions) -> (Jobs, JobSpec) {
        let mut secrets = BTreeMap::new();
        let mut headers = Vec::new();
        let condition = ("if-none-match".to_owned(), "*".to_owned());
        let is_push = matches!(self.way, CopyWay::Push { .. });
        let condition = Some(&condition).filter(|_| is_push && !self.overwrites);
        for (at, (name, value)) in self.headers.iter().chain(condition).enumerate() {
            let secret = format!("header {at}");
            secrets.insert(secret.clone(), Secret::new(value));
            headers.push(Header { name: name.clone(), value: SecretRef::Name(secret) });
        }
        let address = Address::new(self.url.as_str());
        let work = match &self.way {
            CopyWay::Pull { folder, name } => {
                let to = GetTo::File(folder.path.join(name));
                let digests = self.digests.clone();
                let get = GetSpec::new(GetFrom::Replicas(vec![address]), to);
                let (overwrite, resume, discover) = (self.overwrites, false, false);
                Work::Get(GetSpec { digests, overwrite, resume, discover, ..get })
            }
            CopyWay::Push { file } => {
                let from = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
                let digest = self.digests.iter().max().copied();
                let kind = CopyKind::SendFile { from, to: address };
                Work::Copy(CopySpec { by_put: true, digest, ..CopySpec::new(kind) })
            }
        };
        let mut spec = JobSpec::new(work);
        spec.network.headers = headers;
        spec.network.limit_bytes_per_s = rules.limit_bytes_per_s;
        spec.disk.io = rules.io;
        let grant = match &self.way {
            CopyWay::Pull { folder, .. } => folder.grant(),
            // Nothing is written here.
            CopyWay::Push { .. } => PlaceGrant::at(PathBuf::new(), Grant::nothing()),
        };
        (Jobs::new(Environment { net, secrets, grant, ..Environment::default() }), spec)
    }

    /// Runs it, and tells how many bytes there are.
    pub async fn run(
        self,
        jobs: &Jobs,
        spec: &JobSpec,
        control: &Control,
        bytes: watch::Sender<u64>,
    ) -> Result<(), String> {
        let names = match &self.way {
            CopyWay::Pull { folder, .. } => ToldNames::new(folder.names()),
            CopyWay::Push { file } => {
                let own = format!("/proc/self/fd/{}", file.as_raw_fd());
                ToldNames::new(vec![(own, "the file".to_owned())])
            }
        };
        if let CopyWay::Push { file } = &self.way {
            self.check(file).await?;
        }
        let told: Arc<dyn JobObserver> = Arc::new(move |event: JobEvent| match event {
            JobEvent::Transfer(Event::Progress(now)) => _ = bytes.send_replace(now.done_bytes),
            JobEvent::Transfer(Event::Finished(summary)) => {
                bytes.send_replace(summary.size_bytes);
            }
            _ => {}
        });
        let error = match jobs.run(spec, &Streams::default(), &told, control).await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        if let CopyWay::Pull { folder, name } = &self.way {
            // Nobody resumes such a copy.
            let path = folder.path.join(name);
            let _ = tokio::task::spawn_blocking(move || swath_store::discard_left(&path)).await;
        }
        Err(names.text(&words(error)))
    }

    /// Checks that the file here has the digests that it must have.
    async fn check(&self, file: &File) -> Result<(), String> {
        if self.digests.is_empty() {
            return Ok(());
        }
        let failed = |error: io::Error| format!("the file cannot be read: {error}");
        let (file, digests) = (file.try_clone().map_err(failed)?, self.digests.clone());
        let checking = tokio::task::spawn_blocking(move || {
            let mut hashers: Vec<Hasher> =
                digests.iter().map(|digest| Hasher::new(digest.algorithm())).collect();
            let (mut part, mut at) = (vec![0; PART_BYTES], 0);
            loop {
                match file.read_at(&mut part, at)? {
                    0 => break,
                    bytes => {
                        hashers.iter_mut().for_each(|hasher| hasher.update(&part[..bytes]));
                        at += bytes as u64;
                    }
                }
            }
            let own = hashers.iter().map(Hasher::finish);
            let wrong = own.zip(&digests).find(|(own, wanted)| own != *wanted);
            Ok(wrong.map(|(own, _)| own.algorithm().name()))
        });
        match checking.await.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(None) => Ok(()),
            Ok(Some(algorithm)) => Err(format!("the file here has another {algorithm}")),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Returns the error of a copy of one file in words.
fn words(error: JobError) -> String {
    match error {
        JobError::Transfer { error, .. } if !error.reasons().is_empty() => error.with_reasons(),
        JobError::Transfer { error, .. } => exit::words(&error),
        JobError::Copy(error) => match *error {
            CopyError::Put { error, .. } => chain(&*error),
            CopyError::Broken { why, .. } => why.to_string(),
            CopyError::Receiver { failed, .. } => failed.error,
            error => crate::cp::failure(error).what,
        },
        JobError::Stopped => "stopped".to_owned(),
        error => Failure::from(error).what,
    }
}

/// Read at a time.
const PART_BYTES: usize = 1 << 20;

/// Fields that hold no secret. Any other may hold one.
const HARMLESS_FIELDS: [&str; 14] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "credential",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-unmodified-since",
    "pragma",
    "repr-digest",
    "user-agent",
    "want-digest",
    "want-repr-digest",
];
