//! A seeded simulator in virtual time that drives the real planner.
//!
//! [`Script`] tells a scenario in readable steps, `Scenario` is the same as data, [`random`]
//! draws one from a seed; its `run` simulates it and answers an [`Outcome`], or the
//! `Violation` of a rule with the steps that led there. Links are a fluid model with windows
//! and queues (`link`), servers have manners and moods (`server`), connections behave as the real
//! executor's lanes do (`lane`), `world` moves time, `exchange` is what happens between client and servers, `watch` keeps independent books. Equal
//! scenarios give equal runs, step by step.

mod exchange;
mod holes;
mod lane;
mod link;
mod outcome;
mod random;
mod scenario;
mod script;
mod server;
mod watch;
mod world;

pub use outcome::Outcome;
pub use random::random;
pub use script::{Script, honest};
pub use server::{Mood, SourceSpec};
