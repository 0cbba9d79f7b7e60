//! Sizes, rates and times as users read them.
//!
//! Decimal units everywhere (1 kB = 1000 B), three significant digits, and never a number that
//! rounds into the next unit (`1.00 GB`, not `1000 MB`). The terminal, the summary and the report
//! page all format their figures here, so that they agree.

/// Formats a size: `0 B`, `999 B`, `1.05 GB`.
pub fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, "")
}

/// Formats a rate in bytes per second: `182 MB/s`. Negative rates and NaN read `0 B/s`.
pub fn rate(bytes_per_s: f64) -> String {
    scaled(if bytes_per_s.is_finite() { bytes_per_s.max(0.0) } else { 0.0 }, "/s")
}

/// Formats a duration: `420 ms`, `4.20 s`, `12.3 s`, `3 min 20 s`, `1 h 05 min`, `2 d 3 h`.
pub fn duration(seconds: f64) -> String {
    let s = if seconds.is_finite() { seconds.max(0.0) } else { 0.0 };
    let whole = s.round() as u64;
    if s == 0.0 {
        "0 s".to_owned()
    } else if s < 0.0005 {
        "<1 ms".to_owned()
    } else if s < 0.9995 {
        format!("{:.0} ms", s * 1000.0)
    } else if s < 9.995 {
        format!("{s:.2} s")
    } else if s < 59.95 {
        format!("{s:.1} s")
    } else if whole < 3600 {
        format!("{} min {:02} s", whole / 60, whole % 60)
    } else if whole < 86_400 {
        format!("{} h {:02} min", whole / 3600, whole / 60 % 60)
    } else {
        format!("{} d {} h", whole / 86_400, whole / 3600 % 24)
    }
}

/// Formats a forecast and its uncertainty in one unit: `12 s (10–19)`, `3.3 min (2.9–4.1)`.
///
/// `dash` stands between the bounds (`–`, or `-` if only ASCII can be shown). Bounds that read the
/// same as the forecast are left out.
pub fn eta(likely_s: f64, low_s: f64, high_s: f64, dash: &str) -> String {
    let clean = |s: f64| if s.is_finite() { s.clamp(0.0, 1e9) } else { 0.0 };
    let (likely, low, high) = (clean(likely_s), clean(low_s), clean(high_s));
    let (unit, unit_s) = match likely {
        s if s < 99.5 => ("s", 1.0),
        s if s < 5_970.0 => ("min", 60.0),
        s if s < 172_800.0 => ("h", 3600.0),
        _ => ("d", 86_400.0),
    };
    let show = |s: f64| {
        let value = s / unit_s;
        if unit == "s" || value >= 9.95 { format!("{value:.0}") } else { format!("{value:.1}") }
    };
    if likely < 0.5 && high < 1.5 {
        return "<1 s".to_owned();
    }
    let (mid, from, to) = (show(likely), show(low), show(high));
    if from == mid && to == mid {
        format!("{mid} {unit}")
    } else {
        format!("{mid} {unit} ({from}{dash}{to})")
    }
}

/// Formats a part of a whole, 0 to 1, as `38 %`; non-zero parts that round to 0 read `<1 %`.
pub fn percent(part: f64) -> String {
    let part = if part.is_finite() { part.max(0.0) } else { 0.0 };
    if part > 0.0 && part < 0.005 { "<1 %".to_owned() } else { format!("{:.0} %", part * 100.0) }
}

/// Formats how much is done, rounded down: 100 % only when nothing is left.
pub fn percent_done(done: u64, size: u64) -> String {
    if size == 0 {
        return "100 %".to_owned();
    }
    format!("{} %", u128::from(done.min(size)) * 100 / u128::from(size))
}

/// Formats a count with thousands separators: `100,000`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a number of things: `1 byte`, `2 bytes`, `0 files`.
pub fn counted(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// Formats with three significant digits and a decimal prefix.
fn scaled(bytes: f64, per: &str) -> String {
    if bytes < 999.5 {
        return format!("{bytes:.0} B{per}");
    }
    let mut value = bytes / 1000.0;
    for prefix in ["k", "M", "G", "T", "P"] {
        if value < 999.5 {
            return format!("{} {prefix}B{per}", three_digits(value));
        }
        value /= 1000.0;
    }
    format!("{} EB{per}", three_digits(value))
}

/// Formats `1.05`, `12.3`, `182`; at the limits rounding would add a digit.
fn three_digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_three_digits_and_round_into_the_next_unit() {
        let cases = [
            (0, "0 B"),
            (1, "1 B"),
            (999, "999 B"),
            (1_000, "1.00 kB"),
            (1_234, "1.23 kB"),
            (9_994, "9.99 kB"),
            (9_996, "10.0 kB"),
            (99_960, "100 kB"),
            (999_499, "999 kB"),
            (999_500, "1.00 MB"),
            (999_600_000, "1.00 GB"),
            (1_073_741_824, "1.07 GB"),
            (100 * 1_073_741_824, "107 GB"),
            (u64::MAX, "18.4 EB"),
        ];
        for (n, text) in cases {
            assert_eq!(bytes(n), text, "{n}");
        }
    }

    #[test]
    fn rates_survive_what_is_no_rate() {
        assert_eq!(rate(182_300_000.0), "182 MB/s");
        assert_eq!(rate(12.0), "12 B/s");
        assert_eq!(rate(-1.0), "0 B/s");
        assert_eq!(rate(f64::NAN), "0 B/s");
        assert_eq!(rate(f64::INFINITY), "0 B/s");
    }

    #[test]
    fn durations_name_their_units() {
        let cases = [
            (0.0, "0 s"),
            (0.0001, "<1 ms"),
            (0.42, "420 ms"),
            (0.9996, "1.00 s"),
            (4.2, "4.20 s"),
            (9.996, "10.0 s"),
            (12.34, "12.3 s"),
            (59.96, "1 min 00 s"),
            (200.0, "3 min 20 s"),
            (3599.7, "1 h 00 min"),
            (3900.0, "1 h 05 min"),
            (183_600.0, "2 d 3 h"),
            (-5.0, "0 s"),
            (f64::NAN, "0 s"),
        ];
        for (s, text) in cases {
            assert_eq!(duration(s), text, "{s}");
        }
    }

    #[test]
    fn forecasts_say_how_sure_they_are() {
        assert_eq!(eta(12.2, 9.6, 19.4, "–"), "12 s (10–19)");
        assert_eq!(eta(12.2, 9.6, 19.4, "-"), "12 s (10-19)");
        assert_eq!(eta(12.2, 12.1, 12.4, "–"), "12 s");
        assert_eq!(eta(0.2, 0.1, 0.4, "–"), "<1 s");
        assert_eq!(eta(0.2, 0.1, 8.0, "–"), "0 s (0–8)");
        assert_eq!(eta(200.0, 174.0, 246.0, "–"), "3.3 min (2.9–4.1)");
        assert_eq!(eta(1200.0, 1100.0, 1500.0, "–"), "20 min (18–25)");
        assert_eq!(eta(7200.0, 6800.0, 9000.0, "–"), "2.0 h (1.9–2.5)");
        assert_eq!(eta(f64::NAN, f64::NAN, f64::INFINITY, "–"), "<1 s");
    }

    #[test]
    fn parts_never_claim_more_than_is_there() {
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(percent(0.001), "<1 %");
        assert_eq!(percent(0.384), "38 %");
        assert_eq!(percent_done(999, 1000), "99 %");
        assert_eq!(percent_done(1000, 1000), "100 %");
        assert_eq!(percent_done(0, 0), "100 %");
        assert_eq!(percent_done(u64::MAX - 1, u64::MAX), "99 %");
    }

    #[test]
    fn counts_are_grouped() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (100_000, "100,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(count(n), text);
        }
    }

    #[test]
    fn one_is_one() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "byte")), ["0 bytes", "1 byte", "2 bytes"]);
    }
}
