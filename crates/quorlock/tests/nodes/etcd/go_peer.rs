//! A service that locks with etcd's own Go library.

use std::process::Command;
use std::time::Duration;

use quorlock_testkit::EtcdCluster;
use quorlock_testkit::skipping::lacks;

use crate::peer::Peer;

/// Its session outlives it by so much, in seconds.
const SESSION: u64 = 2;

/// Starts one. Without the program, the test is skipped.
pub(super) fn start(cluster: &EtcdCluster) -> Peer {
    start_on(&cluster.endpoints())
}

/// The same on some members.
pub(super) fn start_on(endpoints: &[String]) -> Peer {
    let program = std::env::var_os("QUORLOCK_TEST_GO_MUTEX").unwrap_or_else(|| {
        let text = "QUORLOCK_TEST_GO_MUTEX names no program that locks with etcd's Go library: `cargo xtask test` \
                    builds one";
        lacks("go-mutex", text)
    });
    Peer::start(Command::new(program).args([endpoints.join(","), SESSION.to_string()]))
}

/// How long its session outlives it.
pub(super) fn session() -> Duration {
    Duration::from_secs(SESSION)
}
