//! Three servers, and clients whose clocks move with theirs.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use quorlock::node::{self, ClientId, Node};
use quorlock::runtime::{BoxFuture, Moment, Runtime, TokioRuntime};
use quorlock::{Builder, Dialect, Error, Guard, Locker, RedisOptions, Settings};
use quorlock_testkit::conformance::Client;
use quorlock_testkit::{
    DEADLINE, Proxy, RedisServer, RedisServerBuilder, Reply, eventually_async as eventually,
};
use tokio::sync::Notify;

use crate::NAME;

/// Of every lock, and the longest that any may have.
pub(crate) const TTL: Duration = Duration::from_secs(20);
/// How far a server's clock may be behind, and ahead. So wide that no machine is too slow for it.
pub(crate) const BEHIND: Duration = Duration::from_secs(2);
pub(crate) const AHEAD: Duration = Duration::from_secs(4);
/// Longer than a server casts no vote that may have forgotten some.
pub(crate) const QUARANTINE: Duration = Duration::from_secs(27);

pub(crate) struct World {
    pub(crate) dialect: Dialect,
    pub(crate) servers: Vec<RedisServer>,
    /// Those that are in no set yet.
    others: Mutex<Vec<RedisServer>>,
    time: Arc<Time>,
}

impl World {
    /// Three servers that have been in use for long.
    pub(crate) async fn new(dialect: Dialect) -> Self {
        Self::with(dialect, |server| server).await
    }

    /// The same with servers that have options.
    pub(crate) async fn with(
        dialect: Dialect,
        options: impl Fn(RedisServerBuilder) -> RedisServerBuilder,
    ) -> Self {
        let world = Self::unused(dialect, options);
        world.mark(world.builder(), world.options()).await;
        world
    }

    /// Lets servers that nobody has used yet be marked by a client like all others.
    pub(crate) async fn mark(&self, builder: Builder, options: RedisOptions) {
        let builder = builder.redis(options.trust_new_nodes(true)).nodes(self.urls());
        let first = builder.connect().await.expect("servers that are up");
        self.all_reached_by(&first).await;
        let guard = first.try_lock("marks").await.expect("free");
        guard.release().await.expect("released");
        first.shutdown().await;
        if self.dialect == Dialect::Strict {
            eventually("all servers are marked", async || {
                self.servers.iter().all(|server| marker(server).is_some())
            })
            .await;
        }
    }

    /// Three servers that nobody has used yet.
    pub(crate) fn unused(
        dialect: Dialect,
        options: impl Fn(RedisServerBuilder) -> RedisServerBuilder,
    ) -> Self {
        let server = || options(RedisServer::builder().own_clock()).start();
        let time = Arc::new(Time {
            real: TokioRuntime::current(),
            stopped: OnceLock::new(),
            passed_ms: AtomicU64::new(0),
            set_ms: AtomicI64::new(0),
            set: Arc::default(),
            hurried: AtomicBool::new(false),
            waiting_for_set: Arc::default(),
        });
        let servers = (0..3).map(|_| server()).collect();
        Self { dialect, servers, others: Mutex::default(), time }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.servers.iter().map(RedisServer::url).collect()
    }

    /// The URL of one more server that nobody has used yet.
    pub(crate) fn another_server(&self) -> String {
        let server = RedisServer::builder().own_clock().start();
        let url = server.url();
        self.others.lock().expect("no panic in between").push(server);
        url
    }

    /// A client to be, with time limits that no machine is too slow for.
    pub(crate) fn builder(&self) -> Builder {
        Locker::builder()
            .redis(self.options())
            .ttl(TTL)
            .max_ttl(TTL)
            .node_limit(Duration::from_secs(2))
            .connect_limit(DEADLINE)
            .runtime(self.time())
    }

    /// What all clients agree on.
    pub(crate) fn options(&self) -> RedisOptions {
        RedisOptions::default().dialect(self.dialect).clock_window(BEHIND, AHEAD)
    }

    /// The time of all clients.
    pub(crate) fn time(&self) -> Arc<dyn Runtime> {
        Arc::clone(&self.time) as Arc<dyn Runtime>
    }

    /// A client of all three servers.
    pub(crate) async fn client(&self) -> Locker {
        self.builder().nodes(self.urls()).connect().await.expect("servers that are up")
    }

    /// A client that holds the lock on the first two servers, and cannot reach the third.
    pub(crate) async fn holder_of_two(&self) -> Holder {
        let away = Proxy::in_front_of(self.servers[2].addr());
        away.refuse(true);
        let urls = [self.servers[0].url(), self.servers[1].url(), away.url()];
        let locker = self.builder().nodes(urls).connect().await.expect("two of three");
        let guard = locker.try_lock(NAME).fixed().await.expect("free");
        Holder { guard, _locker: locker, _away: away }
    }

    /// Stops all clocks at the same moment, to the millisecond. From here on time only passes by hand.
    pub(crate) fn stop_clocks(&self) {
        for server in &self.servers {
            server.clock().rate(0.0);
        }
        let at_us = server_us(&self.servers[0]);
        for server in &self.servers {
            let behind_us = i64::try_from(at_us).expect("a time") - server_us(server).cast_signed();
            server.clock().jump_ms(behind_us / 1_000);
        }
        let wall = SystemTime::UNIX_EPOCH + Duration::from_micros(at_us);
        self.time.stopped.set((self.time.real.now(), wall)).expect("only once");
    }

    /// One server by itself, spoken to by hand.
    pub(crate) async fn node(&self, url: &str) -> Arc<dyn Node> {
        Arc::clone(self.waiting_client(url, |_| {}).await.node())
    }

    /// The same with other settings.
    pub(crate) async fn node_with(
        &self,
        url: &str,
        change: impl FnOnce(&mut RedisOptions),
    ) -> Arc<dyn Node> {
        Arc::clone(self.waiting_client(url, change).await.node())
    }

    /// The same for those that wait in its queues.
    pub(crate) async fn waiting_client(
        &self,
        url: &str,
        change: impl FnOnce(&mut RedisOptions),
    ) -> Client {
        let mut settings = Settings::default();
        (settings.ttl, settings.max_ttl) = (TTL, TTL);
        (settings.node_limit, settings.connect_limit) = (Duration::from_secs(2), DEADLINE);
        let mut options = self.options();
        change(&mut options);
        let options = options.into();
        let runtime = self.time();
        let client = ClientId::random(&*runtime);
        let members = node::members(self.urls(), &settings, &options).expect("good URLs");
        let nodes = node::open_some([url], members, &settings, &options, &runtime, client);
        let node = nodes.expect("a good URL").remove(0);
        node.ready().await.expect("a server that is up");
        Client::with(client, node)
    }

    /// Lets clients do at once what they do every few seconds.
    pub(crate) fn hurry(&self) {
        self.time.hurried.store(true, SeqCst);
    }

    /// Lets time pass for everybody, all at once.
    pub(crate) fn pass(&self, time: Duration) {
        let ms = u64::try_from(time.as_millis()).expect("a short time");
        let others = self.others.lock().expect("no panic in between");
        for server in self.servers.iter().chain(&*others) {
            server.clock().jump_ms(ms.try_into().expect("a short time"));
        }
        self.time.passed_ms.fetch_add(ms, SeqCst);
    }

    /// Somebody sets the time of day for everybody, all at once. The time since the start of the clients'
    /// machine is what it was.
    pub(crate) fn set_time_of_day(&self, by_ms: i64) {
        for server in &self.servers {
            server.clock().jump_ms(by_ms);
        }
        self.time.set_ms.fetch_add(by_ms, SeqCst);
        self.time.set.notify_waiters();
    }

    /// Whether a client waits to be told that the time of day was set.
    pub(crate) fn waits_for_a_step(&self) -> bool {
        self.time.waiting_for_set.load(SeqCst) > 0
    }

    /// Waits until a client that was cut off has found all servers again.
    pub(crate) async fn all_reached_by(&self, locker: &Locker) {
        self.reached_by(locker, |reached| reached.iter().all(|reached| *reached)).await;
    }

    /// Waits until a client knows which servers it can reach.
    pub(crate) async fn reached_by(&self, locker: &Locker, which: impl Fn(&[bool]) -> bool) {
        eventually("the servers answer", async || {
            let status = locker.inspect("looked at").await.expect("a status");
            let reached: Vec<_> = status.nodes.iter().map(|node| node.record.is_ok()).collect();
            which(&reached)
        })
        .await;
    }
}

pub(crate) struct Holder {
    pub(crate) guard: Guard,
    _locker: Locker,
    /// The way to the third server.
    _away: Proxy,
}

/// Two who do not know of each other are in the same place: what the fault does where nothing is done
/// about it.
pub(crate) fn assert_both_hold(first: &Guard, second: Result<Guard, Error>) {
    let second = second.expect("nothing protects the first client");
    assert!(first.is_held() && second.is_held(), "they hold it one after the other");
}

/// The time of the clients: what the machine says, or said when it was stopped, and what was made to
/// pass besides.
#[derive(Debug)]
struct Time {
    real: TokioRuntime,
    stopped: OnceLock<(Moment, SystemTime)>,
    passed_ms: AtomicU64,
    /// What the time of day was set by besides.
    set_ms: AtomicI64,
    set: Arc<Notify>,
    waiting_for_set: Arc<AtomicUsize>,
    hurried: AtomicBool,
}

impl Time {
    fn passed(&self) -> Duration {
        Duration::from_millis(self.passed_ms.load(SeqCst))
    }
}

impl Runtime for Time {
    fn now(&self) -> Moment {
        let now = self.stopped.get().map_or_else(|| self.real.now(), |stopped| stopped.0);
        now.after(self.passed())
    }

    fn wall(&self) -> SystemTime {
        let wall = self.stopped.get().map_or_else(|| self.real.wall(), |stopped| stopped.1);
        let set_ms = self.set_ms.load(SeqCst);
        let by = Duration::from_millis(set_ms.unsigned_abs());
        let wall = wall + self.passed();
        if set_ms < 0 { wall - by } else { wall + by }
    }

    fn wall_set(&self) -> BoxFuture<'static, ()> {
        let (set, waiting) = (Arc::clone(&self.set), Arc::clone(&self.waiting_for_set));
        let mut set = Box::pin(set.notified_owned());
        set.as_mut().enable();
        waiting.fetch_add(1, SeqCst);
        Box::pin(set)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let seldom = duration >= Duration::from_secs(5) && duration < DEADLINE;
        let hurried = seldom && self.hurried.load(SeqCst);
        self.real.sleep(if hurried { Duration::from_millis(50) } else { duration })
    }

    fn spawn(&self, future: BoxFuture<'static, ()>) {
        self.real.spawn(future);
    }

    fn random(&self, bytes: &mut [u8]) {
        self.real.random(bytes);
    }
}

/// What a server's clock shows.
pub(crate) fn server_us(server: &RedisServer) -> u64 {
    let Reply::Array(parts) = server.command(&["TIME"]) else { panic!("no time") };
    let number = |part: &Reply| match part {
        Reply::Bulk(Some(digits)) => {
            String::from_utf8_lossy(digits).parse::<u64>().expect("a number")
        }
        other => panic!("{other:?}"),
    };
    number(&parts[0]) * 1_000_000 + number(&parts[1])
}

/// What is stored under a key, if it is a text.
pub(crate) fn text(server: &RedisServer, key: &str) -> Option<String> {
    match server.command(&["GET", key]) {
        Reply::Bulk(text) => text.map(|text| String::from_utf8(text).expect("a text")),
        other => panic!("{other:?}"),
    }
}

/// What a server has been marked with.
pub(crate) fn marker(server: &RedisServer) -> Option<String> {
    text(server, ":quorlock:set")
}

/// Whether somebody holds the lock there, by what is stored.
pub(crate) fn is_held(server: &RedisServer) -> bool {
    let is_free = |record: &str| {
        record.starts_with("quorlock ") && matches!(record.as_bytes().get(25), Some(b'-' | b'='))
    };
    text(server, NAME).is_some_and(|record| !is_free(&record))
}

/// How many wait for the lock there.
pub(crate) fn waiters(server: &RedisServer) -> i64 {
    match server.command(&["ZCARD", &format!("{NAME}:quorlock:queue")]) {
        Reply::Int(count) => count,
        other => panic!("{other:?}"),
    }
}

/// How many scripts the server has run.
pub(crate) fn scripts_run(server: &RedisServer) -> u64 {
    let Reply::Bulk(Some(info)) = server.command(&["INFO", "commandstats"]) else {
        panic!("no statistics");
    };
    let info = String::from_utf8(info).expect("a text");
    let calls = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    calls.map_or(0, |calls| {
        let digits = calls.split(',').next().expect("a number");
        digits.parse().expect("a number")
    })
}
