//! Requests to trackers and their answers, by HTTP and by UDP: what is understood can be written, and
//! is then read as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::tracker::udp::{Answer, Request};
use swath_formats::tracker::{PEERS_MAX, PeerForm, SCRAPE_MAX, http};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(query) = str::from_utf8(bytes) {
        if let Ok(announce) = http::announce_query(query) {
            let url = http::announce_url("http://t/announce", &announce);
            assert_eq!(http::announce_query(url.split_once('?').unwrap().1), Ok(announce));
        }
        if let Ok(hashes) = http::scrape_query(query) {
            let url = http::scrape_url("http://t/announce", &hashes).unwrap();
            assert_eq!(http::scrape_query(url.split_once('?').unwrap().1), Ok(hashes));
        }
        let _ = http::scrape_url(query, &[]);
    }
    if let Ok(mut answer) = http::read_announce(bytes) {
        // Trackers of ours know addresses alone.
        answer.named.clear();
        assert!(answer.peers.len() <= PEERS_MAX);
        let out = http::write_announce(&answer, PeerForm::Dictionary);
        assert_eq!(http::read_announce(&out), Ok(answer));
    }
    if let Ok(torrents) = http::read_scrape(bytes) {
        let out = http::write_scrape(&torrents);
        assert_eq!(http::read_scrape(&out), Ok(torrents));
    }
    if let Ok(request) = Request::read(bytes) {
        let mut out = Vec::new();
        request.write(&mut out);
        assert_eq!(Request::read(&out), Ok(request));
    }
    for is_six in [false, true] {
        if let Ok(Answer::Scrape { counts, .. }) = Answer::read(bytes, is_six) {
            assert!(counts.len() <= SCRAPE_MAX);
        }
    }
});
