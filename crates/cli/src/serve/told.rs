//! Replaces names that mean nothing to whoever watches from elsewhere.

use swath_jobs::copy::DisplayNames;

/// Internal names with their replacements, for texts and for lines of JSON.
#[derive(Clone)]
pub struct ToldNames {
    plain: DisplayNames,
    escaped: DisplayNames,
}

impl ToldNames {
    /// Returns these replacements.
    pub fn new(names: Vec<(String, String)>) -> ToldNames {
        let in_json = |text: &str| {
            let quoted = serde_json::to_string(text).unwrap_or_default();
            quoted.trim_start_matches('"').strip_suffix('"').unwrap_or_default().to_owned()
        };
        let escaped = names.iter().map(|(own, told)| (in_json(own), in_json(told))).collect();
        ToldNames { plain: DisplayNames::new(names), escaped: DisplayNames::new(escaped) }
    }

    /// Replaces the names in a text.
    pub fn text(&self, text: &str) -> String {
        self.plain.shown(text)
    }

    /// Replaces the names in a line of JSON.
    pub fn line(&self, line: &str) -> String {
        self.escaped.shown(line)
    }
}
