//! Queues on real servers: grant messages over the connection of the commands, and what is left behind.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use quorlock::node::TicketNumber::{Agreed, New};
use quorlock::node::{self, Answer, ClientId, FailureKind, Secret};
use quorlock::runtime::{Moment, Runtime, TokioRuntime};
use quorlock::{Dialect, Locker, RedisOptions, Settings};
use quorlock_testkit::conformance::{Client, GrantMessage, Waiter, owner};
use quorlock_testkit::{
    DEADLINE, Logs, Proxy, RedisServer, Reply, eventually_async as eventually, test,
};

use super::{DIALECTS, calls, connections, exists};

/// Longer than any test takes.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A client with a connection of its own.
pub(crate) async fn client(url: &str, dialect: Dialect) -> Client {
    mark(url, dialect, "").await;
    let (id, client) = unconnected(url, dialect, "");
    client.node().ready().await.unwrap_or_else(|why| panic!("{id}: {why}"));
    client
}

fn options(dialect: Dialect, prefix: &str) -> RedisOptions {
    let mut options = RedisOptions::default().dialect(dialect).prefix(prefix);
    options.clock_ahead = AHEAD;
    options
}

/// Every server is new, and is said to be, by a user who may do so.
async fn mark(url: &str, dialect: Dialect, prefix: &str) {
    let url = match url.rsplit_once('@') {
        Some((_, at)) => format!("redis://{at}"),
        None => url.to_owned(),
    };
    let builder = Locker::builder().nodes([url]).redis(options(dialect, prefix));
    let builder = builder.connect_limit(DEADLINE).node_limit(Duration::from_secs(2));
    builder.admin().init(true).await.expect("good settings");
}

/// However slow the machine is.
const AHEAD: Duration = Duration::from_secs(5);

fn unconnected(url: &str, dialect: Dialect, prefix: &str) -> (ClientId, Client) {
    let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime::current());
    let id = ClientId::random(&*runtime);
    let mut settings = Settings::default();
    settings.connect_limit = DEADLINE;
    settings.node_limit = Duration::from_secs(2);
    let options = options(dialect, prefix).into();
    let node = node::open([url], &settings, &options, &runtime, id).expect("a good URL").remove(0);
    (id, Client::with(id, node))
}

/// Lets one client wait for what another holds, and sees the lock passed on.
pub(crate) async fn is_passed_on(from: &Client, to: &Client, name: &str) {
    let (first, second) = (from.waiter(name, 1), to.waiter(name, 2));
    assert!(first.wait(New(1), LONG).is_done().await);
    let asked = second.wait(New(1), LONG);
    assert!(asked.queued().await.will_notify);
    assert!(first.release().await);
    assert_eq!(to.grant_messages().await, [second.message_for(&asked)]);
    assert!(second.release().await);
}

/// Why a ticket is not given.
pub(crate) async fn failure(waiter: &Waiter<'_>) -> (FailureKind, String) {
    match waiter.wait(New(1), LONG).answer().await {
        Answer::Failed(why) => (why.kind(), why.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
async fn grant_messages_come_over_the_connection_of_the_commands() {
    let valkey = std::env::var_os("QUORLOCK_TEST_VALKEY");
    let builders = [
        Some(RedisServer::builder()),
        Some(RedisServer::builder().tls()),
        Some(RedisServer::builder().unix_socket()),
        valkey.map(|program| RedisServer::builder().program(program)),
    ];
    for (builder, dialect) in
        builders.into_iter().flatten().flat_map(|one| DIALECTS.map(|each| (one.clone(), each)))
    {
        let server = builder.start();
        let (holder, waiter) =
            (client(&server.url(), dialect).await, client(&server.url(), dialect).await);
        for _ in 0..3 {
            is_passed_on(&holder, &waiter, "one connection").await;
            is_passed_on(&waiter, &holder, "one connection").await;
            is_passed_on(&waiter, &waiter, "to oneself").await;
        }
        assert_eq!(connections(&server).len(), 2);
        // A client that waited already would have had to ask when they were connected.
        assert_eq!((holder.interruptions(), waiter.interruptions()), (1, 1));
    }
}

/// After a hundred days, nanoseconds have more digits than a number in Lua.
#[test]
async fn a_grant_message_repeats_the_time_of_sending_to_its_last_digit() {
    for dialect in DIALECTS {
        let server = RedisServer::start();
        let client = client(&server.url(), dialect).await;
        let (first, second) = (client.waiter("digits", 1), client.waiter("digits", u64::MAX));
        assert!(first.wait(New(1), LONG).is_done().await);
        let sent = Moment::from_nanos((1 << 53) + 1);
        let asked = second.owner().wait_sent_at(sent, client.node(), LONG, second.ticket(New(1)));
        asked.queued().await;
        assert!(first.release().await);
        assert_eq!(client.grant_messages().await, [second.message_for(&asked)]);
        assert_eq!(asked.sent(), sent);
    }
}

#[test]
async fn a_client_that_is_connected_again_is_told_so_and_hears_again() {
    for dialect in DIALECTS {
        let server = RedisServer::start();
        let proxy = Proxy::in_front_of(server.addr());
        let (holder, waiter) =
            (client(&server.url(), dialect).await, client(&proxy.url(), dialect).await);
        for times in 1..=3 {
            proxy.cut();
            eventually("told", async || waiter.interruptions() == 1 + times).await;
            is_passed_on(&holder, &waiter, "again").await;
        }
        assert_eq!(waiter.interruptions(), 4);
        assert_eq!(holder.interruptions(), 1);
    }
}

/// Its ticket is still there, and so is its old connection, as far as the server knows.
#[test]
async fn a_grant_message_that_got_lost_with_a_connection_is_found_by_asking_again() {
    for dialect in DIALECTS {
        let server = RedisServer::start();
        let proxy = Proxy::in_front_of(server.addr());
        let (holder, client) =
            (client(&server.url(), dialect).await, client(&proxy.url(), dialect).await);
        let (first, second) = (holder.waiter("lost", 1), client.waiter("lost", 1));
        assert!(first.wait(New(1), LONG).is_done().await);
        let ticket_no = second.wait(New(1), LONG).queued().await.ticket_no;
        proxy.lose_replies(true);
        assert!(first.release().await);
        eventually("the message is lost", async || proxy.lost() > 0).await;
        proxy.lose_replies(false);
        proxy.cut();
        eventually("told", async || client.interruptions() == 2).await;
        assert!(second.wait(Agreed(ticket_no), LONG).is_done().await);
        assert_eq!(client.grant_messages().await, []);
        assert!(second.release().await);
        assert_eq!(server.kept(), 0);
    }
}

/// The greeting and what follows are read together, and the message is cut in two.
#[test]
async fn a_grant_message_that_comes_right_behind_the_greeting_is_heard() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("an address");
    thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        answer_and_tell(&mut client);
    });
    let (_, client) = unconnected(&format!("redis://{addr}"), Dialect::Redlock, "");
    client.node().ready().await.expect("it greets");
    let secret = Secret::parse(SECRET.as_bytes()).expect("a secret");
    let message = |waiter, sent| GrantMessage { waiter, sent: Moment::from_nanos(sent), secret };
    // Nothing more is said until the client asks for something.
    eventually("heard", async || client.heard() == [message(7, 8)]).await;
    assert_eq!(client.grant_messages().await, [message(9, 1_011)]);
    assert_eq!(client.fences(), [5, 6]);
}

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn answer_and_tell(client: &mut TcpStream) {
    let mut said = Vec::new();
    let mut until = |client: &mut TcpStream, what: &[u8]| {
        while !said.windows(what.len()).any(|window| window == what) {
            let mut buffer = [0; 4_096];
            let length = client.read(&mut buffer).expect("more of it");
            said.extend_from_slice(&buffer[..length]);
        }
        said.clear();
    };
    let message =
        |text: &str| format!(">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n${}\r\n{text}\r\n", text.len());
    let whole = message(&format!("{:016x}{SECRET} 8 0 5", 7));
    let halves = message(&format!("{:016x}{SECRET} 1011 1 6", 9));
    let (first, second) = halves.split_at(halves.len() - 4);
    until(client, b":quorlock:inbox:");
    let greeting = "%2\r\n$2\r\nid\r\n:7\r\n$4\r\nrole\r\n$6\r\nmaster\r\n+OK\r\n\
                    $11\r\nrun_id:fake\r\n+\r\n+\r\n+\r\n+\r\n+\r\n+\r\n:1\r\n";
    let subscribed = ">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";
    let all = format!("{greeting}{subscribed}{whole}{first}");
    client.write_all(all.as_bytes()).expect("a listener");
    until(client, b"EVALSHA");
    client
        .write_all(format!("{second}*3\r\n$4\r\nfree\r\n:0\r\n:0\r\n").as_bytes())
        .expect("a listener");
    until(client, b"that never comes");
}

#[test]
async fn messages_that_make_no_sense_are_ignored_and_not_shown() {
    for dialect in DIALECTS {
        let logs = Logs::new();
        let server = RedisServer::start();
        let (holder, (id, waiter)) =
            (client(&server.url(), dialect).await, unconnected(&server.url(), dialect, ""));
        waiter.node().ready().await.expect("up");
        let first = holder.waiter("noise", 1);
        assert!(first.wait(New(1), LONG).is_done().await);
        let token = String::from_utf8(first.owner().token().text().to_vec()).expect("text");
        for message in ["", "1 2 0", "x y 0 4", "1 2 3 4", &token, &format!("1 {token} 0 4")] {
            let heard = server.command(&["PUBLISH", &format!(":quorlock:inbox:{id}"), message]);
            assert_eq!(heard, Reply::Int(1));
        }
        assert_eq!(waiter.grant_messages().await, []);
        assert!(first.release().await);
        is_passed_on(&holder, &waiter, "noise").await;
        let lines = logs.lines();
        assert_eq!(lines.iter().filter(|line| line.contains("makes no sense")).count(), 6);
        assert!(lines.iter().all(|line| !line.contains(&token)), "{lines:?}");
    }
}

/// Neither does anything about a queue: not the messages, not the tickets, not the scripts.
#[test]
async fn nothing_that_is_said_about_a_queue_shows_a_token() {
    for dialect in DIALECTS {
        let logs = Logs::new();
        let server = RedisServer::start();
        let (holder, waiter) =
            (client(&server.url(), dialect).await, client(&server.url(), dialect).await);
        let (first, second) = (holder.waiter("shown", 1), waiter.waiter("shown", 1));
        assert!(first.wait(New(1), LONG).is_done().await);
        let probe = second.wait(New(1), LONG);
        let queued = probe.queued().await;
        let tokens = [first.owner().token().text(), second.owner().token().text()];
        let mut said = logs.lines();
        said.push(format!("{queued:?} {probe:?} {first:?} {:?}", waiter.node()));
        let secret = probe.ticket().expect("a ticket").secret.text();
        for said in said {
            for secret in [&tokens[0][..], &tokens[1][..], &secret[..]] {
                let secret = String::from_utf8_lossy(secret);
                assert!(!said.contains(&*secret), "{said}");
            }
        }
    }
}

#[test]
async fn a_holder_by_other_hands_has_no_token_that_could_be_read() {
    let server = RedisServer::start();
    let client = client(&server.url(), Dialect::Redlock).await;
    server.command(&["SET", "theirs", "0123456789abcdef", "NX", "PX", "20000"]);
    let waiter = client.waiter("theirs", 1);
    let record = waiter.wait(New(1), LONG).queued().await.record.expect("a holder");
    assert_eq!(record.token, None);
    assert!(record.remaining.is_some_and(|left| left > Duration::from_secs(5)), "{record:?}");
    server.command(&["PERSIST", "theirs"]);
    let record = waiter.wait(New(1), LONG).queued().await.record.expect("a holder");
    assert_eq!(record.remaining, None, "for ever");
    server.command(&["DEL", "theirs"]);
    assert!(waiter.wait(New(1), LONG).is_done().await);
}

#[test]
async fn a_key_that_is_no_lock_has_no_queue() {
    for dialect in DIALECTS {
        let server = RedisServer::start();
        let client = client(&server.url(), dialect).await;
        server.command(&["LPUSH", "list", "x"]);
        server.command(&["SET", "long", &"x".repeat(5_000)]);
        for (name, says) in [("list", "not a lock"), ("long", "5000 bytes")] {
            let (kind, why) = failure(&client.waiter(name, 1)).await;
            assert_eq!(kind, FailureKind::WrongType, "{why}");
            assert!(why.contains(says) && !why.contains("xxx"), "{why}");
        }
        assert_eq!(server.kept(), 2);
    }
}

#[test]
async fn a_queue_that_everybody_has_left_silently_goes_by_itself() {
    for dialect in DIALECTS {
        let server = RedisServer::start();
        let client = client(&server.url(), dialect).await;
        let holder = client.waiter("left", 1);
        assert!(holder.wait(New(1), LONG).is_done().await);
        let ends = |within: [u64; 2]| {
            for key in ["left:quorlock:queue", "left:quorlock:waiters"] {
                let Reply::Int(left) = server.command(&["PTTL", key]) else { panic!("no number") };
                let left = u64::try_from(left).expect("an end");
                assert!(left > within[0] && left <= within[1], "{key}: {left} ms, not {within:?}");
            }
        };
        client.waiter("left", 2).wait(New(1), Duration::from_millis(10)).queued().await;
        ends([1_000, 3_000]);
        let waiter = client.waiter("left", 3);
        waiter.wait(New(1), LONG).queued().await;
        ends([60_000, 90_000]);
        // Somebody with a shorter lease does not end it for the others.
        client.waiter("left", 4).wait(New(1), Duration::from_millis(10)).queued().await;
        ends([60_000, 90_000]);
    }
}

#[test]
async fn a_prefix_stands_before_the_keys_of_a_queue() {
    for dialect in DIALECTS {
        let server = RedisServer::start();
        mark(&server.url(), dialect, "locks:").await;
        let (_, client) = unconnected(&server.url(), dialect, "locks:");
        client.node().ready().await.expect("up");
        assert!(client.waiter("mine", 1).wait(New(1), LONG).is_done().await);
        client.waiter("mine", 2).wait(New(1), LONG).queued().await;
        let beside = match dialect {
            Dialect::Redlock => "locks:mine:quorlock:fence",
            _ => "locks::quorlock:set",
        };
        let queue = ["locks:mine:quorlock:queue", "locks:mine:quorlock:waiters"];
        for key in ["locks:mine", queue[0], queue[1], beside] {
            assert!(exists(&server, key), "{key}");
        }
        assert_eq!(server.kept(), 3);
        let swept = i64::from(exists(&server, "locks::quorlock:sweep"));
        assert_eq!(server.command(&["DBSIZE"]), Reply::Int(4 + swept));
    }
}

#[test]
async fn a_script_for_waiting_that_was_forgotten_is_sent_again() {
    for dialect in DIALECTS {
        let server = RedisServer::start();
        let (holder, waiter) =
            (client(&server.url(), dialect).await, client(&server.url(), dialect).await);
        server.command(&["SCRIPT", "FLUSH"]);
        is_passed_on(&holder, &waiter, "forgotten").await;
        assert_eq!(server.kept(), 0);
    }
}

/// The release finds its script, the request before it does not: sent again, it would come after the
/// release, and nobody would ever take it back.
#[test]
async fn a_wait_that_was_taken_back_is_not_sent_again_behind_its_release() {
    for dialect in DIALECTS {
        let server = RedisServer::start();
        let (client, other) =
            (client(&server.url(), dialect).await, client(&server.url(), dialect).await);
        server.command(&["SCRIPT", "FLUSH"]);
        assert!(!owner("known again").release(other.node()).is_done().await);
        let waiter = client.waiter("taken back", 1);
        let waited = waiter.wait(New(1), LONG);
        let released = waiter.owner().release(client.node());
        assert!(!released.is_done().await);
        assert!(
            matches!(waited.answer().await, Answer::Failed(why) if why.kind() == FailureKind::Rejected)
        );
        assert_eq!(server.kept(), 0);
    }
}

/// A release of another lock by the same token takes nothing of this one back.
#[test]
async fn a_request_is_sent_again_beside_the_release_of_another_name() {
    for dialect in DIALECTS {
        let server = RedisServer::start();
        let client = client(&server.url(), dialect).await;
        let one = owner("one");
        server.command(&["SCRIPT", "FLUSH"]);
        let taken = one.acquire(client.node(), LONG);
        let released = one.also_of("other").release(client.node());
        assert!(matches!(taken.answer().await, Answer::Granted { .. }), "{dialect:?}");
        assert!(!released.is_done().await);
    }
}

/// What a release with nobody waiting costs, in commands.
#[test]
async fn a_release_knows_by_the_record_that_nobody_waits() {
    for (dialect, record) in [(Dialect::Redlock, [0, 1, 0]), (Dialect::Strict, [1, 0, 0])] {
        let server = RedisServer::start();
        let client = client(&server.url(), dialect).await;
        let plain = owner("plain");
        assert!(plain.acquire(client.node(), LONG).is_done().await);
        server.command(&["CONFIG", "RESETSTAT"]);
        assert!(plain.release(client.node()).is_done().await);
        assert!(!plain.release(client.node()).is_done().await);
        let counts = |commands: &[&str]| -> Vec<u64> {
            commands.iter().map(|command| calls(&server, command)).collect()
        };
        assert_eq!(counts(&["setrange", "del", "zcard"]), record, "{dialect:?}");
        // The one that is refused looks at the record twice.
        assert_eq!(counts(&["get", "set", "zrem", "time"]), [3, 0, 1, 0], "{dialect:?}");
        assert_eq!(counts(&["zpopmin", "hget", "hdel", "publish"]), [0; 4], "{dialect:?}");
    }
}
