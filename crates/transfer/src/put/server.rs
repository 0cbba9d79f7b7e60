//! A file of another server that is sent: its bytes pass through this machine.
//!
//! They are hashed on their way. The last part is held back until they are known to be those of which the
//! source tells a digest: without that part the server has no file.

use swath_formats::digest_header;
use swath_model::digest::Digest;
use swath_source::{Download, Trust, display_name};
use tokio::sync::{mpsc, oneshot};
use url::Url;

use super::{Hashers, PARTS_AHEAD, Part, PutError, Reading};
use crate::engine::Engine;

/// Begins to read the file at `from`.
pub async fn read(engine: &Engine, from: &Url) -> Result<Reading, PutError> {
    let address = display_name(from);
    let failed = |error| PutError::Source { address: address.clone(), error };
    let download = Download::begin(engine.net(), from, Trust::Named, "*/*").await;
    let download = download.map_err(failed)?;
    let coding = download.field("content-encoding").filter(|coding| !is_identity(coding));
    if let Some(coding) = coding {
        return Err(PutError::Encoded {
            address,
            coding: coding.chars().take(CODING_CHARS).collect(),
        });
    }
    let size_bytes = download.field("content-length").and_then(|length| length.parse().ok());
    let Some(size_bytes) = size_bytes else {
        return Err(PutError::NoSize { address });
    };
    let told = |name| Some(digest_header::read(name, download.field(name)?)?.1);
    let mut told: Vec<Digest> =
        ["repr-digest", "digest"].into_iter().filter_map(told).flatten().collect();
    told.sort();
    let announced = told.last().copied();
    let (give, parts) = mpsc::channel(PARTS_AHEAD);
    let (tell, digests) = oneshot::channel();
    tokio::spawn(pass_on(download, address, size_bytes, told, give, tell));
    Ok(Reading { size_bytes, announced, parts, digests })
}

async fn pass_on(
    mut download: Download,
    address: String,
    size_bytes: u64,
    told: Vec<Digest>,
    give: mpsc::Sender<Part>,
    tell: oneshot::Sender<Vec<Digest>>,
) {
    let mut hashers = Hashers::new(&told);
    let (mut last, mut passed_bytes) = (Vec::new(), 0);
    loop {
        let part = match download.next().await {
            Ok(part) => part,
            Err(error) => {
                let _ = give.send(Err(PutError::Source { address, error })).await;
                return;
            }
        };
        if part.is_empty() {
            break;
        }
        hashers.update(&part);
        passed_bytes += part.len() as u64;
        let before = std::mem::replace(&mut last, part);
        if !before.is_empty() && give.send(Ok(before)).await.is_err() {
            return;
        }
    }
    let digests = hashers.finish();
    let is_right = passed_bytes == size_bytes && told.iter().all(|told| digests.contains(told));
    let _ = tell.send(digests);
    let last = match is_right {
        true => Ok(last),
        false => Err(PutError::SourceDiffers { address }),
    };
    let _ = give.send(last).await;
}

fn is_identity(coding: &str) -> bool {
    matches!(coding.trim().to_ascii_lowercase().as_str(), "" | "identity")
}

/// Enough for every name of a coding.
const CODING_CHARS: usize = 40;
