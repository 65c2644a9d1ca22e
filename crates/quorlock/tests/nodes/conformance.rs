//! Every kind of node does the same: the conformance suite on each of them.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Weak};
use std::time::Duration;

use quorlock::node::memory::MemoryNode;
use quorlock::node::{self, Call, Capabilities, ClientId, Failure, Inbox, Node, NodeOptions};
use quorlock::runtime::{BoxFuture, Runtime, TokioRuntime};
use quorlock::{Dialect, Locker, MysqlOptions, PostgresOptions, RedisOptions, Settings};
use quorlock_testkit::conformance::{Backend, CASES};
use quorlock_testkit::{
    EtcdCluster, MariaDbServer, PostgresServer, RedisServer, RedisServerBuilder, Reply,
    ZooKeeperClient, ZooKeeperEnsemble, conformance, eventually_async as eventually, fresh_prefix,
    skipping, test,
};

struct Memory(Arc<MemoryNode>);

impl Backend for Memory {
    async fn open(&self, _client: ClientId) -> Arc<dyn Node> {
        Arc::clone(&self.0) as Arc<dyn Node>
    }

    /// A listener that is not there any more is seen to be gone.
    async fn gone(&self, _client: ClientId) {}

    fn kept(&self) -> usize {
        self.0.len()
    }
}

fn memory() -> Memory {
    Memory(Arc::new(MemoryNode::new()))
}

async fn by_url(url: &str, client: ClientId, options: &NodeOptions) -> Arc<dyn Node> {
    by_url_with(url, client, options, &Settings::default()).await
}

async fn by_url_with(
    url: &str,
    client: ClientId,
    options: &NodeOptions,
    settings: &Settings,
) -> Arc<dyn Node> {
    let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime::current());
    let nodes = node::open([url], settings, options, &runtime, client);
    let node = nodes.expect("a good URL").remove(0);
    node.ready().await.expect("a node that is up");
    node
}

/// A server that speaks as Redis does.
struct Server {
    server: RedisServer,
    dialect: Dialect,
}

impl Backend for Server {
    async fn open(&self, client: ClientId) -> Arc<dyn Node> {
        let mut options = RedisOptions::default().dialect(self.dialect);
        // However slow the machine is.
        options.clock_ahead = Duration::from_secs(5);
        if self.dialect == Dialect::Strict {
            let builder = Locker::builder().nodes([self.server.url()]).redis(options.clone());
            builder.admin().init(true).await.expect("a server that is up");
        }
        by_url(&self.server.url(), client, &options.into()).await
    }

    async fn gone(&self, client: ClientId) {
        let channel = format!(":quorlock:inbox:{client}");
        eventually("nobody listens", async || {
            let listeners = self.server.command(&["PUBSUB", "NUMSUB", &channel]);
            listeners == Reply::Array(vec![Reply::bulk(channel.as_bytes()), Reply::Int(0)])
        })
        .await;
    }

    fn kept(&self) -> usize {
        usize::try_from(self.server.kept()).expect("a count")
    }
}

impl Server {
    fn start(server: RedisServerBuilder, dialect: Dialect) -> Self {
        Self { server: server.start(), dialect }
    }
}

fn redis(dialect: Dialect) -> Server {
    Server::start(RedisServer::builder(), dialect)
}

fn valkey(dialect: Dialect) -> Server {
    Server::start(RedisServer::builder().program(skipping::valkey()), dialect)
}

/// A cluster, behind a prefix of its own.
struct Etcd {
    cluster: &'static EtcdCluster,
    prefix: String,
}

impl Etcd {
    /// All keys and values, one in a line.
    fn dump(&self) -> String {
        let endpoints = format!("--endpoints={}", self.cluster.endpoints().join(","));
        let prefix = format!("{}/", self.prefix);
        let mut etcdctl = Command::new(skipping::program("etcdctl"));
        let output = etcdctl.args([&*endpoints, "get", "--prefix", &prefix]).output();
        String::from_utf8(output.expect("etcdctl").stdout).expect("text")
    }
}

impl Backend for Etcd {
    async fn open(&self, client: ClientId) -> Arc<dyn Node> {
        let url = format!("{}/{}", self.cluster.url(), self.prefix);
        let mut settings = Settings::default();
        // However slow the machine is.
        settings.node_limit = Duration::from_secs(30);
        by_url_with(&url, client, &NodeOptions::default(), &settings).await
    }

    async fn gone(&self, client: ClientId) {
        let key = format!("{}/client/{client}", self.prefix);
        eventually("nobody listens", async || !self.dump().contains(&key)).await;
    }

    fn kept(&self) -> usize {
        let hold = format!("{}/hold/", self.prefix);
        let is_kept = |line: &&str| {
            line.starts_with("ticket ") || line.starts_with("note ") || line.starts_with(&hold)
        };
        self.dump().lines().filter(is_kept).count()
    }
}

/// A cluster with locks as Go's clients know them, behind a prefix of its own.
struct EtcdMutex(Etcd);

impl EtcdMutex {
    fn values(&self) -> String {
        self.0.dump()
    }
}

impl Backend for EtcdMutex {
    async fn open(&self, client: ClientId) -> Arc<dyn Node> {
        let url = format!("{}/{}", self.0.cluster.mutex_url(), self.0.prefix);
        let mut settings = Settings::default();
        // However slow the machine is.
        settings.node_limit = Duration::from_secs(30);
        by_url_with(&url, client, &NodeOptions::default(), &settings).await
    }

    async fn gone(&self, client: ClientId) {
        let waits = format!("waited {client}");
        eventually("it waits for nothing", async || !self.values().contains(&waits)).await;
    }

    fn kept(&self) -> usize {
        let is_kept = |line: &&str| line.starts_with(&self.0.prefix) || line.starts_with("note ");
        self.values().lines().filter(is_kept).count()
    }
}

fn etcd_mutex() -> EtcdMutex {
    EtcdMutex(etcd())
}

fn etcd() -> Etcd {
    Etcd {
        cluster: EtcdCluster::shared(3),
        prefix: fresh_prefix().trim_start_matches('/').to_owned(),
    }
}

/// An ensemble, below a node of its own.
struct ZooKeeper {
    ensemble: &'static ZooKeeperEnsemble,
    chroot: String,
}

impl ZooKeeper {
    fn client(&self) -> ZooKeeperClient {
        let mut client =
            ZooKeeperClient::connect(&self.ensemble.endpoints()[0]).expect("a member that is up");
        client.sync();
        client
    }
}

impl Backend for ZooKeeper {
    async fn open(&self, client: ClientId) -> Arc<dyn Node> {
        let url = format!("{}{}", self.ensemble.url(), self.chroot);
        let mut settings = Settings::default();
        // However slow the machine is.
        settings.node_limit = Duration::from_secs(30);
        by_url_with(&url, client, &NodeOptions::default(), &settings).await
    }

    async fn gone(&self, client: ClientId) {
        let alive = format!("{}/clients/{client}/alive", self.chroot);
        eventually("nobody listens", async || !self.client().exists(&alive)).await;
    }

    fn kept(&self) -> usize {
        let (mut client, locks) = (self.client(), format!("{}/locks", self.chroot));
        let mut kept = 0;
        for bucket in client.children(&locks) {
            let bucket = format!("{locks}/{bucket}");
            for lock in client.children(&bucket) {
                let data = client.data(&format!("{bucket}/{lock}")).unwrap_or_default();
                let data = String::from_utf8(data).expect("text");
                let is_kept = |line: &&str| {
                    ["ticket ", "note ", "hold "].iter().any(|what| line.starts_with(what))
                };
                kept += data.lines().filter(is_kept).count();
            }
        }
        kept
    }
}

fn zookeeper() -> ZooKeeper {
    ZooKeeper { ensemble: ZooKeeperEnsemble::shared(3), chroot: fresh_prefix() }
}

/// A database of its own, on a server that others use as well.
struct Mysql {
    server: &'static MariaDbServer,
    database: String,
}

impl Backend for Mysql {
    async fn open(&self, client: ClientId) -> Arc<dyn Node> {
        let url = self.server.url_of("admin", &self.database);
        let mut options = MysqlOptions::default();
        let mut settings = Settings::default();
        // However slow the machine is.
        options.clock_ahead = Duration::from_secs(5);
        settings.node_limit = Duration::from_secs(5);
        let builder = Locker::builder().nodes([url.as_str()]).mysql(options.clone());
        builder.admin().init(true).await.expect("a server that is up");
        let node = by_url_with(&url, client, &options.into(), &settings).await;
        let (server, database) = (self.server, self.database.clone());
        Arc::new(Settled { node, server, database }) as Arc<dyn Node>
    }

    async fn gone(&self, client: ClientId) {
        let client = u64::from_str_radix(&client.to_string(), 16).expect("digits");
        let ask = format!(
            "USE {}; SELECT IS_USED_LOCK(CONCAT('quorlock:', {client}, ':', LEFT(SHA1(DATABASE()), 16)))",
            self.database
        );
        eventually("nobody listens", async || self.server.sql(&ask) == "NULL\n").await;
    }

    fn kept(&self) -> usize {
        let Self { server, database } = self;
        let count = format!(
            "USE {database};
             SELECT (SELECT COUNT(*) FROM quorlock_lock WHERE token <> '' OR note IS NOT NULL)
                + (SELECT COUNT(*) FROM quorlock_ticket) + (SELECT COUNT(*) FROM quorlock_participant)"
        );
        server.sql(&count).trim().parse().expect("a count")
    }
}

/// A node whose grant messages come over another connection than its answers. The suite looks at a lock of this name
/// to be sure that all messages have come: here that takes until the server has none left.
#[derive(Debug)]
struct Settled {
    node: Arc<dyn Node>,
    server: &'static MariaDbServer,
    database: String,
}

impl Settled {
    const LOOKED_AT: &[u8] = b"looked at";
}

impl Node for Settled {
    fn label(&self) -> &str {
        self.node.label()
    }

    fn capabilities(&self) -> Capabilities {
        self.node.capabilities()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), Failure>> {
        self.node.ready()
    }

    fn submit(&self, call: Call) {
        if call.request().name.as_bytes() != Self::LOOKED_AT {
            return self.node.submit(call);
        }
        let (node, server) = (Arc::clone(&self.node), self.server);
        // A message is deleted once it has been passed on. Those of clients that are gone stay for a while.
        let count = format!(
            "USE {}; SELECT COUNT(*) FROM quorlock_message WHERE IS_USED_LOCK(CONCAT('quorlock:', client, ':', \
             LEFT(SHA1(DATABASE()), 16))) IS NOT NULL",
            self.database
        );
        tokio::task::spawn_blocking(move || {
            let is_empty = || server.sql(&count) == "0\n";
            quorlock_testkit::eventually("all messages have come", is_empty);
            node.submit(call);
        });
    }

    fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        self.node.listen(client, node, inbox);
    }
}

fn mysql() -> Mysql {
    let server = MariaDbServer::shared();
    Mysql { server, database: server.fresh_database() }
}

/// A schema of its own, in a database that others use as well.
struct Postgres {
    server: &'static PostgresServer,
    schema: String,
}

impl Backend for Postgres {
    async fn open(&self, client: ClientId) -> Arc<dyn Node> {
        let url = format!("{}?schema={}", self.server.url(), self.schema);
        let mut options = PostgresOptions::default();
        let mut settings = Settings::default();
        // However slow the machine is.
        options.clock_ahead = Duration::from_secs(5);
        settings.node_limit = Duration::from_secs(5);
        let builder = Locker::builder().nodes([url.as_str()]).postgres(options.clone());
        builder.admin().init(true).await.expect("a server that is up");
        by_url_with(&url, client, &options.into(), &settings).await
    }

    async fn gone(&self, client: ClientId) {
        let client = i64::from_str_radix(&client.to_string()[1..], 16).expect("digits");
        // Of its lock, the lower half is enough to tell it from others.
        let ask = format!(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid::bigint = (({client}::bigint # \
             '{}'::regnamespace::oid::bigint) & 4294967295)",
            self.schema
        );
        eventually("nobody listens", async || self.server.sql(&ask, &[]) == "0\n").await;
    }

    fn kept(&self) -> usize {
        let Self { server, schema } = self;
        let count = format!(
            "SELECT (SELECT count(*) FROM {schema}.lock WHERE token <> '' OR note IS NOT NULL)
                + (SELECT count(*) FROM {schema}.ticket) + (SELECT count(*) FROM {schema}.participant)"
        );
        server.sql(&count, &[]).trim().parse().expect("a count")
    }
}

fn postgres() -> Postgres {
    let schema = fresh_prefix().trim_start_matches('/').replace('-', "_");
    Postgres { server: PostgresServer::shared(), schema }
}

/// An ensemble with locks as Curator knows them, below a node of its own.
struct ZooKeeperCurator(ZooKeeper);

impl ZooKeeperCurator {
    /// All data below a path, and the names of entries, one in a line.
    fn dump(client: &mut ZooKeeperClient, path: &str, lines: &mut Vec<String>) {
        for child in client.children(path) {
            let path = format!("{path}/{child}");
            if child.contains("-lock-") {
                lines.push(format!("entry {path}"));
                let data = client.data(&path).unwrap_or_default();
                lines.extend(String::from_utf8_lossy(&data).lines().map(str::to_owned));
            }
            Self::dump(client, &path, lines);
        }
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        Self::dump(&mut self.0.client(), &self.0.chroot, &mut lines);
        lines
    }
}

impl Backend for ZooKeeperCurator {
    async fn open(&self, client: ClientId) -> Arc<dyn Node> {
        let url = format!("{}{}", self.0.ensemble.curator_url(), self.0.chroot);
        let mut settings = Settings::default();
        // However slow the machine is.
        settings.node_limit = Duration::from_secs(30);
        by_url_with(&url, client, &NodeOptions::default(), &settings).await
    }

    async fn gone(&self, client: ClientId) {
        let waits = format!("waited {client}");
        eventually("it waits for nothing", async || !self.lines().contains(&waits)).await;
    }

    fn kept(&self) -> usize {
        let is_kept = |line: &&String| line.starts_with("entry ") || line.starts_with("note ");
        self.lines().iter().filter(is_kept).count()
    }
}

fn zookeeper_curator() -> ZooKeeperCurator {
    ZooKeeperCurator(zookeeper())
}

struct File(tempfile::TempDir);

impl File {
    fn path(&self) -> PathBuf {
        self.0.path().join("locks.db")
    }
}

impl Backend for File {
    async fn open(&self, client: ClientId) -> Arc<dyn Node> {
        let url = format!("sqlite:{}", self.path().display());
        by_url(&url, client, &NodeOptions::default()).await
    }

    async fn gone(&self, client: ClientId) {
        let socket = self.0.path().join("locks.db-wake").join(client.to_string());
        let caller = UnixDatagram::unbound().expect("a socket");
        eventually("nobody listens", async || caller.connect(&socket).is_err()).await;
    }

    fn kept(&self) -> usize {
        let file = rusqlite::Connection::open(self.path()).expect("the file");
        let count = |table| {
            let count = format!("SELECT count(*) FROM {table}");
            file.query_row(&count, [], |row| row.get::<_, u32>(0)).map(|count| count as usize)
        };
        let count_of = |table| count(table).expect("a number");
        // There is no table of notes before the first note.
        count_of("lock WHERE token != x''") + count_of("ticket") + count("note").unwrap_or(0)
    }
}

fn sqlite() -> File {
    File(tempfile::tempdir().expect("a directory"))
}

conformance!(etcd, super::etcd());
conformance!(etcd_mutex, super::etcd_mutex());
conformance!(memory, super::memory());
conformance!(mysql, super::mysql());
conformance!(postgres, super::postgres());
conformance!(redis, super::redis(Dialect::Strict));
conformance!(redis_redlock, super::redis(Dialect::Redlock));
conformance!(sqlite, super::sqlite());
conformance!(valkey, super::valkey(Dialect::Strict));
conformance!(valkey_redlock, super::valkey(Dialect::Redlock));
conformance!(zookeeper, super::zookeeper());
conformance!(zookeeper_curator, super::zookeeper_curator());

/// Reads the kinds of nodes from the folders that hold them, and the tests from this very program:
/// neither a new kind nor a new case can be forgotten.
#[test]
fn no_pair_of_node_and_case_is_missing() {
    let program = std::env::current_exe().expect("this program");
    let list = Command::new(program).arg("--list").output().expect("the list of tests").stdout;
    let list = String::from_utf8(list).expect("names of tests");
    let mut kinds = Vec::new();
    kinds_in(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/node")), "", &mut kinds);
    for kind in ["memory", "redis", "etcd", "etcd_mutex", "zookeeper_curator"] {
        assert!(kinds.iter().any(|found| found == kind), "{kinds:?}");
    }
    for kind in &kinds {
        for case in CASES {
            assert!(
                list.contains(&format!("conformance::{kind}::{case}: test")),
                "{kind} lacks {case}"
            );
        }
    }
}

/// A folder is a kind of node if its module says so. Those inside of it are other kinds with the same engine.
fn kinds_in(folder: &Path, before: &str, kinds: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("the kinds of nodes") {
        let entry = entry.expect("an entry");
        let Ok(module) = std::fs::read_to_string(entry.path().join("mod.rs")) else { continue };
        let kind = format!("{before}{}", entry.file_name().to_str().expect("a plain name"));
        kinds_in(&entry.path(), &format!("{kind}_"), kinds);
        if module.contains("KIND: Kind = ") || kind == "memory" {
            kinds.push(kind);
        }
    }
}
