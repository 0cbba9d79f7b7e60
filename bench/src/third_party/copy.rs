//! `COPY` of single files between servers on one machine: swath and XRootD in all pairs, ordered by
//! `davix-cp` where both are XRootD, by curl elsewhere.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use swath_netlab::wan::{LabError, Namespace};

use super::row::{FILE, Row};
use super::run::{Outcome, Places, run_client};
use super::tool::{Tool, davix_copy};
use crate::data::same_content;
use crate::server::{Swath, system, to_nobody};
use crate::xrootd::xrootd;

/// Runs a tool once, in a namespace that has only loopback.
pub(super) fn on_one_machine(
    row: &Row,
    tool: Tool,
    limit: Duration,
    places: &Places,
) -> Result<Outcome, LabError> {
    let namespace = Namespace::new("bench-third-party")?;
    let certificates = places.certificates()?;
    places.own("b/copy")?;
    let output = places.target.join("b");
    let (is_swath_source, is_swath_destination) = match tool {
        Tool::SwathPulls | Tool::XrootdPushesToSwath => (false, true),
        Tool::SwathPushes | Tool::XrootdPullsFromSwath => (true, false),
        Tool::SwathAlone => (true, true),
        _ => (false, false),
    };
    let (certificate, key) = (certificates.certificate(), certificates.key());
    let (authority, own_key) = (certificates.authority(), key.to_string_lossy());
    let (certificate, authority) = (certificate.to_string_lossy(), authority.to_string_lossy());
    let mut more = vec!["--write", "--third-party", "--third-party-from", "127.0.0.0/8"];
    more.extend(["--tls-cert", &certificate, "--tls-key", &own_key]);
    more.extend(["--third-party-ca", &authority]);
    let swath = |name: &str, port: u16, folder: &Path| {
        let (own, address) = (places.own(name)?, format!("127.0.0.1:{port}"));
        Swath::start(&places.swath, &namespace, &address, folder, &own, &more)
    };
    let plain = |name: &str, port: u16, folder: &Path| {
        let own = places.own(name)?;
        xrootd(&namespace, port, folder, &own, Some(certificates))
    };
    let (mut swaths, mut others) = ((None, None), (None, None));
    match is_swath_source {
        true => swaths.0 = Some(swath("source", SOURCE_PORT, &places.served)?),
        false => others.0 = Some(plain("source", SOURCE_PORT, &places.served)?),
    }
    if is_swath_destination {
        swaths.1 = Some(swath("destination", DESTINATION_PORT, &output)?);
    } else {
        to_nobody(&output).map_err(system("hand over a folder"))?;
        others.1 = Some(plain("destination", DESTINATION_PORT, &output)?);
    }
    let from = format!("https://localhost:{SOURCE_PORT}/ds/{FILE}");
    let to = format!("https://localhost:{DESTINATION_PORT}/copy/{FILE}");
    let authorities = certificates.authorities();
    let mut command = match tool {
        Tool::XrootdPulls => davix_copy(&authorities, true, &from, &to),
        Tool::XrootdPushes => davix_copy(&authorities, false, &from, &to),
        Tool::XrootdPushesToSwath | Tool::SwathPushes => {
            curl_copy(&authority, "Destination", (&from, &swaths.0), (&to, &swaths.1))
        }
        _ => curl_copy(&authority, "Source", (&to, &swaths.1), (&from, &swaths.0)),
    };
    let mut outcome = run_client(&mut command, limit, &namespace, places)?;
    drop((swaths, others));
    if outcome.run.failure.is_none() {
        let has_failed = outcome.said.starts_with("failure");
        let copied =
            same_content(&places.served.join("ds").join(FILE), &output.join("copy").join(FILE));
        outcome.run.failure = match copied {
            // A failed COPY is an answer like any other, with the reason at its end.
            _ if has_failed => Some(outcome.said.clone()),
            Ok(true) => None,
            Ok(false) => Some(format!("the file is wrong: {}", outcome.said)),
            Err(error) => Some(format!("no file: {error}: {}", outcome.said)),
        };
    }
    let rate = row.data.bytes() as f64 / outcome.run.elapsed_s / 1e6;
    outcome.run.figures.push(("MB/s".to_owned(), rate));
    Ok(outcome)
}

/// Returns a curl that asks a server to copy: whom, and what `field` names.
fn curl_copy(
    authority: &str,
    field: &str,
    asked: (&str, &Option<Swath>),
    other: (&str, &Option<Swath>),
) -> Command {
    let mut command = Command::new("curl");
    command.args([
        "-sSf",
        "-X",
        "COPY",
        "--cacert",
        authority,
        "-H",
        &format!("{field}: {}", other.0),
    ]);
    match asked.1 {
        Some(server) => command.args(["-H", &format!("Authorization: Bearer {}", server.token)]),
        None => command.args(["-H", "Credential: none"]),
    };
    if let Some(server) = other.1 {
        let token = format!("TransferHeaderAuthorization: Bearer {}", server.token);
        command.args(["-H", &token]);
    }
    command.arg(asked.0);
    command
}

const SOURCE_PORT: u16 = 1094;
const DESTINATION_PORT: u16 = 2094;
