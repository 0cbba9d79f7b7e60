//! `swath routes forget`: removes sites from the state file.

use swath_model::path::visible;
use swath_state::{Forget, Location};

use super::{args, map};
use crate::exit::{Exit, fail};
use crate::progress::look::Look;
use crate::progress::units;
use crate::{remember, say};

/// Runs the command.
pub fn run(args: &args::Forget) -> Exit {
    let path = match remember::place() {
        Location::At(path) if path.exists() => path,
        Location::At(_) | Location::Off | Location::Homeless => {
            return say::out(b"nothing is remembered\n", Exit::Done);
        }
    };
    let state = remember::open(&path);
    let sites: Vec<String> = args.sites.iter().map(|text| map::named(text)).collect();
    let which = if sites.is_empty() { Forget::All } else { Forget::Sites(sites.clone()) };
    let gone = match state.forget(which) {
        Ok(gone) => gone,
        Err(error) => return fail(Exit::Target, &format!("nothing was forgotten: {error}")),
    };
    let arrow = Look::of_lines().either(" → ", " -> ");
    let mut out = String::new();
    for (from, to) in &gone.edges {
        out += &format!("forgot {from}{arrow}{to}\n");
    }
    for url in &gone.relays {
        out += &format!("forgot the relay {url}\n");
    }
    if out.is_empty() {
        out = match sites.is_empty() {
            true => "nothing is remembered\n".to_owned(),
            false => format!("nothing is remembered about {}\n", visible(&sites.join(", "))),
        };
    } else {
        let count = |count: usize, one: &str, many: &str| {
            format!("{} {}", units::count(count as u64), if count == 1 { one } else { many })
        };
        let (edges, relays) = (gone.edges.len(), gone.relays.len());
        let (edges, relays) = (count(edges, "edge", "edges"), count(relays, "relay", "relays"));
        out += &format!("{edges} and {relays} forgotten\n");
    }
    say::out(out.as_bytes(), Exit::Done)
}
