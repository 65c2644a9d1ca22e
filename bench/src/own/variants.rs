//! The ways to use Quorlock that are measured.

use quorlock::{Builder, Dialect, RedisOptions};

/// One way to use Quorlock.
pub struct Variant {
    /// As the tables have it.
    pub name: &'static str,
    pub home: Home,
    /// What it needs beyond the nodes.
    pub set_up: fn(Builder) -> Builder,
}

/// Where its locks live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// On the servers that all systems share.
    Servers,
    /// In a file, for all processes of the machine.
    File,
    /// In the memory of the process itself, which no other process sees.
    Memory,
}

/// All of them, a line each. The first one is who the others are compared with.
pub const VARIANTS: &[Variant] = &[
    // What other libraries do: the lock alone, without a fence for its holder.
    Variant {
        name: "quorlock-redlock",
        home: Home::Servers,
        set_up: |builder| {
            builder.redis(RedisOptions::default().dialect(Dialect::Redlock)).fences(false)
        },
    },
    Variant {
        name: "quorlock-fenced",
        home: Home::Servers,
        set_up: |builder| builder.redis(RedisOptions::default().dialect(Dialect::Redlock)),
    },
    Variant {
        name: "quorlock-strict",
        home: Home::Servers,
        set_up: |builder| builder.redis(RedisOptions::default().trust_new_nodes(true)),
    },
    Variant { name: "quorlock-sqlite", home: Home::File, set_up: |builder| builder },
    Variant { name: "quorlock-memory", home: Home::Memory, set_up: |builder| builder },
];

/// Those whose nodes agree by themselves: a URL is enough.
pub const ENGINES: &[Variant] = &[
    Variant { name: "quorlock-etcd", home: Home::Servers, set_up: |builder| builder },
    Variant { name: "quorlock-zookeeper", home: Home::Servers, set_up: |builder| builder },
];
