//! A single file of ours to a server that takes files.

use std::path::PathBuf;

use swath_source::display_name;
use swath_transfer::observe::Observer;
use swath_transfer::{Engine, LaneError, PutError, PutRequest, Stop};
use url::Url;

use crate::exit::{Exit, chain};
use crate::progress::Progress;

/// Send it; the error has a sentence for its user.
pub async fn send(
    engine: &Engine,
    from: PathBuf,
    to: Url,
    observer: &mut dyn Observer,
    progress: &Progress,
    stop: &Stop,
) -> Result<(), (Exit, String)> {
    let shown = display_name(&to);
    let request = PutRequest { file: from, to };
    match engine.put(&request, observer, stop).await {
        Ok(_) => Ok(()),
        Err(error) => {
            progress.clear();
            Err((exit_of(&error), words(&shown, &error)))
        }
    }
}

fn exit_of(error: &PutError) -> Exit {
    match error {
        PutError::Read { .. } => Exit::Input,
        PutError::Stopped => Exit::Interrupted,
        PutError::Server(error) if status(error).is_some_and(|code| code != 401) => Exit::Target,
        PutError::Server(_) => Exit::Sources,
        // The rest of a list may be complete; this one is not there.
        _ => Exit::Some,
    }
}

fn words(shown: &str, error: &PutError) -> String {
    let PutError::Server(error) = error else {
        let text = match error {
            PutError::Stopped => "stopped; nothing of the file is there".to_owned(),
            error => chain(error),
        };
        return text;
    };
    let hint = match status(error) {
        Some(404) => "; there is no such place",
        Some(405 | 501) => "; it takes no files ('swath serve --write' does)",
        Some(409) => "; a folder that is meant needs '/' at its end, and has to be there",
        Some(412) => "; what is there is not as the request supposes",
        _ => "",
    };
    let https = crate::exit::hint_of_https(shown, &error.to_string());
    let https = https.map(|hint| format!("\n{hint}")).unwrap_or_default();
    format!("{shown}: {error}{hint}; {NOTHING}{https}")
}

/// What a server that takes no trees, and has said so in these words, says of a file.
pub fn is_refused(error: &str) -> Option<String> {
    error.contains("started without --write").then(|| format!("{error}; {NOTHING}"))
}

/// The status of a refusal.
pub fn status(error: &LaneError) -> Option<u16> {
    match error {
        LaneError::Status { code, .. } | LaneError::Denied { code, .. } => Some(*code),
        _ => None,
    }
}

const NOTHING: &str = "nothing of the file is there";
