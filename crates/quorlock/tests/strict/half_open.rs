//! A machine that died without a word: the server still lists its connection, and nobody is at the other end.

use std::future::IntoFuture;
use std::io::{Read, Write};
use std::net::TcpStream;

use quorlock_testkit::{DEADLINE, RedisServer, eventually_async as eventually, test};

use crate::world::{TTL, World, server_us, waiters};
use crate::{BOTH, NAME};

const CHANNEL: &str = "dead";

/// A connection that listens for grant messages, and reads none.
fn listening(server: &RedisServer) -> TcpStream {
    let mut connection = TcpStream::connect(server.addr()).expect("a server that is up");
    write!(connection, "SUBSCRIBE {CHANNEL}\r\n").expect("sent");
    assert!(connection.read(&mut [0; 64]).expect("an answer") > 0);
    connection
}

/// It stands before everybody else, and has not asked for longer than anybody waits without asking again.
#[test]
async fn its_tickets_are_passed_over() {
    for dialect in BOTH {
        let world = World::new(dialect).await;
        let (first, second) = (world.client().await, world.client().await);
        let guard = first.try_lock(NAME).fixed().await.expect("free");
        let waiting = tokio::spawn(second.lock(NAME).into_future());
        eventually("it waits everywhere", async || {
            world.servers.iter().all(|server| waiters(server) == 1)
        })
        .await;
        let token = "ql:00000000000000000000000000000000000000dd";
        let mut connections = Vec::new();
        for server in &world.servers {
            connections.push(listening(server));
            let long_ago = 3 * u64::try_from(TTL.as_micros()).expect("short") + 1_000_000;
            let seen = server_us(server) - long_ago;
            let ticket = format!("{CHANNEL} 1:ab {} 1 0 1 {seen}", TTL.as_millis());
            server.command(&["ZADD", &format!("{NAME}:quorlock:queue"), "1", token]);
            server.command(&["HSET", &format!("{NAME}:quorlock:waiters"), token, &ticket]);
        }
        guard.release().await.expect("released");
        // Otherwise the dead one would have it for a whole TTL.
        assert!(DEADLINE < TTL);
        let next = tokio::time::timeout(DEADLINE, waiting).await.expect("in time");
        next.expect("no panic").expect("its turn").release().await.expect("released");
    }
}
