//! The ways to use Quorlock that are measured.

use quorlock::Builder;

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
    Variant { name: "quorlock-redlock", home: Home::Servers, set_up: |builder| builder },
    Variant { name: "quorlock-sqlite", home: Home::File, set_up: |builder| builder },
    Variant { name: "quorlock-memory", home: Home::Memory, set_up: |builder| builder },
];
