//! A session against a peer whose messages are written by hand.

use super::*;
use crate::peer::extension::{ExtensionIds, MetadataMessage, PeerExchange};

const LAYOUT: (u32, u64) = (32 << 10, 10 * (32 << 10) - 5);
const ALL: Reserved = Reserved { extended: true, fast: true, dht: true, v2: true };
const PLAIN: Reserved = Reserved { extended: false, fast: false, dht: false, v2: false };

fn layout() -> PieceLayout {
    PieceLayout::new(LAYOUT.0, LAYOUT.1).unwrap()
}

fn block(piece: u32, begin: u32) -> Block {
    Block { piece: PieceIndex(piece), begin, length: BLOCK }
}

const BLOCK: u32 = 16 << 10;

/// A session of ours with no piece, its first messages sent.
fn leecher(reserved: Reserved) -> Session {
    session(reserved, SessionConfig::default(), 0)
}

/// A session of ours with all pieces, of which 4 requests may wait.
fn seeder(reserved: Reserved) -> Session {
    let config = SessionConfig { requests_max: 4, ..SessionConfig::default() };
    session(reserved, config, 10)
}

fn session(reserved: Reserved, config: SessionConfig, pieces: u32) -> Session {
    let mut own = Bitfield::none(layout().count());
    for piece in 0..pieces {
        own.insert(PieceIndex(piece));
    }
    let mut session = Session::new(Time::ZERO, reserved, reserved, Some((layout(), &own)), config);
    sent(&mut session);
    session
}

/// The names of the messages that are sent now.
fn sent(session: &mut Session) -> Vec<String> {
    let mut out = Vec::new();
    session.poll_transmit(Time::ZERO, &mut out);
    let (mut input, mut names) = (&out[..], Vec::new());
    while let Some(message) = Message::decode(&mut input, &Limits::default()).unwrap() {
        names.push(match message {
            Message::Request(block) | Message::Reject(block) | Message::Cancel(block) => {
                format!("{} {}+{}", message.id().unwrap(), block.piece.0, block.begin)
            }
            Message::Have(piece) | Message::AllowedFast(piece) => {
                format!("{} {}", message.id().unwrap(), piece.0)
            }
            _ => message.id().map_or("keep-alive".to_owned(), |id| id.to_string()),
        });
    }
    assert!(input.is_empty());
    names
}

fn receive(session: &mut Session, message: Message<'_>) -> Result<Vec<Event>, PeerFault> {
    let mut input = Vec::new();
    message.encode(&mut input);
    let used = session.handle_input(Time::ZERO, &input)?;
    assert_eq!(used, input.len());
    Ok(std::iter::from_fn(|| session.poll_event()).collect())
}

/// Receives messages that must be in order.
fn receive_all(session: &mut Session, messages: &[Message<'_>]) -> Vec<Event> {
    messages.iter().flat_map(|message| receive(session, *message).unwrap()).collect()
}

fn violation(session: &mut Session, message: Message<'_>) -> Violation {
    let fault = receive(session, message).unwrap_err();
    assert_eq!(Some(fault.message), message.id());
    fault.violation
}

fn refused(start: u64, end: u64, reason: Refusal) -> Event {
    Event::Refused { range: Range::new(start, end), reason }
}

/// Receives the head of a block, and its payload.
fn deliver(session: &mut Session, block: Block) -> Payload {
    assert_eq!(receive(session, Message::Piece(block)), Ok(vec![]));
    let payload = session.payload().unwrap();
    assert_eq!((payload.block, payload.bytes_left), (block, block.length));
    // Messages behind the payload are not read before its end.
    let mut behind = Vec::new();
    Message::Have(PieceIndex(99)).encode(&mut behind);
    session.take_payload(Time::ZERO, block.length - 1);
    assert_eq!(session.handle_input(Time::ZERO, &behind), Ok(0));
    session.take_payload(Time::ZERO, 1);
    assert_eq!(session.payload(), None);
    payload
}

#[test]
fn the_first_messages_tell_the_pieces() {
    for (pieces, reserved, expected) in [
        (0, ALL, &["extended", "have none"][..]),
        (4, ALL, &["extended", "bitfield"]),
        (10, ALL, &["extended", "have all"]),
        (0, PLAIN, &[]),
        (4, PLAIN, &["bitfield"]),
        (10, PLAIN, &["bitfield"]),
    ] {
        let mut own = Bitfield::none(10);
        for piece in 0..pieces {
            own.insert(PieceIndex(piece));
        }
        let torrent = Some((layout(), &own));
        let mut session =
            Session::new(Time::ZERO, ALL, reserved, torrent, SessionConfig::default());
        assert_eq!(sent(&mut session), expected, "{pieces}");
    }
}

#[test]
fn the_peer_tells_its_pieces_first() {
    let early = [Message::KeepAlive, Message::Port(1), Message::Extended { id: 0, payload: b"de" }];
    for first in [Message::Bitfield(&[0xff, 0xc0]), Message::HaveAll, Message::HaveNone] {
        let mut session = leecher(ALL);
        receive_all(&mut session, &early);
        assert_eq!(receive(&mut session, first), Ok(vec![Event::Pieces]));
        assert_eq!(violation(&mut session, Message::HaveNone), Violation::OutOfOrder);
    }
    for before in [Message::Have(PieceIndex(0)), Message::Unchoke, Message::Interested] {
        let mut session = leecher(ALL);
        receive_all(&mut session, &[before]);
        assert_eq!(violation(&mut session, Message::HaveNone), Violation::OutOfOrder);
    }
    // aria2 sends a bitfield again instead of many other messages; pieces that it lacks stay.
    let mut session = leecher(ALL);
    receive_all(&mut session, &[Message::HaveNone, Message::Have(PieceIndex(9))]);
    assert_eq!(receive(&mut session, Message::Bitfield(&[0xa0, 0])), Ok(vec![Event::Pieces]));
    let held: Vec<u32> = session.peer_pieces().unwrap().iter().map(|piece| piece.0).collect();
    assert_eq!(held, [0, 2, 9]);
    assert_eq!(receive(&mut session, Message::HaveAll), Ok(vec![Event::Pieces]));
    assert!(session.peer_pieces().unwrap().is_full());
    let mut session = leecher(ALL);
    let spare = Violation::Bitfield(crate::peer::BitfieldError::SpareBits);
    assert_eq!(violation(&mut session, Message::Bitfield(&[0xff, 0xc1])), spare);
    assert_eq!(violation(&mut leecher(ALL), Message::Bitfield(&[0xff])), Violation::Length(2));
}

#[test]
fn pieces_come_and_go() {
    let mut session = leecher(ALL);
    let dont_have = |piece: u32| [&[3][..], &piece.to_be_bytes()].concat();
    let gone = dont_have(2);
    let lost = Message::Extended { id: gone[0], payload: &gone[1..] };
    let messages = [
        Message::Bitfield(&[0x80, 0]),
        Message::Have(PieceIndex(2)),
        Message::Have(PieceIndex(2)),
        lost,
        lost,
    ];
    assert_eq!(
        receive_all(&mut session, &messages),
        [Event::Pieces, Event::Gained(PieceIndex(2)), Event::Lost(PieceIndex(2))]
    );
    assert_eq!(session.peer_holds(), RangeSet::from(Range::new(0, 32 << 10)));
    let none = Violation::NoSuchPiece(PieceIndex(10));
    for message in [Message::Have, Message::Suggest, Message::AllowedFast] {
        assert_eq!(violation(&mut session, message(PieceIndex(10))), none);
    }
    assert_eq!(violation(&mut session, Message::Extended { id: 3, payload: &[0, 0, 0, 10] }), none);
    for payload in [&[0; 3][..], &[0; 5]] {
        let wrong = Violation::Extension(crate::peer::ExtensionError::DontHave(payload.len()));
        assert_eq!(violation(&mut session, Message::Extended { id: 3, payload }), wrong);
    }
}

#[test]
fn a_range_is_asked_for_in_blocks() {
    let mut session = leecher(PLAIN);
    session.set_pipeline(3);
    session.want(Range::new(100, (32 << 10) + 50));
    assert_eq!(sent(&mut session), ["interested"]);
    assert_eq!(receive(&mut session, Message::Unchoke), Ok(vec![Event::Unchoked]));
    assert_eq!(sent(&mut session), ["request 0+100", "request 0+16384", "request 1+0"]);
    session.want(Range::new(LAYOUT.1 - 10, u64::MAX));
    assert_eq!(sent(&mut session), [""; 0]);
    let payload = deliver(&mut session, block(0, BLOCK));
    assert_eq!((payload.range, payload.is_wanted), (Range::new(16384, 32768), true));
    assert_eq!(sent(&mut session), [format!("request 9+{}", 32768 - 15)]);
    deliver(&mut session, Block { piece: PieceIndex(0), begin: 100, length: BLOCK - 100 });
    deliver(&mut session, Block { piece: PieceIndex(1), begin: 0, length: 50 });
    deliver(&mut session, Block { piece: PieceIndex(9), begin: 32768 - 15, length: 10 });
    sent(&mut session);
    assert!(session.is_idle());
}

#[test]
fn no_more_requests_than_the_peer_queues() {
    let mut session = leecher(ALL);
    session.set_pipeline(1000);
    session.want(Range::new(0, LAYOUT.1));
    let told = Message::Extended { id: 0, payload: b"d4:reqqi5ee" };
    receive_all(&mut session, &[told, Message::HaveAll, Message::Unchoke]);
    assert_eq!(sent(&mut session).len(), 1 + 5);
    receive_all(&mut session, &[Message::Extended { id: 0, payload: b"d4:reqqi0ee" }]);
    deliver(&mut session, block(0, 0));
    assert_eq!((sent(&mut session).len(), session.outstanding()), (0, 4));
    session.set_pipeline(0);
    for (piece, begin) in [(0, BLOCK), (1, 0), (1, BLOCK), (2, 0)] {
        deliver(&mut session, block(piece, begin));
    }
    assert_eq!((sent(&mut session).len(), session.outstanding()), (0, 0));
    session.set_pipeline(9);
    assert_eq!(sent(&mut session).len(), 1);
}

#[test]
fn a_choke_drops_requests_without_the_fast_extension() {
    let mut session = leecher(PLAIN);
    session.set_pipeline(2);
    session.want(Range::new(0, 65536));
    receive_all(&mut session, &[Message::Bitfield(&[0xff, 0xc0]), Message::Unchoke]);
    sent(&mut session);
    let choked = receive(&mut session, Message::Choke).unwrap();
    assert_eq!(choked, [Event::Choked, refused(0, 32768, Refusal::Choked)]);
    assert_eq!(receive(&mut session, Message::Choke), Ok(vec![]));
    assert_eq!(sent(&mut session), [""; 0]);
    // The peer may have sent a block before its choke came.
    assert!(!deliver(&mut session, block(0, 0)).is_wanted);
    assert_eq!(
        violation(&mut session, Message::Piece(block(0, 0))),
        Violation::NotRequested(block(0, 0))
    );
    // What waited is asked for when the peer answers again.
    receive_all(&mut session, &[Message::Unchoke]);
    assert_eq!(sent(&mut session), ["request 1+0", "request 1+16384"]);
}

#[test]
fn with_the_fast_extension_each_request_is_rejected() {
    let mut session = leecher(ALL);
    session.want(Range::new(0, 32768));
    receive_all(&mut session, &[Message::HaveAll, Message::Unchoke]);
    sent(&mut session);
    assert_eq!(receive(&mut session, Message::Choke), Ok(vec![Event::Choked]));
    assert_eq!(session.outstanding(), 2);
    let rejected = receive(&mut session, Message::Reject(block(0, BLOCK)));
    assert_eq!(rejected, Ok(vec![refused(16384, 32768, Refusal::Rejected)]));
    assert!(deliver(&mut session, block(0, 0)).is_wanted);
    assert_eq!(
        violation(&mut session, Message::Reject(block(0, 0))),
        Violation::NotRequested(block(0, 0))
    );
}

#[test]
fn a_cancel_waits_for_its_answer_with_the_fast_extension() {
    for (reserved, outstanding) in [(ALL, 2), (PLAIN, 0)] {
        let mut session = leecher(reserved);
        session.want(Range::new(0, 65536));
        session.set_pipeline(2);
        receive_all(&mut session, &[Message::Bitfield(&[0xff, 0xc0]), Message::Unchoke]);
        sent(&mut session);
        session.cancel(Range::new(0, 65536));
        assert_eq!(sent(&mut session), ["cancel 0+0", "cancel 0+16384"]);
        assert_eq!(session.outstanding(), outstanding);
        assert!(!deliver(&mut session, block(0, 0)).is_wanted);
        if reserved == ALL {
            assert_eq!(receive(&mut session, Message::Reject(block(0, BLOCK))), Ok(vec![]));
        }
        assert!(session.is_idle());
    }
}

#[test]
fn a_lost_piece_ends_its_requests() {
    for (reserved, expected) in [
        (ALL, vec![Event::Lost(PieceIndex(0)), refused(32000, 32768, Refusal::Lost)]),
        (
            Reserved { extended: true, ..PLAIN },
            vec![Event::Lost(PieceIndex(0)), refused(0, 32768, Refusal::Lost)],
        ),
    ] {
        let mut session = leecher(reserved);
        session.want(Range::new(0, 32000));
        receive_all(&mut session, &[Message::Bitfield(&[0xff, 0xc0]), Message::Unchoke]);
        assert_eq!(sent(&mut session).len(), 3);
        session.want(Range::new(32000, 40000));
        let lost = receive(&mut session, Message::Extended { id: 3, payload: &[0; 4] });
        assert_eq!(lost, Ok(expected));
        assert_eq!(sent(&mut session), ["request 1+0"]);
    }
}

#[test]
fn allowed_pieces_are_asked_for_while_choked() {
    let mut session = leecher(ALL);
    session.want(Range::new(0, LAYOUT.1));
    let messages = [
        Message::HaveAll,
        Message::AllowedFast(PieceIndex(4)),
        Message::AllowedFast(PieceIndex(4)),
    ];
    let events = receive_all(&mut session, &messages);
    assert_eq!(events, [Event::Pieces, Event::AllowedFast(PieceIndex(4))]);
    assert_eq!(sent(&mut session), ["interested", "request 4+0", "request 4+16384"]);
    receive_all(&mut session, &[Message::Reject(block(4, BLOCK))]);
    session.want(Range::new(4 * 32768 + 16384, 5 * 32768));
    assert_eq!(sent(&mut session), [""; 0]);
    receive_all(&mut session, &[Message::Unchoke]);
    assert_eq!(sent(&mut session).len(), 20 - 1);
}

#[test]
fn requests_are_answered_while_the_peer_is_not_choked() {
    let mut session = seeder(ALL);
    assert_eq!(receive(&mut session, Message::Request(block(0, 0))), Ok(vec![]));
    assert_eq!(sent(&mut session), ["reject request 0+0"]);
    session.unchoke();
    session.unchoke();
    let requests =
        [Message::Interested, Message::Request(block(0, 0)), Message::Request(block(1, 0))];
    let events = receive_all(&mut session, &requests);
    assert_eq!(events, [Event::Interested, Event::Requested, Event::Requested]);
    assert_eq!(session.poll_request(), Some(block(0, 0)));
    let mut out = Vec::new();
    session.send_piece(Time::ZERO, block(0, 0), &mut out);
    assert_eq!(out[..5], [0, 0, 0, 1, 1]);
    assert_eq!(out[5..], [0, 0, 0x40, 9, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
    receive_all(&mut session, &[Message::Cancel(block(1, 0)), Message::Cancel(block(1, 0))]);
    assert_eq!(sent(&mut session), ["reject request 1+0"]);
    assert_eq!(session.poll_request(), None);
}

#[test]
fn a_choke_rejects_what_waits_except_allowed_pieces() {
    for reserved in [ALL, PLAIN] {
        let mut session = seeder(reserved);
        session.unchoke();
        session.allow_fast(&[PieceIndex(2), PieceIndex(2)]);
        receive_all(&mut session, &[1, 2, 3].map(|piece| Message::Request(block(piece, 0))));
        sent(&mut session);
        session.choke();
        let left = session.requests_waiting();
        match reserved.fast {
            true => assert_eq!(
                sent(&mut session),
                ["choke", "reject request 1+0", "reject request 3+0"]
            ),
            false => assert_eq!(sent(&mut session), ["choke"]),
        }
        assert_eq!(left, usize::from(reserved.fast));
        receive_all(&mut session, &[Message::Request(block(2, BLOCK))]);
        assert_eq!(session.requests_waiting(), 2 * usize::from(reserved.fast));
    }
}

#[test]
fn a_lost_piece_of_ours_is_told_and_its_requests_end() {
    let mut session = seeder(ALL);
    session.unchoke();
    receive_all(
        &mut session,
        &[
            Message::Extended { id: 0, payload: b"d1:md11:lt_donthavei7eee" },
            Message::Request(block(1, 0)),
            Message::Request(block(2, 0)),
        ],
    );
    sent(&mut session);
    assert!(session.lose(PieceIndex(1)));
    session.gain(PieceIndex(1));
    assert_eq!(sent(&mut session), ["extended", "reject request 1+0", "have 1"]);
    assert_eq!(session.poll_request(), Some(block(2, 0)));
    assert!(!seeder(ALL).lose(PieceIndex(1)));
}

#[test]
fn impossible_requests_are_faults() {
    let mut session = seeder(ALL);
    session.unchoke();
    for block in [
        Block { begin: BLOCK + 1, ..block(0, 0) },
        block(10, 0),
        block(9, BLOCK + 1),
        block(9, 2 * BLOCK),
        Block { begin: u32::MAX, ..block(u32::MAX, 0) },
    ] {
        let result = violation(&mut session, Message::Request(block));
        assert_eq!(result, Violation::NoSuchBlock(block));
    }
}

#[test]
fn a_flood_of_requests_is_a_fault() {
    for is_choking in [true, false] {
        for reserved in [ALL, PLAIN] {
            let mut session = seeder(reserved);
            if !is_choking {
                session.unchoke();
                receive_all(&mut session, &[Message::Request(block(0, 0)); 4]);
            }
            // Three full queues are forgiven.
            receive_all(&mut session, &[Message::Request(block(0, 0)); 12]);
            assert_eq!(violation(&mut session, Message::Request(block(0, 0))), Violation::Flood);
        }
    }
    // A peer that gets answers may ask too often all the time.
    let mut session = seeder(ALL);
    session.unchoke();
    for _ in 0..10 {
        receive_all(&mut session, &[Message::Request(block(0, 0)); 12]);
        while let Some(block) = session.poll_request() {
            session.send_piece(Time::ZERO, block, &mut Vec::new());
        }
    }
}

#[test]
fn messages_need_their_extension() {
    for message in [
        Message::HaveAll,
        Message::HaveNone,
        Message::Suggest(PieceIndex(0)),
        Message::AllowedFast(PieceIndex(0)),
        Message::Reject(block(0, 0)),
    ] {
        assert_eq!(violation(&mut leecher(PLAIN), message), Violation::NoFastExtension);
    }
    let extended = Message::Extended { id: 0, payload: b"de" };
    assert_eq!(violation(&mut leecher(PLAIN), extended), Violation::NoExtensionMessages);
    assert_eq!(receive(&mut leecher(PLAIN), Message::Port(1)), Ok(vec![]));
    assert_eq!(receive(&mut leecher(ALL), Message::Port(1)), Ok(vec![Event::DhtPort(1)]));
    assert_eq!(receive(&mut leecher(PLAIN), Message::Unknown(MessageId(200))), Ok(vec![]));
}

#[test]
fn extensions_use_the_numbers_of_the_receiver() {
    let config = SessionConfig { peer_exchange: true, ..SessionConfig::default() };
    let mut session = session(ALL, config, 0);
    let request = MetadataMessage::Request { piece: 0 };
    let peers = PeerExchange::default();
    assert!(!session.send_metadata(&request) && !session.send_peers(&peers));
    assert_eq!(sent(&mut session), [""; 0]);
    let told = b"d1:md11:ut_metadatai7e6:ut_pexi0eee";
    let events = receive_all(&mut session, &[Message::Extended { id: 0, payload: told }]);
    assert_eq!(events, [Event::Handshake]);
    assert!(session.send_metadata(&request) && !session.send_peers(&peers));
    let mut out = Vec::new();
    session.poll_transmit(Time::ZERO, &mut out);
    assert_eq!(out[4..6], [20, 7]);

    let (asked, told) = (request.encode(), peers.encode());
    let of = |it: Extension| ExtensionIds::local(|_| true).id(it).unwrap();
    let events = receive_all(
        &mut session,
        &[
            Message::Extended { id: of(Extension::Metadata), payload: &asked },
            Message::Extended { id: of(Extension::PeerExchange), payload: &told },
            Message::Extended { id: 99, payload: b"anything" },
        ],
    );
    assert_eq!(events, [Event::Metadata(request), Event::Peers(peers)]);
    let broken = Message::Extended { id: of(Extension::Metadata), payload: b"x" };
    assert!(matches!(violation(&mut session, broken), Violation::Extension(_)));
    // Peers of a private torrent exchange no addresses, whatever arrives.
    let message = Message::Extended { id: of(Extension::PeerExchange), payload: b"x" };
    assert_eq!(receive(&mut leecher(ALL), message), Ok(vec![]));
}

#[test]
fn pieces_are_told_before_their_number_is_known() {
    let start = |messages: &[Message<'_>]| {
        let mut session = Session::new(Time::ZERO, ALL, ALL, None, SessionConfig::default());
        assert_eq!(sent(&mut session), ["extended", "have none"]);
        assert_eq!(receive_all(&mut session, messages), []);
        assert_eq!(session.peer_pieces(), None);
        session
    };
    let mut session = start(&[Message::Bitfield(&[0x80, 0]), Message::Have(PieceIndex(9))]);
    session.want(Range::new(0, 16384));
    receive_all(&mut session, &[Message::Unchoke]);
    assert_eq!(sent(&mut session), ["interested"]);
    assert_eq!(session.set_layout(layout()), Ok(()));
    assert_eq!(session.poll_event(), Some(Event::Pieces));
    let pieces: Vec<_> = session.peer_pieces().unwrap().iter().collect();
    assert_eq!(pieces, [PieceIndex(0), PieceIndex(9)]);
    assert_eq!(sent(&mut session), ["request 0+0"]);
    assert!(start(&[Message::HaveAll]).set_layout(layout()).is_ok());

    for (messages, message) in [
        (&[Message::Bitfield(&[0x80])][..], MessageId::BITFIELD),
        (&[Message::Bitfield(&[0x80, 1])], MessageId::BITFIELD),
        (&[Message::Have(PieceIndex(10))], MessageId::HAVE),
    ] {
        let fault = start(messages).set_layout(layout()).unwrap_err();
        assert_eq!(fault.message, message);
    }
    let mut session = start(&[Message::HaveNone]);
    let have = [0, 0, 0, 5, 4, 0, 0, 0, 1].repeat((1 << 16) + 1);
    let fault = session.handle_input(Time::ZERO, &have).unwrap_err();
    assert_eq!(fault, Violation::Flood.by(MessageId::HAVE));
    let request = Message::Request(block(0, 0));
    assert!(matches!(violation(&mut start(&[]), request), Violation::NoSuchBlock(_)));
}

#[test]
fn hashes_answer_requests() {
    let range = |index| HashRange {
        pieces_root: [1; 32],
        base_layer: 0,
        index,
        length: 2,
        proof_layers: 1,
    };
    let mut session = leecher(ALL);
    for index in [0, 2, 4, 6] {
        session.want_hashes(range(index));
    }
    let hashes = |index, hashes| Message::Hashes { range: range(index), hashes };
    let events = receive_all(
        &mut session,
        &[hashes(2, &[7; 96]), hashes(0, &[8; 64]), Message::HashReject(range(4))],
    );
    let got = |index, hashes| Event::Hashes { range: range(index), hashes };
    assert_eq!(
        events,
        [got(2, vec![[7; 32]; 3]), got(0, vec![[8; 32]; 2]), Event::HashesRefused(range(4))]
    );
    for message in [hashes(0, &[8; 64]), hashes(6, &[8; 32]), Message::HashReject(range(4))] {
        assert_eq!(violation(&mut session, message), Violation::HashesNotRequested);
    }
    session.want_hashes(range(6));
    assert_eq!(violation(&mut session, hashes(6, &[8; 128])), Violation::HashesNotRequested);

    sent(&mut session);
    let invalid = HashRange { length: 3, ..range(0) };
    assert_eq!(receive(&mut session, Message::HashRequest(invalid)), Ok(vec![]));
    let asked = receive(&mut session, Message::HashRequest(range(0)));
    assert_eq!(asked, Ok(vec![Event::HashesRequested(range(0))]));
    session.send_hashes(range(0), &[[1; 32]; 2]);
    assert_eq!(sent(&mut session), ["hash reject", "hashes"]);
    for _ in 0..256 {
        receive_all(&mut session, &[Message::HashRequest(range(0))]);
    }
    assert_eq!(violation(&mut session, Message::HashRequest(range(0))), Violation::Flood);
}

#[test]
fn a_peer_that_reads_nothing_is_not_read_from() {
    let config = SessionConfig { requests_max: 1 << 20, ..SessionConfig::default() };
    let mut session = session(ALL, config, 10);
    let request = {
        let mut out = Vec::new();
        Message::Request(block(0, 0)).encode(&mut out);
        out
    };
    let input = request.repeat(100_000);
    let mut at = session.handle_input(Time::ZERO, &input).unwrap();
    assert!(at < input.len() && session.output.len() <= OUTPUT_BYTES_MAX + 17);
    assert_eq!(session.handle_input(Time::ZERO, &input[at..]), Ok(0));
    while at < input.len() {
        session.poll_transmit(Time::ZERO, &mut Vec::new());
        at += session.handle_input(Time::ZERO, &input[at..]).unwrap();
    }
    let mut session = leecher(ALL);
    let have = [&[0, 0, 0, 5, 4, 0, 0, 0, 1][..], &[0, 0, 0, 6, 20, 3, 0, 0, 0, 1]].concat();
    let input = have.repeat(10_000);
    let used = session.handle_input(Time::ZERO, &input).unwrap();
    assert!(used < input.len() && session.events.len() <= EVENTS_MAX + 2);
}

#[test]
fn a_keep_alive_is_sent_when_nothing_else_is() {
    let mut session = leecher(ALL);
    let at = Time::from_millis;
    assert_eq!(session.poll_timeout(), at(100_000));
    session.handle_timeout(at(99_999));
    assert_eq!(sent(&mut session), [""; 0]);
    session.handle_timeout(at(100_000));
    let mut out = Vec::new();
    session.poll_transmit(at(100_000), &mut out);
    assert_eq!(out, [0; 4]);
    assert_eq!(session.poll_timeout(), at(200_000));
    assert_eq!(session.quiet_for(at(100_000)), Duration::from_secs(100));
    assert_eq!(session.handle_input(at(110_000), &[0; 4]), Ok(4));
    assert_eq!(session.quiet_for(at(110_000)), Duration::ZERO);
}
