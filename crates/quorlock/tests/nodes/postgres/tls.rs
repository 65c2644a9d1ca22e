//! What `sslmode` asks for is kept, or refused.

use std::path::Path;

use quorlock_testkit::{PostgresServer, test};

use super::{init, on};

/// Whether one can connect like that, and over TLS.
async fn try_with(host: &str, port: u16, parameters: &str) -> Result<bool, String> {
    let url = format!("postgres://postgres@{host}:{port}/postgres?name=lock-a{parameters}");
    let checkup = on([&url]).admin().examine(b"tried").await.expect("a checkup");
    let node = &checkup.nodes[0];
    match node.fact("tls") {
        Some(quorlock::admin::examine::Fact::Flag(tls)) => Ok(*tls),
        _ => Err(format!("{:?}", node.findings)),
    }
}

#[test]
async fn a_server_is_trusted_as_far_as_sslmode_says() {
    let server = PostgresServer::start_with(&["listen_addresses=127.0.0.1,127.0.0.2"]);
    server.put_before_hba("host all all 127.0.0.2/32 trust");
    init([format!("{}?name=lock-a", server.url())]).await;
    let port = server.addr().port();
    let refused = try_with("127.0.0.1", port, "&sslmode=require").await.expect_err("no TLS yet");
    assert!(refused.contains("TLS"), "{refused}");
    assert_eq!(try_with("127.0.0.1", port, "&sslmode=prefer").await, Ok(false));

    let ca = server.use_tls();
    let stranger = PostgresServer::start();
    let strange = stranger.use_tls();
    let by = |mode: &str, ca: &Path| format!("&sslmode={mode}&sslrootcert={}", ca.display());
    assert_eq!(try_with("127.0.0.1", port, "").await, Ok(true), "it is preferred");
    assert_eq!(try_with("127.0.0.1", port, "&sslmode=disable").await, Ok(false));
    assert_eq!(try_with("127.0.0.1", port, "&sslmode=require").await, Ok(true));
    assert_eq!(try_with("localhost", port, &by("verify-full", &ca)).await, Ok(true));
    assert_eq!(try_with("127.0.0.2", port, &by("verify-ca", &ca)).await, Ok(true), "by any name");
    try_with("127.0.0.2", port, &by("verify-full", &ca)).await.expect_err("another name");
    // An authority that does not vouch for it.
    for mode in ["require", "verify-ca", "verify-full"] {
        try_with("127.0.0.1", port, &by(mode, &strange)).await.expect_err(mode);
    }
}
