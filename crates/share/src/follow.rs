//! Follows what another node says, at one address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use swath_source::{Trust, fetch_small};
use tokio::time::sleep;

use crate::content::SharedContent;
use crate::log::{NodeId, PART_BYTES_MAX, Part};

/// How an address is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The user named it: it is tried for as long as it takes.
    Named,
    /// A tracker, or the node itself, told it.
    Told,
}

/// Asks the node at this address until it is of no use. `port` is where others reach us.
pub(crate) async fn follow(
    content: Arc<SharedContent>,
    address: SocketAddr,
    known: Known,
    port: u16,
) {
    let mut of: Option<NodeId> = None;
    let (mut from, mut failures) = (0, 0);
    loop {
        let Some(part) = ask(&content, address, from, port).await else {
            failures += 1;
            if failures >= FAILURES_BORNE
                && let Some(node) = of.take()
            {
                content.leave(node);
                from = 0;
            }
            if failures >= FAILURES_MAX && known == Known::Told {
                return content.forget(address);
            }
            sleep(PAUSE_FIRST * (1 << failures.min(6))).await;
            continue;
        };
        failures = 0;
        if of != Some(part.node) {
            // It was started again, and begins with an empty log.
            of.take().into_iter().for_each(|node| content.leave(node));
            if !content.meet(part.node, address) {
                // It is ourselves, or a node that we know by another address, for now.
                if part.node == content.me {
                    return;
                }
                sleep(OTHER_ADDRESS_PAUSE).await;
                continue;
            }
            of = Some(part.node);
            if std::mem::take(&mut from) > 0 {
                continue;
            }
        }
        if !content.hear(part.node, &part.entries) {
            // It is banned; whoever is started there later is not.
            (of, from) = (None, 0);
            content.leave(part.node);
            sleep(OTHER_ADDRESS_PAUSE).await;
            continue;
        }
        from = part.next;
    }
}

async fn ask(content: &SharedContent, address: SocketAddr, from: u64, port: u16) -> Option<Part> {
    let more = [
        ("from", from.to_string()),
        ("node", format!("{:032x}", u128::from_be_bytes(content.me.0))),
        ("port", port.to_string()),
    ];
    let url = content.url(address, "/share/log", &more)?;
    let told = fetch_small(&content.net, &url, Trust::Listed, "*/*", PART_BYTES_MAX).await.ok()?;
    let part = Part::read(&told.bytes).ok()?;
    // It may not answer what was not asked.
    let is_it = part.next == from + part.entries.len() as u64 || part.next == 0;
    is_it.then_some(part)
}

/// A node that fails so often in a row has left.
const FAILURES_BORNE: u32 = 3;
/// Nobody is there.
const FAILURES_MAX: u32 = 6;
/// The first pause after a failure; each is twice as long, up to 6.4 s.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const OTHER_ADDRESS_PAUSE: Duration = Duration::from_secs(10);
