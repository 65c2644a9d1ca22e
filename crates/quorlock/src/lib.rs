//! A lock that holds across machines, and never lies about it.
//!
//! ```text
//!   Locker ── lock(name) ──▶ Guard ── lost, remaining, release        what you touch
//!      │                       │       ◀── watchdog: extends it, or tells that it ends
//!      └───────── drive ───────┘       rounds in flight: ask all nodes at once, stop at a majority
//!                   │
//!           quorlock-protocol          the rules: who won, until when
//!                   │
//!                 node                 one authority each: Redis, Valkey, etcd, ZooKeeper, SQLite, memory
//! ```
//!
//! # What it promises, and what no lock can
//!
//! At most one client at a time is inside the validity that its [`Guard`] reports. On Redis and Valkey that holds
//! though servers crash, forget what they granted, are emptied or have their clocks moved, while the clocks of the
//! *clients* agree within 50 ms, as they do with NTP. That is the `strict` dialect, the default. The `redlock`
//! dialect shares its locks with every Redlock library, and rests on servers that do not forget and whose clocks do
//! not jump (`Dialect`).
//!
//! It **cannot** be promised, by any lock with a timeout, that a client which is paused in the middle of its work
//! will not act late: ask [`Guard::is_held`] before anything that cannot be undone, and have the resource itself
//! refuse late writes where a double would corrupt it, by its [`Guard::fence`].
//!
//! # Example
//!
//! ```
//! # use std::time::Duration;
//! # use std::sync::Arc;
//! use quorlock::Locker;
//! # use quorlock::node::memory::MemoryNode;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), quorlock::Error> {
//! # let nodes = || (0..3).map(|_| Arc::new(MemoryNode::new()) as Arc<dyn quorlock::node::Node>);
//! let locker = Locker::builder()
//! # ; let urls = |b: quorlock::Builder| b.with_nodes(nodes()); let locker = urls(locker)
//!     // .nodes(["redis://a", "redis://b", "redis://c"])
//!     .ttl(Duration::from_secs(10))
//!     .connect()
//!     .await?;
//!
//! let guard = locker.lock("orders/42").wait(Duration::from_secs(5)).await?;
//! assert!(guard.is_held());
//! // … the work; the lock is extended while it lasts, and guard.lost() tells if it cannot be …
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Locker::lock_many`] takes several locks, all or none. [`Guard::into_token`] and [`Locker::resume`] hand a
//! lock to another process. Programs without async use [`blocking`].
//!
//! What is done to nodes apart from locking stands in [`admin`]: looking them over, marking new ones, changing their set.
//!
//! Which names to use, how to choose the TTL and what happens when nodes fail stands in the
//! documentation of [`Locker`] and [`Guard`].

/// The example in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// So do those of the recipes.
#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../../../docs/recipes/fencing.md")]
struct Recipes;

pub mod admin;
pub mod blocking;
mod builder;
mod clocks;
mod core;
mod drive;
mod error;
mod fence;
mod gate;
mod guard;
mod guards;
mod lease_clock;
mod line;
mod lock;
mod lock_options;
mod locked;
mod locker;
mod locking;
mod loss;
mod many;
mod name;
pub mod node;
mod non_voting;
mod note;
mod opening;
mod owner;
mod resume;
pub mod runtime;
mod settings;
mod text;
mod token;
mod waitable;
mod waiters;
mod watchdog;
mod wheel;

pub use builder::Builder;
pub use drive::{NodeRelease, NodeReleaseState, NodeStatus, Released, Status, Verdict};
pub use error::{Error, Loss, NodeAnswer, NodeAnswers};
pub use fence::{Fence, FenceRead, FenceWrite, Stale};
pub use guard::{Extending, Guard, GuardState, Releasing};
pub use guards::Guards;
pub use lease_clock::Deadline;
pub use lock::Lock;
pub use locker::Locker;
pub use locking::Locking;
pub use loss::{FirstLost, Lost};
pub use many::{LockMany, LockingMany};
pub use name::{MAX_NAME_BYTES, Name};
#[cfg(feature = "mysql")]
pub use node::mysql::MysqlOptions;
#[cfg(feature = "postgres")]
pub use node::postgres::PostgresOptions;
#[cfg(feature = "redis")]
pub use node::redis::{Dialect, RedisOptions};
pub use note::{MAX_NOTE_BYTES, Note};
pub use owner::Owner;
pub use quorlock_protocol::{Backoff, Cap, Carries, Drift, Untimely};
pub use settings::{MAX_LOCAL_TURNS, MIN_TTL, Settings};
pub use token::{Token, TokenText};
