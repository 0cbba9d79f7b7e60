//! Logs as CSV.
//!
//! The first line names the columns. Their names decide what they mean and in which unit they are;
//! see [`COLUMNS`]. Numbers of other columns are kept as further facts.

use std::io::{self, Read};

use super::cell::text_of;
use super::{
    COUNT_MAX, Left, LogError, LogPlace, LogProblem, LoggedTransfer, Metered, SHOWN_CHARS,
    TIME_MAX_S, duration, iso_s, name, place_name,
};
use crate::text::shown;

/// How many other columns are kept.
pub const FACTS: usize = 8;

/// The known names of columns, what they mean, and in units of what (seconds or bytes) they are.
pub const COLUMNS: [(&str, Meaning, f64); 32] = [
    ("start", Meaning::Start, 1.0),
    ("start_s", Meaning::Start, 1.0),
    ("start_ms", Meaning::Start, 1e-3),
    ("start_time", Meaning::Start, 1.0),
    ("begin", Meaning::Start, 1.0),
    ("end", Meaning::End, 1.0),
    ("end_s", Meaning::End, 1.0),
    ("end_ms", Meaning::End, 1e-3),
    ("end_time", Meaning::End, 1.0),
    ("elap", Meaning::Took, 1e-3),
    ("elapsed_ms", Meaning::Took, 1e-3),
    ("elapsed_s", Meaning::Took, 1.0),
    ("duration_ms", Meaning::Took, 1e-3),
    ("duration_s", Meaning::Took, 1.0),
    ("duration", Meaning::Took, 1.0),
    ("took_s", Meaning::Took, 1.0),
    ("fsz", Meaning::Bytes, 1.0),
    ("bytes", Meaning::Bytes, 1.0),
    ("size", Meaning::Bytes, 1.0),
    ("size_bytes", Meaning::Bytes, 1.0),
    ("size_mb", Meaning::Bytes, 1e6),
    ("files", Meaning::Files, 1.0),
    ("instr", Meaning::From, 1.0),
    ("from", Meaning::From, 1.0),
    ("source", Meaning::From, 1.0),
    ("src", Meaning::From, 1.0),
    ("to", Meaning::To, 1.0),
    ("destination", Meaning::To, 1.0),
    ("dst", Meaning::To, 1.0),
    ("ftype", Meaning::Kind, 1.0),
    ("kind", Meaning::Kind, 1.0),
    ("limit_bytes_per_s", Meaning::Limit, 1.0),
];

/// What a column says of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// When it began.
    Start,
    /// When it ended.
    End,
    /// How long it took.
    Took,
    /// How many bytes.
    Bytes,
    /// How many files.
    Files,
    /// Where it came from.
    From,
    /// Where it went.
    To,
    /// Which kind.
    Kind,
    /// Which rate it was allowed.
    Limit,
}

/// An iterator over the transfers of a log.
pub struct TransferLog<R> {
    csv: csv::Reader<Metered<R>>,
    left: Left,
    record: csv::ByteRecord,
    columns: Columns,
    has_ended: bool,
}

impl<R: Read> TransferLog<R> {
    /// Reads the first line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(input: R) -> Result<Self, LogError> {
        let (metered, left) = Metered::new(input);
        let mut csv =
            csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(metered);
        let mut record = csv::ByteRecord::new();
        let at = |problem| LogError { place: LogPlace::Line(1), problem };
        csv.read_byte_record(&mut record).map_err(|error| at(read_problem(error)))?;
        let columns = Columns::new(&record).map_err(at)?;
        Ok(TransferLog { csv, left, record, columns, has_ended: false })
    }

    /// Returns the names of the columns that are kept as further facts.
    pub fn facts(&self) -> impl Iterator<Item = &str> {
        self.columns.facts.iter().map(|&at| self.columns.names[at].as_str())
    }

    fn read(&mut self) -> Result<Option<LoggedTransfer>, LogProblem> {
        // The reader reads ahead by less than this.
        self.left.renew();
        if !self.csv.read_byte_record(&mut self.record).map_err(read_problem)? {
            return Ok(None);
        }
        self.columns.transfer(&self.record).map(Some)
    }
}

impl<R: Read> Iterator for TransferLog<R> {
    type Item = Result<LoggedTransfer, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let read = self.read();
        self.has_ended = match &read {
            Ok(transfer) => transfer.is_none(),
            Err(problem) => problem.is_final(),
        };
        let line = self.record.position().map_or(0, csv::Position::line);
        read.map_err(|problem| LogError { place: LogPlace::Line(line), problem }).transpose()
    }
}

/// Which column says what.
struct Columns {
    names: Vec<String>,
    /// Position and unit of each column with a meaning.
    known: Vec<(Meaning, usize, f64)>,
    facts: Vec<usize>,
}

impl Columns {
    fn new(head: &csv::ByteRecord) -> Result<Self, LogProblem> {
        let name = |field| std::str::from_utf8(field).map(|name| name.trim().to_ascii_lowercase());
        let names: Vec<String> =
            head.iter().map(name).collect::<Result<_, _>>().map_err(|_| LogProblem::NotUtf8)?;
        let mut known: Vec<(Meaning, usize, f64)> = Vec::new();
        let mut facts = Vec::new();
        for (at, name) in names.iter().enumerate() {
            match COLUMNS.iter().find(|(known, ..)| known == name) {
                Some(&(_, meaning, unit)) => {
                    if let Some(&(_, first, _)) = known.iter().find(|(other, ..)| *other == meaning)
                    {
                        let [first, second] = [first, at].map(|at| shown(&names[at], SHOWN_CHARS));
                        return Err(LogProblem::Twice { first, second });
                    }
                    known.push((meaning, at, unit));
                }
                None if facts.len() < FACTS => facts.push(at),
                None => {}
            }
        }
        let columns = Columns { names, known, facts };
        let needs = |what, any: &[Meaning]| match any.iter().any(|&one| columns.find(one).is_some())
        {
            true => Ok(()),
            false => {
                let names = COLUMNS.iter().filter(|(_, meaning, _)| any.contains(meaning));
                Err(LogProblem::Missing { what, names: names.map(|(name, ..)| *name).collect() })
            }
        };
        needs("the start", &[Meaning::Start])?;
        needs("how long it took", &[Meaning::Took, Meaning::End])?;
        needs("the size", &[Meaning::Bytes])?;
        Ok(columns)
    }

    fn find(&self, meaning: Meaning) -> Option<(usize, f64)> {
        self.known.iter().find(|(known, ..)| *known == meaning).map(|&(_, at, unit)| (at, unit))
    }

    fn transfer(&self, record: &csv::ByteRecord) -> Result<LoggedTransfer, LogProblem> {
        if record.len() != self.names.len() {
            let (fields, columns) = (record.len(), self.names.len());
            return Err(LogProblem::Fields { fields, columns });
        }
        let field = |at: usize| {
            std::str::from_utf8(&record[at]).map(str::trim).map_err(|_| LogProblem::NotUtf8)
        };
        let text = |meaning| -> Result<&str, LogProblem> {
            match self.find(meaning) {
                Some((at, _)) => field(at).map(text_of),
                None => Ok(""),
            }
        };
        let named = |at: usize| Ok((self.names[at].clone(), shown(field(at)?, SHOWN_CHARS)));
        let number = |at: usize, unit: f64| {
            let number = field(at)?.parse().ok().filter(|number: &f64| number.is_finite());
            match number {
                Some(number) => Ok(number * unit),
                None => named(at)
                    .and_then(|(column, text)| Err(LogProblem::NotANumber { column, text })),
            }
        };
        let time = |(at, unit)| match iso_s(field(at)?).map_or_else(|| number(at, unit), Ok)? {
            time if (0.0..TIME_MAX_S).contains(&time) => Ok(time),
            _ => named(at).and_then(|(column, text)| Err(LogProblem::NotATime { column, text })),
        };
        let count = |(at, unit)| match number(at, unit)? {
            count if (0.0..COUNT_MAX).contains(&count) => Ok(count as u64),
            _ => named(at).and_then(|(column, text)| Err(LogProblem::Impossible { column, text })),
        };
        let start_s = self.find(Meaning::Start).map_or(Ok(0.0), time)?;
        let took_s = match (self.find(Meaning::Took), self.find(Meaning::End)) {
            (Some((at, unit)), _) => number(at, unit)?,
            (None, Some(end)) => time(end)? - start_s,
            (None, None) => 0.0,
        };
        let mut facts = [f32::NAN; FACTS];
        for (fact, &at) in facts.iter_mut().zip(&self.facts) {
            *fact = field(at)?.parse().unwrap_or(f32::NAN);
        }
        Ok(LoggedTransfer {
            start_s,
            took_s: duration(took_s)?,
            bytes: self.find(Meaning::Bytes).map_or(Ok(0), count)?,
            files: self.find(Meaning::Files).map_or(Ok(1), count)?,
            from: place_name(text(Meaning::From)?),
            to: place_name(text(Meaning::To)?),
            kind: name(text(Meaning::Kind)?),
            limit_bytes_per_s: match text(Meaning::Limit)? {
                "" => None,
                _ => self.find(Meaning::Limit).map(count).transpose()?,
            },
            facts,
        })
    }
}

fn read_problem(error: csv::Error) -> LogProblem {
    match error.into_kind() {
        csv::ErrorKind::Io(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            LogProblem::TooLong
        }
        csv::ErrorKind::Io(error) => LogProblem::Read(error),
        // Nothing else can be: lines may have any number of fields and any bytes.
        _ => LogProblem::NotUtf8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Result<LoggedTransfer, String>> {
        let log = TransferLog::new(text.as_bytes()).unwrap();
        log.map(|transfer| transfer.map_err(|error| error.to_string())).collect()
    }

    fn head(text: &str) -> String {
        TransferLog::new(text.as_bytes()).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn columns_are_found_by_name_and_have_their_units() {
        let log =
            read("instr,ftype,start,fsz,elap,ttype,fsid\ncxi,0,1541201803,595278480,1500,-1,12\n");
        let transfer = log[0].as_ref().unwrap();
        assert_eq!((transfer.start_s, transfer.took_s), (1_541_201_803.0, 1.5));
        assert_eq!((transfer.bytes, transfer.files), (595_278_480, 1));
        assert_eq!((transfer.from.as_str(), transfer.kind.as_str()), ("cxi", "0"));
        assert_eq!(transfer.facts[..2], [-1.0, 12.0]);
        assert!(transfer.facts[2].is_nan());
        let log = read("to, size_mb, files, end_ms, start_ms\n\"b, c\",2,7,3000,1000\n");
        let transfer = log[0].as_ref().unwrap();
        assert_eq!((transfer.start_s, transfer.took_s), (1.0, 2.0));
        assert_eq!((transfer.bytes, transfer.files), (2_000_000, 7));
        assert_eq!(transfer.to, "b,_c");
    }

    #[test]
    fn lines_that_cannot_be_used_are_told_with_their_numbers() {
        let log = read(
            "start,bytes,duration\n1,2,3\n1,2,0\n1,-2,3\nx,2,3\n1,2\n1541201381000,2,3\n\
             1,1e30,3\n1,2,-3\n1,2,nan\n7,8,9\n",
        );
        let told: Vec<&str> =
            log.iter().map(|one| one.as_ref().err().map_or("", String::as_str)).collect();
        assert_eq!(
            told,
            [
                "",
                "line 3: took no time",
                "line 4: bytes: \"-2\" is no possible number",
                "line 5: start: \"x\" is not a number",
                "line 6: 2 fields, but 3 columns",
                "line 7: start: \"1541201381000\" is no time between 1970 and 2100, or in \
                 another unit",
                "line 8: bytes: \"1e30\" is no possible number",
                "line 9: took no time",
                "line 10: duration: \"nan\" is not a number",
                "",
            ]
        );
    }

    #[test]
    fn a_log_without_the_needed_columns_is_refused() {
        assert!(head("when,bytes,duration\n").starts_with("line 1: no column for the start"));
        assert!(head("start,bytes\n").starts_with("line 1: no column for how long it took"));
        assert!(head("start,duration\n").starts_with("line 1: no column for the size"));
        let twice = "line 1: columns 'size' and 'bytes' mean the same";
        assert_eq!(head("start,size,bytes,duration"), twice);
        assert!(!head("").is_empty());
        assert!(!head("\0\u{1}rubbish").is_empty());
    }

    #[test]
    fn a_line_without_an_end_does_not_fill_memory() {
        let head = b"start,bytes,duration\n1,2,\"".as_slice();
        let mut log = TransferLog::new(head.chain(io::repeat(b'9'))).unwrap();
        let problem = log.next().unwrap().unwrap_err().problem;
        assert!(matches!(problem, LogProblem::TooLong), "{problem}");
        assert!(log.next().is_none());
        let endless = TransferLog::new(io::repeat(b'9'));
        assert!(matches!(endless.err().unwrap().problem, LogProblem::TooLong));
    }

    #[test]
    fn a_long_log_is_read_to_its_end() {
        let lines = (0..100_000).map(|i| format!("{i},2,3\n")).collect::<String>();
        let log = read(&format!("start,bytes,duration\n{lines}"));
        assert!(log.len() == 100_000 && log.iter().all(Result::is_ok));
    }
}
