//! `netlab serve`: a faulty server from the command line, for demos and trials by hand.
//!
//! The first line on standard output is the URL; the server then runs until it is killed, or,
//! with `--until-eof`, until standard input ends, so that a script that dies leaves nothing.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::behaviour::{Behaviour, Death, RangeLie, Scope};
use super::content::{Algorithm, Content};
use super::server::{Builder, Server};
use super::tls::{Certificate, ca_pem};

/// What to serve, and what is wrong with it. Sizes take k, M, G (powers of 1000) and Ki, Mi, Gi
/// (powers of 1024), with or without B; rates may end in /s; times take ms, s and m.
#[derive(Args, Clone, Debug, Default)]
pub struct ServeArgs {
    /// Size of the pseudo-random file
    #[arg(long, default_value = "1GiB", value_parser = size)]
    pub size: u64,
    /// Seed of the pseudo-random file: servers with one seed are replicas
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
    /// Make the pseudo-random file one of zeros, with a MiB of other bytes in every GiB
    #[arg(long, conflicts_with = "file")]
    pub sparse: bool,
    /// Serve this file in place of a pseudo-random one
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The path to serve it at
    #[arg(long, default_value = "/data.bin")]
    pub path: String,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Listen on ::1 in place of 127.0.0.1
    #[arg(long)]
    pub ipv6: bool,
    /// Speak TLS
    #[arg(long, value_enum, value_name = "CERTIFICATE", num_args = 0..=1, default_missing_value = "valid")]
    pub tls: Option<Certificate>,
    /// Write the authority's certificate here
    #[arg(long, value_name = "FILE")]
    pub ca_out: Option<PathBuf>,
    /// Stop when standard input ends
    #[arg(long)]
    pub until_eof: bool,
    /// Print a digest of the file on the second line
    #[arg(long, value_enum, value_name = "ALGORITHM")]
    pub digest: Option<Algorithm>,

    /// Bytes per second, shared by all connections
    #[arg(long, value_parser = size, value_name = "RATE")]
    pub rate: Option<u64>,
    /// Bytes per second of each connection
    #[arg(long, value_parser = size, value_name = "RATE")]
    pub connection_rate: Option<u64>,
    /// Time before the first byte of each answer
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub delay: Option<Duration>,
    /// Pause the whole server after this many bytes
    #[arg(long, value_parser = size, value_name = "BYTES")]
    pub stall_after: Option<u64>,
    /// How long that pause lasts
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "5s")]
    pub stall_for: Duration,
    /// Send nothing more after this time
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub silent_after: Option<Duration>,
    /// Die after sending this many bytes
    #[arg(long, value_parser = size, value_name = "BYTES")]
    pub die_after_bytes: Option<u64>,
    /// Die after this time
    #[arg(long, value_parser = duration, value_name = "TIME", conflicts_with = "die_after_bytes")]
    pub die_after: Option<Duration>,
    /// Come back this long after dying
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub back_after: Option<Duration>,
    /// End each body, and its connection, after this many bytes
    #[arg(long, value_parser = size, value_name = "BYTES")]
    pub truncate_after: Option<u64>,
    /// Reset each connection after this many bytes
    #[arg(long, value_parser = size, value_name = "BYTES")]
    pub reset_after: Option<u64>,
    /// Corrupt the byte at this offset; may be repeated
    #[arg(long, value_parser = size, value_name = "OFFSET")]
    pub corrupt_at: Vec<u64>,
    /// Become another file (the next seed) after this many bytes
    #[arg(long, value_parser = size, value_name = "BYTES")]
    pub change_after: Option<u64>,
    /// Ignore Range
    #[arg(long)]
    pub no_ranges: bool,
    /// Shift Content-Range by this much
    #[arg(long, allow_hyphen_values = true, value_name = "BYTES")]
    pub shift_content_range: Option<i64>,
    /// Say a Content-Length that is wrong by this much
    #[arg(long, allow_hyphen_values = true, value_name = "BYTES")]
    pub length_lie: Option<i64>,
    /// Chunked transfer encoding
    #[arg(long)]
    pub chunked: bool,
    /// Label the content as gzip, and make it so where it is small
    #[arg(long)]
    pub gzip: bool,
    /// Answer with this status
    #[arg(long, value_name = "CODE")]
    pub status: Option<u16>,
    /// Seconds of Retry-After beside --status
    #[arg(long, value_name = "SECONDS")]
    pub retry_after: Option<u64>,
    /// Answer with --status only to the first so many requests
    #[arg(long, value_name = "COUNT")]
    pub first: Option<u64>,
    /// An HTML page with status 200
    #[arg(long)]
    pub html_page: bool,
    /// Redirect to this URL
    #[arg(long, value_name = "URL")]
    pub redirect: Option<String>,
    /// Redirect for ever
    #[arg(long)]
    pub redirect_loop: bool,
    /// 401 unless the Authorization header is this
    #[arg(long, value_name = "VALUE")]
    pub authorization: Option<String>,
    /// Connection: close after each answer
    #[arg(long)]
    pub close: bool,
    /// Close each connection after so many requests
    #[arg(long, value_name = "COUNT")]
    pub max_requests: Option<u64>,
    /// Answer as HTTP/1.0
    #[arg(long)]
    pub http10: bool,
    /// One more header, "Name: value"; may be repeated
    #[arg(long, value_name = "HEADER")]
    pub header: Vec<String>,
}

impl ServeArgs {
    /// Returns the server that these arguments describe.
    ///
    /// # Errors
    /// When the file cannot be opened, or a header has no colon.
    pub fn builder(&self) -> io::Result<Builder> {
        let content = match &self.file {
            Some(file) => Content::file(file)?,
            None if self.sparse => Content::sparse(self.seed, self.size),
            None => Content::random(self.seed, self.size),
        };
        let mut builder = Server::builder().port(self.port).file(&self.path, content);
        if self.ipv6 {
            builder = builder.ipv6();
        }
        if let Some(certificate) = self.tls {
            builder = builder.tls(certificate);
        }
        if let Some(code) = self.status {
            let refusal = Behaviour::Status { code, retry_after_s: self.retry_after };
            builder = builder.behaviour(match self.first {
                Some(count) => refusal.first(count),
                None => refusal.into(),
            });
        }
        for header in &self.header {
            let (name, value) = header.split_once(':').ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidInput, "a header is \"Name: value\"")
            })?;
            builder = builder.behaviour(Behaviour::header(name.trim(), value.trim()));
        }
        Ok(self.behaviours().into_iter().fold(builder, Builder::behaviour))
    }

    fn behaviours(&self) -> Vec<Behaviour> {
        let back_after = self.back_after;
        let flags = [
            (self.no_ranges, Behaviour::NoRanges),
            (self.chunked, Behaviour::Chunked { chunk_bytes: 64 << 10 }),
            (self.gzip, Behaviour::Gzip),
            (self.html_page, Behaviour::HtmlPage),
            (self.redirect_loop, Behaviour::RedirectLoop { status: 302 }),
            (self.close, Behaviour::Close),
            (self.http10, Behaviour::Http10),
        ];
        let values = [
            self.rate.map(Behaviour::rate),
            self.connection_rate.map(|bytes_per_s| Behaviour::ConnectionRate { bytes_per_s }),
            self.delay.map(Behaviour::FirstByteDelay),
            self.stall_after.map(|after_bytes| Behaviour::Stall {
                after_bytes,
                lasts: self.stall_for,
                scope: Scope::Server,
            }),
            self.silent_after.map(|after| Behaviour::Silent { after }),
            self.die_after_bytes
                .map(|bytes| Behaviour::Die { at: Death::Bytes(bytes), back_after }),
            self.die_after.map(|time| Behaviour::Die { at: Death::Time(time), back_after }),
            self.truncate_after.map(|after_bytes| Behaviour::Truncate { after_bytes }),
            self.reset_after.map(|after_bytes| Behaviour::Drop { after_bytes, reset: true }),
            self.change_after.map(|bytes| Behaviour::ChangeAfter {
                bytes,
                content: Content::random(self.seed.wrapping_add(1), self.size),
            }),
            self.shift_content_range.map(|by| Behaviour::ContentRange(RangeLie::Header(by))),
            self.length_lie.map(|by| Behaviour::LengthLie { by }),
            self.redirect.clone().map(Behaviour::redirect),
            self.authorization.clone().map(Behaviour::RequireAuthorization),
            self.max_requests.map(|max_requests| Behaviour::KeepAlive {
                max_requests,
                timeout: Duration::from_secs(5),
            }),
        ];
        let flags = flags.into_iter().filter(|(set, _)| *set).map(|(_, behaviour)| behaviour);
        let corruptions = self.corrupt_at.iter().map(|at| Behaviour::CorruptByte { at: *at });
        flags.chain(values.into_iter().flatten()).chain(corruptions).collect()
    }
}

/// Serves until killed, or until standard input ends where asked to.
///
/// # Errors
/// When the server cannot start, or standard output cannot be written.
pub fn run(args: &ServeArgs) -> io::Result<()> {
    if let Some(file) = &args.ca_out {
        std::fs::write(file, ca_pem()?)?;
    }
    let server = args.builder()?.start()?;
    let mut out = io::stdout();
    writeln!(out, "{}", server.url(&args.path))?;
    if let Some(algorithm) = args.digest {
        let content = match &args.file {
            Some(file) => Content::file(file)?,
            None if args.sparse => Content::sparse(args.seed, args.size),
            None => Content::random(args.seed, args.size),
        };
        writeln!(out, "{}:{}", algorithm.name(), content.digest_hex(algorithm))?;
    }
    out.flush()?;
    if args.until_eof {
        io::stdin().read_to_end(&mut Vec::new())?;
    } else {
        loop {
            std::thread::park();
        }
    }
    Ok(())
}

/// Reads `1GiB`, `20MB/s`, `4k`, `100`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let trimmed = text.trim().trim_end_matches("/s").trim_end_matches('B');
    let digits_end =
        trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits_end);
    let factor = match unit.trim() {
        "" => 1u64,
        "k" | "K" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        other => return Err(format!("unknown unit {other:?}")),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(|| "too large".to_owned());
    }
    let number: f64 = number.parse().map_err(|_| "not a number".to_owned())?;
    Ok((number * factor as f64) as u64)
}

/// Reads `150ms`, `5s`, `2m`, and plain seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let (number, factor) = if let Some(number) = text.strip_suffix("ms") {
        (number, 0.001)
    } else if let Some(number) = text.strip_suffix('s') {
        (number, 1.0)
    } else if let Some(number) = text.strip_suffix('m') {
        (number, 60.0)
    } else {
        (text, 1.0)
    };
    let number: f64 = number.trim().parse().map_err(|_| "not a time".to_owned())?;
    Duration::try_from_secs_f64(number * factor).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn parse(line: &str) -> ServeArgs {
        use clap::Parser as _;
        Command::try_parse_from(line.split(' ')).unwrap().serve
    }

    #[test]
    fn sizes_and_times_as_people_write_them() {
        let sizes = [("1GiB", 1 << 30), ("20MB/s", 20_000_000), ("4k", 4000), ("100", 100)];
        for (text, bytes) in sizes.into_iter().chain([("1.5Ki", 1536), ("0B", 0)]) {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        assert!(size("x").is_err() && size("1X").is_err() && size("99999999T").is_err());
        assert_eq!(duration("150ms"), Ok(Duration::from_millis(150)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("0.5"), Ok(Duration::from_millis(500)));
        assert!(duration("-1s").is_err() && duration("soon").is_err());
    }

    #[test]
    fn arguments_become_a_server() {
        let args = parse("serve --size 10MiB --rate 20MB/s --die-after-bytes 5MiB --tls --close");
        assert_eq!(args.certificate_name(), Some("valid"));
        assert_eq!(args.behaviours().len(), 3);
        let server = args.builder().unwrap().start().unwrap();
        assert!(server.url("/data.bin").starts_with("https://127.0.0.1:"));
        assert!(parse("serve --header nonsense").builder().is_err());
    }

    impl ServeArgs {
        fn certificate_name(&self) -> Option<&'static str> {
            self.tls.map(|certificate| match certificate {
                Certificate::Valid => "valid",
                Certificate::WrongName => "wrong-name",
                Certificate::Expired => "expired",
                Certificate::SelfSigned => "self-signed",
            })
        }
    }
}
