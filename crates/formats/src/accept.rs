//! `Accept` (RFC 9110, section 12.5.1): which of two media types a client prefers.

/// Returns whether a request prefers `wanted` to `usual`, by the values of its `Accept` fields.
/// Types have the form `type/subtype`, in lower case. If both are equal, the one that is listed
/// itself, and first, is preferred; without any information it is `usual`.
pub fn prefers<'a>(values: impl Iterator<Item = &'a str>, wanted: &str, usual: &str) -> bool {
    let kinds = values.flat_map(|value| value.split(',')).take(MEMBERS_MAX);
    let (mut of_wanted, mut of_usual) = (Liking::default(), Liking::default());
    for (at, kind) in kinds.enumerate() {
        let mut parts = kind.split(';').map(|part| part.trim().to_ascii_lowercase());
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=")?.trim().parse::<f64>().ok());
        // An invalid weight has no effect.
        let weight = weight.filter(|weight| (0.0..=1.0).contains(weight)).unwrap_or(1.0);
        of_wanted.hear(&name, wanted, weight, at);
        of_usual.hear(&name, usual, weight, at);
    }
    match of_wanted.weight.total_cmp(&of_usual.weight) {
        std::cmp::Ordering::Greater => true,
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Equal => {
            let is_named = of_wanted.exactness == EXACT && of_wanted.weight > 0.0;
            is_named && (of_usual.exactness < EXACT || of_wanted.at < of_usual.at)
        }
    }
}

/// How much a type is preferred, by the most exact entry that matches.
#[derive(Default)]
struct Liking {
    weight: f64,
    exactness: u8,
    at: usize,
}

impl Liking {
    fn hear(&mut self, name: &str, kind: &str, weight: f64, at: usize) {
        let exactness = match name.strip_suffix("/*") {
            _ if name == kind => EXACT,
            Some("*") => 1,
            Some(class) if kind.split('/').next() == Some(class) => 2,
            _ => 0,
        };
        if exactness > self.exactness {
            *self = Liking { weight, exactness, at };
        }
    }
}

/// Both parts of the type are given.
const EXACT: u8 = 3;
/// Most types that are read.
const MEMBERS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::prefers;

    fn is_json(values: &[&str]) -> bool {
        prefers(values.iter().copied(), "application/json", "text/html")
    }

    #[test]
    fn weights_count_and_then_what_was_named_first() {
        for yes in [
            "application/json",
            "APPLICATION/Json",
            "application/json, text/plain, */*",
            "application/json;q=0.5",
            "text/html;q=0.5, application/json",
            "text/html; q=0.5 , application/json ; charset=utf-8; Q=0.6",
            "application/*, text/html;q=0.9",
            "*/*;q=0.1, application/json;q=0.2",
            "text/*, text/html;q=0.1, application/json;q=0.5",
        ] {
            assert!(is_json(&[yes]), "{yes}");
        }
        for no in [
            "",
            "*/*",
            "text/html",
            "text/html, application/json",
            "application/json;q=0",
            "application/json;q=0, */*",
            "application/json;q=0.5, */*",
            "application/json;q=0.5, text/html",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "application/jsonx",
            "image/png",
        ] {
            assert!(!is_json(&[no]), "{no}");
        }
        assert!(is_json(&["text/html;q=0.1", "application/json"]));
        assert!(!is_json(&["text/html", "application/json"]));
    }

    proptest! {
        #[test]
        fn nothing_that_is_sent_does_harm(text in "\\PC*", weights in "[a-z/*;=,q0-9. ]{0,99}") {
            let _ = (is_json(&[&text]), is_json(&[&weights]));
        }
    }
}
