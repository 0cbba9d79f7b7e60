//! A bit for each of many numbers: entries of an index, groups of a file.

/// A set of small numbers, empty at first.
#[derive(Debug, Default)]
pub(crate) struct Bits(Vec<u64>);

impl Bits {
    /// Returns whether the bit of this number is set.
    pub fn has(&self, number: u64) -> bool {
        let word = usize::try_from(number / 64).ok().and_then(|at| self.0.get(at));
        word.is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Sets the bit; returns whether it was clear.
    pub fn set(&mut self, number: u64) -> bool {
        let is_new = !self.has(number);
        let at = usize::try_from(number / 64).unwrap_or(usize::MAX);
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] |= 1 << (number % 64);
        is_new
    }

    /// Words of memory.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }
}
