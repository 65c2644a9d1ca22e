//! Messages of any size on the channel of a client, from anybody who may publish.

use quorlock_testkit::{RedisServer, Reply, eventually_async as eventually, test};

use super::{DIALECTS, connections, options, patient};

/// The channels that somebody listens to.
fn channels(server: &RedisServer) -> Vec<String> {
    let Reply::Array(channels) = server.command(&["PUBSUB", "CHANNELS", "*"]) else {
        panic!("no channels")
    };
    let text = |reply| match reply {
        Reply::Bulk(Some(text)) => String::from_utf8(text).expect("text"),
        other => panic!("{other:?}"),
    };
    channels.into_iter().map(text).collect()
}

/// A client that may publish sends a holder a message of that many bytes; its connection stays.
async fn a_holder_stays_connected(server: &RedisServer, url: &str, bytes: usize) {
    for dialect in DIALECTS {
        let builder = patient().redis(options().dialect(dialect).trust_new_nodes(true));
        let locker = builder.nodes([url]).connect().await.expect("a locker");
        let guard = locker.try_lock(format!("held/{dialect:?}")).await.expect("free");
        let before = connections(server);
        let channel = channels(server).remove(0);
        let message = "1 ".repeat(bytes / 2);
        for _ in 0..3 {
            assert_eq!(server.command(&["PUBLISH", &channel, &message]), Reply::Int(1));
            guard.extend().await.expect("it is still connected");
        }
        guard.release().await.expect("it is still connected");
        assert_eq!(connections(server), before, "{bytes} bytes");
        drop(locker);
        eventually("it has gone", async || channels(server).is_empty()).await;
    }
}

#[test]
async fn messages_of_any_size_leave_a_holder_connected() {
    let server = RedisServer::start();
    for bytes in [1_000, 70_000, 1_500_000, 8_000_000] {
        a_holder_stays_connected(&server, &server.url(), bytes).await;
    }
}

#[test]
async fn messages_of_any_size_leave_a_holder_connected_with_tls() {
    let server = RedisServer::builder().tls().start();
    for bytes in [70_000, 8_000_000] {
        a_holder_stays_connected(&server, &server.url(), bytes).await;
    }
}
