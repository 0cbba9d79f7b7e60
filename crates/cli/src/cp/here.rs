//! From one folder of ours to another: one side of this process offers, the other fetches, over
//! connections of the loopback interface that nobody else can use. So all is as with a server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::Failure;
use swath_serve::{Access, Filter, Offer, Only, Reads, Single, SiteOptions};
use swath_source::Dialled;
use swath_transfer::Engine;
use swath_transfer::observe::{Event, LimitedBy, Observer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use url::Url;

use crate::exit::{Exit, chain};

/// The folder that is opened for `from`, and what of it is offered: what the filter lets through,
/// or with a name the file that `from` is, under that name.
pub fn offered(from: &Path, single: Option<&str>, filter: Filter) -> io::Result<(PathBuf, Only)> {
    let Some(name) = single else { return Ok((from.to_owned(), Only::Part(Box::new(filter)))) };
    // Whoever names a link means what it leads to.
    let whole = from.canonicalize()?;
    let (Some(folder), Some(own)) = (whole.parent(), whole.file_name()) else {
        return Err(io::ErrorKind::IsADirectory.into());
    };
    let (path, name) = (own.as_bytes().to_vec(), name.as_bytes().to_vec());
    Ok((folder.to_owned(), Only::File(Single { path, name })))
}

/// A folder that is offered to this process alone.
pub struct Here {
    offer: Offer,
    dialled: Dialled,
    url: Url,
}

impl Here {
    /// Offer [what is to be offered](offered).
    pub fn open(
        engine: &Engine,
        from: &Path,
        single: Option<&str>,
        filter: Filter,
        reads: Reads,
    ) -> Result<Here, Failure> {
        let offered = offered(from, single, filter);
        let input = |what: String| Failure::new(Exit::Input, what);
        let (folder, only) =
            offered.map_err(|error| input(format!("{}: {error}", from.display())))?;
        let options = SiteOptions {
            folders: vec![folder.into()],
            access: Access::default(),
            follow_links: false,
            only: Some(only),
            name: String::new(),
            reads,
            hosts: None,
            idle_index_bytes: 0,
            receive: None,
            send_limit: None,
            receive_limit: None,
        };
        let offer = Offer::open(options).map_err(|error| input(chain(&error)))?;
        let (url, dialled) =
            engine.net().dialled(NAME).map_err(|error| input(error.to_string()))?;
        Ok(Here { offer, dialled, url })
    }

    /// Its address, for the engine that it was opened with.
    pub fn url(&self) -> Url {
        self.url.clone()
    }

    /// Answer for as long as this is polled.
    pub async fn serve(&mut self) {
        let come = self.dialled.come();
        let mut lanes: JoinSet<()> = JoinSet::new();
        loop {
            tokio::select! {
                true = self.dialled.is_wanted() => {
                    let (ours, theirs, peer) = pair().await;
                    come.take(Box::new(theirs), peer);
                    let offer = self.offer.clone();
                    lanes.spawn(async move { offer.serve(ours, peer).await });
                }
                Some(_) = lanes.join_next() => {}
            }
        }
    }
}

/// A connection to ourselves, as soon as one is to be had: out of descriptors, others have to end
/// first.
async fn pair() -> (TcpStream, TcpStream, SocketAddr) {
    loop {
        match connect().await {
            Ok(both) => return both,
            Err(error) => {
                tracing::debug!(%error, "a connection to ourselves could not be had");
                tokio::time::sleep(CONNECT_AGAIN).await;
            }
        }
    }
}

/// The two ends of a connection. Whoever else comes to the port while it is open is turned away.
async fn connect() -> io::Result<(TcpStream, TcpStream, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let theirs = TcpStream::connect(listener.local_addr()?).await?;
    let own = theirs.local_addr()?;
    loop {
        let (ours, peer) = listener.accept().await?;
        if peer == own {
            ours.set_nodelay(true)?;
            theirs.set_nodelay(true)?;
            return Ok((ours, theirs, peer));
        }
    }
}

/// Tells of places by the names that their user knows, in place of those that they have for us.
pub struct Renamed<'a> {
    /// What is told.
    pub observer: &'a mut dyn Observer,
    /// Names of ours and what stands for them, one after the other.
    pub names: &'a [(String, String)],
    /// What limits where the only source does, if that is no link and no server.
    pub limit: Option<LimitedBy>,
}

/// A folder of ours in place of the address that it has for us.
pub fn names(url: &Url, folder: &str) -> Vec<(String, String)> {
    vec![(url.to_string(), folder.to_owned())]
}

/// The same in a sentence.
pub fn renamed(names: &[(String, String)], text: &str) -> String {
    names.iter().fold(text.to_owned(), |text, (own, shown)| text.replace(own, shown))
}

impl Observer for Renamed<'_> {
    fn observe(&mut self, event: &Event) {
        let has_any = |text: &String| self.names.iter().any(|(own, _)| text.contains(own));
        let told = serde_json::to_string(event).ok().filter(has_any);
        let renamed = told.and_then(|text| {
            let text = self.names.iter().fold(text, |text, (own, shown)| {
                let shown = serde_json::to_string(shown).unwrap_or_default();
                text.replace(own, shown.get(1..shown.len() - 1).unwrap_or_default())
            });
            serde_json::from_str(&text).ok()
        });
        let mut event = renamed.unwrap_or_else(|| event.clone());
        if let (Event::Finished(summary) | Event::Failed { summary, .. }, Some(limit)) =
            (&mut event, &self.limit)
            && matches!(summary.limited_by, LimitedBy::OneSource { .. })
        {
            summary.limited_by = limit.clone();
        }
        self.observer.observe(&event);
    }
}

/// For ourselves.
const NAME: &str = "here";
/// After a connection that could not be had.
const CONNECT_AGAIN: Duration = Duration::from_millis(50);
