//! The executor: joins planner, lanes and store into one verified transfer.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use swath_transfer::{Engine, EngineOptions, Request};
//!
//! let engine = Engine::start(EngineOptions::default())?;
//! let request = Request::to_file("data.bin")
//!     .url("https://one.example/data.bin")?
//!     .url("https://two.example/data.bin")?
//!     .digest("sha-256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")?;
//! let summary = engine.get(request).await?;
//! println!("{} bytes in {:.1} s", summary.size_bytes, summary.elapsed_s);
//! # Ok(())
//! # }
//! ```

mod engine;
mod error;
mod executor;
mod memory;
pub mod observe;
pub mod report;
mod request;
mod verify;

pub use engine::{Engine, EngineError, EngineOptions, Stop};
pub use error::GetError;
pub use executor::{Agreement, Version};
pub use request::{Destination, Mirror, Request, RequestError};
pub use swath_plan::{Config as PlanConfig, Lanes, PolicyKind};
pub use swath_source::{NetOptions, Trust};
pub use swath_store::IoMode;

/// The example in the README is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
