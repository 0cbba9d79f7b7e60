//! Judging a response head: what the body is, measured against the range that was asked for.
//!
//! Pure: the lane acts on the verdict. RFC 9110 sections 14 (ranges) and 15 (status codes).

use std::time::Duration;

use swath_formats::{ContentRange, ProxyFault, content_range, http_date, proxy_status};
use swath_model::{Range, RangeSet, counted};

use super::head::{Head, explained, shortened, words};
use crate::error::LaneError;

/// What an answer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The body is data of the file.
    Data {
        /// Offset in the file of the body's first byte.
        starts_at: u64,
        /// Offset just after the last byte, where announced.
        ends_at: Option<u64>,
        /// Size of the whole file, where told.
        size_bytes: Option<u64>,
        /// Whether the range was honoured (otherwise the body is the whole file).
        ranges: bool,
    },
    /// 416 with the size: the range begins behind the end (or the file is empty).
    PastEnd {
        /// Size of the whole file.
        size_bytes: u64,
    },
    /// The file is elsewhere.
    Redirect {
        /// As the server wrote it, perhaps relative.
        location: String,
    },
    /// No data; the reason is final for this request.
    Refused(LaneError),
    /// A depot has some of the file, and not all that was asked for.
    NotHeld {
        /// The size of the whole file.
        size_bytes: u64,
        /// What it does not have, some of what was asked for among it.
        lacking: Vec<Range>,
    },
}

/// Who an answer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Teller {
    /// A server: what it says of proxies is about those before itself.
    Server,
    /// A relay, or its depot, which says in `Proxy-Status` what is its own word.
    Relay,
}

/// Judges `head` as the answer to a GET for `asked` (an end of `u64::MAX` asks for everything
/// from the start on). Interim answers are for whoever reads heads.
pub(crate) fn judge(head: &Head, asked: Range, teller: Teller) -> Answer {
    match head.status {
        100..=199 => Answer::Refused(LaneError::protocol("it changes to another protocol unasked")),
        206 => partial(head, asked),
        200 | 203 if head.field("content-range").is_some() => labelled(head, asked),
        200 | 203 => whole(head),
        301 | 302 | 303 | 307 | 308 => match head.field("location") {
            Some(location) => Answer::Redirect { location: location.to_owned() },
            None => Answer::Refused(LaneError::RedirectInvalid {
                reason: format!("the server answered {} without saying where", head.status),
            }),
        },
        416 => match head.field("content-range").map(content_range::parse) {
            Some(Ok(ContentRange { range: None, size_bytes: Some(size_bytes) })) => {
                // A depot tells what it holds; whoever else refuses what there is is not to be believed.
                let all = Range::new(0, size_bytes);
                match (asked.intersect(all), head.field("swath-held")) {
                    (Some(asked), Some(held)) => {
                        Answer::NotHeld { size_bytes, lacking: lacking(held, all, asked) }
                    }
                    _ => Answer::PastEnd { size_bytes },
                }
            }
            _ => Answer::Refused(status_error(head, teller)),
        },
        _ => Answer::Refused(status_error(head, teller)),
    }
}

/// Judges `head` as the answer to a GET that did not ask for a range: the whole file, or none of it.
pub(crate) fn judge_whole(head: &Head, teller: Teller) -> Answer {
    let all = Range::new(0, u64::MAX);
    let Some(text) = head.field("content-range").filter(|_| matches!(head.status, 200 | 203 | 206))
    else {
        return judge(head, all, teller);
    };
    let length = head.content_length().ok().flatten();
    match content_range::parse(text) {
        Ok(ContentRange { range: Some(bytes), size_bytes: Some(size) })
            if bytes == Range::new(0, size) || length == Some(size) =>
        {
            whole_of(head, size)
        }
        // It says nothing that contradicts.
        Err(_) if head.status != 206 => whole(head),
        _ => Answer::Refused(LaneError::WrongRange {
            reason: format!("asked for the whole file, the answer holds {}", shortened(text)),
        }),
    }
}

/// A 200 that says which range it holds. Some file servers and storage gateways honour ranges and
/// have the status wrong; who believes the status takes a part for the file.
fn labelled(head: &Head, asked: Range) -> Answer {
    let said = head.field("content-range").map(content_range::parse);
    match said {
        Some(Ok(ContentRange { range: Some(bytes), size_bytes: Some(size) }))
            if bytes == Range::new(0, size) =>
        {
            whole_of(head, size)
        }
        _ => partial(head, asked),
    }
}

/// The whole file of this size.
fn whole_of(head: &Head, size: u64) -> Answer {
    match whole(head) {
        Answer::Data { size_bytes: Some(length), .. } if length != size => {
            Answer::Refused(LaneError::WrongRange {
                reason: format!(
                    "all of {} in a body of {}",
                    counted(size, "byte"),
                    counted(length, "byte")
                ),
            })
        }
        Answer::Data { starts_at, ranges, .. } => {
            Answer::Data { starts_at, ends_at: Some(size), size_bytes: Some(size), ranges }
        }
        other => other,
    }
}

/// What a depot lacks of `all`, which lacks some of what was asked for, by the field that names what it
/// holds: `0-99, 200-299`, and `...` where that is not all.
fn lacking(held: &str, all: Range, asked: Range) -> Vec<Range> {
    let mut told = RangeSet::new();
    let mut known = all;
    for part in held.split(',').map(str::trim) {
        let range = part.split_once('-').and_then(|(first, last)| {
            let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
            Range::new(first, last.checked_add(1)?.max(first)).intersect(all)
        });
        match range {
            Some(range) => {
                told.insert(range);
            }
            // Of what comes after it nothing is known.
            None => {
                known.end = told.last().map_or(0, |last| last.end);
                break;
            }
        }
    }
    if held.trim().is_empty() {
        known = all;
    }
    let gaps = told.gaps_within(known);
    if gaps.iter().any(|gap| gap.intersect(asked).is_some()) {
        return gaps;
    }
    gaps.into_iter().chain([asked]).collect()
}

fn partial(head: &Head, asked: Range) -> Answer {
    let wrong = |reason: String| Answer::Refused(LaneError::WrongRange { reason });
    let Some(text) = head.field("content-range") else {
        return wrong(format!("asked for {asked}, the answer does not say what it holds"));
    };
    let (bytes, size_bytes) = match content_range::parse(text) {
        Ok(ContentRange { range: Some(bytes), size_bytes }) => (bytes, size_bytes),
        Ok(_) => return wrong(format!("asked for {asked}, the answer holds nothing")),
        Err(error) => return wrong(error.to_string()),
    };
    if bytes.start != asked.start || bytes.end > asked.end {
        return wrong(format!("asked for {asked}, the answer holds {bytes}"));
    }
    match head.content_length() {
        Ok(Some(length)) if length != bytes.len() => wrong(format!(
            "a range of {} in a body of {}",
            counted(bytes.len(), "byte"),
            counted(length, "byte")
        )),
        Err(error) => Answer::Refused(LaneError::protocol(error.to_string())),
        Ok(_) => Answer::Data {
            starts_at: bytes.start,
            ends_at: Some(bytes.end),
            size_bytes,
            ranges: true,
        },
    }
}

fn whole(head: &Head) -> Answer {
    match head.content_length() {
        Ok(length) => {
            // Chunked bodies may carry a length that does not count.
            let length = if head.is_chunked().unwrap_or(true) { None } else { length };
            Answer::Data { starts_at: 0, ends_at: length, size_bytes: length, ranges: false }
        }
        Err(error) => Answer::Refused(LaneError::protocol(error.to_string())),
    }
}

fn status_error(head: &Head, teller: Teller) -> LaneError {
    if head.field("swath-lost").is_some() {
        return LaneError::DepotLost;
    }
    if matches!(head.status, 404 | 410) && head.field("swath-lease") == Some("0") {
        return LaneError::LeaseEnded;
    }
    let told = head.fields("proxy-status").filter_map(proxy_status::read).last();
    if let Some(told) = told.filter(|_| teller == Teller::Relay) {
        let reason = match told.details {
            Some(details) => words(&details),
            None => explained(head, b"").to_string(),
        };
        let fault = told.fault.or(ProxyFault::of_status(head.status));
        return LaneError::Relay { relay: shortened(&told.proxy), fault, reason };
    }
    LaneError::status(head.status, explained(head, b""), retry_after(head))
}

/// `Retry-After` in seconds; the date form counts from the server's own `Date`.
pub(crate) fn retry_after(head: &Head) -> Option<Duration> {
    let now_s = head.field("date").and_then(http_date::parse);
    // Without the server's own clock a date means nothing; as if long past it means "now".
    let seconds = http_date::retry_after_s(head.field("retry-after")?, now_s.unwrap_or(u64::MAX))?;
    Some(Duration::from_secs(seconds.min(RETRY_AFTER_LIMIT_S)))
}

/// Nobody is made to wait longer than this by a header.
const RETRY_AFTER_LIMIT_S: u64 = 24 * 3600;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Class;

    fn verdict(text: &str, start: u64, end: u64) -> Answer {
        let text = text.replace('\n', "\r\n") + "\r\n\r\n";
        judge(
            &Head::parse(text.as_bytes()).unwrap().unwrap().0,
            Range::new(start, end),
            Teller::Relay,
        )
    }

    #[test]
    fn what_a_depot_lacks_is_told_from_what_it_holds() {
        let all = Range::new(0, 1000);
        let lacks = |held, start, end| {
            let gaps = lacking(held, all, Range::new(start, end));
            gaps.into_iter().map(|gap| (gap.start, gap.end)).collect::<Vec<_>>()
        };
        assert_eq!(lacks("0-99, 200-999", 50, 300), [(100, 200)]);
        assert_eq!(lacks("0-99, 200-299", 50, 150), [(100, 200), (300, 1000)]);
        assert_eq!(lacks("", 50, 150), [(0, 1000)]);
        // Behind the dots there may be more.
        assert_eq!(lacks("0-99, 200-299, ...", 50, 150), [(100, 200)]);
        assert_eq!(lacks("0-99, 200-299, ...", 400, 500), [(100, 200), (400, 500)]);
        // Whatever it says, it refused this.
        assert_eq!(lacks("0-999", 50, 150), [(50, 150)]);
        for nonsense in ["x", "-", "5-", "9-3", "0-18446744073709551615", "99999-100000", ","] {
            assert!(lacks(nonsense, 0, 10).iter().any(|gap| gap.0 == 0), "{nonsense}");
        }
    }

    #[test]
    fn ranges_are_taken_only_as_asked() {
        let good = "HTTP/1.1 206 OK\nContent-Range: bytes 10-19/100\nContent-Length: 10";
        assert_eq!(
            verdict(good, 10, 20),
            Answer::Data { starts_at: 10, ends_at: Some(20), size_bytes: Some(100), ranges: true }
        );
        for (start, end) in [(9, 20), (11, 20), (10, 15), (0, 5)] {
            assert!(
                matches!(verdict(good, start, end), Answer::Refused(LaneError::WrongRange { .. })),
                "{start}-{end}"
            );
        }
        for bad in [
            "bytes 19-10/100",
            "bytes 10-19/15",
            "lines 10-19/100",
            "bytes 10-19",
            "bytes -19/100",
            "junk",
        ] {
            let text = format!("HTTP/1.1 206 OK\nContent-Range: {bad}");
            assert!(
                matches!(verdict(&text, 10, 20), Answer::Refused(LaneError::WrongRange { .. })),
                "{bad}"
            );
        }
        let short_body = "HTTP/1.1 206 OK\nContent-Range: bytes 10-19/100\nContent-Length: 9";
        assert!(matches!(
            verdict(short_body, 10, 20),
            Answer::Refused(LaneError::WrongRange { .. })
        ));
    }

    /// Seafile's file server sent parts with the status 200, and swath gave 4 MB of 30 MB the file's
    /// name.
    #[test]
    fn a_part_with_the_status_of_a_whole_is_a_part() {
        let part = |status| {
            format!("HTTP/1.1 {status} OK\nContent-Range: bytes 0-9/100\nContent-Length: 10")
        };
        for status in [200, 203, 206] {
            assert_eq!(
                verdict(&part(status), 0, 10),
                Answer::Data {
                    starts_at: 0,
                    ends_at: Some(10),
                    size_bytes: Some(100),
                    ranges: true
                }
            );
            assert!(matches!(
                verdict(&part(status), 5, 15),
                Answer::Refused(LaneError::WrongRange { .. })
            ));
        }
        let all =
            Answer::Data { starts_at: 0, ends_at: Some(9), size_bytes: Some(9), ranges: false };
        let whole = "HTTP/1.1 200 OK\nContent-Range: bytes 0-8/9";
        assert_eq!(verdict(whole, 4, 100), all);
        assert_eq!(verdict(&format!("{whole}\nContent-Length: 9"), 0, 100), all);
        for lie in ["Content-Length: 8", "Content-Length: 10"] {
            let text = format!("{whole}\n{lie}");
            assert!(matches!(
                verdict(&text, 0, 100),
                Answer::Refused(LaneError::WrongRange { .. })
            ));
        }
    }

    #[test]
    fn who_asks_for_no_range_takes_no_part() {
        let of = |text: &str| {
            let text = text.replace('\n', "\r\n") + "\r\n\r\n";
            judge_whole(&Head::parse(text.as_bytes()).unwrap().unwrap().0, Teller::Relay)
        };
        let all =
            Answer::Data { starts_at: 0, ends_at: Some(9), size_bytes: Some(9), ranges: false };
        for good in [
            "HTTP/1.1 200 OK\nContent-Length: 9",
            "HTTP/1.1 206 OK\nContent-Range: bytes 0-8/9\nContent-Length: 9",
            "HTTP/1.1 200 OK\nContent-Range: bytes 0-3/9\nContent-Length: 9",
            "HTTP/1.1 200 OK\nContent-Range: junk\nContent-Length: 9",
        ] {
            assert_eq!(of(good), all, "{good}");
        }
        for bad in [
            "HTTP/1.1 206 OK\nContent-Length: 9",
            "HTTP/1.1 206 OK\nContent-Type: multipart/byteranges; boundary=x\nContent-Length: 9",
            "HTTP/1.1 206 OK\nContent-Range: bytes 0-3/9\nContent-Length: 4",
            "HTTP/1.1 200 OK\nContent-Range: bytes 0-3/9\nContent-Length: 4",
            "HTTP/1.1 200 OK\nContent-Range: bytes 0-3/*\nContent-Length: 4",
            "HTTP/1.1 416 No\nContent-Length: 9",
        ] {
            assert!(matches!(of(bad), Answer::Refused(_)), "{bad}");
        }
    }

    #[test]
    fn a_server_without_ranges_sends_everything() {
        assert_eq!(
            verdict("HTTP/1.1 200 OK\nContent-Length: 7", 3, 5),
            Answer::Data { starts_at: 0, ends_at: Some(7), size_bytes: Some(7), ranges: false }
        );
        assert_eq!(
            verdict("HTTP/1.1 200 OK\nTransfer-Encoding: chunked", 3, 5),
            Answer::Data { starts_at: 0, ends_at: None, size_bytes: None, ranges: false }
        );
    }

    #[test]
    fn an_empty_file_and_an_impatient_server() {
        assert_eq!(
            verdict("HTTP/1.1 416 No\nContent-Range: bytes */0", 0, 9),
            Answer::PastEnd { size_bytes: 0 }
        );
        let Answer::Refused(busy) = verdict("HTTP/1.1 503 Busy\nRetry-After: 7", 0, 9) else {
            panic!()
        };
        assert_eq!(busy.class(), Class::Busy(Duration::from_secs(7)));
        assert_eq!(busy.to_string(), "the server answered 503 Busy");
    }

    #[test]
    fn what_a_server_says_of_its_own_proxies_blames_no_relay() {
        let text = "HTTP/1.1 503 Busy\r\nProxy-Status: cdn; error=connection_refused\r\n\r\n";
        let head = Head::parse(text.as_bytes()).unwrap().unwrap().0;
        let judged = |teller| match judge(&head, Range::new(0, 10), teller) {
            Answer::Refused(error) => error,
            other => panic!("{other:?}"),
        };
        assert!(judged(Teller::Server).code() == Some(503));
        assert!(matches!(judged(Teller::Relay), LaneError::Relay { .. }));
    }
}
