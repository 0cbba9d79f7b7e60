//! Reads the TOML of the configuration file. Every error has its line.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Config;
use super::error::ConfigProblem;
use super::host;
use super::relay::{Relay, distinct, relay, route};
use super::settings::{ReadError, SETTINGS, Setting, SettingOrigin, SettingValue, at_home};
use crate::args::fingerprint;

/// From 1.
pub(super) type Line = usize;

/// Reads the file at `path`; relative paths in it start at its folder.
pub(super) fn read(text: &str, path: &Path) -> Result<Config, (Line, ConfigProblem)> {
    let folder = path.parent().unwrap_or(Path::new(""));
    // Some editors write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let reader = Reader { text, folder };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let message = error.message().lines().next().unwrap_or_default().to_owned();
        (reader.line(at), ConfigProblem::Syntax(message))
    })?;
    let mut config = Config::default();
    for (key, value) in table.get_ref() {
        match key.get_ref().as_ref() {
            "relays" => config.relays = reader.relays(value)?,
            "route" => {
                let text = reader.text(value, "route", "a text such as \"auto\"")?;
                config.route = Some(route(text).map_err(|wrong| reader.at(value, wrong))?);
                config.route_at = Some((path.to_owned(), reader.line(value.span().start)));
            }
            "hosts" => config.hosts = host::read(&reader, value)?,
            other => {
                let Some(setting) = Setting::in_file(other) else {
                    let wrong =
                        ConfigProblem::Key { key: other.to_owned(), place: "", known: keys() };
                    return Err(reader.at(key, wrong));
                };
                let values =
                    setting.read(value.get_ref(), folder).map_err(|error| match error {
                        ReadError::Type(wanted) => reader.wrong_type(value, setting.name, wanted),
                        ReadError::Value(why) => {
                            reader.at(value, ConfigProblem::Value { key: setting.name, why })
                        }
                    })?;
                let by = SettingOrigin::Line(reader.line(key.span().start));
                config.settings.push(SettingValue { setting, values, by });
            }
        }
    }
    if let Some(value) = table.get_ref().get("route") {
        // Without relays in the file, those of the command line may fit.
        if !config.relays.is_empty() {
            config.relays_of_the_route().map_err(|wrong| reader.at(value, wrong))?;
        }
    }
    Ok(config)
}

pub(super) struct Reader<'a> {
    text: &'a str,
    /// The start of relative paths.
    pub folder: &'a Path,
}

impl Reader<'_> {
    pub fn line(&self, at: usize) -> Line {
        let before = self.text.as_bytes().get(..at).unwrap_or(self.text.as_bytes());
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }

    pub fn at<T>(&self, place: &Spanned<T>, wrong: ConfigProblem) -> (Line, ConfigProblem) {
        (self.line(place.span().start), wrong)
    }

    pub fn text<'v>(
        &self,
        value: &'v Spanned<DeValue<'_>>,
        key: &'static str,
        wanted: &'static str,
    ) -> Result<&'v str, (Line, ConfigProblem)> {
        value.get_ref().as_str().ok_or_else(|| self.at(value, of_type(key, wanted, value)))
    }

    pub fn wrong_type(
        &self,
        value: &Spanned<DeValue<'_>>,
        key: &'static str,
        wanted: &'static str,
    ) -> (Line, ConfigProblem) {
        self.at(value, of_type(key, wanted, value))
    }

    fn relays(&self, value: &Spanned<DeValue<'_>>) -> Result<Vec<Relay>, (Line, ConfigProblem)> {
        let Some(list) = value.get_ref().as_array() else {
            return Err(self.at(value, of_type("relays", "a list", value)));
        };
        let mut relays: Vec<Relay> = Vec::new();
        for entry in list.iter() {
            relays.push(self.relay(entry)?);
            distinct(&relays).map_err(|wrong| self.at(entry, wrong))?;
        }
        Ok(relays)
    }

    fn relay(&self, value: &Spanned<DeValue<'_>>) -> Result<Relay, (Line, ConfigProblem)> {
        let Some(table) = value.get_ref().as_table() else {
            let text = self.text(value, "relays", "a list of texts or tables")?;
            return relay(text).map_err(|wrong| self.at(value, wrong));
        };
        let (mut found, mut token_file, mut print) = (None, None, None);
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "url" => {
                    let text =
                        self.text(value, "url", "a text such as \"https://r1.example:8471\"")?;
                    found = Some(relay(text).map_err(|wrong| self.at(value, wrong))?);
                }
                "token-file" => {
                    let text = self.text(value, "token-file", "a text")?;
                    token_file = Some(PathBuf::from(at_home(text, self.folder)));
                }
                "fingerprint" => {
                    let text = self.text(value, "fingerprint", "a text such as \"sha-256:1f…\"")?;
                    let wrong = |why| self.at(value, ConfigProblem::Fingerprint(why));
                    print = Some(fingerprint(text).map_err(wrong)?);
                }
                other => {
                    let (key_text, place) = (other.to_owned(), " of a relay");
                    let wrong =
                        ConfigProblem::Key { key: key_text, place, known: RELAY_KEYS.to_vec() };
                    return Err(self.at(key, wrong));
                }
            }
        }
        let relay = found.ok_or_else(|| self.at(value, ConfigProblem::NoUrl))?;
        if print.is_some() && relay.url.scheme() != "https" {
            return Err(self.at(value, ConfigProblem::Unencrypted(relay.site())));
        }
        Ok(Relay { token_file, fingerprint: print, ..relay })
    }
}

fn of_type(key: &'static str, wanted: &'static str, found: &Spanned<DeValue<'_>>) -> ConfigProblem {
    let found = match found.get_ref() {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    ConfigProblem::Type { key, wanted, found }
}

/// Returns all keys of the file in alphabetical order.
fn keys() -> Vec<&'static str> {
    let settings = SETTINGS.iter().map(|setting| setting.name);
    let in_file = settings.filter(|name| Setting::in_file(name).is_some());
    let mut keys: Vec<&str> = in_file.chain(["relays", "route", "hosts"]).collect();
    keys.sort_unstable();
    keys
}

const RELAY_KEYS: &[&str] = &["url", "token-file", "fingerprint"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RouteOption;

    fn said(text: &str) -> Result<Config, (Line, String)> {
        read(text, Path::new("/etc/swath/config.toml"))
            .map_err(|(line, wrong)| (line, wrong.to_string()))
    }

    #[test]
    fn relays_are_addresses_or_tables_in_either_spelling() {
        let config = said(
            "\u{feff}# mine\nroute = \"r2,r1\"\nrelays = [\n  \"https://r1.example\",\n  \
             { url = \"http://r2.example:8080\", token-file = \"r2.token\" },\n]\n",
        )
        .unwrap();
        let sites: Vec<String> = config.relays.iter().map(Relay::site).collect();
        assert_eq!(sites, ["r1.example:443", "r2.example:8080"]);
        assert_eq!(config.relays[1].token_file, Some("/etc/swath/r2.token".into()));
        assert_eq!(config.route, Some(RouteOption::Over(vec!["r2".into(), "r1".into()])));
        let print = format!("sha-256:{}", "1f".repeat(32));
        let pinned =
            said(&format!("relays = [{{ url = \"https://r\", fingerprint = \"{print}\" }}]"));
        assert_eq!(pinned.unwrap().relays[0].fingerprint, fingerprint(&print).ok());
        let other = said("[[relays]]\nurl = \"https://r1\"\ntoken-file = \"/t\"\n").unwrap();
        assert_eq!(other.relays[0].token_file, Some("/t".into()));
        assert_eq!(said(""), Ok(Config::default()));
        assert_eq!(said("route = \"r1\"").unwrap().relays, []);
    }

    #[test]
    fn every_mistake_is_told_with_its_line() {
        let print = format!("sha-256:{}", "1f".repeat(32));
        let odd = format!("relays = [{{ url = \"http://r\", fingerprint = \"{print}\" }}]");
        for (text, line, words) in [
            (
                "relay = []",
                1,
                "unknown key 'relay' (did you mean 'relays'?); known keys: ca, checksums, connections",
            ),
            ("\n\nroutes = \"auto\"", 3, "unknown key 'routes' (did you mean 'route'?)"),
            ("limit_rate = 5", 1, "did you mean 'limit-rate'?"),
            ("whatever = 5", 1, "unknown key 'whatever'; known keys"),
            ("[relays]\nurl = \"https://r\"", 1, "'relays' must be a list, not a table"),
            ("relays = \"https://r\"", 1, "must be a list, not a text"),
            ("relays = [\n 5 ]", 2, "must be a list of texts or tables, not a number"),
            ("relays = [\n\n \"r1\" ]", 3, "no http:// or https://"),
            ("relays = [\n{ token-file = \"x\" } ]", 2, "this relay has no 'url'"),
            ("relays = [\n{ url = \"https://r\", token = \"x\" } ]", 2, "'token' of a relay"),
            ("relays = [\"http://r\",\n\"http://r:80\"]", 2, "duplicate relay r:80"),
            (
                "relays = [\n{ url = \"https://r\", fingerprint = \"1f\" } ]",
                2,
                "'fingerprint' of this relay: ",
            ),
            ("relays = [\n{ url = \"https://r\", fingerprint = 1 } ]", 2, ", not a number"),
            (&odd, 1, "uses http:// and has no certificate"),
            ("route = true", 1, ", not true or false"),
            ("\nroute = \"r1,\"", 2, "is not a route"),
            ("relays = [\"http://r1\"]\nroute = \"r2\"", 2, "not among the relays r1:80"),
            ("a = 1\nb == 2", 2, "invalid TOML"),
            ("route = \"auto\"\nroute = \"multi\"", 2, "invalid TOML: duplicate key"),
        ] {
            let error = said(text).unwrap_err();
            assert!(error.0 == line && error.1.contains(words), "{text}\n{error:?}");
        }
    }
}
