//! The executor: joins planner, lanes and store into one verified transfer.
//!
//! ```
//! # use swath_netlab::faulty::{Algorithm, Content, Server};
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let content = Content::random(1, 1_000_003);
//! # let serve = || Server::builder().file("/data.bin", content.clone()).start();
//! # let (one, two) = (serve()?, serve()?);
//! # let (one, two) = (one.url("/data.bin"), two.url("/data.bin"));
//! # let digest = format!("sha-256:{}", content.digest_hex(Algorithm::Sha256));
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("data.bin");
//! use swath_transfer::{Engine, EngineOptions, Request};
//!
//! let engine = Engine::start(EngineOptions::default())?;
//! let request = Request::to_file(&path).url(&one)?.url(&two)?.digest(&digest)?;
//! let summary = engine.get(request).await?;
//! println!("{} bytes in {:.1} s", summary.size_bytes, summary.elapsed_s);
//! # assert_eq!((summary.size_bytes, summary.proved), (1_000_003, true));
//! # assert_eq!(std::fs::read(&path)?, content.read(0, 1_000_003));
//! # Ok(())
//! # }
//! ```
//!
//! This crate re-exports every type in its signatures, so that users need no other crate of swath.

pub mod check;
mod discovery;
mod engine;
mod error;
mod executor;
mod limited;
mod present;
mod put;
mod reason;
mod remote_copy;
mod request;
mod routes;
mod sample;
pub mod sending;
pub mod stage;
mod survey;
pub mod third_party;
mod tree;
mod verify;

pub use discovery::{
    BLOCK_BYTES_MAX, CameFrom, Discovery, IndexedTree, Judgement, TreeDiscovery, VerifiedContent,
    Voucher, block_hash,
};
pub use engine::{Engine, EngineError, EngineOptions, Stop};
pub use error::GetError;
pub use executor::{Agreement, Unlikeness, Version};
pub use present::Unlike;
pub use put::{Announced, PutError, PutFrom, PutRequest};
pub use reason::{Party, Reason, Why};
pub use remote_copy::{RemoteCopyError, RemoteCopyRequest};
pub use request::{Destination, Mirror, Overwrite, Request, RequestError};
pub use routes::{RouteChoice, RouteOptions};
pub use sample::Sample;
pub use survey::{Asked, Sampled, Survey, Surveyed, Tried};
pub use swath_model::digest::{self, Algorithm, Digest, DigestError};
pub use swath_model::index::{Absence, Counts};
pub use swath_model::observe;
pub use swath_model::pieces::{Pieces, PiecesError};
pub use swath_model::{Range, RangeMap, Validators};
pub use swath_plan::{Config as PlanConfig, Lanes, PickerKind, PolicyKind};
pub use swath_source::{
    LaneError, Net, NetError, NetOptions, RelayAccess, RelayMode, Secret, Trust,
};
pub use swath_state::State;
pub use swath_store::tree::{
    Change, Filter, FilterError, PartialError, Preserve, SetFile, SetReader, Verdict, Wrong,
    XattrLoss,
};
pub use swath_store::{
    BadCpus, CommitError, Cpus, DiskError, FinishError, IoMode, OpenError, Pin, ReadError,
    Topology, WriteError,
};
pub use tree::{
    Against, Compare, FolderKind, Planned, Spare, Spared, TreeRequest, TreeSummary, Unremoved,
};
pub use url::Url;

/// The example in docs/library.md is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
pub struct LibraryGuide;
