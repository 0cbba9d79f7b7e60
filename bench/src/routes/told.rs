//! What swath tells of its routes while it fetches (`--json`): which ways were in use, and when
//! that changed.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// The changes of routes of one transfer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// When ways changed, in seconds since the start, and the relays of each way in use from then
    /// on: `ADDRESS:PORT`, from the receiver toward the source.
    pub changes: Vec<(f64, Vec<Vec<String>>)>,
}

impl Told {
    /// Reads a file of events; what is no event of ours is passed over.
    pub fn read(path: &Path) -> Self {
        fs::read_to_string(path).map_or_else(|_| Self::default(), |text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let events: Vec<Value> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        // Sources are named in every picture of the whole; their numbers stay.
        let mut names: Vec<(u64, Vec<String>)> = Vec::new();
        for source in events.iter().filter_map(|event| event["sources"].as_array()).flatten() {
            if let Some(number) = source["source"].as_u64()
                && names.iter().all(|(known, _)| *known != number)
            {
                names.push((number, relays(source)));
            }
        }
        let relays_of = |number: &Value| {
            let number = number.as_u64()?;
            names.iter().find(|(known, _)| *known == number).map(|(_, relays)| relays.clone())
        };
        let changes =
            events.iter().filter(|event| event["event"] == "routes").filter_map(|event| {
                let sources = event["sources"].as_array()?;
                Some((event["at_s"].as_f64()?, sources.iter().filter_map(relays_of).collect()))
            });
        Self { changes: changes.collect() }
    }

    /// How many changes there were by a time.
    pub fn count_by(&self, at_s: f64) -> usize {
        self.changes.iter().filter(|(changed_s, _)| *changed_s <= at_s).count()
    }

    /// After how many changes a way was in use that will do; `None` if that never was.
    pub fn count_to(&self, will_do: impl Fn(&[String]) -> bool) -> Option<usize> {
        let found = |(_, ways): &(f64, Vec<Vec<String>>)| ways.iter().any(|way| will_do(way));
        self.changes.iter().position(found).map(|at| at + 1)
    }
}

/// The relays by which a source is reached.
fn relays(source: &Value) -> Vec<String> {
    let relays = source["relays"].as_array().into_iter().flatten();
    relays.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_those_that_were_told() {
        let text = r#"{"event":"started","path":"f","sources":["http://s/f"]}
{"event":"routes","at_s":1.5,"sources":[0,2]}
no event
{"event":"progress","at_s":2.0,"sources":[{"source":0,"name":"http://s/f","bytes":1}]}
{"event":"routes","at_s":2.5,"sources":[0,1,2]}
{"event":"finished","at_s":9.0,"sources":[{"source":0,"name":"http://s/f"},
"#
        .to_owned()
            + r#"{"event":"finished","sources":[{"source":1,"name":"http://s/f","relays":["a:1","b:2"]},{"source":2,"name":"http://s/f","relays":["c:3"]}]}"#;
        let told = Told::parse(&text);
        let way = |relays: &[&str]| relays.iter().map(|&relay| relay.to_owned()).collect();
        let (direct, both, one): (Vec<String>, _, _) =
            (way(&[]), way(&["a:1", "b:2"]), way(&["c:3"]));
        let expected =
            vec![(1.5, vec![direct.clone(), one.clone()]), (2.5, vec![direct, both, one])];
        assert_eq!(told.changes, expected);
        assert_eq!([1.0, 1.5, 9.0].map(|at_s| told.count_by(at_s)), [0, 1, 2]);
        assert_eq!(told.count_to(|way| way.len() == 2), Some(2));
        assert_eq!(told.count_to(|way| way.len() == 3), None);
    }
}
