//! Messages that somebody else sends: a client that may publish on a server can make no waiter enter, and
//! disturbs no holder.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use quorlock::runtime::{Runtime, TokioRuntime};
use quorlock::{Dialect, Guard, Locker};
use quorlock_testkit::{
    Client, RedisServer, Reply, eventually_async as eventually, patient, patient_options, servers,
    test, urls,
};
use tokio::task::JoinHandle;

const DIALECTS: [Dialect; 2] = [Dialect::Strict, Dialect::Redlock];
/// Longer than any test may take: a client that gets a lock did not wait for a record to end.
const TTL: Duration = Duration::from_secs(600);
const NAME: &str = "forged";

async fn locker(servers: &[RedisServer], dialect: Dialect) -> Locker {
    let options = patient_options().dialect(dialect).trust_new_nodes(true);
    let builder = patient().redis(options).max_ttl(TTL).ttl(TTL);
    let locker = builder.nodes(urls(servers)).connect().await;
    let locker = locker.expect("a locker");
    eventually("all servers are reached", async || {
        let status = locker.inspect("looked").await.expect("a status");
        status.nodes.iter().all(|node| node.record.is_ok())
    })
    .await;
    locker
}

fn queued(server: &RedisServer) -> bool {
    server.command(&["ZCARD", &format!("{NAME}:quorlock:queue")]) == Reply::Int(1)
}

/// The channels on which clients are told, as everybody can ask for them.
fn inboxes(server: &RedisServer) -> Vec<String> {
    match server.command(&["PUBSUB", "CHANNELS", "*quorlock:inbox:*"]) {
        Reply::Array(channels) => channels.into_iter().map(text).collect(),
        other => panic!("{other:?}"),
    }
}

fn text(reply: Reply) -> String {
    match reply {
        Reply::Bulk(Some(text)) => String::from_utf8(text).expect("text"),
        other => panic!("{other:?}"),
    }
}

/// A waiter for the lock, and whether its holder had released it when it entered.
fn wait(locker: &Locker, released: &Arc<AtomicBool>) -> JoinHandle<(Guard, bool)> {
    let (lock, released) = (locker.lock(NAME).into_future(), Arc::clone(released));
    tokio::spawn(async move {
        let guard = lock.await.expect("its turn");
        (guard, released.load(SeqCst))
    })
}

/// A holder, and somebody who waits behind it on every server.
struct Scene {
    servers: Vec<RedisServer>,
    holder: Locker,
    other: Locker,
    guard: Guard,
    waiter: JoinHandle<(Guard, bool)>,
    released: Arc<AtomicBool>,
}

impl Scene {
    async fn new(dialect: Dialect) -> Self {
        let servers = servers(3);
        let (holder, other) = (locker(&servers, dialect).await, locker(&servers, dialect).await);
        let guard = holder.lock(NAME).await.expect("free");
        eventually("held on all servers", async || {
            servers.iter().all(|server| server.command(&["EXISTS", NAME]) == Reply::Int(1))
        })
        .await;
        let released = Arc::new(AtomicBool::new(false));
        let waiter = wait(&other, &released);
        for server in &servers {
            eventually("queued", async || queued(server)).await;
        }
        Self { servers, holder, other, guard, waiter, released }
    }

    /// Sends this to everybody on all servers. It has been taken in when this returns: messages and
    /// answers keep their order.
    async fn publish(&self, message: &[u8]) {
        for server in &self.servers {
            for inbox in inboxes(server) {
                let command: [&[u8]; 3] = [b"PUBLISH", inbox.as_bytes(), message];
                assert!(matches!(server.command(&command), Reply::Int(1..)), "nobody hears it");
            }
        }
        for locker in [&self.other, &self.holder] {
            let status = locker.inspect("looked").await.expect("a status");
            assert!(status.nodes.iter().all(|node| node.record.is_ok()), "{status:?}");
        }
    }

    /// The waiter gets its turn with the release, and not before.
    async fn ends_well(self) {
        assert!(self.guard.is_held());
        let before = self.guard.fence();
        self.released.store(true, SeqCst);
        self.guard.release().await.expect("released");
        let (next, in_turn) = self.waiter.await.expect("no panic");
        assert!(in_turn, "it entered while another held the lock");
        assert!(next.is_held() && next.fence() > before);
        next.release().await.expect("released");
        self.other.shutdown().await;
        self.holder.shutdown().await;
    }
}

fn wall_us() -> u64 {
    let wall = TokioRuntime::current().wall().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(wall.expect("after 1970").as_micros()).expect("before 2555")
}

/// All that can be guessed of a message is in these: the id of a waiter counts up from one, times and
/// fences follow the clock.
#[test]
async fn a_user_that_may_only_publish_makes_nobody_enter() {
    for dialect in DIALECTS {
        let scene = Scene::new(dialect).await;
        for serial in 1..4_u64 {
            let waiter = serial << 32;
            let secrets = ["00".repeat(16), "ff".repeat(16), "0123456789abcdef".repeat(2)];
            let mut tickets = secrets.map(|secret| format!("{waiter:016x}{secret}")).to_vec();
            tickets.extend([waiter.to_string(), format!("{waiter:016x}")]);
            for ticket in tickets {
                for fence in [1, wall_us(), wall_us() + 1_000_000] {
                    let sent = TokioRuntime::current().now().as_nanos();
                    scene.publish(format!("{ticket} {sent} 0 {fence}").as_bytes()).await;
                }
            }
        }
        scene.ends_well().await;
    }
}

#[test]
async fn noise_disturbs_neither_a_waiter_nor_a_holder() {
    for dialect in DIALECTS {
        let scene = Scene::new(dialect).await;
        let connections = |server: &RedisServer| {
            let list = text(server.command(&["CLIENT", "LIST"]));
            let of_lockers = list.lines().filter(|line| line.contains(" name=quorlock "));
            let ids = of_lockers.filter_map(|line| line.split(' ').next().map(str::to_owned));
            ids.collect::<Vec<_>>()
        };
        let before: Vec<_> = scene.servers.iter().map(connections).collect();
        let long = "9".repeat(40_000);
        let named = format!("{:016x}{}", 1_u64 << 32, "0".repeat(32));
        let [late, large, more] = ["18446744073709551615 0 1", "1 0 9007199254740991", "1 0 1 1"]
            .map(|rest| format!("{named} {rest}"));
        let noise: [&[u8]; 16] = [
            b"",
            b" ",
            b"\0",
            b"\r\n+OK\r\n",
            b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$7\r\n1 2 3 4\r\n",
            b"\xff\xfe \xff",
            b"-1 -1 -1 -1",
            b"1 1 1 1",
            b"1 18446744073709551615 0 18446744073709551615",
            b"4294967296 1 0 9007199254740991",
            named.as_bytes(),
            late.as_bytes(),
            large.as_bytes(),
            more.as_bytes(),
            "äöü 1 0 1".as_bytes(),
            long.as_bytes(),
        ];
        for noise in noise {
            scene.publish(noise).await;
        }
        let after: Vec<_> = scene.servers.iter().map(connections).collect();
        assert_eq!(after, before, "a connection was lost over it");
        scene.guard.extend().await.expect("nothing has happened");
        scene.ends_well().await;
    }
}

/// What goes over the inboxes of a server while this listens.
fn eavesdrop(server: &RedisServer) -> Client<UnixStream> {
    let mut ear = server.connect().expect("a connection");
    let reply = ear.command(&["PSUBSCRIBE", "*quorlock:inbox:*"]).expect("a subscription");
    assert!(matches!(reply, Reply::Array(_)), "{reply:?}");
    ear
}

/// A server passes the lock on alone, and what it says is repeated to the waiter in the name of all: of that
/// very server, of the others, and with another fence.
#[test]
async fn a_message_that_was_overheard_counts_for_its_own_server_and_once() {
    for dialect in DIALECTS {
        let scene = Scene::new(dialect).await;
        let mut ear = eavesdrop(&scene.servers[0]);
        // It forgets the holder, and the next client finds the waiter first in line there.
        assert_eq!(scene.servers[0].command(&["DEL", NAME]), Reply::Int(1));
        let third = locker(&scene.servers, dialect).await;
        let next = tokio::spawn(third.lock(NAME).into_future());
        let heard = tokio::task::spawn_blocking(move || ear.receive()).await.expect("no panic");
        next.abort();
        let Reply::Array(parts) = heard.expect("a message") else { panic!("no message") };
        let message = text(parts.into_iter().next_back().expect("its text"));
        let mut fields: Vec<_> = message.split(' ').map(str::to_owned).collect();
        let fence = fields.last_mut().expect("a number");
        *fence = (fence.parse::<u64>().expect("a number") + 1).to_string();
        scene.publish(message.as_bytes()).await;
        scene.publish(fields.join(" ").as_bytes()).await;
        scene.ends_well().await;
        third.shutdown().await;
    }
}
