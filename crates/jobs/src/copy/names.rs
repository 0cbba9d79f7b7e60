//! Places by the names that their user knows, in place of those that they have within this process.

use swath_transfer::observe::{Event, LimitedBy, Observer};

/// Names within this process and what stands for them.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<(String, String)>);

impl Names {
    /// Each name with what stands for it; longer names come first.
    pub fn new(names: Vec<(String, String)>) -> Names {
        Names(names)
    }

    /// Returns a sentence with the names that its user knows.
    pub fn shown(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (own, shown)| text.replace(own, shown))
    }

    /// The event with those names, if it has any that are to be replaced.
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

/// Tells of places by the names that their user knows.
pub struct Renamed<'a> {
    /// What is told.
    pub observer: &'a mut dyn Observer,
    /// The names.
    pub names: &'a Names,
    /// What limits where the only source does, if that is no link and no server.
    pub limit: Option<LimitedBy>,
}

impl Observer for Renamed<'_> {
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
