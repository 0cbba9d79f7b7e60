//! Verification while the bytes stream by.
//!
//! [`Verifier`] gets every written block, in any order, and returns verdicts. If it can, it hashes
//! a block at once from memory. It keeps early blocks while there is room ([`Allowance`]), and asks
//! the executor to read back the others. [`HashThreads`] runs verifiers beside the executor.

mod allowance;
mod blocks;
mod threads;
mod track;
mod verifier;

pub(crate) use allowance::Allowance;
pub(crate) use blocks::Hashed;
pub(crate) use threads::{HashThreads, ReadNumber, Report, VerifierHandle};
pub(crate) use verifier::{Proof, Saved, Verdict, Verifier};
