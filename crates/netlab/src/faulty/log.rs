//! What a server was asked and what it sent, for tests to assert on: that credentials did not
//! leak, that no range was fetched twice, how many requests and connections it took.

use std::ops::Range;
use std::time::Duration;

/// One request and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The place of the request among all of the server, from 0.
    pub number: u64,
    /// The connection that it came on, from 0.
    pub connection: u64,
    /// The method.
    pub method: String,
    /// The path, without a query.
    pub path: String,
    /// The request target as sent.
    pub target: String,
    /// The headers as sent, in order.
    pub headers: Vec<(String, String)>,
    /// The range of the file that the answer covers, half-open; `None` where the answer is not
    /// the file.
    pub range: Option<Range<u64>>,
    /// The status, 0 while there is none.
    pub status: u16,
    /// Body bytes handed to the kernel so far.
    pub sent_bytes: u64,
    /// When the request had arrived, since the start of the server.
    pub started: Duration,
    /// When the answer had left or was broken off, since the start of the server.
    pub ended: Option<Duration>,
    /// Whether the whole announced answer left.
    pub complete: bool,
}

impl Record {
    /// Returns the value of a header, its name in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    /// Returns the `Range` header.
    pub fn range_header(&self) -> Option<&str> {
        self.header("range")
    }

    /// Returns whether the request carried credentials of any kind.
    pub fn has_credentials(&self) -> bool {
        ["authorization", "cookie", "proxy-authorization"]
            .iter()
            .any(|name| self.header(name).is_some())
            || self.target.contains("authz=")
            || self.target.contains("access_token=")
    }

    /// The part of the file that left, as far as the answer was the file.
    pub fn delivered(&self) -> Option<Range<u64>> {
        let range = self.range.clone()?;
        let end = range.end.min(range.start + self.sent_bytes);
        (end > range.start).then_some(range.start..end)
    }
}

/// All requests of a server in the order of their arrival.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// The requests.
    pub records: Vec<Record>,
}

impl Log {
    /// Returns the number of requests.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns whether nobody asked for anything.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the requests for one path.
    pub fn on(&self, path: &str) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(move |record| record.path == path)
    }

    /// Returns the number of requests with this method.
    pub fn count(&self, method: &str) -> usize {
        self.records.iter().filter(|record| record.method == method).count()
    }

    /// Returns the number of connections that brought a request.
    pub fn connections(&self) -> usize {
        let mut numbers: Vec<u64> = self.records.iter().map(|record| record.connection).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.len()
    }

    /// Returns how many connections had an answer under way at the same time, at most.
    pub fn connections_at_once(&self) -> usize {
        let open_at = |at: Duration| {
            let is_open =
                |it: &&Record| it.started <= at && it.ended.is_none_or(|ended| at < ended);
            let mut numbers: Vec<u64> =
                self.records.iter().filter(is_open).map(|it| it.connection).collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers.len()
        };
        self.records.iter().map(|record| open_at(record.started)).max().unwrap_or(0)
    }

    /// Returns whether any request carried credentials.
    pub fn has_credentials(&self) -> bool {
        self.records.iter().any(Record::has_credentials)
    }

    /// Body bytes sent for this path, repeats and error pages included.
    pub fn sent_bytes(&self, path: &str) -> u64 {
        self.on(path).map(|record| record.sent_bytes).sum()
    }

    /// Returns bytes of the file at this path that left more than once.
    pub fn repeated_bytes(&self, path: &str) -> u64 {
        let mut ranges: Vec<Range<u64>> = self.on(path).filter_map(Record::delivered).collect();
        ranges.sort_by_key(|range| range.start);
        let (mut covered_to, mut repeated) = (0, 0);
        for range in ranges {
            repeated += covered_to.min(range.end).saturating_sub(range.start);
            covered_to = covered_to.max(range.end);
        }
        repeated
    }
}

/// Returns the first header of this name, in any case.
pub(super) fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(range: Range<u64>, sent_bytes: u64) -> Record {
        Record {
            number: 0,
            connection: range.start,
            method: "GET".into(),
            path: "/f".into(),
            target: "/f".into(),
            headers: vec![("RANGE".into(), "bytes=0-".into())],
            range: Some(range),
            status: 206,
            sent_bytes,
            started: Duration::ZERO,
            ended: None,
            complete: false,
        }
    }

    #[test]
    fn repeats_are_counted_over_what_really_left() {
        let log = Log { records: vec![record(50..100, 50), record(0..100, 60), record(90..95, 5)] };
        assert_eq!(log.repeated_bytes("/f"), 15);
        assert_eq!(log.repeated_bytes("/other"), 0);
        assert_eq!(log.sent_bytes("/f"), 115);
        assert_eq!(log.connections(), 3);
        assert_eq!(log.records[0].range_header(), Some("bytes=0-"));
    }

    #[test]
    fn credentials_hide_in_queries_too() {
        let mut one = record(0..1, 1);
        assert!(!one.has_credentials());
        one.target = "/f?authz=Bearer%20x".into();
        assert!(one.has_credentials());
    }
}
