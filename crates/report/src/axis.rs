//! Round marks on an axis, for times and for rates.

use swath_model::units;

/// Marks at round values from 0 to at most `max`, about `count` of them.
pub(crate) fn marks(max: f64, count: usize) -> Vec<f64> {
    let step = step(max, count);
    let mut out = Vec::new();
    // A mark within a hair of the end counts; the loop is bounded whatever the arguments.
    for i in 0..=2 * count.max(1) {
        let value = step * i as f64;
        if value > max * 1.000_001 {
            break;
        }
        out.push(value);
    }
    out
}

/// The round distance (1, 2 or 5 times a power of ten) that gives at most `count` parts.
pub(crate) fn step(max: f64, count: usize) -> f64 {
    let rough = (max / count.max(1) as f64).max(1e-9);
    let power = 10_f64.powf(rough.log10().floor());
    let factor =
        [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * power >= rough * 0.999_999).unwrap_or(10.0);
    factor * power
}

/// Times use 15, 30 and 60 seconds, quarters of hours and so on above one second.
pub(crate) fn time_marks(max_s: f64, count: usize) -> Vec<f64> {
    const STEPS_S: [f64; 19] = [
        1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0,
        7_200.0, 14_400.0, 21_600.0, 43_200.0, 86_400.0, 172_800.0,
    ];
    let rough = max_s / count.max(1) as f64;
    let step = if rough <= 0.5 {
        step(max_s, count)
    } else {
        STEPS_S.into_iter().find(|s| *s >= rough).unwrap_or_else(|| step(max_s, count))
    };
    (0..=2 * count.max(1))
        .map(|i| step * i as f64)
        .take_while(|t| *t <= max_s * 1.000_001)
        .collect()
}

/// A time on the axis: `0`, `0.4 s`, `12 s`, `1:20`, `1:05:00`.
pub(crate) fn time_label(at_s: f64) -> String {
    let whole = at_s.round() as u64;
    if at_s == 0.0 {
        "0".to_owned()
    } else if at_s < 60.0 {
        let text = format!("{at_s:.3}");
        format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
    } else if whole < 3_600 {
        format!("{}:{:02}", whole / 60, whole % 60)
    } else {
        format!("{}:{:02}:{:02}", whole / 3_600, whole / 60 % 60, whole % 60)
    }
}

/// A round rate on the axis: `200 MB/s`.
pub(crate) fn rate_label(bytes_per_s: f64) -> String {
    let text = units::rate(bytes_per_s);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_within() {
        assert_eq!(marks(512.0, 4), [0.0, 200.0, 400.0]);
        assert_eq!(marks(1.0, 5).len(), 6);
        assert_eq!(marks(0.0, 5), [0.0]);
        assert_eq!(time_marks(2.6, 8), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]);
        assert_eq!(time_marks(100.0, 8), [0.0, 15.0, 30.0, 45.0, 60.0, 75.0, 90.0]);
        assert!(time_marks(1e9, 8).len() <= 17);
    }

    #[test]
    fn labels_are_short() {
        assert_eq!(
            [0.0, 0.4, 12.0, 80.0, 3_900.0].map(time_label),
            ["0", "0.4 s", "12 s", "1:20", "1:05:00"]
        );
        assert_eq!(rate_label(200e6), "200 MB/s");
        assert_eq!(rate_label(2.5e6), "2.5 MB/s");
    }
}
