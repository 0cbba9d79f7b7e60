use std::collections::HashMap;

use proptest::prelude::*;
use swath_formats::tracker::{PeerForm, PeerId};

use super::*;
use crate::lists::{Passkeys, Torrents};

const HASH: InfoHash = InfoHash([1; 20]);
const OTHER: InfoHash = InfoHash([2; 20]);

fn at(s: u64) -> Time {
    Time::from_millis(s * 1000)
}

fn core() -> Core {
    Core::new(Limits::default(), Lists::default(), 1)
}

fn from(ip: &str) -> Requester<'static> {
    Requester { ip: ip.parse().unwrap(), passkey: None }
}

fn announce(port: u16, left: u64, event: Event) -> Announce {
    Announce {
        info_hash: HASH,
        peer_id: PeerId([port as u8; 20]),
        port,
        uploaded: 0,
        downloaded: 0,
        left: Some(left),
        event,
        want: None,
        key: None,
        form: PeerForm::Compact,
    }
}

/// The ports of the answer, sorted.
fn ports(answer: &AnnounceAnswer) -> Vec<u16> {
    let mut ports: Vec<u16> = answer.peers.iter().map(|peer| peer.address.port()).collect();
    ports.sort_unstable();
    ports
}

impl Core {
    fn start(&mut self, now_s: u64, ip: &str, port: u16, left: u64) -> AnnounceAnswer {
        self.announce(at(now_s), from(ip), &announce(port, left, Event::Started)).unwrap()
    }

    fn counts(&mut self) -> (u32, u32, u32) {
        let SwarmCounts { seeders, completed, leechers } =
            self.scrape(at(0), from("192.0.2.250"), &[HASH]).unwrap()[0];
        (seeders, leechers, completed)
    }
}

#[test]
fn peers_learn_of_each_other_until_they_leave() {
    let mut core = core();
    assert_eq!(core.start(0, "192.0.2.1", 1, 0).peers, []);
    let second = core.start(1, "192.0.2.2", 2, 100);
    assert_eq!(second.peers[0].address, "192.0.2.1:1".parse().unwrap());
    assert_eq!(second.peers[0].id, Some(PeerId([1; 20])));
    assert_eq!((second.seeders, second.leechers), (Some(1), Some(1)));
    assert_eq!(second.own_address, Some("192.0.2.2".parse().unwrap()));
    assert_eq!(ports(&core.start(2, "192.0.2.3", 3, 100)), [1, 2]);
    // A seeder that starts may be aria2 with a magnet link; later it hears of leechers only.
    assert_eq!(ports(&core.start(3, "192.0.2.4", 4, 0)), [1, 2, 3]);
    let later = core.announce(at(999), from("192.0.2.4"), &announce(4, 0, Event::None)).unwrap();
    assert_eq!(ports(&later), [2, 3]);
    let left = core.announce(at(4), from("192.0.2.1"), &announce(1, 0, Event::Stopped)).unwrap();
    assert_eq!((left.peers.len(), left.seeders), (0, Some(1)));
    assert_eq!(ports(&core.start(5, "192.0.2.5", 5, 100)), [2, 3, 4]);
    assert_eq!((core.peers(), core.counters().stopped), (4, 1));
    // Whoever leaves a swarm that is not there does not make one.
    let stopped = Announce { info_hash: OTHER, ..announce(9, 0, Event::Stopped) };
    core.announce(at(6), from("192.0.2.1"), &stopped).unwrap();
    assert_eq!((core.torrents(), core.peers()), (1, 4));
}

#[test]
fn a_completed_download_is_counted_once() {
    let mut core = core();
    core.start(0, "192.0.2.1", 1, 100);
    assert_eq!(core.counts(), (0, 1, 0));
    for _ in 0..3 {
        core.announce(at(1), from("192.0.2.1"), &announce(1, 0, Event::Completed)).unwrap();
        assert_eq!(core.counts(), (1, 0, 1));
    }
    // Not by who says so and still lacks something.
    core.announce(at(1), from("192.0.2.2"), &announce(2, 5, Event::Completed)).unwrap();
    assert_eq!(core.counts(), (1, 1, 1));
}

#[test]
fn each_address_family_is_among_itself() {
    let mut core = core();
    core.start(0, "192.0.2.1", 1, 100);
    core.start(0, "2001:db8::1", 2, 100);
    // A socket of both families has IPv4 addresses in this form.
    assert_eq!(ports(&core.start(0, "::ffff:192.0.2.3", 3, 100)), [1]);
    assert_eq!(ports(&core.start(0, "2001:db8::4", 4, 100)), [2]);
    assert_eq!(core.counts(), (0, 4, 0));
}

#[test]
fn as_many_peers_come_as_are_wanted_and_allowed() {
    let mut core = core();
    for number in 0..400u32 {
        let ip = IpAddr::from((10 << 24 | number).to_be_bytes()).to_string();
        core.start(0, &ip, 1000 + number as u16, 100);
    }
    for (want, count) in
        [(None, 50), (Some(0), 0), (Some(1), 1), (Some(80), 80), (Some(u32::MAX), 200)]
    {
        let announce = Announce { want, ..announce(7, 100, Event::Started) };
        let answer = core.announce(at(0), from("192.0.2.1"), &announce).unwrap();
        assert_eq!(answer.peers.len(), count, "{want:?}");
    }
}

#[test]
fn who_announces_before_its_time_gets_no_peers() {
    let mut core = core();
    core.start(0, "192.0.2.1", 1, 100);
    let first = core.start(0, "192.0.2.2", 2, 100);
    let min_s = u64::from(first.min_interval_s.unwrap());
    assert_eq!(min_s, 300);
    let mut again = |now_s, event| {
        let announce = announce(2, 100, event);
        core.announce(at(now_s), from("192.0.2.2"), &announce).unwrap().peers.len()
    };
    assert_eq!(again(min_s / 2, Event::None), 0);
    // It does not have to wait longer for that.
    assert_eq!(again(min_s, Event::None), 1);
    assert_eq!(again(min_s + 1, Event::None), 0);
    // A client that was started again needs peers.
    assert_eq!(again(min_s + 2, Event::Started), 1);
}

#[test]
fn intervals_differ_by_a_tenth() {
    let mut core = core();
    let intervals: Vec<u32> =
        (1..500).map(|port| core.start(0, "192.0.2.1", port, 1).interval_s).collect();
    assert!(intervals.iter().all(|it| (1620..=1980).contains(it)), "{intervals:?}");
    let (low, high) = (intervals.iter().min().unwrap(), intervals.iter().max().unwrap());
    assert!(*low < 1650 && *high > 1950, "{low} {high}");
}

#[test]
fn silent_peers_are_forgotten_after_two_intervals() {
    let mut core = core();
    core.start(1000, "192.0.2.1", 1, 100);
    core.start(3000, "192.0.2.2", 2, 100);
    // They are told to nobody even before they are removed.
    assert_eq!(ports(&core.start(1000 + 3601, "192.0.2.3", 3, 100)), [2]);
    let sweep = |core: &mut Core, now_s| (0..SWEEPS).for_each(|_| core.expire(at(now_s)));
    sweep(&mut core, 1000 + 3600);
    assert_eq!(core.peers(), 3);
    sweep(&mut core, 1000 + 3601);
    assert_eq!((core.peers(), core.counters().expired), (2, 1));
    sweep(&mut core, 10_000);
    assert_eq!((core.peers(), core.torrents()), (0, 0));
}

#[test]
fn lists_say_who_may_announce_what() {
    let mut torrents = Torrents::default();
    torrents.insert(HASH, "run 7");
    let lists = Lists {
        torrents: Some(torrents),
        networks: vec!["192.0.2.0/24".parse().unwrap()],
        passkeys: Some(Passkeys::read("0123456789abcdef Ada", [1; 32]).unwrap()),
        ..Lists::default()
    };
    let mut core = Core::new(Limits::default(), lists.clone(), 1);
    let mut ask = |ip: &str, passkey, hash, port| {
        let announce = Announce { info_hash: hash, ..announce(port, 1, Event::Started) };
        let from = Requester { ip: ip.parse().unwrap(), passkey };
        core.announce(at(0), from, &announce).map(drop)
    };
    let key = Some("0123456789abcdef");
    assert_eq!(ask("192.0.2.1", key, HASH, 1), Ok(()));
    assert_eq!(ask("::ffff:192.0.2.1", key, HASH, 1), Ok(()));
    assert_eq!(ask("192.0.3.1", key, HASH, 1), Err(Refusal::Network));
    assert_eq!(ask("192.0.2.1", None, HASH, 1), Err(Refusal::NoPasskey));
    assert_eq!(ask("192.0.2.1", Some("0123456789abcdeF"), HASH, 1), Err(Refusal::Passkey));
    assert_eq!(ask("192.0.2.1", key, OTHER, 1), Err(Refusal::Torrent));
    assert_eq!(ask("192.0.2.1", key, HASH, 0), Err(Refusal::Port));
    assert_eq!(core.counters().refused, [1, 1, 1, 1, 1, 0, 0]);
    let closed = core.scrape(at(0), from("192.0.3.1"), &[HASH]);
    assert_eq!(closed, Err(Refusal::Network));
    let shown = core.all_summaries();
    assert_eq!((shown.len(), shown[0].name.as_str()), (1, "run 7"));

    // The whitelist changes while peers are there.
    let mut torrents = Torrents::default();
    torrents.insert(OTHER, "run 8");
    core.set_lists(Lists { torrents: Some(torrents), ..Lists::default() });
    assert_eq!((core.peers(), core.torrents()), (0, 0));
    let refused = core.announce(at(0), from("192.0.3.1"), &announce(1, 1, Event::None));
    assert_eq!(refused.unwrap_err(), Refusal::Torrent);
    let names: Vec<String> = core.all_summaries().into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["run 8"]);
}

#[test]
fn many_torrents_are_told_in_parts() {
    let mut listed = Torrents::default();
    let hash = |number: u32| {
        let mut hash = [0; 20];
        hash[..4].copy_from_slice(&number.to_be_bytes());
        InfoHash(hash)
    };
    (0..25_000).for_each(|number| listed.insert(hash(number), "listed"));
    let lists = Lists { torrents: Some(listed), ..Lists::default() };
    let mut core = Core::new(Limits::default(), lists, 1);
    for number in 0..12_000 {
        let announce = Announce { info_hash: hash(number), ..announce(1, 0, Event::None) };
        core.announce(at(0), from(&format!("10.0.{}.{}", number >> 8, number & 255)), &announce)
            .unwrap();
    }
    let (mut some, mut calls, mut next) = (Vec::new(), 0, Some(0));
    while let Some(from) = next {
        next = core.summaries(from, &mut some);
        calls += 1;
        assert!(some.len() <= calls * SUMMARIES_AT_ONCE);
    }
    assert!(calls > 2, "{calls}");
    let hashes: std::collections::HashSet<InfoHash> = some.iter().map(|it| it.info_hash).collect();
    assert_eq!((some.len(), hashes.len()), (25_000, 25_000));
    assert_eq!(some.iter().filter(|it| it.counts.seeders == 1).count(), 12_000);
}

#[test]
fn a_flood_from_one_address_is_refused_and_others_go_on() {
    let limits = Limits { announces_per_s: 2, ..Limits::default() };
    let mut core = Core::new(limits, Lists::default(), 1);
    let mut ask = |ip: &str, port| {
        core.announce(at(10), from(ip), &announce(port, 1, Event::Started)).map(drop)
    };
    let accepted = (1..=1000).filter(|port| ask("192.0.2.1", *port).is_ok()).count();
    assert_eq!(accepted, 120);
    let Err(Refusal::TooMany { wait_s: 1 }) = ask("192.0.2.1", 1) else { panic!() };
    assert_eq!(ask("192.0.2.2", 1), Ok(()));
    // One machine has a whole network of IPv6.
    let accepted =
        (1..=1000).filter(|port| ask(&format!("2001:db8::{port}"), *port).is_ok()).count();
    assert_eq!(accepted, 120);
}

#[test]
fn a_full_tracker_drops_the_longest_silent_of_the_largest_swarms() {
    let limits = Limits {
        swarm_peers_max: 100,
        peers_max: 150,
        torrents_max: 20,
        announces_per_s: 1000,
        ..Limits::default()
    };
    let mut core = Core::new(limits, Lists::default(), 1);
    let mut join = |now_s, hash: u8, port| {
        let announce =
            Announce { info_hash: InfoHash([hash; 20]), ..announce(port, 1, Event::Started) };
        core.announce(at(now_s), from("192.0.2.1"), &announce).map(|it| it.leechers.unwrap())
    };
    for port in 1..=300 {
        assert_eq!(join(port.into(), 1, port), Ok(u32::from(port.min(100))));
    }
    for hash in 2..=20 {
        for port in 1..=10 {
            join(400, hash, port).unwrap();
        }
    }
    assert_eq!(join(500, 21, 1), Err(Refusal::Full));
    assert_eq!(core.peers(), 150);
    assert_eq!(core.counters().dropped, 200 + 100 + 190 - 150);
    let mut sizes: Vec<usize> = core.swarms.values().map(Swarm::len).collect();
    sizes.sort_unstable();
    // Small swarms were spared while there were larger ones.
    assert!(sizes[0] >= 3 && sizes[19] <= 40, "{sizes:?}");
    // Peers that announce again do not count anew.
    let seen = core.swarms[&InfoHash([20; 20])].four.leechers.len();
    let again = Announce { info_hash: InfoHash([20; 20]), ..announce(10, 1, Event::None) };
    core.announce(at(500), from("192.0.2.1"), &again).unwrap();
    assert_eq!(core.swarms[&InfoHash([20; 20])].four.leechers.len(), seen);
}

/// What a naive tracker knows: for each torrent and peer whether it is a seeder, and since when.
type Naive = HashMap<(u8, u8), (bool, u64)>;

proptest! {
    #[test]
    fn counts_and_peers_are_those_of_a_naive_tracker(
        steps in prop::collection::vec((0..3u8, 0..9u8, 0..4u8, any::<bool>(), 0..900u64), 1..200)
    ) {
        let mut core = core();
        let mut naive = Naive::new();
        let mut now_s = 100_000;
        for (torrent, peer, event, is_seeder, passed_s) in steps {
            now_s += passed_s;
            let event = [Event::None, Event::Started, Event::Completed, Event::Stopped][usize::from(event)];
            let announce = Announce {
                info_hash: InfoHash([torrent; 20]),
                ..announce(1 + u16::from(peer), u64::from(!is_seeder), event)
            };
            let ip = format!("192.0.2.{peer}");
            let answer = core.announce(at(now_s), from(&ip), &announce).unwrap();
            match event {
                Event::Stopped => _ = naive.remove(&(torrent, peer)),
                _ => _ = naive.insert((torrent, peer), (is_seeder, now_s)),
            }
            let mut expected: Vec<u16> = naive
                .iter()
                .filter(|((other, number), (is_other_seeder, seen_s))| {
                    *other == torrent
                        && *number != peer
                        && (!is_seeder || !*is_other_seeder || event == Event::Started)
                        && now_s - seen_s <= 3600
                })
                .map(|((_, number), _)| 1 + u16::from(*number))
                .collect();
            expected.sort_unstable();
            match event {
                Event::Stopped => prop_assert!(answer.peers.is_empty()),
                // Early ones get nothing.
                Event::None if answer.peers.is_empty() => {}
                _ => prop_assert_eq!(ports(&answer), expected),
            }
            (0..SWEEPS).for_each(|_| core.expire(at(now_s)));
            naive.retain(|_, (_, seen_s)| now_s - *seen_s <= 3600);
            prop_assert_eq!(core.peers(), naive.len());
            prop_assert_eq!(core.peers(), core.swarms.values().map(Swarm::len).sum::<usize>());
            let seeders: u32 = core.all_summaries().iter().map(|it| it.counts.seeders).sum();
            prop_assert_eq!(seeders as usize, naive.values().filter(|(is_seeder, _)| *is_seeder).count());
        }
    }
}
