//! Servers that are broken or mean harm: what they say is bounded, and does nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use quorlock::admin::examine::Fact;
use quorlock::{Builder, Error, Locker};
use quorlock_testkit::{
    Conversation, DEADLINE, HostileServer, Logs, eventually_async as eventually, test,
};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{patient, trouble};

/// Nothing here ends because some time is over, except where a test sets a shorter limit.
fn endless() -> Builder {
    patient().connect_limit(DEADLINE * 10).node_limit(Duration::from_secs(4)).fences(false)
}

type Treat = Box<dyn Fn(Conversation) + Send + Sync>;

/// Without TLS, and with it.
fn both(treat: impl Fn() -> Treat) -> [HostileServer; 2] {
    [HostileServer::start(treat()), HostileServer::start_with_tls(treat())]
}

/// Replies that no server gives, each as its beginning and what follows upon it for ever.
fn replies_without_end() -> Vec<(&'static [u8], Vec<u8>)> {
    let string = [b"$65536\r\n", &[b'x'; 65_536][..], b"\r\n"].concat();
    vec![
        (b"*4000\r\n", string.clone()),
        (b"%2000\r\n", string),
        (b"|1000000000\r\n", b"*0\r\n".repeat(10_000)),
        (b"", b"|1\r\n+a\r\n+b\r\n".repeat(1_000)),
        (b"$1000000000\r\n", vec![b'x'; 65_536]),
        (b"!1000000000\r\n", vec![b'x'; 65_536]),
        (b"=1000000000\r\n", vec![b'x'; 65_536]),
        (b"+", vec![b'x'; 65_536]),
        (b"(", vec![b'1'; 65_536]),
        (b"*1000000000\r\n", b":1\r\n".repeat(10_000)),
        (b"~9223372036854775807\r\n", b":1\r\n".repeat(10_000)),
        (b"", b"*1\r\n".repeat(10_000)),
    ]
}

#[test]
async fn a_reply_without_end_ends_the_greeting() {
    for (start, rest) in replies_without_end() {
        for server in both(|| {
            let rest = rest.clone();
            Box::new(move |mut client| {
                if client.command().is_some() && client.say(start).is_ok() {
                    client.say_for_ever(&rest);
                }
            })
        }) {
            let connecting = endless().nodes([server.url()]).connect();
            let error = timeout(DEADLINE, connecting).await.expect("not by the time limit");
            let error = error.expect_err("no node").to_string();
            assert!(error.contains("too long"), "{}: {error}", start.escape_ascii());
        }
    }
}

#[test]
async fn a_reply_without_end_ends_the_connection() {
    for (start, rest) in replies_without_end() {
        for server in both(|| {
            let rest = rest.clone();
            Box::new(move |mut client| {
                if client.greet().is_some() && client.say(start).is_ok() {
                    client.say_for_ever(&rest);
                }
            })
        }) {
            let locker = endless().nodes([server.url()]).connect().await.expect("it greets");
            let asked = timeout(DEADLINE, locker.try_lock("x")).await.expect("not by its limit");
            let error = asked.expect_err("no vote").to_string();
            assert!(error.contains("too long"), "{}: {error}", start.escape_ascii());
            assert!(error.contains("the connection broke"), "{}: {error}", start.escape_ascii());
        }
    }
}

/// Messages that are no grant message: too long, or of a kind that nobody expects.
fn strange_pushes() -> Vec<Vec<u8>> {
    let message = |length: usize| {
        let text = vec![b'9'; length];
        let header = format!(">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n${length}\r\n");
        [header.as_bytes(), &text, b"\r\n"].concat()
    };
    vec![
        message(5),
        message(70_000),
        message(5_000_000),
        [&b">100000\r\n"[..], &b"$3\r\nabc\r\n".repeat(100_000)].concat(),
        [&b">1\r\n"[..], &b"*1\r\n".repeat(1_000), b":1\r\n"].concat(),
        [&b">2\r\n+"[..], &[b'x'; 200_000], b"\r\n,1.5\r\n"].concat(),
        b">2\r\n$10\r\ninvalidate\r\n_\r\n".to_vec(),
        b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n".to_vec(),
        b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:2\r\n".to_vec(),
        b">2\r\n+monitor\r\n=15\r\ntxt:Some string\r\n".to_vec(),
        b">4\r\n#t\r\n(1234567890123456789012345678901234567890\r\n!3\r\nERR\r\n,inf\r\n".to_vec(),
        b">1\r\n|1\r\n+ttl\r\n:3600\r\n%1\r\n~1\r\n:1\r\n:2\r\n".to_vec(),
        // A number that is none, and a string that has no format: nobody looks so closely.
        b">2\r\n:x\r\n=1\r\nx\r\n".to_vec(),
        b">0\r\n".to_vec(),
        b">-1\r\n".to_vec(),
    ]
}

/// Answers every request for a lock, with these bytes before each reply.
fn granting(before: impl Fn(usize) -> Vec<u8> + Send + Sync + 'static) -> Treat {
    Box::new(move |mut client| {
        for index in 0.. {
            let Some(command) = client.greet() else { return };
            let reply = match command[0].as_slice() {
                b"SET" => &b"+OK\r\n"[..],
                _ => b":1\r\n",
            };
            if client.say(before(index)).and_then(|()| client.say(reply)).is_err() {
                return;
            }
        }
    })
}

#[test]
async fn strange_messages_are_passed_over() {
    let pushes = strange_pushes();
    let count = pushes.len();
    for server in both(|| {
        let pushes = pushes.clone();
        granting(move |index| pushes[index % pushes.len()].clone())
    }) {
        let locker = endless().nodes([server.url()]).connect().await.expect("it greets");
        for index in 0..count {
            let guard = locker.try_lock(format!("{index}")).await.expect("it grants");
            guard.release().await.expect("it releases");
        }
        assert_eq!(server.connections(), 1);
    }
}

/// What comes in the greeting is passed over as well.
#[test]
async fn strange_messages_in_the_greeting_are_passed_over() {
    for server in both(|| {
        Box::new(|mut client| {
            if client.say(strange_pushes().concat()).is_ok() {
                while client.greet().is_some_and(|_| client.say("+OK\r\n").is_ok()) {}
            }
        })
    }) {
        let locker = endless().nodes([server.url()]).connect().await.expect("it greets");
        let guard = locker.try_lock("x").await.expect("it grants");
        assert_eq!(server.connections(), 1);
        drop(guard);
    }
}

/// Where a message ends cannot be told any more.
#[test]
async fn a_message_that_is_cut_wrong_ends_the_connection() {
    for wrong in
        [&b">1\r\n$3\r\nabcd\r\n"[..], b">1\r\n$-7\r\n", b">1\r\n?\r\n", b">x\r\n", b">\r\n"]
    {
        let server = HostileServer::start(granting(move |_| wrong.to_vec()));
        let locker = endless().nodes([server.url()]).connect().await.expect("it greets");
        let error = locker.try_lock("x").await.expect_err("no vote").to_string();
        assert!(error.contains("no reply"), "{}: {error}", wrong.escape_ascii());
    }
}

/// In a thread of its own: a runtime that never comes to its timers would keep a test from ending.
fn ends(what: impl AsyncFnOnce() + Send + 'static) {
    let (done, is_done) = channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(what());
        let _ = done.send(());
    });
    is_done.recv_timeout(DEADLINE * 3).expect("it ends");
}

/// Messages that take longer to read than to send.
fn flood() -> Vec<u8> {
    [&b">4000\r\n"[..], &b"_\r\n".repeat(4_000)].concat().repeat(100)
}

#[test]
fn a_stream_without_end_stops_no_timer() {
    ends(async || {
        let server = HostileServer::start(|mut client| {
            if client.greet().is_some() {
                client.say_for_ever(flood());
            }
        });
        let builder = endless().node_limit(Duration::from_millis(100));
        let locker = builder.nodes([server.url()]).connect().await.expect("it greets");
        let error = locker.try_lock("x").await.expect_err("it never answers");
        assert!(matches!(error, Error::NoQuorum { .. }), "{error}");
        // It is given up in the end, as one that is silent.
        eventually("it is connected to anew", async || {
            tokio::time::sleep(Duration::from_millis(1)).await;
            server.connections() > 1
        })
        .await;
        locker.shutdown().await;
    });
}

/// Nothing is asked of the server meanwhile, so that it is not given up. However fast the machine is,
/// little is read between two turns of anybody else.
#[test]
fn a_stream_without_end_leaves_room_for_others() {
    const TURNS: usize = 200;
    // Four reads of 64 KiB in each turn, and what lies in the buffers of the sockets.
    const MOST: usize = TURNS * 4 * 64 * 1_024 + (24 << 20);
    ends(async || {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        let server = HostileServer::start(move |mut client| {
            let bytes = flood();
            if client.greet_until(|name| name == b"SUBSCRIBE").is_some() {
                while client.say(&bytes).is_ok() {
                    count.fetch_add(bytes.len(), SeqCst);
                }
            }
        });
        let locker = endless().nodes([server.url()]).connect().await.expect("it greets");
        eventually("it sends", async || sent.load(SeqCst) > 16 << 20).await;
        let before = sent.load(SeqCst);
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
        let read = sent.load(SeqCst) - before;
        assert!(read <= MOST, "{read} bytes in {TURNS} turns");
        drop(locker);
    });
}

#[test]
fn a_greeting_without_end_has_a_time_limit() {
    ends(async || {
        let server = HostileServer::start(|mut client| client.say_for_ever(flood()));
        let builder = endless().connect_limit(Duration::from_millis(300));
        let error = builder.nodes([server.url()]).connect().await.expect_err("no greeting");
        assert!(error.to_string().contains("300ms"), "{error}");
        let builder = endless().connect_limit(Duration::from_millis(300));
        let checkup =
            builder.nodes([server.url()]).admin().examine("x").await.expect("a look at it");
        assert!(!checkup.nodes[0].usable, "{checkup:?}");
        let builder = endless().connect_limit(Duration::from_millis(300));
        let answers = builder.nodes([server.url()]).admin().forget(["x"]).await.expect("an answer");
        assert!(answers.to_string().contains("no answer within"), "{answers}");
    });
}

/// Answers every step of a list so: where to go on, by how many there were before, and names.
fn listing(step: impl Fn(usize) -> (u64, Vec<String>) + Send + Sync + 'static) -> HostileServer {
    HostileServer::start(move |mut client| {
        for index in 0.. {
            if client.greet().is_none() {
                return;
            }
            let (cursor, names) = step(index);
            let mut reply = format!("*{}\r\n", names.len() + 1);
            for part in [cursor.to_string()].iter().chain(&names) {
                reply.push_str(&format!("${}\r\n{part}\r\n", part.len()));
            }
            if client.say(reply).is_err() {
                return;
            }
        }
    })
}

async fn list_error(server: &HostileServer) -> String {
    let locker = endless().nodes([server.url()]).connect().await.expect("it greets");
    let listed = timeout(DEADLINE * 3, locker.list()).await.expect("it ends");
    listed.expect_err("no list").to_string()
}

#[test]
async fn a_list_that_goes_in_circles_ends() {
    for length in [1, 2, 7, 100] {
        let server = listing(move |index| (1 + index as u64 % length, Vec::new()));
        let error = list_error(&server).await;
        assert!(error.contains("does not end"), "{length}: {error}");
    }
}

#[test]
async fn a_list_that_names_ever_more_locks_ends() {
    let server = listing(|index| {
        (1 + index as u64, (0..4_000).map(|name| format!("{index}/{name}")).collect())
    });
    let error = list_error(&server).await;
    assert!(error.contains("does not end"), "{error}");
}

/// One of three that lists without end does no harm.
#[test]
async fn a_list_without_end_on_one_of_three_nodes_is_left_out() {
    let good = quorlock_testkit::servers(2);
    let bad = listing(|_| (7, vec!["made up".to_owned()]));
    let urls = [good[0].url(), bad.url(), good[1].url()];
    let locker = endless().nodes(urls).connect().await.expect("three of three");
    let listed = timeout(DEADLINE, locker.list()).await.expect("it ends");
    assert!(listed.expect("two of three").is_empty());
}

/// What would make a terminal do something, hide text or turn it around, and bytes that are no text.
const EVIL: &[u8] =
    b"\x1b]0;owned\x07\x1b[2J\x08\x7f\xc2\x9b31m\xe2\x80\xae\xe2\x81\xa6\xef\xbb\xbf\xff\xfe";

fn is_harmless(text: &str) {
    let bad = |c: char| c.is_control() || "\u{202e}\u{2066}\u{feff}".contains(c);
    assert!(!text.contains(bad), "{text:?}");
    assert!(text.len() < 10_000, "{} bytes", text.len());
}

#[test]
async fn what_a_server_says_in_an_error_is_escaped_and_cut() {
    let logs = Logs::new();
    let evil = [b"-ERR so ", EVIL, b"\rthere\r\n"].concat();
    let long = [b"-ERR ", &[b'x'; 100_000][..], b"\r\n"].concat();
    for error in [evil, long] {
        for server in both(|| {
            let error = error.clone();
            Box::new(
                move |mut client| {
                    while client.greet().is_some_and(|_| client.say(&error).is_ok()) {}
                },
            )
        }) {
            let locker = endless().nodes([server.url()]).connect().await.expect("it greets");
            let failed = locker.try_lock("x").await.expect_err("no vote");
            assert!(failed.to_string().contains("ERR"), "{failed}");
            is_harmless(&failed.to_string());
            is_harmless(&trouble(&locker, 0).await.expect("no look either"));
        }
        let refusing = error.clone();
        let server = HostileServer::start(move |mut client| {
            if client.command().is_some() {
                let _ = client.say(&refusing);
            }
        });
        let refused = endless().nodes([server.url()]).connect().await.expect_err("no greeting");
        assert!(refused.to_string().contains("ERR"), "{refused}");
        is_harmless(&refused.to_string());
    }
    assert!(!logs.lines().is_empty());
    logs.lines().iter().for_each(|line| is_harmless(line));
}

/// A server that says such things of itself, and has a policy of that kind.
fn boastful() -> HostileServer {
    HostileServer::start(|mut client| {
        let evil = String::from_utf8_lossy(EVIL).into_owned();
        let evil = format!("{evil}{}", "y".repeat(50_000));
        while let Some(command) = client.command() {
            let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
            let reply = match command[0].as_slice() {
                b"HELLO" => "%2\r\n$2\r\nid\r\n:7\r\n$4\r\nrole\r\n$6\r\nmaster\r\n".to_owned(),
                b"INFO" => bulk(&format!(
                    "redis_version:7.4.{evil}\r\nvalkey_version:{evil}\r\nrole:{evil}\r\nrun_id:abc\r\n\
                     maxmemory:1\r\nmaxmemory_policy:{evil}\r\naof_enabled:1\r\n"
                )),
                b"CONFIG" => format!("%1\r\n+x\r\n{}", bulk(&evil)),
                b"TIME" => "*2\r\n$10\r\n1790000000\r\n$1\r\n5\r\n".to_owned(),
                b"SUBSCRIBE" => format!("-ERR {evil}\r\n"),
                _ => "+OK\r\n".to_owned(),
            };
            if client.say(reply).is_err() {
                return;
            }
        }
    })
}

#[test]
async fn what_a_server_says_of_itself_is_escaped_and_cut() {
    let (logs, server) = (Logs::new(), boastful());
    let checkup = endless().nodes([server.url()]).admin().examine("x").await.expect("a look at it");
    let node = &checkup.nodes[0];
    assert!(node.fact("maxmemory_policy").is_some() && node.fact("save").is_some(), "{node:?}");
    for (_, fact) in &node.facts {
        if let Fact::Text(text) = fact {
            is_harmless(text);
        }
    }
    node.findings.iter().for_each(|finding| is_harmless(&finding.text));
    let locker = endless().nodes([server.url()]).connect().await.expect("it greets");
    drop(locker);
    assert!(logs.warns_of("maxmemory-policy") && logs.warns_of("grant messages"));
    logs.lines().iter().for_each(|line| is_harmless(line));
}

fn run_cases<S: Strategy>(cases: u32, strategy: &S, test: impl AsyncFn(S::Value)) {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let tokio = tokio.expect("a runtime");
    let result = TestRunner::new(Config { cases, ..Config::default() }).run(strategy, |value| {
        tokio.block_on(test(value));
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// Messages of any kind before each reply, in any pieces: each reply finds its call.
#[test]
fn replies_between_messages_match_their_calls() {
    let text = prop::collection::vec(any::<u8>(), 0..200).prop_map(|text| {
        let header = format!(">2\r\n$7\r\nmessage\r\n${}\r\n", text.len());
        [header.as_bytes(), &text, b"\r\n"].concat()
    });
    let message = prop_oneof![text, prop::sample::select(strange_pushes())];
    let sent = (prop::collection::vec(message, 1..6), 1..20_000_usize);
    run_cases(48, &sent, async |(messages, piece)| {
        let server = HostileServer::start(move |mut client| {
            for message in messages.iter().cycle() {
                let Some(command) = client.greet() else { return };
                let granted = command.get(1).is_some_and(|name| name.ends_with(b"free"));
                let reply = match command[0].as_slice() {
                    b"SET" if granted => &b"+OK\r\n"[..],
                    b"SET" => b"_\r\n",
                    _ => b":1\r\n",
                };
                let bytes = [message, reply].concat();
                let piece = piece.max(bytes.len() / 200 + 1);
                if bytes.chunks(piece).any(|piece| client.say(piece).is_err()) {
                    return;
                }
            }
        });
        let locker = endless().nodes([server.url()]).connect().await.expect("it greets");
        // All at once, so that their replies lie side by side.
        let mut tries = JoinSet::new();
        for index in 0..6 {
            let locker = locker.clone();
            let name = format!("{index}/{}", if index % 2 == 0 { "free" } else { "taken" });
            tries.spawn(async move { (index, locker.try_lock(name).await) });
        }
        for (index, got) in tries.join_all().await {
            assert_eq!(got.is_ok(), index % 2 == 0, "{index}: {got:?}");
        }
        assert_eq!(server.connections(), 1);
    });
}

/// Any bytes in any pieces, in the greeting or after it: nothing panics, everything ends, and the
/// next connection works.
#[test]
fn whatever_a_server_sends_the_next_connection_works() {
    let part = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..64),
        prop::collection::vec(prop::sample::select(b"+-:$*%>|_#=!~(,0123\r\nab".to_vec()), 0..64),
        prop::sample::select(strange_pushes()),
        prop::sample::select(vec![
            b"+OK\r\n".to_vec(),
            b":1\r\n".to_vec(),
            b"*3\r\n$4\r\nfree\r\n:0\r\n:0\r\n".to_vec(),
            b"-NOSCRIPT no\r\n".to_vec(),
            b"_\r\n".to_vec(),
        ]),
    ];
    let sent = (prop::collection::vec(part, 0..6), any::<bool>(), 1..2_000_usize);
    run_cases(128, &sent, async |(parts, greets, piece)| {
        one_bad_connection(parts.concat(), greets, piece).await;
    });
}

/// The first connection gets these bytes and is closed. Later ones grant.
async fn one_bad_connection(bytes: Vec<u8>, greets: bool, piece: usize) {
    let first = AtomicBool::new(true);
    let grant = granting(|_| Vec::new());
    let server = HostileServer::start(move |mut client| {
        if !first.swap(false, SeqCst) {
            return grant(client);
        }
        if !greets || client.greet().is_some() {
            // So many pieces at the most that a large one does not take for ever.
            for piece in bytes.chunks(piece.max(bytes.len() / 200 + 1)) {
                if client.say(piece).is_err() {
                    return;
                }
            }
        }
    });
    let builder = || {
        Locker::builder()
            .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
            .fences(false)
    };
    let builder = || builder().nodes([server.url()]).ttl(Duration::from_secs(20));
    let connecting = async || loop {
        // A greeting that fails may be the first one.
        if let Ok(locker) = builder().node_limit(Duration::from_secs(2)).connect().await {
            return locker;
        }
    };
    let locker = timeout(DEADLINE * 3, connecting()).await.expect("the second one greets");
    // Bytes may look like a reply, or like none at all.
    let _ = timeout(DEADLINE, locker.try_lock("x")).await.expect("it ends");
    let works = async || locker.try_lock("y").await.is_ok();
    eventually("the next connection grants", works).await;
}
