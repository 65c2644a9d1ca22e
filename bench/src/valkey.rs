//! A server with commands that the Redis of most distributions does not have.

use std::ffi::OsString;

use anyhow::{Context, Result};
use quorlock_testkit::RedisServer;

/// The program, as `cargo xtask bench` gives it, if there is one for this machine.
pub fn program() -> Option<OsString> {
    std::env::var_os("QUORLOCK_TEST_VALKEY")
}

/// What a server calls itself, with its version.
pub fn version(server: &RedisServer) -> Result<String> {
    let version = |field| server.info("server", field);
    let valkey = version("valkey_version").map(|version| format!("Valkey {version}"));
    let redis = || version("redis_version").map(|version| format!("Redis {version}"));
    valkey.or_else(redis).context("every server has a version")
}
