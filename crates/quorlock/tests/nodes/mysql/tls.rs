//! What `ssl-mode` asks for is kept, or refused.

use std::path::Path;

use quorlock::admin::examine::Fact;
use quorlock_testkit::{MariaDbServer, test};

use super::{init, on};

/// Whether one can connect like that, and over TLS.
async fn try_with(host: &str, port: u16, parameters: &str) -> Result<bool, String> {
    let url = format!("mysql://admin@{host}:{port}/locks?name=lock-a{parameters}");
    let checkup = on([&url]).admin().examine(b"tried").await.expect("a checkup");
    let node = &checkup.nodes[0];
    match node.fact("tls") {
        Some(Fact::Flag(tls)) => Ok(*tls),
        _ => Err(format!("{:?}", node.findings)),
    }
}

#[test]
async fn a_server_is_trusted_as_far_as_ssl_mode_says() {
    let (server, ca) = MariaDbServer::with_tls();
    let port = server.addr().port();
    init([format!("{}?name=lock-a", server.url())]).await;
    let (_stranger, strange) = MariaDbServer::with_tls();
    let by = |mode: &str, ca: &Path| format!("&ssl-mode={mode}&ssl-ca={}", ca.display());
    assert_eq!(try_with("127.0.0.1", port, "").await, Ok(true), "it is preferred");
    assert_eq!(try_with("127.0.0.1", port, "&ssl-mode=disabled").await, Ok(false));
    assert_eq!(try_with("127.0.0.1", port, "&ssl-mode=required").await, Ok(true));
    assert_eq!(try_with("localhost", port, &by("verify-identity", &ca)).await, Ok(true));
    assert_eq!(try_with("127.0.0.2", port, "&ssl-mode=required").await, Ok(true), "any name");
    try_with("127.0.0.2", port, &by("verify-identity", &ca)).await.expect_err("another name");
    // An authority that does not vouch for it.
    let refused = try_with("127.0.0.1", port, &by("verify-identity", &strange)).await;
    refused.expect_err("another authority");
}
