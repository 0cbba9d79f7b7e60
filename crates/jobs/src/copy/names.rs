//! Replaces internal addresses by the names that the user knows.

use swath_transfer::observe::{Event, LimitedBy, Observer};

/// Internal names and their replacements.
#[derive(Clone, Debug, Default)]
pub struct DisplayNames(Vec<(String, String)>);

impl DisplayNames {
    /// Returns these replacements; longer names come first.
    pub fn new(names: Vec<(String, String)>) -> DisplayNames {
        DisplayNames(names)
    }

    /// Returns these replacements and others.
    pub fn and(mut self, others: DisplayNames) -> DisplayNames {
        self.0.extend(others.0);
        self.0.sort_by_key(|(own, _)| std::cmp::Reverse(own.len()));
        self
    }

    /// Replaces the names in a text.
    pub fn shown(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (own, shown)| text.replace(own, shown))
    }

    /// Replaces the names in an event; `None` if it has none.
    fn of_event(&self, event: &Event) -> Option<Event> {
        if self.0.is_empty() {
            return None;
        }
        let told = serde_json::to_string(event).ok()?;
        if !self.0.iter().any(|(own, _)| told.contains(own)) {
            return None;
        }
        let text = self.0.iter().fold(told, |text, (own, shown)| {
            let shown = serde_json::to_string(shown).unwrap_or_default();
            text.replace(own, shown.get(1..shown.len() - 1).unwrap_or_default())
        });
        serde_json::from_str(&text).ok()
    }
}

/// An observer that replaces names in events.
pub struct NameReplacer<'a> {
    /// The observer.
    pub observer: &'a mut dyn Observer,
    /// The replacements.
    pub names: &'a DisplayNames,
    /// Replaces the limit "one source".
    pub limit: Option<LimitedBy>,
}

impl Observer for NameReplacer<'_> {
    fn observe(&mut self, event: &Event) {
        let mut event = self.names.of_event(event).unwrap_or_else(|| event.clone());
        if let (Event::Finished(summary) | Event::Failed { summary, .. }, Some(limit)) =
            (&mut event, &self.limit)
            && matches!(summary.limited_by, LimitedBy::OneSource { .. })
        {
            summary.limited_by = limit.clone();
        }
        self.observer.observe(&event);
    }
}
