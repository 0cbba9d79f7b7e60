//! Whether the answers of one source speak of one version of its file.
//!
//! Equal strong tags do. Unequal ones, or unequal times, may be a file that has changed, or servers
//! behind one name that make their tags each in its own way, or a file that is made anew for every
//! answer. One answer cannot tell these apart; several can. So a source whose validators differ is
//! asked again, over other connections, before anything is decided:
//!
//! | what then comes | what it is |
//! | --- | --- |
//! | validators seen before, or a third kind, and the times are equal | servers that share a file: tags count no more |
//! | validators seen before, or a third kind, and the times are not equal | no two answers need be alike: unsteady |
//! | the same other validators [`PATIENCE`] times | the file has changed |
//!
//! A time that is the answer's own says the same at once. Where a digest proves the bytes, validators
//! decide nothing. A size that differs is never doubted.

use crate::error::LaneError;
use crate::facts::Facts;
use crate::target::Origin;

/// What the answers have shown so far.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    /// Validators other than those first known, each kind once.
    others: Vec<Key>,
    /// Whether the last answer was of those.
    strayed: bool,
    /// How often it was asked again since validators last were the known ones.
    asked: u32,
    /// Servers behind one name share the file: unequal tags with equal times say nothing.
    shares: bool,
}

/// Entity tag and time.
type Key = (Option<String>, Option<String>);

/// What an answer is, beside what is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sameness {
    /// Of the same version.
    Same,
    /// Ask again.
    Doubtful,
    /// Not of it.
    Differs(LaneError),
}

impl Versions {
    /// Holds `now` against what is `known`; with `proved` a digest will prove the bytes.
    pub fn judge(&mut self, known: &Facts, now: &Facts, proved: bool) -> Sameness {
        if let (Some(expected), Some(actual)) = (known.size_bytes, now.size_bytes)
            && expected != actual
        {
            return Sameness::Differs(LaneError::SizeMismatch { expected, actual });
        }
        if proved {
            return Sameness::Same;
        }
        let Some((was, is)) = difference(known, now) else {
            if self.strayed && known.etag == now.etag {
                // It comes back to what it was, which no file does.
                self.shares |= self.others.iter().all(|(_, time)| *time == known.last_modified);
                self.strayed = false;
                self.asked = 0;
            }
            return Sameness::Same;
        };
        let times_agree = known.last_modified.is_some() && known.last_modified == now.last_modified;
        if self.shares && times_agree {
            return Sameness::Same;
        }
        let key: Key = (now.etag.clone(), now.last_modified.clone());
        let is_new = !self.others.contains(&key);
        if is_new && self.others.len() < KINDS_MAX {
            self.others.push(key);
        }
        let returned = !self.strayed && !is_new;
        self.strayed = true;
        if returned || self.others.len() >= KINDS_MAX || known.is_made_now && now.is_made_now {
            let all_agree = self.others.iter().all(|(_, time)| *time == known.last_modified);
            if times_agree && all_agree {
                self.shares = true;
                return Sameness::Same;
            }
            return Sameness::Differs(LaneError::Unsteady { was, is });
        }
        if self.asked < PATIENCE {
            self.asked += 1;
            return Sameness::Doubtful;
        }
        Sameness::Differs(LaneError::Changed { was, is })
    }
}

/// In what two answers differ, if their validators say that they are of two versions.
///
/// Another server (a redirector may choose anew each time) makes tags of its own: equal ones prove
/// the same version, unequal ones decide only where there is no time to compare. Weak tags that are
/// equal prove nothing; those of one server that are not are of two versions.
pub(crate) fn difference(known: &Facts, now: &Facts) -> Option<(String, String)> {
    let origin = |facts: &Facts| facts.final_url.as_ref().and_then(Origin::of);
    let elsewhere = origin(known) != origin(now);
    let tags = (strong(&known.etag), strong(&now.etag));
    let times = (known.last_modified.as_deref(), now.last_modified.as_deref());
    if let (Some(was), Some(is)) = (known.etag.as_deref(), now.etag.as_deref())
        && !elsewhere
        && was.trim_start_matches("W/") != is.trim_start_matches("W/")
    {
        return Some((was.to_owned(), is.to_owned()));
    }
    let decisive = match (tags, times) {
        ((Some(was), Some(is)), _) if was == is => return None,
        (_, (Some(_), Some(_))) if elsewhere => times,
        ((Some(_), Some(_)), _) => tags,
        _ => times,
    };
    match decisive {
        (Some(was), Some(is)) if was != is => Some((was.to_owned(), is.to_owned())),
        _ => None,
    }
}

fn strong(etag: &Option<String>) -> Option<&str> {
    etag.as_deref().filter(|etag| !etag.starts_with("W/"))
}

/// A source is asked again so often before its file counts as changed: of two servers that take
/// turns by chance, one answers so often in a row once in 128 times.
const PATIENCE: u32 = 7;
/// With the first one, three kinds of validators: nobody changes a file that fast.
const KINDS_MAX: usize = 2;

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    fn facts(host: &str, etag: &str, time: Option<&str>) -> Facts {
        Facts {
            size_bytes: Some(10),
            etag: (!etag.is_empty()).then(|| etag.to_owned()),
            last_modified: time.map(str::to_owned),
            final_url: Url::parse(&format!("http://{host}/f")).ok(),
            ..Facts::default()
        }
    }

    /// Asks until something is decided; how often that was, and what.
    fn ask(answers: &[Facts]) -> (usize, Sameness) {
        let mut versions = Versions::default();
        for (at, now) in answers.iter().enumerate().skip(1) {
            match versions.judge(&answers[0], now, false) {
                Sameness::Differs(error) => return (at, Sameness::Differs(error)),
                Sameness::Same if at + 1 == answers.len() => return (at, Sameness::Same),
                _ => {}
            }
        }
        (answers.len(), Sameness::Doubtful)
    }

    #[test]
    fn servers_behind_a_redirector_need_the_same_version_not_the_same_tag() {
        let known = facts("a", "\"aa\"", Some("Mon"));
        let table = [
            (facts("a", "\"aa\"", Some("Tue")), true),
            (facts("a", "\"bb\"", Some("Mon")), false),
            (facts("b", "\"bb\"", Some("Mon")), true),
            (facts("b", "\"bb\"", Some("Tue")), false),
            (facts("b", "\"bb\"", None), false),
            (facts("b", "\"aa\"", None), true),
        ];
        for (now, same) in table {
            assert_eq!(difference(&known, &now).is_none(), same, "{now:?}");
            assert_eq!(Versions::default().judge(&known, &now, true), Sameness::Same);
        }
        let larger = Facts { size_bytes: Some(11), ..known.clone() };
        assert!(matches!(
            Versions::default().judge(&known, &larger, true),
            Sameness::Differs(LaneError::SizeMismatch { .. })
        ));
        // A file that was written twice within a second had one date, and nobody looked at its tags.
        let weak = |host, tag| facts(host, tag, Some("Mon"));
        let known = weak("a", "W/\"aa\"");
        assert!(difference(&known, &weak("a", "W/\"bb\"")).is_some());
        assert!(difference(&known, &weak("a", "\"bb\"")).is_some());
        assert!(difference(&known, &weak("a", "\"aa\"")).is_none());
        assert!(difference(&known, &weak("b", "W/\"bb\"")).is_none());
        assert!(difference(&known, &facts("a", "W/\"aa\"", Some("Tue"))).is_some());
    }

    /// Apache's tags hold the inode: two servers of a cluster never agree on one, and swath gave up.
    #[test]
    fn a_cluster_whose_tags_alternate_is_one_source() {
        let of = |tag| facts("a", tag, Some("Mon"));
        let (one, two, three) = (of("\"1\""), of("\"2\""), of("\"3\""));
        let turns = [one.clone(), two.clone(), one.clone(), two.clone()];
        assert_eq!(ask(&turns), (3, Sameness::Same));
        let many = [one.clone(), two.clone(), three.clone(), of("\"4\"")];
        assert_eq!(ask(&many), (3, Sameness::Same));
        // A file that changed does not change back.
        let mut changed = vec![one];
        changed.extend(vec![two; 20]);
        let (asked, verdict) = ask(&changed);
        assert_eq!(asked as u32, PATIENCE + 1);
        assert!(matches!(verdict, Sameness::Differs(LaneError::Changed { .. })));
    }

    #[test]
    fn answers_of_which_no_two_are_alike_are_unsteady() {
        let unsteady = |answers: &[Facts], at| {
            let (asked, verdict) = ask(answers);
            assert!(
                matches!(verdict, Sameness::Differs(LaneError::Unsteady { .. })),
                "{verdict:?}"
            );
            assert_eq!(asked, at);
        };
        let at = |time| facts("a", "", Some(time));
        unsteady(&[at("1"), at("2"), at("3")], 2);
        unsteady(&[at("1"), at("2"), at("1"), at("2")], 3);
        let of = |tag, time| facts("a", tag, Some(time));
        unsteady(&[of("\"a\"", "1"), of("\"b\"", "2"), of("\"c\"", "3")], 2);
        // Of tags alone nothing agrees either.
        unsteady(
            &[facts("a", "\"a\"", None), facts("a", "\"b\"", None), facts("a", "\"c\"", None)],
            2,
        );
        let made = |time| Facts { is_made_now: true, ..at(time) };
        unsteady(&[made("1"), made("2")], 1);
    }
}
