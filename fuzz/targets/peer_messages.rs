//! Any bytes as what a peer sends, handshake first, to a session that answers, and may ask. The
//! first byte chooses the extensions and how the rest is cut. Cuts make no difference to a session
//! that does not ask; if it asks, they decide which requests are sent before an answer comes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::peer::{
    Bitfield, Event, HANDSHAKE_BYTES, Handshake, PeerFault, PieceLayout, Reserved, Session,
    SessionConfig,
};
use swath_model::{Range, Time};

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let Ok(Some(theirs)) = Handshake::decode(bytes) else { return };
    let bit = |bit: u8| choice & bit != 0;
    let ours = Reserved { extended: bit(1), fast: bit(2), dht: true, v2: true };
    let input = &bytes[HANDSHAKE_BYTES..];
    let pipeline = if bit(8) { 64 } else { 0 };
    let run = |step| run(ours, theirs.reserved, bit(4), pipeline, input, step);
    let (whole, parts) = (run(input.len().max(1)), run(usize::from(choice >> 4) + 1));
    assert!(bit(8) || whole == parts, "{whole:?} {parts:?}");
});

/// Returns the events of a session that receives `input` in parts, and how it ended.
fn run(
    ours: Reserved,
    theirs: Reserved,
    is_known: bool,
    pipeline: usize,
    input: &[u8],
    step: usize,
) -> (Vec<Event>, Result<(), PeerFault>) {
    let layout = PieceLayout::new(32 << 10, 10 * (32 << 10) - 5).expect("a possible layout");
    let own = Bitfield::all(layout.count());
    let torrent = is_known.then_some((layout, &own));
    let config = SessionConfig { pipeline, peer_exchange: true, ..SessionConfig::default() };
    let mut session = Session::new(Time::ZERO, ours, theirs, torrent, config);
    session.unchoke();
    session.want(Range::new(0, layout.total_bytes()));
    let (mut events, mut buffer, mut out) = (Vec::new(), Vec::new(), Vec::new());
    for part in input.chunks(step) {
        buffer.extend_from_slice(part);
        let mut at = 0;
        loop {
            let used = match session.handle_input(Time::ZERO, &buffer[at..]) {
                Ok(used) => used,
                Err(fault) => {
                    assert!(!fault.to_string().is_empty());
                    events.extend(std::iter::from_fn(|| session.poll_event()));
                    return (events, Err(fault));
                }
            };
            at += used;
            let before = events.len();
            events.extend(std::iter::from_fn(|| session.poll_event()));
            let payload = session.payload().map_or(0, |payload| payload.bytes_left as usize);
            let taken = payload.min(buffer.len() - at);
            session.take_payload(Time::ZERO, taken as u32);
            at += taken;
            session.poll_transmit(Time::ZERO, &mut out);
            out.clear();
            if used + taken == 0 && before == events.len() {
                break;
            }
        }
        buffer.drain(..at);
    }
    // Requests are checked before they wait.
    while let Some(block) = session.poll_request() {
        assert!(layout.range_of_block(block).is_some());
    }
    assert!(session.outstanding() <= 64);
    assert!(session.peer_holds().total_bytes() <= layout.total_bytes());
    (events, Ok(()))
}
