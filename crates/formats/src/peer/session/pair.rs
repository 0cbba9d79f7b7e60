//! A test with two sessions in memory: one has a torrent, the other fetches it. The bytes between them
//! are cut at random places. The seeder chokes, rejects, loses pieces and gets them back at random. In
//! the end the leecher has every byte.

use proptest::prelude::*;

use super::*;

/// The torrent's bytes.
fn content(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 % 251) as u8).collect()
}

/// One side: its session, its bytes, and what it has received but not read.
struct Side {
    session: Session,
    held: RangeSet,
    bytes: Vec<u8>,
    input: Vec<u8>,
}

impl Side {
    fn new(fast: bool, layout: PieceLayout, is_seeder: bool, pipeline: usize) -> Side {
        let total = layout.total_bytes();
        let reserved = Reserved { extended: true, fast, dht: false, v2: false };
        let (held, bytes) = match is_seeder {
            true => (RangeSet::full(total), content(total)),
            false => (RangeSet::new(), vec![0; total as usize]),
        };
        let own = Bitfield::from_ranges(&held, layout);
        let config = SessionConfig { pipeline, requests_max: 20, ..SessionConfig::default() };
        let session = Session::new(Time::ZERO, reserved, reserved, Some((layout, &own)), config);
        Side { session, held, bytes, input: Vec::new() }
    }

    /// Reads what has arrived, payloads into place; shows the events.
    fn read(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        let mut at = 0;
        loop {
            let used = self.session.handle_input(Time::ZERO, &self.input[at..]).expect("no fault");
            at += used;
            let before = events.len();
            events.extend(std::iter::from_fn(|| self.session.poll_event()));
            let Some(payload) = self.session.payload() else {
                if used == 0 && before == events.len() {
                    break;
                }
                continue;
            };
            let part = (payload.bytes_left as usize).min(self.input.len() - at);
            if payload.is_wanted {
                let end = payload.range.end - u64::from(payload.bytes_left);
                self.bytes[end as usize..][..part].copy_from_slice(&self.input[at..at + part]);
            }
            at += part;
            self.session.take_payload(Time::ZERO, part as u32);
            if self.session.payload().is_some() {
                break;
            }
            if payload.is_wanted {
                self.held.insert(payload.range);
            }
        }
        self.input.drain(..at);
        events
    }

    /// Answers up to `most` requests; appends everything to `out`.
    fn write(&mut self, most: usize, out: &mut Vec<u8>) {
        for _ in 0..most {
            let Some(block) = self.session.poll_request() else { break };
            let range = self.session.layout.and_then(|it| it.range_of_block(block)).expect("valid");
            if !self.held.covers(range) {
                self.session.refuse(block).expect("no flood");
                continue;
            }
            self.session.send_piece(Time::ZERO, block, out);
            out.extend_from_slice(&self.bytes[range.start as usize..range.end as usize]);
        }
        self.session.poll_transmit(Time::ZERO, out);
    }
}

/// What the seeder does in one step, apart from answering.
#[derive(Clone, Copy, Debug)]
enum Mood {
    Choke,
    Unchoke,
    Lose(u32),
    Regain(u32),
    Calm,
}

fn mood() -> impl Strategy<Value = Mood> {
    prop_oneof![
        1 => Just(Mood::Choke),
        2 => Just(Mood::Unchoke),
        1 => (0u32..12).prop_map(Mood::Lose),
        2 => (0u32..12).prop_map(Mood::Regain),
        4 => Just(Mood::Calm),
    ]
}

proptest! {
    #[test]
    fn every_byte_arrives_whatever_the_seeder_does(
        fast: bool,
        piece_bytes in prop_oneof![1u32..9, 16_000u32..40_000],
        pieces in 1u64..12,
        last in 1u64..9,
        pipeline in 1usize..30,
        steps in prop::collection::vec((mood(), 0usize..6, 1usize..50_000, any::<bool>()), 0..60),
    ) {
        let total = u64::from(piece_bytes) * (pieces - 1) + last.min(u64::from(piece_bytes));
        let layout = PieceLayout::new(piece_bytes, total).unwrap();
        let mut seeder = Side::new(fast, layout, true, 0);
        let mut leecher = Side::new(fast, layout, false, pipeline);
        let count = layout.count();
        // Handshakes first: a peer must understand what it is told of lost pieces.
        seeder.write(0, &mut leecher.input);
        leecher.write(0, &mut seeder.input);
        prop_assert_eq!(seeder.read().len() + leecher.read().len(), if fast { 4 } else { 3 });
        leecher.session.want(Range::new(0, total));
        if fast && pieces > 2 {
            seeder.session.allow_fast(&[PieceIndex(1)]);
        }
        // Bytes that the seeder refused and that are to be wanted again.
        let mut again = RangeSet::new();
        let (mut down, mut up) = (Vec::new(), Vec::new());
        let calm = std::iter::repeat((Mood::Calm, 6, 50_000, false));
        for (step, (mood, answers, carried, cancels)) in steps.into_iter().chain(calm).enumerate() {
            prop_assert!(step < 5_000, "no progress");
            match mood {
                Mood::Choke => seeder.session.choke(),
                Mood::Unchoke => seeder.session.unchoke(),
                Mood::Lose(piece) => {
                    let piece = PieceIndex(piece % count);
                    prop_assert!(seeder.session.lose(piece));
                    seeder.held.remove(layout.range_of(piece).unwrap());
                }
                Mood::Regain(piece) => {
                    let piece = PieceIndex(piece % count);
                    seeder.session.gain(piece);
                    seeder.held.insert(layout.range_of(piece).unwrap());
                }
                Mood::Calm => {}
            }
            if step > 60 {
                // The seeder's mood has settled: it has everything, and answers.
                seeder.session.unchoke();
                for piece in (0..count).map(PieceIndex) {
                    if seeder.held.insert(layout.range_of(piece).unwrap()) > 0 {
                        seeder.session.gain(piece);
                    }
                }
            }
            if cancels {
                let half = Range::new(0, total / 2);
                leecher.session.cancel(half);
                again.insert(half);
            }
            seeder.write(answers, &mut down);
            leecher.write(0, &mut up);
            let part = carried.min(down.len());
            leecher.input.extend(down.drain(..part));
            seeder.input.append(&mut up);
            for event in leecher.read() {
                if let Event::Refused { range, .. } = event {
                    prop_assert!(!leecher.held.covers(range));
                    again.insert(range);
                }
            }
            seeder.read();
            prop_assert_eq!(leecher.session.is_choked(), leecher.session.choke.by_peer);
            prop_assert!(leecher.session.outstanding() <= pipeline);
            if leecher.held.total_bytes() == total {
                break;
            }
            // Ask again for what was refused and the peer has now.
            let has = leecher.session.peer_holds();
            again.subtract(&leecher.held);
            let now: Vec<_> = again.iter().flat_map(|range| has.within(range).collect::<Vec<_>>()).collect();
            if leecher.session.is_idle() {
                for range in now {
                    again.remove(range);
                    leecher.session.want(range);
                }
            }
        }
        prop_assert!(leecher.bytes == content(total));
        leecher.session.set_interested(false);
        leecher.write(0, &mut seeder.input);
        prop_assert!(seeder.read().contains(&Event::NotInterested));
    }
}
