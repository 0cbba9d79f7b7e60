//! Any bytes as what the two sides of a tree that is sent say to each other: the lines of a
//! receiver, in any cuts, and the wishes in a sender's request. What is understood can be said
//! again, and means the same then.
#![no_main]

use std::mem::discriminant;

use libfuzzer_sys::fuzz_target;
use swath_transfer::Url;
use swath_transfer::sending::{Line, LineReader, Wishes};

fuzz_target!(|bytes: &[u8]| {
    let Some((&step, bytes)) = bytes.split_first() else { return };
    let mut reader = LineReader::default();
    let mut lines = Vec::new();
    for part in bytes.chunks(usize::from(step).max(1)) {
        reader.take_in(part);
        lines.extend(std::iter::from_fn(|| reader.next_line()));
    }
    let mut whole: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
    whole.pop();
    assert_eq!(lines, whole);
    for line in lines {
        if let Ok(line) = Line::parse(&line) {
            let said = line.to_json();
            assert!(!said.contains('\n'));
            let again = Line::parse(said.as_bytes()).expect("what was said is understood");
            assert_eq!(discriminant(&again), discriminant(&line));
        }
    }
    let mut request = Url::parse("http://host/").expect("an address");
    request.set_query(Some(&String::from_utf8_lossy(bytes)));
    let parameters: Vec<(String, String)> = request.query_pairs().into_owned().collect();
    let wishes = Wishes::of(&parameters);
    let _ = wishes.filter();
    request.set_query(Some(&wishes.query()));
    let parameters: Vec<(String, String)> = request.query_pairs().into_owned().collect();
    assert_eq!(Wishes::of(&parameters), wishes);
});
