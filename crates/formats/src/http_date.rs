//! HTTP dates: `Retry-After` as a wait, `Last-Modified` as a time.

use std::time::{Duration, UNIX_EPOCH};

use crate::text::trim_blanks;

/// Parses an HTTP date in any of its three forms (RFC 9110, section 5.6.7), and in common wrong
/// ones (other zones, a day of one digit, no seconds, RFC 822, ISO 8601). Returns seconds since 1970.
pub fn parse(value: &str) -> Option<u64> {
    let value = trim_blanks(value);
    parse_proper(value).or_else(|| parse_loosely(value))
}

/// Parses only the three forms of the RFC.
fn parse_proper(value: &str) -> Option<u64> {
    let time = httpdate::parse_http_date(value).ok()?;
    time.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// Normalizes a time so that it compares as text; other values stay unchanged.
pub fn normalized(value: &str) -> String {
    parse(value).map_or_else(|| trim_blanks(value).to_owned(), write)
}

/// Parses `[Tue,] 1 Jul 2025 10:00[:00] [UTC|Z|EST|+0200]`, with a year of two digits too as RFC 822 has it,
/// and `2025-07-01[T10:00[:00[.5]][Z|+02:00]]`.
fn parse_loosely(value: &str) -> Option<u64> {
    let (day, month, year, rest) = if value.as_bytes().get(4) == Some(&b'-') {
        let [year, month, day] = numbers(value.get(..10)?, '-', [4, 2, 2])?;
        let rest = value.get(10..)?;
        let rest = if rest.is_empty() { rest } else { rest.strip_prefix(['T', 't', ' '])? };
        (day, month, year, rest)
    } else {
        // The name of the day says nothing.
        let value = value.split_once(',').map_or(value, |(_, date)| trim_blanks(date));
        let value = match value.split_once(' ') {
            Some((day, date)) if day.bytes().all(|byte| byte.is_ascii_alphabetic()) => date,
            _ => value,
        };
        let mut words = value.splitn(4, [' ', '-']);
        let day = words.next().filter(|day| (1..=2).contains(&day.len()))?.parse().ok()?;
        let name = words.next()?.to_ascii_lowercase();
        let month = MONTHS.to_ascii_lowercase().find(name.get(..3)?).filter(|at| at % 3 == 0)?;
        let is_name = name.len() == 3 || LONG_MONTHS.contains(&&*name);
        let month = is_name.then_some(month / 3 + 1)?;
        (day, u32::try_from(month).ok()?, full_year(words.next()?)?, words.next()?)
    };
    let rest = if rest.is_empty() { "00:00" } else { rest };
    let time_end = rest.find(|c: char| !c.is_ascii_digit() && c != ':').unwrap_or(rest.len());
    let (time, zone) = rest.split_at(time_end);
    let (hour, minute, second) = match time.matches(':').count() {
        1 => numbers(time, ':', [2, 2]).map(|[hour, minute]| (hour, minute, 0))?,
        _ => numbers(time, ':', [2, 2, 2]).map(|[hour, minute, second]| (hour, minute, second))?,
    };
    let zone = match zone.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => zone,
    };
    let offset_s = zone_s(trim_blanks(zone))?;
    let plain = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z");
    u64::try_from(i64::try_from(parse_plain(&plain)?).ok()?.checked_sub(offset_s)?).ok()
}

/// Reads a year, of two digits too (RFC 5322, section 4.3).
fn full_year(text: &str) -> Option<u32> {
    let year: u32 = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())??;
    match text.len() {
        2 if year < 50 => Some(2000 + year),
        2 => Some(1900 + year),
        4 => Some(year),
        _ => None,
    }
}

/// Returns how far a zone is ahead of UTC, in seconds.
fn zone_s(zone: &str) -> Option<i64> {
    let name = zone.to_ascii_lowercase();
    if let Some((_, hours)) = ZONES.iter().find(|(known, _)| *known == name) {
        return Some(hours * 3600);
    }
    let (sign, digits) = match zone.split_at_checked(1)? {
        ("+", digits) => (1, digits.replace(':', "")),
        ("-", digits) => (-1, digits.replace(':', "")),
        _ => return None,
    };
    let is_fit = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let value: i64 = is_fit.then(|| digits.parse().ok())??;
    Some(sign * (value / 100 * 3600 + value % 100 * 60))
}

/// The names of RFC 822 and of Europe's zones, in hours ahead of UTC. Others have several meanings.
const ZONES: [(&str, i64); 24] = [
    ("", 0),
    ("z", 0),
    ("ut", 0),
    ("utc", 0),
    ("gmt", 0),
    ("est", -5),
    ("edt", -4),
    ("cst", -6),
    ("cdt", -5),
    ("mst", -7),
    ("mdt", -6),
    ("pst", -8),
    ("pdt", -7),
    ("wet", 0),
    ("west", 1),
    ("cet", 1),
    ("cest", 2),
    ("met", 1),
    ("mest", 2),
    ("mez", 1),
    ("mesz", 2),
    ("eet", 2),
    ("eest", 3),
    ("bst", 1),
];
/// Months that people write in full, or in four letters.
const LONG_MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "june",
    "july",
    "august",
    "september",
    "sept",
    "october",
    "november",
    "december",
];
const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";

/// Formats a time in seconds since 1970 as an HTTP date.
pub fn write(time_s: u64) -> String {
    // HTTP dates have years of four digits.
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(time_s.min(YEAR_9999_S)))
}

/// Formats a time in seconds since 1970 for people: `2026-11-22 03:14:15`, UTC. `None` for times on
/// the first day, which stand for no time at all, and before year 0. Times after the start of year
/// 9999 become that.
pub fn write_plain(time_s: i64) -> Option<String> {
    if (0..86_400).contains(&time_s) {
        return None;
    }
    // The calendar repeats after 400 years, so an early year has a later equivalent.
    let cycles = if time_s < 0 { CYCLES_BACK } else { 0 };
    let time_s = u64::try_from(time_s.checked_add(cycles * CYCLE_S)?).ok()?;
    // "Sun, 22 Nov 2026 03:14:15 GMT"
    let date = write(time_s);
    let mut words = date.split(' ').skip(1);
    let (day, month, year, time) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let month = MONTHS.find(month)? / 3 + 1;
    let year = year.parse::<i64>().ok()?.checked_sub(cycles * 400).filter(|&year| year >= 0)?;
    Some(format!("{year:04}-{month:02}-{day} {time}"))
}

/// Parses a day or a second in common notation (RFC 3339, UTC only): `2026-11-22`, which means its
/// beginning, or `2026-11-22T03:14:15Z`. Returns seconds since 1970.
pub fn parse_plain(text: &str) -> Option<u64> {
    let (day, time) = match text.split_once('T') {
        Some((day, time)) => (day, time.strip_suffix('Z')?),
        None => (text, "00:00:00"),
    };
    let [year, month, day] = numbers(day, '-', [4, 2, 2])?;
    let name = MONTHS.get((month as usize).checked_sub(1)? * 3..)?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let name = name.get(..3)?;
    let date = format!("{day:02} {name} {year:04} {hour:02}:{minute:02}:{second:02} GMT");
    // The day of the week must be right, and dates like 30 February must not exist.
    let days = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    let time_s = days.iter().find_map(|day| parse_proper(&format!("{day}, {date}")))?;
    write(time_s).ends_with(&date).then_some(time_s)
}

/// Parses numbers with these counts of digits.
fn numbers<const N: usize>(text: &str, between: char, digits: [usize; N]) -> Option<[u32; N]> {
    let mut parts = text.split(between);
    let mut all = [0; N];
    for (number, digits) in all.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| part.len() == digits)?;
        *number = part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())??;
    }
    parts.next().is_none().then_some(all)
}

/// Parses `Retry-After` (RFC 9110, section 10.2.3): seconds to wait, 0 for a past date. `now_s` is
/// the time in seconds since 1970. The wait is unlimited, as the server wrote it; the caller limits
/// it.
pub fn retry_after_s(value: &str, now_s: u64) -> Option<u64> {
    let value = value.trim();
    // Some servers send a fraction; it is rounded up.
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !whole.is_empty() && digits(whole) && digits(fraction) {
        let more = u64::from(fraction.contains(|c| c != '0'));
        return Some(whole.parse::<u64>().unwrap_or(u64::MAX).saturating_add(more));
    }
    parse(value).map(|time_s| time_s.saturating_sub(now_s))
}

/// Seconds of 400 years …
const CYCLE_S: i64 = 146_097 * 86_400;
/// … and how many of these lead from year 0 past 1970.
const CYCLES_BACK: i64 = 5;
/// The beginning of the year 9999.
const YEAR_9999_S: u64 = 253_370_764_800;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_time_in_many_notations_is_one_time() {
        let same = 1_751_364_000;
        for text in [
            "Tue, 01 Jul 2025 10:00:00 GMT",
            "Tuesday, 01-Jul-25 10:00:00 GMT",
            "Tue Jul  1 10:00:00 2025",
            "Tue, 1 Jul 2025 10:00:00 GMT",
            "Tue, 01 Jul 2025 10:00:00 UTC",
            "Tue, 01 Jul 2025 10:00:00 +0000",
            "Tue, 01 Jul 2025 12:00:00 +0200",
            "01 jul 2025 10:00:00 Z",
            "2025-07-01T10:00:00Z",
            "2025-07-01T12:30:00.123+02:30",
            "Tue, 01 Jul 2025 05:00:00 CDT",
            "Tue, 01 Jul 25 06:00 EDT",
            "Tue,1 July 2025 12:00:00 CEST",
            "Tue 01 Jul 2025 03:00 PDT",
            "1 Jul 25 10:00 UT",
            "2025-07-01T10:00Z",
            " 2025-07-01 10:00:00\t",
        ] {
            assert_eq!(parse(text), Some(same), "{text}");
            assert_eq!(normalized(text), "Tue, 01 Jul 2025 10:00:00 GMT", "{text}");
        }
        for text in [
            "",
            "-1",
            "0",
            "Tue, 32 Jul 2025 10:00:00 GMT",
            "01 Jul 2025 10:00:00 XYZT",
            "01 Jul 202 10:00:00 GMT",
            "01 Julx 2025 10:00:00 GMT",
            "01 Jul 2025 10 GMT",
            "01 Jul 2025 10:00:00:00 GMT",
            "01 anF 2025 10:00:00",
            "2025-07-01T10:00:00é",
            "2025-07-0é",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("31 Dec 99 19:00 EST"), Some(946_684_800));
        assert_eq!(parse("2025-07-01"), Some(same - 36_000));
        assert_eq!(normalized(" yesterday "), "yesterday");
    }

    #[test]
    fn what_people_write_is_a_day_or_a_second_of_the_calendar() {
        for (text, time_s) in [
            ("1970-01-01", Some(0)),
            ("1994-11-06T08:49:37Z", Some(784_111_777)),
            ("2026-11-22", Some(1_795_305_600)),
            ("2028-02-29", Some(1_835_395_200)),
            ("2026-02-30", None),
            ("2026-00-10", None),
            ("2026-13-10", None),
            ("2026-11-22T24:00:00Z", None),
            ("2026-11-22T03:14:15", None),
            ("2026-11-22T03:14:15+01:00", None),
            ("2026-11-22 03:14:15", None),
            ("26-11-22", None),
            ("2026-11-22-1", None),
            ("2026-1é-2", None),
            ("", None),
        ] {
            assert_eq!(parse_plain(text), time_s, "{text}");
        }
    }

    #[test]
    fn people_read_dates_in_order() {
        assert_eq!(write_plain(784_111_777).as_deref(), Some("1994-11-06 08:49:37"));
        assert_eq!(write_plain(0), None);
        assert_eq!(write_plain(86_399), None);
        assert_eq!(write_plain(-5).as_deref(), Some("1969-12-31 23:59:55"));
        assert_eq!(write_plain(-100_000_000_000), None);
        assert_eq!(write_plain(-12_219_292_800).as_deref(), Some("1582-10-15 00:00:00"));
        assert_eq!(write_plain(i64::MIN), None);
        assert_eq!(write_plain(i64::MAX).as_deref(), Some("9999-01-01 00:00:00"));
    }

    #[test]
    fn seconds_and_dates_are_read() {
        for (value, expected_s) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("1.5", Some(2)),
            ("1.0", Some(1)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(37)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(37)),
            ("Sun Nov  6 08:49:37 1994", Some(37)),
            ("Sun, 06 Nov 1994 08:48:00 GMT", Some(0)),
            ("soon", None),
            ("", None),
            ("-1", None),
        ] {
            assert_eq!(retry_after_s(value, 784_111_740), expected_s, "{value}");
        }
        assert_eq!(write(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(parse("Thu, 01 Jan 1970 00:00:01 GMT"), Some(1));
    }

    proptest! {
        #[test]
        fn nothing_panics(value in "\\PC{0,30}", now: u64) {
            let _ = retry_after_s(&value, now);
            prop_assert_eq!(parse(&write(now)), Some(now.min(YEAR_9999_S)));
        }
    }
}
