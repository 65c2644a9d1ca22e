//! Keeping a lock, and learning that it is gone.

use std::future::Future;
use std::io::{Read, Write};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use quorlock::node::memory::MemoryNode;
use quorlock::node::{Call, Capabilities, ClientId, Failure, Inbox, Node, Verb};
use quorlock::runtime::BoxFuture;
use quorlock::{Error, GuardState, Locker, Loss};
use quorlock_testkit::{
    Client, DEADLINE, Proxy, RedisServer, Reply, eventually_async as eventually,
    redlock_locker as locker, servers, test,
};

fn exists(server: &RedisServer, name: &str) -> bool {
    server.command(&["EXISTS", name]) == Reply::Int(1)
}

#[test]
async fn an_extension_makes_guard_and_records_last_longer() {
    let servers = servers(3);
    let locker = locker(servers.iter().map(RedisServer::url)).await;
    let guard = locker.lock("longer").await.expect("free");
    for server in &servers {
        server.command(&["PEXPIRE", "longer", "5000"]);
    }
    let before = guard.remaining();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(guard.remaining() < before);
    let left = guard.remaining();
    guard.extend().await.expect("extended");
    assert_eq!(guard.state(), GuardState::Renewed);
    assert!(guard.remaining() > left);
    for server in &servers {
        eventually("the record lasts longer", async || {
            matches!(server.command(&["PTTL", "longer"]), Reply::Int(left) if left > 5_000)
        })
        .await;
    }
}

#[test]
async fn one_extension_that_fails_takes_nothing_away_and_the_next_one_works() {
    let servers = servers(3);
    let proxies: Vec<_> = servers.iter().map(|s| Proxy::in_front_of(s.addr())).collect();
    let locker = locker(proxies.iter().map(Proxy::url)).await;
    let guard = locker.lock("patience").await.expect("free");
    for server in &servers {
        eventually("all have it", async || exists(server, "patience")).await;
    }
    proxies[0].hang(true);
    proxies[1].hang(true);
    let error = guard.extend().await.expect_err("two of three are silent");
    assert!(matches!(error, Error::NoQuorum { have: 0..=1, need: 2, .. }), "{error}");
    assert_eq!(guard.state(), GuardState::Unknown);
    assert!(guard.is_held() && !guard.remaining().is_zero());
    for server in &servers {
        assert!(exists(server, "patience"), "a failed extension released it");
    }
    proxies[0].hang(false);
    proxies[1].hang(false);
    eventually("the next extension works", async || guard.extend().await.is_ok()).await;
    assert_eq!(guard.state(), GuardState::Renewed);
    guard.release().await.expect("released");
}

#[test]
async fn an_extension_after_somebody_else_held_it_fails_and_brings_nothing_back() {
    let servers = servers(3);
    let urls = || servers.iter().map(RedisServer::url);
    let (locker, other) = (locker(urls()).await, locker(urls()).await);
    let first = locker.lock("in between").await.expect("free");
    for server in &servers {
        // As an expiry would, or an operator.
        eventually("gone", async || server.command(&["DEL", "in between"]) == Reply::Int(1)).await;
    }
    let second = other.try_lock("in between").await.expect("free");
    let error = first.extend().await.expect_err("it is the second one's");
    assert!(matches!(error, Error::Lost { reason: Loss::Gone, .. }), "{error}");
    assert_eq!(first.state(), GuardState::Lost(Loss::Gone));
    assert!(!first.is_held() && first.remaining().is_zero());
    second.extend().await.expect("the holder can");
    second.release().await.expect("released");
    let error = first.extend().await.expect_err("a loss is final");
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    for server in &servers {
        eventually("free everywhere", async || !exists(server, "in between")).await;
    }
}

#[test]
async fn a_guard_knows_by_itself_when_its_time_is_over() {
    let server = RedisServer::start();
    let locker = Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
        .nodes([server.url()])
        .ttl(Duration::from_millis(100));
    let locker = locker.connect().await.expect("a locker");
    let guard = locker.lock("short").await.expect("free");
    server.pause();
    eventually("over", async || !guard.is_held()).await;
    assert_eq!(guard.state(), GuardState::Lost(Loss::Expired));
    let error = guard.extend().await.expect_err("over");
    assert!(matches!(error, Error::Lost { reason: Loss::Expired, .. }), "{error}");
    server.resume();
}

/// Says when it is dropped.
struct Dropped<'a>(&'a AtomicBool);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
async fn work_is_stopped_though_every_node_hangs() {
    let servers = servers(3);
    let builder = Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
        .nodes(servers.iter().map(RedisServer::url));
    let locker = builder.ttl(Duration::from_millis(500)).connect().await.expect("a locker");
    let guard = locker.lock("hung").await.expect("free");
    servers.iter().for_each(RedisServer::pause);
    let stopped = AtomicBool::new(false);
    let work = async {
        let _witness = Dropped(&stopped);
        std::future::pending::<()>().await;
    };
    let error = guard.run(work).await.expect_err("it cannot be finished");
    assert!(matches!(error, Error::Lost { reason: Loss::Expired, .. }), "{error}");
    assert!(stopped.load(Ordering::SeqCst), "the work was dropped");
    assert!(!guard.is_held());
    servers.iter().for_each(RedisServer::resume);
}

#[test]
async fn a_loss_that_an_extension_finds_is_told_at_once() {
    let servers = servers(3);
    let locker = locker(servers.iter().map(RedisServer::url)).await;
    let guard = locker.lock("found out").await.expect("free");
    for server in &servers {
        eventually("gone", async || server.command(&["DEL", "found out"]) == Reply::Int(1)).await;
    }
    assert_eq!(guard.run(async { 7 }).await.expect("finished in time"), 7);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut lost = pin!(guard.lost());
    assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    guard.extend().await.expect_err("nobody has it");
    assert!(woken.0.load(Ordering::SeqCst), "its validity has almost 30 s to go");
    assert_eq!(lost.await, Loss::Gone);
}

/// Remembers being woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The others remember: nobody else gets a majority. The holder's next extensions are confirmed by
/// them as well.
#[test]
async fn a_node_that_comes_back_empty_makes_no_second_majority() {
    let servers = servers(3);
    let urls = || servers.iter().map(RedisServer::url);
    let (holder, other) = (locker(urls()).await, locker(urls()).await);
    let guard = holder.lock("forgotten").await.expect("free");
    for server in &servers {
        eventually("all have it", async || exists(server, "forgotten")).await;
    }
    servers[0].kill();
    servers[0].restart();
    assert!(!exists(&servers[0], "forgotten"));
    eventually("both are connected again", async || {
        let free = |status: quorlock::Status| matches!(status.nodes[0].record, Ok(None));
        let seen = [holder.inspect("forgotten").await, other.inspect("forgotten").await];
        seen.into_iter().all(|status| status.is_ok_and(free))
    })
    .await;
    let error = other.try_lock("forgotten").await.expect_err("two of three have it");
    assert!(matches!(error, Error::Taken { .. }), "{error}");
    guard.extend().await.expect("two of three");
    guard.release().await.expect("two of three");
    other.try_lock("forgotten").await.expect("free").release().await.expect("released");
}

#[test]
async fn two_tasks_of_one_runtime_exclude_each_other() {
    let server = RedisServer::start();
    let locker = locker([server.url()]).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let locker = locker.clone();
        tasks.spawn(async move {
            let guard = locker.lock("one at a time").await.expect("in the end");
            // A read, a pause, a write: any two at once would show.
            let server = locker.inspect("one at a time").await.expect("a status");
            assert!(server.holder().is_some());
            tokio::task::yield_now().await;
            assert!(matches!(
                locker.try_lock("one at a time").await,
                Err(Error::Taken { holder: Some(_), remaining: Some(_), .. })
            ));
            guard.release().await.expect("nobody else released it");
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no task saw another one inside");
    }
}

/// Short enough to be extended within a test, and long enough for a machine that stands still for
/// some seconds.
const SHORT_TTL: Duration = Duration::from_secs(6);

/// Ends when the watchdog has made the record last longer.
async fn extended(server: &RedisServer, name: &str) {
    let mut before = i64::MAX;
    eventually("it is extended", async || {
        let Reply::Int(left) = server.command(&["PTTL", name]) else { panic!("no PTTL") };
        assert!(left > 0, "it is gone");
        let more = left > before;
        before = left;
        more
    })
    .await;
}

#[test]
async fn a_held_lock_is_extended_without_being_asked_for() {
    let servers = servers(3);
    let builder = Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
        .nodes(servers.iter().map(RedisServer::url))
        .ttl(SHORT_TTL);
    let locker = builder.connect().await.expect("a locker");
    let guard = locker.lock("kept").await.expect("free");
    for server in &servers {
        eventually("all have it", async || exists(server, "kept")).await;
    }
    let [a, b, c] = [0, 1, 2].map(|index| extended(&servers[index], "kept"));
    tokio::join!(a, b, c);
    eventually("it knows", async || guard.state() == GuardState::Renewed).await;
    guard.release().await.expect("released");
    for server in &servers {
        eventually("free everywhere", async || !exists(server, "kept")).await;
    }
}

#[test]
async fn the_watchdog_survives_reconnections_and_servers_that_forget_their_scripts() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(server.addr());
    let builder = Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
        .nodes([proxy.url()])
        .ttl(SHORT_TTL);
    let locker = builder.connect().await.expect("a locker");
    let guard = locker.lock("survives").await.expect("free");
    server.command(&["SCRIPT", "FLUSH"]);
    extended(&server, "survives").await;
    let connections = proxy.connections();
    proxy.cut();
    eventually("connected again", async || proxy.connections() > connections).await;
    server.command(&["SCRIPT", "FLUSH"]);
    extended(&server, "survives").await;
    assert!(guard.is_held());
    guard.release().await.expect("released");
}

#[test]
async fn two_of_three_that_hang_while_it_is_renewed_are_told_of_before_any_record_ends() {
    let servers = servers(3);
    let builder = Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
        .nodes(servers.iter().map(RedisServer::url));
    let builder = builder.ttl(SHORT_TTL).loss_lead(SHORT_TTL / 3);
    let locker = builder.connect().await.expect("a locker");
    let guard = locker.lock("hung").await.expect("free");
    for server in &servers {
        eventually("all have it", async || exists(server, "hung")).await;
    }
    extended(&servers[0], "hung").await;
    servers[..2].iter().for_each(RedisServer::pause);
    assert_eq!(guard.lost().await, Loss::Expired);
    assert!(!guard.grace().is_zero(), "told too late");
    servers[..2].iter().for_each(RedisServer::resume);
    for server in &servers {
        assert!(exists(server, "hung"), "told too late");
    }
    assert!(!guard.is_held(), "it stays lost");
}

/// What a server was told to do, in its order.
struct Monitor<S: Read + Write>(Client<S>);

impl<S: Read + Write> Monitor<S> {
    fn new(mut client: Client<S>) -> Self {
        assert_eq!(client.command(&["MONITOR"]).expect("a reply"), Reply::Simple("OK".to_owned()));
        Self(client)
    }

    /// The commands with `name` in them up to the one that says `end`, split at spaces.
    fn until(&mut self, name: &str, end: &str) -> Vec<Vec<String>> {
        let mut seen = Vec::new();
        loop {
            let Reply::Simple(line) = self.0.receive().expect("a line") else { continue };
            if line.contains(end) {
                return seen;
            }
            if line.contains(name) && !line.contains(" lua] ") {
                seen.push(line.split(' ').skip(3).map(str::to_owned).collect());
            }
        }
    }
}

/// Locks are released at about the time at which they are extended, by another thread than the one
/// that extends them. Whichever comes first, no extension may follow a release.
#[test(flavor = "multi_thread", worker_threads = 2)]
async fn no_extension_follows_a_release() {
    const TTL: Duration = Duration::from_millis(300);
    let server = RedisServer::start();
    let locker = Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
        .nodes([server.url()])
        .ttl(TTL);
    let locker = locker.connect().await.expect("a locker");
    let mut monitor = Monitor::new(server.connect().expect("a connection"));
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..200_u32 {
        let locker = locker.clone();
        tasks.spawn(async move {
            let guard = locker.lock(format!("race/{index}")).await.expect("free");
            let around = TTL / 3 + Duration::from_micros(20) * index;
            tokio::time::sleep(around - Duration::from_millis(2)).await;
            drop(guard);
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    // Whatever the others would still send, they would send before this one is extended.
    let marker = locker.lock("race/marker").ttl(SHORT_TTL).await.expect("free");
    extended(&server, "race/marker").await;
    marker.release().await.expect("released");
    server.command(&["ECHO", "that is all"]);
    let seen = monitor.until("race/", "that is all");
    let mut released = std::collections::HashSet::new();
    let mut extensions = 0;
    for command in &seen {
        // EVALSHA hash 1 name token next, or EVALSHA hash 1 name token ttl restore last maker: an
        // acquisition ends with how many fences it wants. One node has no fence to confirm. A slow machine may need several attempts, each with a token of its own.
        match &command[..] {
            [_, _, _, _, token, _] => {
                released.insert(token);
            }
            [eval, _, _, name, token, _, _, _, last]
                if eval.eq_ignore_ascii_case("\"evalsha\"") && last == "\"maker\"" =>
            {
                extensions += 1;
                assert!(!released.contains(token), "{name} was extended after its release");
            }
            _ => {}
        }
    }
    assert!(released.len() > 200, "{}", released.len());
    assert!(extensions > 0, "they were not recognized");
}

/// A node that makes its commands on a thread of its own: it asks for what an extension says at the moment at which
/// the note of the same lock is put before it.
#[derive(Debug, Default)]
struct ReadsLate {
    node: Arc<MemoryNode>,
    kept: Mutex<Option<Call>>,
}

impl Node for ReadsLate {
    fn label(&self) -> &'static str {
        "reads-late:"
    }

    fn capabilities(&self) -> Capabilities {
        self.node.capabilities()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), Failure>> {
        self.node.ready()
    }

    fn submit(&self, call: Call) {
        if matches!(call.request().verb, Verb::Extend { .. }) {
            *self.kept.lock().expect("no panic") = Some(call);
            return;
        }
        if let Some(extension) = self.kept.lock().expect("no panic").take() {
            let (node, (done, is_done)) = (Arc::clone(&self.node), mpsc::channel());
            thread::spawn(move || {
                let _ = extension.request();
                done.send(()).expect("waited for");
                node.submit(extension);
            });
            is_done
                .recv_timeout(DEADLINE)
                .expect("a thread that puts calls before nodes holds no mutex");
        }
        self.node.submit(call);
    }

    fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        self.node.listen(client, node, inbox);
    }
}

#[test]
async fn a_node_may_read_an_extension_while_the_note_behind_it_is_submitted() {
    let node = Arc::new(ReadsLate::default()) as Arc<dyn Node>;
    let locker = Locker::builder().with_nodes([node]).connect().await.expect("connected");
    let guard = locker.lock("noted").note("a note").await.expect("free");
    guard.extend().await.expect("extended");
}
