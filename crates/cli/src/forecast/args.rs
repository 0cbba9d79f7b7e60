//! The command lines of `swath forecast`.

use clap::{Args, Subcommand, ValueHint};
use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};

use crate::args::Get;
use crate::cp::args::Cp;

/// `swath forecast`
#[derive(Args, Debug)]
#[command(disable_help_subcommand = true, subcommand_value_name = "COMMAND", after_long_help = EXAMPLES)]
pub struct Forecast {
    /// The command that would be run
    #[command(subcommand)]
    pub command: ForecastCommand,
}

/// Subcommands of `swath forecast`.
#[derive(Debug, Subcommand)]
pub enum ForecastCommand {
    /// Predict how long 'swath get' takes
    Get(Box<ForecastGet>),
    /// Predict how long 'swath cp' takes
    Cp(Box<ForecastCp>),
}

/// `swath forecast get`
#[derive(Args, Debug)]
pub struct ForecastGet {
    /// The command
    #[command(flatten)]
    pub get: Get,
    /// When it would begin
    #[command(flatten)]
    pub begin: Begin,
}

/// `swath forecast cp`
#[derive(Args, Debug)]
#[command(override_usage = "swath forecast cp [OPTIONS] SRC... DST")]
pub struct ForecastCp {
    /// The command
    #[command(flatten)]
    pub cp: Cp,
    /// When it would begin
    #[command(flatten)]
    pub begin: Begin,
}

/// When the transfer would begin.
#[derive(Args, Debug)]
pub struct Begin {
    /// Predict for a transfer that begins then: 22:00, or 2026-11-30T22:00 [default: now]
    #[arg(long, value_name = "TIME", value_parser = begin, value_hint = ValueHint::Other)]
    at: Option<Timestamp>,
}

impl Begin {
    /// Returns the time; `None` is now.
    pub fn time(&self) -> Option<Timestamp> {
        self.at
    }
}

/// Reads the next such time of day, or a date with a time, where the user is.
fn begin(text: &str) -> Result<Timestamp, String> {
    let now = Zoned::now();
    let at = time_after(&now, text)
        .ok_or_else(|| format!("'{text}' is not a time (examples: 22:00, 2026-11-30T22:00)"))?;
    if at < now.timestamp() {
        return Err(format!("'{text}' is past"));
    }
    Ok(at)
}

/// Reads a time; one of the day is the next such.
fn time_after(now: &Zoned, text: &str) -> Option<Timestamp> {
    let zone: &TimeZone = now.time_zone();
    // A time of day is also read from a date with a time.
    if let Some(Ok(time)) = (!text.contains('-')).then(|| text.parse::<Time>()) {
        let today = zone.to_zoned(now.date().to_datetime(time)).ok()?;
        let is_past = today.timestamp() < now.timestamp();
        let next = if is_past { today.checked_add(Span::new().days(1)).ok()? } else { today };
        return Some(next.timestamp());
    }
    let as_date = || zone.to_timestamp(text.parse::<DateTime>().ok()?).ok();
    text.parse::<Timestamp>().ok().or_else(as_date)
}

/// Shown below the help of `swath forecast`.
const EXAMPLES: &str = "\
Nothing is transferred. The time is predicted from past transfers between the same places. If
there are none, a sample is fetched for at most 3 seconds and thrown away: at most 64 MB, or 1 % of
the data if that is more.

Examples:
  swath forecast get https://a.example/run7.h5
  swath forecast get https://a.example/run7.h5 https://b.example/run7.h5 --at 22:00
  swath forecast cp https://a.example/ds/ /data/ds/ --deadline 2h
  swath forecast cp /data/ds/ https://b.example/ds/ --json

Exit codes:
  as those of the command, except that nothing is transferred";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_where_the_user_is_and_those_of_the_day_lie_ahead() {
        let now: Zoned = "2026-11-28T10:30:00+01:00[+01:00]".parse().unwrap();
        let read = |text| time_after(&now, text).map(|at| at.to_string());
        assert_eq!(read("22:00").as_deref(), Some("2026-11-28T21:00:00Z"));
        assert_eq!(read("10:15").as_deref(), Some("2026-11-29T09:15:00Z"));
        assert_eq!(read("2026-11-30T22:00").as_deref(), Some("2026-11-30T21:00:00Z"));
        assert_eq!(read("2026-11-30T22:00:00Z").as_deref(), Some("2026-11-30T22:00:00Z"));
        for wrong in ["", "soon", "25:00", "2026-13-01T00:00"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert!(begin("2020-01-01T00:00").unwrap_err().ends_with("is past"));
    }
}
