//! The token of a cluster: what names a content, what opens it, and what tells nobody anything.

use swath_model::digest::{Algorithm, Digest, Hasher};
use swath_share::units::Units;
use swath_share::{ClusterToken, Sameness};
use swath_source::{Facts, Secret};
use url::Url;

fn token(text: &str) -> ClusterToken {
    ClusterToken::new(&Secret::new(text))
}

fn url() -> Url {
    Url::parse("http://h.example/f").unwrap()
}

fn digest(of: &str) -> Digest {
    Hasher::digest(Algorithm::Sha256, of.as_bytes())
}

#[test]
fn a_digest_says_that_files_are_the_same_wherever_they_are() {
    let units = Units::of(1000);
    let of = |sameness: &Sameness| token("a").content(sameness, &units);
    let name = of(&Sameness::Digest(digest("x")));
    assert_eq!(name, of(&Sameness::Digest(digest("x"))));
    assert_ne!(name, of(&Sameness::Digest(digest("y"))));
    let bytes: [u8; 32] = digest("x").as_bytes().try_into().unwrap();
    assert_ne!(name, of(&Sameness::Index(bytes)), "an index is no file");
}

#[test]
fn contents_that_are_cut_otherwise_have_other_names() {
    let sameness = Sameness::Digest(digest("x"));
    let name = |units: &Units| token("a").content(&sameness, units);
    let whole = Units::of(10 << 20);
    let pieces = Units::of_pieces(10 << 20, 300_000).unwrap();
    assert_ne!(whole.unit_bytes(), pieces.unit_bytes());
    assert_ne!(name(&whole), name(&pieces));
    assert_ne!(name(&whole), name(&Units::of((10 << 20) + 1)));
}

#[test]
fn what_says_that_files_are_the_same_is_chosen_in_this_order() {
    let mut facts = Facts { etag: Some("\"1\"".to_owned()), ..Facts::default() };
    facts.digests = vec![digest("told")];
    let find = |known, facts: &Facts| Sameness::find(known, &url(), facts);
    let known = find(Some(digest("known")), &facts);
    assert!(matches!(known, Some(Sameness::Digest(it)) if it == digest("known")));
    let tagged = find(None, &facts);
    assert!(matches!(tagged, Some(Sameness::Version { ref etag, .. }) if etag == "\"1\""));
    // A weak tag is that of files that are alike.
    facts.etag = Some("W/\"1\"".to_owned());
    let told = find(None, &facts);
    assert!(matches!(told, Some(Sameness::Digest(it)) if it == digest("told")));
    facts.digests.clear();
    assert!(find(None, &facts).is_none());
}

#[test]
fn of_several_digests_the_longest_counts() {
    let short = Hasher::digest(Algorithm::Md5, b"x");
    let facts = Facts { digests: vec![short, digest("x"), short], ..Facts::default() };
    let found = Sameness::find(None, &url(), &facts);
    assert!(matches!(found, Some(Sameness::Digest(it)) if it == digest("x")));
}

#[test]
fn nodes_meet_at_trackers_under_a_name_that_needs_the_token() {
    let (units, sameness) = (Units::of(10), Sameness::Digest(digest("x")));
    let name = token("a").content(&sameness, &units);
    let hash = name.info_hash();
    assert_eq!(name.to_string()[..40], hash.to_string());
    assert_ne!(hash, token("b").content(&sameness, &units).info_hash());
}

#[test]
fn a_name_is_read_as_it_is_written_and_nothing_else_is() {
    let name = token("a").content(&Sameness::Digest(digest("x")), &Units::of(10));
    assert_eq!(name.to_string().parse(), Ok(name));
    let text = name.to_string();
    for wrong in ["", &text[1..], &format!("{text}0"), &text.replace(&text[..1], "g")] {
        assert_eq!(wrong.parse::<swath_share::ContentId>(), Err(()), "{wrong}");
    }
}

#[test]
fn secrets_are_not_shown() {
    let token = token("of-the-cluster");
    let shown = format!("{token:?} {:?}", token.group());
    assert_eq!(shown, "ClusterToken(…) GroupKey(…)");
}
