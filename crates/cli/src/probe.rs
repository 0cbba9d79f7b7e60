//! `swath probe`: queries all replicas at the same time, and shows what each offers and whether they
//! hold the same file.
//!
//! The output has one block of lines per replica, in the given order, and a verdict; with `--json` one
//! object per line.

use serde::Serialize;
use swath_model::digest::Digest;
use swath_source::{Facts, LaneError, Net, ProbeReport, Trust, display_name, probe};
use swath_transfer::Version;
use tokio::task::JoinSet;
use url::Url;

use crate::args::Probe;
use crate::exit::{Exit, chain};
use crate::failure::Failure;
use crate::progress::look::Look;
use crate::progress::units;
use crate::say;

/// Runs the command.
pub async fn run(args: Probe) -> Result<Exit, Failure> {
    let net = Net::new(crate::net::options(&args.net)?);
    let net = net.map_err(|error| Failure::input(chain(&error)))?;
    let urls = args.sources.iter().map(|text| crate::net::parse_url(text));
    let urls = urls.collect::<Result<_, _>>()?;
    let answers = ask_all(&net, urls).await;
    let verdict = Verdict::of(&answers);
    let text = if args.json {
        json(&answers, &verdict)
    } else {
        words(&answers, &verdict, Look::of_lines())
    };
    let usable = answers.iter().any(|answer| answer.result.is_ok());
    Ok(say::out(text.as_bytes(), if usable { Exit::Done } else { Exit::Sources }))
}

/// One replica and its answer.
struct Answer {
    name: String,
    result: Result<Box<ProbeReport>, LaneError>,
}

async fn ask_all(net: &Net, urls: Vec<Url>) -> Vec<Answer> {
    let mut answers: Vec<Option<Answer>> = urls.iter().map(|_| None).collect();
    let mut under_way = JoinSet::new();
    for (at, url) in urls.into_iter().enumerate() {
        if under_way.len() >= AT_ONCE
            && let Some(Ok((at, one))) = under_way.join_next().await
        {
            answers[at] = Some(one);
        }
        let net = net.clone();
        under_way.spawn(async move {
            let result = probe(&net, &url, Trust::Named).await;
            let result = result.and_then(|report| no_page_instead(&url, report)).map(Box::new);
            (at, Answer { name: display_name(&url), result })
        });
    }
    while let Some(ended) = under_way.join_next().await {
        if let Ok((at, one)) = ended {
            answers[at] = Some(one);
        }
    }
    answers.into_iter().flatten().collect()
}

/// Refuses a web page instead of the file (a login, an error message), whatever its status.
fn no_page_instead(url: &Url, report: ProbeReport) -> Result<ProbeReport, LaneError> {
    let name = url.path().rsplit('/').next().unwrap_or("");
    let facts = &report.facts;
    if facts.is_web_page() && !facts.ranges && !Facts::names_web_page(name) {
        return Err(LaneError::Html);
    }
    Ok(report)
}

/// Whether the replicas hold the same file.
struct Verdict {
    /// Usable replicas.
    usable: usize,
    /// How many of them hold the most common version.
    agreeing: usize,
    /// The size of that version.
    size_bytes: Option<u64>,
    /// Its strongest digest.
    digest: Option<Digest>,
    /// Replicas with another version, and the difference.
    dissenters: Vec<(String, String)>,
}

impl Verdict {
    fn of(answers: &[Answer]) -> Self {
        let usable: Vec<(&str, &Facts)> = answers
            .iter()
            .filter_map(|answer| {
                answer.result.as_ref().ok().map(|report| (answer.name.as_str(), &report.facts))
            })
            .collect();
        // The version of most replicas; in a tie the first.
        let mut best: Option<(usize, usize)> = None;
        for (at, (_, ours)) in usable.iter().enumerate() {
            let count = usable.iter().filter(|(_, theirs)| same(ours, theirs).is_ok()).count();
            if best.is_none_or(|(_, most)| count > most) {
                best = Some((at, count));
            }
        }
        let reference = best.map(|(at, _)| usable[at].1);
        let dissenters: Vec<(String, String)> = usable
            .iter()
            .filter_map(|(name, theirs)| {
                Some(((*name).to_owned(), same(reference?, theirs).err()?))
            })
            .collect();
        Self {
            usable: usable.len(),
            agreeing: usable.len() - dissenters.len(),
            size_bytes: reference.and_then(|facts| facts.size_bytes),
            digest: reference.and_then(|facts| {
                facts.digests.iter().max_by_key(|digest| digest.algorithm()).copied()
            }),
            dissenters,
        }
    }
}

/// Checks that `theirs` may be used together with `ours`.
fn same(ours: &Facts, theirs: &Facts) -> Result<(), String> {
    let mut proved = false;
    for digest in &theirs.digests {
        for known in ours.digests.iter().filter(|known| known.algorithm() == digest.algorithm()) {
            if known != digest {
                return Err(format!("its digest is {digest}, that of the others {known}"));
            }
            proved |= digest.algorithm().is_cryptographic();
        }
    }
    match (Version::of(ours), Version::of(theirs)) {
        (Some(ours), Some(theirs)) => {
            ours.admits(&theirs, proved).map(drop).map_err(|unlike| unlike.to_string())
        }
        (None, None) => Ok(()),
        _ => Err("it does not report its size".to_owned()),
    }
}

/// For people.
fn words(answers: &[Answer], verdict: &Verdict, look: Look) -> String {
    let mut out = String::new();
    for one in answers {
        out.push_str(&one.name);
        out.push('\n');
        let lines = match &one.result {
            Ok(report) => lines(report),
            Err(error) => vec![("unusable", error.to_string())],
        };
        for (label, text) in lines {
            out.push_str(&format!("  {label:<11}  {}\n", look.safe_words(&text)));
        }
        out.push('\n');
    }
    out.push_str(&look.safe_words(&sentence(answers.len(), verdict)));
    out.push('\n');
    let widest = verdict.dissenters.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, reason) in &verdict.dissenters {
        out.push_str(&format!("  {name:<widest$}  {}\n", look.safe_words(reason)));
    }
    out
}

fn sentence(count: usize, verdict: &Verdict) -> String {
    let size = verdict.size_bytes.map_or("of unknown size".to_owned(), units::bytes);
    let proof = match verdict.digest {
        Some(digest) => format!(", {}", digest.algorithm()),
        None => String::new(),
    };
    let left = match count - verdict.usable {
        0 => String::new(),
        1 => "; 1 is unusable".to_owned(),
        more => format!("; {more} are unusable"),
    };
    match (verdict.usable, verdict.dissenters.len()) {
        (0, _) => match count {
            1 => "The replica is unusable.".to_owned(),
            _ => format!("None of the {count} replicas is usable."),
        },
        (1, _) => format!("1 replica is usable ({size}{proof}){left}."),
        (usable, 0) => format!("{usable} replicas agree ({size}{proof}){left}."),
        (usable, _) if verdict.agreeing == 1 => format!(
            "No two of {usable} replicas agree{left}; against the first one ({size}{proof}):"
        ),
        (usable, 1) => format!(
            "{} of {usable} replicas agree ({size}{proof}), 1 disagrees{left}:",
            verdict.agreeing
        ),
        (usable, more) => format!(
            "{} of {usable} replicas agree ({size}{proof}), {more} disagree{left}:",
            verdict.agreeing
        ),
    }
}

fn lines(report: &ProbeReport) -> Vec<(&'static str, String)> {
    let facts = &report.facts;
    let mut lines = Vec::new();
    let size = match facts.size_bytes {
        Some(bytes) if bytes >= 1000 => {
            format!("{} ({} bytes)", units::bytes(bytes), units::count(bytes))
        }
        Some(bytes) => units::bytes(bytes),
        None => "unknown".to_owned(),
    };
    lines.push(("size", size));
    let mut validators = Vec::new();
    match &facts.etag {
        Some(tag) if tag.starts_with("W/") => validators.push(format!("ETag {tag} (weak)")),
        Some(tag) => validators.push(format!("ETag {tag}")),
        None => {}
    }
    validators.extend(facts.last_modified.as_ref().map(|date| format!("modified {date}")));
    lines.push((
        "validators",
        if validators.is_empty() { "none".to_owned() } else { validators.join(", ") },
    ));
    lines.push((
        "ranges",
        match (facts.ranges, facts.size_bytes) {
            (true, _) => "supported",
            (false, Some(0)) => "not needed: the file is empty",
            (false, _) => "not supported: only one stream from the start",
        }
        .to_owned(),
    ));
    match facts.digests.as_slice() {
        [] => lines.push(("digests", "none".to_owned())),
        digests => {
            for (at, digest) in digests.iter().enumerate() {
                lines.push((if at == 0 { "digests" } else { "" }, digest.to_string()));
            }
        }
    }
    let ms = |time: std::time::Duration| units::duration(time.as_secs_f64());
    lines.push((
        "round trip",
        format!("{}, first byte after {}", ms(report.rtt), ms(report.first_byte)),
    ));
    let mut protocol = report.http.join(", ");
    protocol.push_str(if report.keeps_alive {
        ", keeps connections open"
    } else {
        ", closes connections after each answer"
    });
    match report.pipelines {
        Some(true) => protocol.push_str(", pipelines"),
        Some(false) => protocol.push_str(", does not pipeline"),
        None => {}
    }
    lines.push(("protocol", protocol));
    lines.push(("security", report.tls.clone().unwrap_or_else(|| "none (plain http)".to_owned())));
    let server = facts.server.as_ref().map_or(String::new(), |server| format!("{server} "));
    lines.push(("server", format!("{server}at {}", report.peer)));
    lines.extend(facts.content_type.as_ref().map(|media| ("type", media.clone())));
    for (at, to) in report.redirects.iter().enumerate() {
        lines.push((if at == 0 { "redirects" } else { "" }, format!("to {to}")));
    }
    let mirrors: Vec<_> = facts.links.iter().filter(|link| link.is_duplicate()).collect();
    for (at, link) in mirrors.iter().take(MIRRORS_SHOWN).enumerate() {
        let place = link.geo.as_ref().map_or(String::new(), |geo| format!(" ({geo})"));
        lines.push((
            if at == 0 { "mirrors" } else { "" },
            format!("{}{place}", shown(&link.target)),
        ));
    }
    if mirrors.len() > MIRRORS_SHOWN {
        lines.push(("", format!("and {} more", mirrors.len() - MIRRORS_SHOWN)));
    }
    for link in facts.links.iter().filter(|link| link.is_metalink()).take(1) {
        lines.push(("metalink", shown(&link.target)));
    }
    lines
}

/// Returns an address from a server without possible secrets.
fn shown(target: &str) -> String {
    let Ok(url) = Url::parse(target) else { return target.to_owned() };
    // A swath server's Metalinks differ from their files by this alone.
    let query = if url.query() == Some("metalink") { "?metalink" } else { "" };
    display_name(&url) + query
}

/// One replica in JSON; unknown fields are null.
#[derive(Default, Serialize)]
struct Line<'a> {
    url: &'a str,
    usable: bool,
    error: Option<String>,
    size_bytes: Option<u64>,
    etag: Option<&'a str>,
    last_modified: Option<&'a str>,
    ranges: Option<bool>,
    digests: Vec<String>,
    rtt_ms: Option<f64>,
    first_byte_ms: Option<f64>,
    http: Vec<&'static str>,
    tls: Option<&'a str>,
    keeps_alive: Option<bool>,
    pipelines: Option<bool>,
    server: Option<&'a str>,
    address: Option<String>,
    content_type: Option<&'a str>,
    redirects: Vec<&'a str>,
    mirrors: Vec<String>,
    metalinks: Vec<String>,
}

impl<'a> Line<'a> {
    fn of(url: &'a str, report: &'a ProbeReport) -> Line<'a> {
        let facts = &report.facts;
        let targets = |wanted: fn(&swath_formats::Link) -> bool| {
            facts.links.iter().filter(|link| wanted(link)).map(|link| shown(&link.target)).collect()
        };
        let ms = |time: std::time::Duration| Some((time.as_secs_f64() * 1e6).round() / 1e3);
        Line {
            url,
            usable: true,
            error: None,
            size_bytes: facts.size_bytes,
            etag: facts.etag.as_deref(),
            last_modified: facts.last_modified.as_deref(),
            ranges: Some(facts.ranges),
            digests: facts.digests.iter().map(ToString::to_string).collect(),
            rtt_ms: ms(report.rtt),
            first_byte_ms: ms(report.first_byte),
            http: report.http.clone(),
            tls: report.tls.as_deref(),
            keeps_alive: Some(report.keeps_alive),
            pipelines: report.pipelines,
            server: facts.server.as_deref(),
            address: Some(report.peer.to_string()),
            content_type: facts.content_type.as_deref(),
            redirects: report.redirects.iter().map(String::as_str).collect(),
            mirrors: targets(swath_formats::Link::is_duplicate),
            metalinks: targets(swath_formats::Link::is_metalink),
        }
    }
}

/// The verdict in JSON.
#[derive(Serialize)]
struct LastLine<'a> {
    agree: bool,
    usable: usize,
    unusable: usize,
    size_bytes: Option<u64>,
    digest: Option<String>,
    disagree: Vec<Dissent<'a>>,
}

#[derive(Serialize)]
struct Dissent<'a> {
    url: &'a str,
    reason: &'a str,
}

/// For programs.
fn json(answers: &[Answer], verdict: &Verdict) -> String {
    let mut out = String::new();
    let mut push = |line: serde_json::Result<String>| {
        if let Ok(line) = line {
            out.push_str(&line);
            out.push('\n');
        }
    };
    for one in answers {
        push(serde_json::to_string(&match &one.result {
            Ok(report) => Line::of(&one.name, report),
            Err(error) => {
                Line { url: &one.name, error: Some(error.to_string()), ..Line::default() }
            }
        }));
    }
    push(serde_json::to_string(&LastLine {
        agree: verdict.dissenters.is_empty() && verdict.usable > 0,
        usable: verdict.usable,
        unusable: answers.len() - verdict.usable,
        size_bytes: verdict.size_bytes,
        digest: verdict.digest.map(|digest| digest.to_string()),
        disagree: verdict.dissenters.iter().map(|(url, reason)| Dissent { url, reason }).collect(),
    }));
    out
}

/// Replicas queried at the same time.
const AT_ONCE: usize = 64;
/// Mirrors listed per replica.
const MIRRORS_SHOWN: usize = 12;
