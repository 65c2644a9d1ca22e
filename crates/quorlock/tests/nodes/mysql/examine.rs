//! What is said of how a server is set up.

use quorlock::admin::examine::Fact;
use quorlock_testkit::{MariaDbServer, test};

use super::{init, on};

#[test]
async fn a_server_is_described_and_a_lock_tried_out_on_it() {
    for (server, is_durable) in [(MariaDbServer::start(), false), (MariaDbServer::durable(), true)]
    {
        init([server.url()]).await;
        let checkup = on([server.url()]).admin().examine(b"tried").await.expect("a checkup");
        let node = &checkup.nodes[0];
        assert!(checkup.usable == 1, "{:?}", node.findings);
        let Some(Fact::Flag(durable)) = node.fact("durable") else { panic!("{node:?}") };
        assert_eq!(*durable, is_durable);
        for check in ["persistence", "connections", "clock"] {
            let found = node.findings.iter().any(|finding| finding.check == check);
            assert!(found, "{check}: {:?}", node.findings);
        }
        assert_eq!(server.sql("SELECT COUNT(*) FROM quorlock_lock"), "0\n", "nothing is left");
    }
}
