//! Reads sizes, rates and times.

use std::time::Duration;

/// Reads a size in bytes such as `64k`, `1.5M`, `2GiB`: k, M, G, T are powers of 1000; Ki, Mi, Gi, Ti
/// are powers of 1024; a final B is allowed.
pub fn size(text: &str) -> Result<u64, String> {
    number_of_bytes(text)
        .ok_or_else(|| format!("'{text}' is not a size (examples: 500k, 50M, 1.5G, 64MiB)"))
}

fn number_of_bytes(text: &str) -> Option<u64> {
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let number: f64 = number.parse().ok()?;
    let unit = unit.trim();
    let unit = unit.strip_suffix(['B', 'b']).unwrap_or(unit);
    let factor: f64 = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "m" | "M" => 1e6,
        "g" | "G" => 1e9,
        "t" | "T" => 1e12,
        "Ki" | "ki" | "KI" => 1024.0,
        "Mi" | "mi" | "MI" => 1024.0 * 1024.0,
        "Gi" | "gi" | "GI" => 1024.0 * 1024.0 * 1024.0,
        "Ti" | "ti" | "TI" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let bytes = number * factor;
    (0.0..=9e18).contains(&bytes).then_some(bytes as u64)
}

/// Reads a size of at least one byte.
pub fn size_above_zero(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("must be more than zero".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Reads a rate of at least one byte per second: a size, with or without `/s`.
pub fn rate_above_zero(text: &str) -> Result<u64, String> {
    let size = text.strip_suffix("/s").unwrap_or(text);
    match number_of_bytes(size) {
        None => Err(format!("'{text}' is not a rate (examples: 500k, 50M, 1.5GB/s)")),
        Some(0) => Err("must be more than zero".to_owned()),
        Some(bytes) => Ok(bytes),
    }
}

/// Reads a time such as `30`, `30s`, `500ms`, `2m`, `1h`, `7d`.
pub fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a time (examples: 30, 500ms, 2m)");
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit.trim() {
        "" | "s" => number,
        "ms" => number / 1e3,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86400.0,
        _ => return Err(wrong()),
    };
    if seconds <= 0.0 {
        return Err("must be more than zero".to_owned());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// Reads the time of a deadline, which is at least a second.
pub fn deadline(text: &str) -> Result<Duration, String> {
    match time(text)? {
        time if time >= Duration::from_secs(1) => Ok(time),
        _ => Err("must be at least 1 second".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read_as_typed() {
        for (text, bytes) in [
            ("0", 0),
            ("500k", 500_000),
            ("50M", 50_000_000),
            ("64KiB", 65_536),
            ("1.5Gi", 1_610_612_736),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "1X", "-1", "1e400", "99999999999T", "nan", "1..2", "5MBB", "5M/s"] {
            assert!(size(text).is_err(), "{text}");
        }
        assert_eq!(rate_above_zero("50MB/s"), Ok(50_000_000));
        for text in ["abc", "0", "5MBB/s", "5M/s/s"] {
            assert!(rate_above_zero(text).is_err(), "{text}");
        }
        assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(time("7d"), time("168h"));
        assert!(time("0").is_err() && time("soon").is_err() && time("1e999").is_err());
    }
}
