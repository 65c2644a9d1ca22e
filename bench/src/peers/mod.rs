//! The systems that are measured: which there are, how they are installed, and how to talk to them.

mod install;
mod process;

use serde::{Deserialize, Serialize};

pub use self::install::Tools;
pub use self::process::Process;
use crate::own::{BARE, Home, REDIS_BENCHMARK, TCP, VARIANTS};

/// Where the program of a system comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Made {
    /// This program itself.
    Here,
    Go,
    Node,
    Python,
    Java,
}

/// A system under comparison.
#[derive(Debug, Clone, Copy)]
pub struct System {
    pub name: &'static str,
    pub made: Made,
    pub kind: Kind,
    /// Why it has no use for more than one node.
    one_node: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Quorlock(Home),
    Peer,
    Limit,
}

/// What several servers of are one place to lock on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Etcd,
    ZooKeeper,
    Redis,
}

/// All systems, as the tables have them.
pub fn systems() -> Vec<System> {
    let peer = |name, made, one_node| System { name, made, kind: Kind::Peer, one_node };
    let limit = |name, one_node| System { name, made: Made::Here, kind: Kind::Limit, one_node };
    let variants = VARIANTS.iter().map(|variant| System {
        name: variant.name,
        made: Made::Here,
        kind: Kind::Quorlock(variant.home),
        one_node: (variant.home == Home::File).then_some("a file is one node"),
    });
    let others = [
        peer("rslock", Made::Here, None),
        peer("redsync", Made::Go, None),
        peer("rueidislock", Made::Go, Some("one deployment only")),
        peer("redisson", Made::Java, None),
        peer("node-redlock", Made::Node, None),
        peer("redis-semaphore", Made::Node, None),
        peer("redis-py", Made::Python, Some("one node only")),
        peer("pottery", Made::Python, None),
        limit(BARE, None),
        limit(TCP, None),
        limit(REDIS_BENCHMARK, Some("one node only")),
    ];
    variants.chain(others).collect()
}

/// Those that are compared on what agrees by itself, each with what it locks on.
pub fn on_engines() -> Vec<(System, Engine)> {
    let ours = |name| System {
        name,
        made: Made::Here,
        kind: Kind::Quorlock(Home::Servers),
        one_node: None,
    };
    let peer = |name, made| System { name, made, kind: Kind::Peer, one_node: None };
    vec![
        (ours("quorlock-etcd"), Engine::Etcd),
        (peer("etcd-mutex", Made::Go), Engine::Etcd),
        (ours("quorlock-zookeeper"), Engine::ZooKeeper),
        (peer("curator", Made::Java), Engine::ZooKeeper),
        (ours("quorlock-strict"), Engine::Redis),
    ]
}

/// Those whose locks live on the servers.
pub fn on_servers() -> impl Iterator<Item = System> {
    let remote = |kind| matches!(kind, Kind::Peer | Kind::Quorlock(Home::Servers));
    systems().into_iter().filter(move |system| remote(system.kind))
}

impl System {
    /// One that is part of this program, and not of the comparison with others.
    pub fn own(name: &'static str) -> Self {
        Self { name, made: Made::Here, kind: Kind::Peer, one_node: None }
    }

    /// Why it cannot take part with so many nodes.
    pub fn refuses(&self, nodes: usize) -> Option<&'static str> {
        self.one_node.filter(|_| nodes > 1)
    }

    /// For how long it runs before it is as fast as it gets.
    pub fn warm_up_seconds(&self, quick: bool) -> f64 {
        self.made.warm_up_seconds(quick)
    }
}

impl Made {
    /// For how long what was made so runs before it is as fast as it gets.
    pub fn warm_up_seconds(self, quick: bool) -> f64 {
        match (self, quick) {
            (Self::Java, false) => 8.0,
            (Self::Java, true) => 1.5,
            (_, false) => 0.5,
            (_, true) => 0.2,
        }
    }
}

/// What a peer tells of a round of cycles.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Cycles {
    pub cycles: u64,
    pub seconds: f64,
    pub cpu_seconds: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// p50 and p99 of its two halves. Not every peer tells them apart.
    pub lock_us: Option<[f64; 2]>,
    pub release_us: Option<[f64; 2]>,
    pub failed: u64,
    pub error: Option<String>,
}

/// What a peer tells of a lock that it had: from when until when it believed in it, zero if it had none.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
pub struct Belief {
    pub acquired_ns: u64,
    pub until_ns: u64,
}

/// What a peer tells of a round of waiting. A turn has the waiter, and when it asked, had the lock
/// and was about to release it.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Contention {
    pub turns: Vec<[u64; 4]>,
    pub cpu_seconds: f64,
    pub failed: u64,
    pub error: Option<String>,
}

/// What a peer tells of many names at once.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Burst {
    /// Until all were held, or had failed; and until all of these were released.
    pub lock_seconds: f64,
    pub release_seconds: f64,
    pub not_held: u64,
    pub not_released: u64,
    pub cpu_seconds: f64,
    pub error: Option<String>,
}

impl Burst {
    pub fn seconds(&self) -> f64 {
        self.lock_seconds + self.release_seconds
    }
}

/// What Quorlock tells of locks that it holds.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Holding {
    /// How many were taken or released, and what that took.
    pub changed: u64,
    pub seconds: f64,
    pub cpu_seconds: f64,
    /// While nothing was asked of it.
    pub rest_cpu_seconds: f64,
    pub heap_bytes: f64,
}
