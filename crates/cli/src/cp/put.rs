//! A single file of ours to a server that takes files.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::hints;
use swath_model::SourceName;
use swath_source::display_name;
use swath_transfer::observe::Observer;
use swath_transfer::{Engine, LaneError, Party, PutError, PutRequest, Stop};
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
) -> Result<(), Failure> {
    let shown = display_name(&to);
    let request = PutRequest { file: from, to };
    match engine.put(&request, observer, stop).await {
        Ok(_) => Ok(()),
        Err(error) => {
            progress.clear();
            Err(failure(&shown, &error))
        }
    }
}

fn exit_of(error: &PutError) -> Exit {
    match error {
        PutError::Read { .. } => Exit::Input,
        PutError::Stopped => Exit::Interrupted,
        PutError::Server(error) if error.code().is_some_and(|code| code != 401) => Exit::Target,
        PutError::Server(_) => Exit::Sources,
        // The rest of a list may be complete; this one is not there.
        _ => Exit::Some,
    }
}

fn failure(shown: &str, error: &PutError) -> Failure {
    let exit = exit_of(error);
    let PutError::Server(error) = error else {
        let text = match error {
            PutError::Stopped => format!("stopped; {NOTHING}"),
            error => chain(error),
        };
        return Failure::new(exit, text);
    };
    let hint = match error.code() {
        Some(404) => "; there is no such place",
        Some(405 | 501) => "; it takes no files ('swath serve --write' does)",
        Some(409) => "; a folder that is meant needs '/' at its end, and has to be there",
        Some(412) => "; what is there is not as the request supposes",
        _ => "",
    };
    let https = hints::of_https(&Party::Source(SourceName::direct(shown)), error);
    Failure::new(exit, format!("{shown}: {error}{hint}; {NOTHING}")).hints(https)
}

/// Why a server that may not be written to takes no file either, if that is what it said of a tree.
pub fn forbidden(to: &Url, refusal: Option<&LaneError>) -> Option<Failure> {
    let refusal = refusal.filter(|error| error.code() == Some(403))?;
    let text = format!("{}: {refusal}; {NOTHING}", display_name(to));
    Some(Failure::new(Exit::Target, text))
}

const NOTHING: &str = "nothing of the file is there";
