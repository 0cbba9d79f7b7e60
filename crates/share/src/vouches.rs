//! The hashes of units: who vouches for them, who told so, and who is to blame for a wrong one.

use swath_model::Range;
use swath_transfer::{CameFrom, Judgement};

use crate::log::{NodeId, Vouch};
use crate::units::{Unit, Units};

/// The hash of each unit that a node has told.
#[derive(Debug)]
pub struct Vouches {
    me: NodeId,
    units: Vec<Hash>,
}

/// The hash of a unit.
#[derive(Clone, Copy, Debug)]
enum Hash {
    /// Nobody has told one.
    Untold,
    Told(Told),
    /// These two told different ones, or it is not known whether this one is wrong.
    Disputed(Told, Told),
}

/// A hash, and the node that told it: the one that vouches, or one that passes that on.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// The hash, and who vouches for it.
    pub vouch: Vouch,
    /// Who told it.
    pub teller: NodeId,
}

impl Vouches {
    /// Returns the state of `count` units before any machine has told their hashes.
    pub fn new(count: Unit, me: NodeId) -> Vouches {
        Vouches { me, units: vec![Hash::Untold; count as usize] }
    }

    /// Returns the hash that other machines told for a unit, unless they disagree.
    pub fn of(&self, unit: Unit) -> Option<Vouch> {
        match self.units.get(unit as usize) {
            Some(Hash::Told(told)) => Some(told.vouch),
            _ => None,
        }
    }

    /// Another node tells a hash. Returns it if it contradicts what we know from the origin.
    pub fn hear(&mut self, unit: Unit, told: Told) -> Option<Told> {
        let hash = self.units.get_mut(unit as usize)?;
        match *hash {
            Hash::Untold => *hash = Hash::Told(told),
            Hash::Told(known) if known.vouch.hash != told.vouch.hash => {
                if known.vouch.by == self.me {
                    return Some(told);
                }
                *hash = Hash::Disputed(known, told);
            }
            // What the node itself says counts more than what is said of it.
            Hash::Told(known) if told.is_first_hand() && known.vouch.by == told.vouch.by => {
                *hash = Hash::Told(told);
            }
            Hash::Told(_) | Hash::Disputed(..) => {}
        }
        None
    }

    /// Compares the hash of a complete unit with those that other machines told. The origin's bytes
    /// count as right. Also returns the wrong hashes.
    pub fn judge(&mut self, unit: Unit, hash: [u8; 32], from: CameFrom) -> (Judgement, Vec<Told>) {
        let told = self.told(unit);
        let Some(known) = self.units.get_mut(unit as usize) else {
            return (Judgement::Unknown, Vec::new());
        };
        let is_disputed = matches!(known, Hash::Disputed(..));
        let judgement = match from {
            _ if !is_disputed && told.iter().any(|told| told.vouch.hash == hash) => {
                Judgement::Right
            }
            CameFrom::Found if !is_disputed && !told.is_empty() => Judgement::Wrong,
            CameFrom::Found => Judgement::Unknown,
            CameFrom::Mixed => {
                // Either is wrong: all of it is to come from the origin.
                if let Hash::Told(told) = *known {
                    *known = Hash::Disputed(told, told);
                }
                Judgement::Unknown
            }
            // Nobody is to blame: who delivered it is not known.
            CameFrom::EarlierRun if !told.is_empty() => Judgement::Unknown,
            CameFrom::EarlierRun | CameFrom::Named => {
                let vouch = Vouch { hash, by: self.me };
                *known = Hash::Told(Told { vouch, teller: self.me });
                let wrong = told.into_iter().filter(|told| told.vouch.hash != hash).collect();
                return (Judgement::Right, wrong);
            }
        };
        (judgement, Vec::new())
    }

    /// Returns all that was told of units with any of these bytes.
    pub fn told_within(&self, range: Range, units: &Units) -> Vec<Told> {
        units.around(range).flat_map(|unit| self.told(unit)).collect()
    }

    fn told(&self, unit: Unit) -> Vec<Told> {
        match self.units.get(unit as usize) {
            None | Some(Hash::Untold) => Vec::new(),
            Some(Hash::Told(told)) => vec![*told],
            Some(Hash::Disputed(one, other)) => vec![*one, *other],
        }
    }

    /// Forgets what this node vouched for or told.
    pub fn forget(&mut self, node: NodeId) {
        for hash in &mut self.units {
            *hash = match *hash {
                Hash::Told(told) if told.is_of(node) => Hash::Untold,
                Hash::Disputed(one, other) if one.is_of(node) && other.is_of(node) => Hash::Untold,
                Hash::Disputed(one, other) if one.is_of(node) => Hash::Told(other),
                Hash::Disputed(one, other) if other.is_of(node) => Hash::Told(one),
                same => same,
            };
        }
    }
}

impl Told {
    /// Returns whether the node that vouches for it told it.
    pub fn is_first_hand(&self) -> bool {
        self.vouch.by == self.teller
    }

    /// Returns whether the node vouched for it, or told it.
    fn is_of(&self, node: NodeId) -> bool {
        self.vouch.by == node || self.teller == node
    }
}
