//! Verification while the bytes stream by.
//!
//! [`Verifier`] is handed every block of bytes that is on its way to the disk, in any order, and
//! answers with verdicts. What it can hash at once it hashes from memory; what comes too early
//! it keeps while there is room ([`Allowance`]), and asks to have read back what had to leave
//! memory.
//! [`HashThreads`] runs verifiers beside the executor.

mod allowance;
mod blocks;
mod threads;
mod track;
mod verifier;

pub(crate) use allowance::Allowance;
pub(crate) use blocks::Hashed;
pub(crate) use threads::{HashThreads, ReadNumber, Report, VerifierHandle};
pub(crate) use verifier::{Proof, Saved, Verdict, Verifier};
