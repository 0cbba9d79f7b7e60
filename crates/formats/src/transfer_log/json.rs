//! Logs as JSON: what `globus task list --format json` and FTS print of transfers, and swath's own
//! history.
//!
//! Any object that has the [`MEMBERS`] of a transfer is one, wherever it is: in an array, in the member
//! of another object, or one after the other.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::table::Meaning;
use super::{
    COUNT_MAX, FACTS, Left, LogError, LogPlace, LogProblem, LoggedTransfer, Metered, SHOWN_CHARS,
    TIME_MAX_S, duration, iso_s, name, place_name,
};
use crate::text::shown;

/// The known names of members, what they mean, and in units of what (seconds or bytes) numbers are. Of
/// several with the same meaning the first counts.
const MEMBERS: [(&str, Member, f64); 32] = [
    // Globus.
    ("request_time", Member::Of(Meaning::Start), 1.0),
    ("completion_time", Member::Of(Meaning::End), 1.0),
    ("bytes_transferred", Member::Of(Meaning::Bytes), 1.0),
    ("files_transferred", Member::Of(Meaning::Files), 1.0),
    ("source_endpoint_display_name", Member::Of(Meaning::From), 1.0),
    ("source_endpoint_id", Member::Of(Meaning::From), 1.0),
    ("destination_endpoint_display_name", Member::Of(Meaning::To), 1.0),
    ("destination_endpoint_id", Member::Of(Meaning::To), 1.0),
    ("status", Member::State, 1.0),
    ("type", Member::Type, 1.0),
    // FTS: the files of jobs, …
    ("start_time", Member::Of(Meaning::Start), 1.0),
    ("finish_time", Member::Of(Meaning::End), 1.0),
    ("tx_duration", Member::Of(Meaning::Took), 1.0),
    ("filesize", Member::Of(Meaning::Bytes), 1.0),
    ("source_surl", Member::Of(Meaning::From), 1.0),
    ("dest_surl", Member::Of(Meaning::To), 1.0),
    ("file_state", Member::State, 1.0),
    // … and its messages about transfers.
    ("tr_timestamp_start", Member::Of(Meaning::Start), 1e-3),
    ("tr_timestamp_complete", Member::Of(Meaning::End), 1e-3),
    ("f_size", Member::Of(Meaning::Bytes), 1.0),
    ("src_url", Member::Of(Meaning::From), 1.0),
    ("dst_url", Member::Of(Meaning::To), 1.0),
    ("t_final_transfer_state", Member::State, 1.0),
    // swath.
    ("start", Member::Of(Meaning::Start), 1.0),
    ("duration", Member::Of(Meaning::Took), 1.0),
    ("bytes", Member::Of(Meaning::Bytes), 1.0),
    ("files", Member::Of(Meaning::Files), 1.0),
    ("from", Member::Of(Meaning::From), 1.0),
    ("to", Member::Of(Meaning::To), 1.0),
    ("kind", Member::Of(Meaning::Kind), 1.0),
    ("limit_bytes_per_s", Member::Of(Meaning::Limit), 1.0),
    ("complete", Member::State, 1.0),
];

/// The states of complete transfers.
const COMPLETE: [&str; 5] = ["succeeded", "finished", "ok", "archiving", "true"];

/// Whether what comes is JSON, by its first character.
///
/// # Errors
/// As [`BufRead::fill_buf`].
pub fn is_json(input: &mut impl BufRead) -> io::Result<bool> {
    let begin = input.fill_buf()?;
    let first = begin.iter().find(|byte| !byte.is_ascii_whitespace());
    Ok(first.is_some_and(|byte| matches!(byte, b'{' | b'[')))
}

/// Reads a log, and tells of each transfer and of each record that cannot be used, until `tell` returns
/// false.
pub fn read_json(input: impl Read, tell: &mut dyn FnMut(Result<LoggedTransfer, LogError>) -> bool) {
    let (metered, left) = Metered::new(input);
    let mut walk = Walk { left, records: 0, tell, is_over: false };
    let mut json = serde_json::Deserializer::from_reader(BufReader::new(metered));
    // Until nothing but blanks comes.
    while json.end().is_err() {
        match Seed(&mut walk).deserialize(&mut json) {
            _ if walk.is_over => return,
            Ok(()) => {}
            Err(error) => {
                let problem = match error.io_error_kind() {
                    Some(io::ErrorKind::FileTooLarge) => LogProblem::TooLong,
                    Some(_) => LogProblem::Read(error.into()),
                    None => LogProblem::NotJson(error),
                };
                walk.end(Err(problem));
                return;
            }
        }
    }
}

/// What a member says of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Of(Meaning),
    /// Whether it is complete.
    State,
    /// Whether it is a transfer.
    Type,
}

/// A walk through all values of a log.
struct Walk<'a> {
    left: Left,
    records: u64,
    tell: &'a mut dyn FnMut(Result<LoggedTransfer, LogError>) -> bool,
    is_over: bool,
}

impl Walk<'_> {
    fn end(&mut self, record: Result<LoggedTransfer, LogProblem>) {
        self.records += 1;
        let place = LogPlace::Record(self.records);
        let told = record.map_err(|problem| LogError { place, problem });
        self.is_over |= !(self.tell)(told);
    }
}

/// What a value is, if it is no array and no object.
#[derive(Clone, Debug)]
enum Scalar {
    Nothing,
    Number(f64),
    Text(String),
}

/// Reads a value: what it is itself, and the transfers that are in it.
struct Seed<'s, 'w>(&'s mut Walk<'w>);

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        ScalarSeed(self.0).deserialize(from).map(drop)
    }
}

struct ScalarSeed<'s, 'w>(&'s mut Walk<'w>);

impl<'de> DeserializeSeed<'de> for ScalarSeed<'_, '_> {
    type Value = Scalar;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Scalar, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ScalarSeed<'_, '_> {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Scalar, E> {
        Ok(Scalar::Nothing)
    }

    fn visit_bool<E>(self, is: bool) -> Result<Scalar, E> {
        Ok(Scalar::Text(is.to_string()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number as f64))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar, A::Error> {
        loop {
            self.0.left.renew();
            if self.0.is_over {
                // Only a broken connection to whoever listens ends it early.
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    self.0.left.renew();
                }
            }
            if seq.next_element_seed(Seed(self.0))?.is_none() {
                return Ok(Scalar::Nothing);
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar, A::Error> {
        let mut record = Record::default();
        while let Some(name) = map.next_key::<String>()? {
            let value = map.next_value_seed(ScalarSeed(self.0))?;
            record.learn(&name, value);
        }
        self.0.left.renew();
        if let Some(told) = record.told() {
            self.0.end(told);
        }
        Ok(Scalar::Nothing)
    }
}

/// The known members of an object, each at its place in [`MEMBERS`].
#[derive(Default)]
struct Record {
    values: [Option<Scalar>; MEMBERS.len()],
}

impl Record {
    fn learn(&mut self, name: &str, value: Scalar) {
        if let Some(at) = MEMBERS.iter().position(|(known, ..)| *known == name)
            && !matches!(value, Scalar::Nothing)
        {
            self.values[at] = Some(value);
        }
    }

    fn find(&self, wanted: Member) -> Option<(usize, &Scalar)> {
        let at = (0..MEMBERS.len()).filter(|&at| MEMBERS[at].1 == wanted);
        at.filter_map(|at| Some((at, self.values[at].as_ref()?))).next()
    }

    /// Returns the transfer, or what is wrong with it; `None` if it is something else.
    fn told(&self) -> Option<Result<LoggedTransfer, LogProblem>> {
        let bytes = self.find(Member::Of(Meaning::Bytes))?;
        let start = self.find(Member::Of(Meaning::Start))?;
        Some(self.transfer(bytes, start))
    }

    fn transfer(
        &self,
        bytes: (usize, &Scalar),
        start: (usize, &Scalar),
    ) -> Result<LoggedTransfer, LogProblem> {
        if let Some((_, Scalar::Text(state))) = self.find(Member::State)
            && !COMPLETE.iter().any(|known| known.eq_ignore_ascii_case(state))
        {
            return Err(LogProblem::NotComplete(shown(state, SHOWN_CHARS)));
        }
        if let Some((_, Scalar::Text(what))) = self.find(Member::Type)
            && what.eq_ignore_ascii_case("delete")
        {
            return Err(LogProblem::Deletion);
        }
        let start_s = time(start)?;
        let (took, end) = (Member::Of(Meaning::Took), Member::Of(Meaning::End));
        let took_s = match (self.find(took), self.find(end)) {
            (Some(took), _) => number(took)?,
            (None, Some(end)) => time(end)? - start_s,
            (None, None) => return Err(LogProblem::Lacks("how long it took")),
        };
        let files = self.find(Member::Of(Meaning::Files)).map_or(Ok(1), count)?;
        Ok(LoggedTransfer {
            start_s,
            took_s: duration(took_s)?,
            bytes: count(bytes)?,
            files: files.max(1),
            from: self.place(Meaning::From),
            to: self.place(Meaning::To),
            kind: match self.find(Member::Of(Meaning::Kind)) {
                Some((_, Scalar::Text(kind))) => name(kind),
                _ => String::new(),
            },
            limit_bytes_per_s: match self.find(Member::Of(Meaning::Limit)) {
                None | Some((_, Scalar::Nothing)) => None,
                Some(limit) => Some(count(limit)?),
            },
            facts: [f32::NAN; FACTS],
        })
    }

    /// Returns the name of a place; of an address host and port.
    fn place(&self, meaning: Meaning) -> String {
        let Some((_, Scalar::Text(text))) = self.find(Member::Of(meaning)) else {
            return String::new();
        };
        place_name(text)
    }
}

fn number((at, value): (usize, &Scalar)) -> Result<f64, LogProblem> {
    let (name, _, unit) = MEMBERS[at];
    let number = match value {
        Scalar::Number(number) => Some(*number),
        Scalar::Text(text) => text.trim().parse().ok(),
        Scalar::Nothing => None,
    };
    let finite = number.filter(|number| number.is_finite());
    finite
        .map(|number| number * unit)
        .ok_or_else(|| LogProblem::NotANumber { column: name.to_owned(), text: words(value) })
}

/// Returns a time in seconds since 1970: a number, or as ISO 8601 writes it; without a zone it is UTC.
fn time((at, value): (usize, &Scalar)) -> Result<f64, LogProblem> {
    let told_s = match value {
        Scalar::Text(text) => iso_s(text.trim()).or_else(|| number((at, value)).ok()),
        _ => number((at, value)).ok(),
    };
    told_s.filter(|time_s| (0.0..TIME_MAX_S).contains(time_s)).ok_or_else(|| LogProblem::NotATime {
        column: MEMBERS[at].0.to_owned(),
        text: words(value),
    })
}

fn count(member: (usize, &Scalar)) -> Result<u64, LogProblem> {
    match number(member)? {
        count if (0.0..COUNT_MAX).contains(&count) => Ok(count as u64),
        _ => {
            let (column, text) = (MEMBERS[member.0].0.to_owned(), words(member.1));
            Err(LogProblem::Impossible { column, text })
        }
    }
}

fn words(value: &Scalar) -> String {
    match value {
        Scalar::Nothing => String::new(),
        Scalar::Number(number) => shown(&number.to_string(), SHOWN_CHARS),
        Scalar::Text(text) => shown(text, SHOWN_CHARS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Result<LoggedTransfer, String>> {
        let mut all = Vec::new();
        read_json(text.as_bytes(), &mut |told| {
            all.push(told.map_err(|error| error.to_string()));
            true
        });
        all
    }

    const GLOBUS: &str = r#"{"DATA_TYPE": "task_list", "length": 2, "DATA": [
        {"DATA_TYPE": "task", "type": "TRANSFER", "status": "SUCCEEDED", "label": null,
         "request_time": "2025-03-01T10:00:00+00:00", "completion_time": "2025-03-01T10:02:30+00:00",
         "bytes_transferred": 5000000, "files": 7, "files_transferred": 6, "is_ok": null,
         "source_endpoint_display_name": "Lab A", "source_endpoint_id": "x-1",
         "destination_endpoint_display_name": null, "destination_endpoint_id": "y-2"},
        {"type": "DELETE", "status": "SUCCEEDED", "request_time": "2025-03-01T10:00:00+00:00",
         "completion_time": "2025-03-01T10:00:30+00:00", "bytes_transferred": 0},
        {"status": "ACTIVE", "request_time": "2025-03-01T11:00:00+00:00", "completion_time": null,
         "bytes_transferred": 17}]}"#;

    #[test]
    fn tasks_of_globus_are_read() {
        let log = read(GLOBUS);
        let first = log[0].as_ref().unwrap();
        assert_eq!((first.start_s, first.took_s), (1_740_823_200.0, 150.0));
        assert_eq!((first.bytes, first.files), (5_000_000, 6));
        assert_eq!((first.from.as_str(), first.to.as_str()), ("Lab_A", "y-2"));
        assert_eq!(log[1], Err("record 2: a deletion, no transfer".to_owned()));
        assert_eq!(log[2], Err("record 3: not complete: \"ACTIVE\"".to_owned()));
        assert_eq!(log.len(), 3);
    }

    #[test]
    fn files_and_messages_of_fts_are_read() {
        let files = r#"{"job_id": "j", "files": [{"file_state": "FINISHED", "filesize": 42,
            "source_surl": "davs://a.example:1094/p/f?sig=1", "dest_surl": "https://b.example/f",
            "start_time": "2025-03-01T10:00:00", "finish_time": "2025-03-01T10:00:09",
            "tx_duration": 8.5}]}"#;
        let message = r#"{"data": {"t_final_transfer_state": "Ok", "f_size": "42",
            "tr_timestamp_start": 1740823200000, "tr_timestamp_complete": "1740823208500",
            "src_url": "davs://a.example:1094/p/f", "dst_url": "https://b.example/f"}}"#;
        for text in [files.to_owned(), message.to_owned(), format!("{message}\n{message}\n")] {
            let log = read(&text);
            let one = log.last().unwrap().as_ref().unwrap();
            assert_eq!((one.start_s, one.took_s, one.bytes), (1_740_823_200.0, 8.5, 42), "{text}");
            assert_eq!((one.from.as_str(), one.to.as_str()), ("a.example:1094", "b.example:443"));
        }
        assert_eq!(read(&format!("{message}\n{message}\n")).len(), 2);
    }

    #[test]
    fn lines_of_swath_are_read() {
        let line = |kind: &str, limit: &str| {
            format!(
                r#"{{"start": 1e9, "duration": 3.5, "bytes": 7, "files": 2, "from": "a:80", "to": "b",
                    "kind": {kind}, "limit_bytes_per_s": {limit}, "complete": true}}"#
            )
        };
        let read = |kind, limit| read(&line(kind, limit)).remove(0);
        let limited = read(r#""cp""#, "1000").unwrap();
        assert_eq!((limited.kind.as_str(), limited.limit_bytes_per_s), ("cp", Some(1000)));
        let free = read("null", "null").unwrap();
        assert_eq!((free.kind.as_str(), free.limit_bytes_per_s), ("", None));
        assert!(read(r#""cp""#, "-1").unwrap_err().contains("limit_bytes_per_s"));
    }

    #[test]
    fn what_cannot_be_used_is_told_with_its_place() {
        let log = read(
            r#"[{"start": 1, "bytes": 2, "duration": 3}, {"start": 1, "bytes": 2},
                {"start": "soon", "bytes": 2, "duration": 3}, {"start": 1, "bytes": -2, "duration": 3},
                {"start": 1, "bytes": 2, "duration": 0}, {"start": 1, "bytes": 2, "duration": 4e7},
                {"other": {"start": 1e300, "bytes": 1}},
                {"complete": false, "start": 1, "bytes": 2, "duration": 3}, {"start"#,
        );
        let told: Vec<&str> =
            log.iter().map(|one| one.as_ref().err().map_or("", String::as_str)).collect();
        assert_eq!(
            told[..8],
            [
                "",
                "record 2: does not say how long it took",
                "record 3: start: \"soon\" is no time between 1970 and 2100, or in another unit",
                "record 4: bytes: \"-2\" is no possible number",
                "record 5: took no time",
                "record 6: took more than a year",
                told[6],
                "record 8: not complete: \"false\"",
            ]
        );
        assert!(told[6].contains("is no time"), "{told:?}");
        assert!(told.len() == 9 && told[8].starts_with("record 9: is not JSON: EOF"), "{told:?}");
        assert_eq!(read("{}"), []);
        assert_eq!(read(" \n"), []);
        assert!(read("[1, 2").last().unwrap().is_err());
    }

    #[test]
    fn no_log_fills_memory() {
        let endless = br#"[{"start": 1, "from": ""#.as_slice().chain(io::repeat(b'x'));
        let mut last = None;
        read_json(endless, &mut |told| {
            last = Some(told);
            true
        });
        let problem = last.unwrap().unwrap_err().problem;
        assert!(matches!(problem, LogProblem::TooLong), "{problem}");
        let deep = "[".repeat(1_000_000);
        assert!(read(&deep).last().unwrap().is_err());
        let long: String =
            (0..50_000).map(|i| format!(r#"{{"start":{i},"bytes":2,"duration":3}},"#)).collect();
        assert_eq!(read(&format!("[{long}null]")).len(), 50_000);
    }

    #[test]
    fn json_is_known_by_its_first_character() {
        for (text, is) in [(" [1]", true), ("{\"a\"", true), ("start,bytes", false), ("", false)] {
            assert_eq!(is_json(&mut text.as_bytes()).unwrap(), is, "{text}");
        }
    }
}
