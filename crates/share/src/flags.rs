//! A flag for each unit.

use crate::units::Unit;

/// A flag for each unit.
#[derive(Debug)]
pub struct Flags {
    words: Vec<u64>,
    set: Unit,
}

impl Flags {
    /// Returns a flag for each of `count` units, all unset.
    pub fn none(count: Unit) -> Flags {
        Flags { words: vec![0; count.div_ceil(64) as usize], set: 0 }
    }

    /// Returns whether a flag is set.
    pub fn has(&self, unit: Unit) -> bool {
        self.words.get(unit as usize / 64).is_some_and(|word| word >> (unit % 64) & 1 == 1)
    }

    /// Sets a flag; whether it was not set.
    pub fn insert(&mut self, unit: Unit) -> bool {
        let is_new = !self.has(unit);
        if let Some(word) = self.words.get_mut(unit as usize / 64) {
            *word |= 1 << (unit % 64);
            self.set += u32::from(is_new);
        }
        is_new
    }

    /// Returns how many flags are set.
    pub fn count(&self) -> Unit {
        self.set
    }

    /// Returns the units whose flags are set.
    pub fn iter(&self) -> impl Iterator<Item = Unit> + '_ {
        units_of(self.words.iter().copied())
    }

    /// Returns the units whose flags are set here and not in `other`.
    pub fn iter_without<'a>(&'a self, other: &'a Flags) -> impl Iterator<Item = Unit> + 'a {
        units_of(self.words.iter().zip(&other.words).map(|(own, other)| own & !other))
    }
}

fn units_of(words: impl Iterator<Item = u64>) -> impl Iterator<Item = Unit> {
    let of_word = |(at, word): (usize, u64)| {
        (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at as Unit * 64 + bit)
    };
    words.enumerate().filter(|(_, word)| *word != 0).flat_map(of_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_set_and_found() {
        let (mut flags, mut other) = (Flags::none(130), Flags::none(130));
        for unit in [0, 63, 64, 129] {
            assert!(flags.insert(unit) && !flags.insert(unit) && flags.has(unit));
        }
        // Beyond the last word there is nothing.
        assert!(!flags.has(1000) && !flags.has(1));
        other.insert(64);
        assert_eq!(flags.iter().collect::<Vec<_>>(), [0, 63, 64, 129]);
        assert_eq!(flags.iter_without(&other).collect::<Vec<_>>(), [0, 63, 129]);
        assert_eq!(flags.count(), 4);
    }
}
