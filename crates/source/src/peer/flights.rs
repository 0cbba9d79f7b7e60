//! Blocks that were asked for and are to come. No two of them overlap, so that a byte of the piece
//! space says for which swath it comes.

use std::collections::BTreeMap;

use swath_model::Range;

/// The blocks under way on one connection, by their first byte in the piece space.
#[derive(Debug, Default)]
pub(super) struct Flights(BTreeMap<u64, Flight>);

/// A block under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    /// Its bytes in the piece space.
    pub wire: Range,
    /// Where it begins in the content.
    pub content: u64,
    /// For which swath it comes.
    pub ask: AskId,
}

/// A swath asked for on this connection; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AskId(pub u64);

impl Flight {
    /// Returns its bytes in the content.
    pub fn content_range(&self) -> Range {
        Range::of_len(self.content, self.wire.len())
    }
}

impl Flights {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether any byte of `wire` is under way.
    pub fn overlaps(&self, wire: Range) -> bool {
        let before = self.0.range(..wire.end).next_back();
        before.is_some_and(|(_, flight)| flight.wire.end > wire.start)
    }

    /// Adds a block that overlaps none.
    pub fn insert(&mut self, flight: Flight) {
        self.0.insert(flight.wire.start, flight);
    }

    /// Returns the block that begins at this byte of the piece space.
    pub fn get(&self, start: u64) -> Option<Flight> {
        self.0.get(&start).copied()
    }

    pub fn remove(&mut self, start: u64) -> Option<Flight> {
        self.0.remove(&start)
    }

    /// Removes the blocks that lie in `wire`.
    pub fn take_within(&mut self, wire: Range) -> Vec<Flight> {
        let within = self.0.range(wire.start..wire.end.max(wire.start));
        let found: Vec<Flight> = within.map(|it| *it.1).filter(|it| wire.covers(it.wire)).collect();
        found.iter().for_each(|flight| _ = self.0.remove(&flight.wire.start));
        found
    }

    /// Removes the blocks of a swath that begin at or behind this byte of the content.
    pub fn take_of(&mut self, ask: AskId, from: u64) -> Vec<Flight> {
        let is_such = |flight: &Flight| flight.ask == ask && flight.content >= from;
        let found: Vec<Flight> = self.0.values().copied().filter(is_such).collect();
        found.iter().for_each(|flight| _ = self.0.remove(&flight.wire.start));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(start: u64, end: u64, ask: u64) -> Flight {
        Flight { wire: Range::new(start, end), content: start / 2, ask: AskId(ask) }
    }

    #[test]
    fn blocks_are_found_by_their_bytes() {
        let mut flights = Flights::default();
        for (start, end, ask) in [(0, 10, 1), (20, 30, 1), (30, 40, 2)] {
            flights.insert(flight(start, end, ask));
        }
        for (start, end, overlaps) in
            [(10, 20, false), (9, 11, true), (10, 21, true), (39, 50, true), (40, 50, false)]
        {
            assert_eq!(flights.overlaps(Range::new(start, end)), overlaps, "{start}..{end}");
        }
        assert_eq!(flights.get(20), Some(flight(20, 30, 1)));
        assert_eq!(flights.get(25), None);
        assert_eq!(flights.take_within(Range::new(15, 35)), [flight(20, 30, 1)]);
        assert_eq!(flights.take_of(AskId(1), 1), []);
        assert_eq!(flights.take_of(AskId(1), 0), [flight(0, 10, 1)]);
        assert_eq!(flights.len(), 1);
    }
}
