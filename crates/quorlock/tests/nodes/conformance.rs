//! Every kind of node does the same: the conformance suite on each of them.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::memory::MemoryNode;
use quorlock::node::{self, ClientId, Node, NodeOptions};
use quorlock::runtime::{Runtime, TokioRuntime};
use quorlock::{Dialect, Locker, MysqlOptions, PostgresOptions, RedisOptions, Settings};
use quorlock_testkit::conformance::{Backend, CASES};
use quorlock_testkit::{
    EtcdCluster, MariaDbServer, PostgresServer, RedisServer, RedisServerBuilder, Reply,
    conformance, eventually_async as eventually, fresh_prefix, skipping, test,
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

fn etcd() -> Etcd {
    Etcd {
        cluster: EtcdCluster::shared(3),
        prefix: fresh_prefix().trim_start_matches('/').to_owned(),
    }
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
        by_url_with(&url, client, &options.into(), &settings).await
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
conformance!(memory, super::memory());
conformance!(mysql, super::mysql());
conformance!(postgres, super::postgres());
conformance!(redis, super::redis(Dialect::Strict));
conformance!(redis_redlock, super::redis(Dialect::Redlock));
conformance!(sqlite, super::sqlite());
conformance!(valkey, super::valkey(Dialect::Strict));
conformance!(valkey_redlock, super::valkey(Dialect::Redlock));

/// Reads the kinds of nodes from the folders that hold them, and the tests from this very program:
/// neither a new kind nor a new case can be forgotten.
#[test]
fn no_pair_of_node_and_case_is_missing() {
    let program = std::env::current_exe().expect("this program");
    let list = Command::new(program).arg("--list").output().expect("the list of tests").stdout;
    let list = String::from_utf8(list).expect("names of tests");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/node");
    let kinds = std::fs::read_dir(folder).expect("the kinds of nodes").filter_map(|entry| {
        let entry = entry.expect("an entry");
        // What several kinds share is none.
        let is_kind = entry.path().is_dir() && entry.file_name() != "cas";
        is_kind.then(|| entry.file_name().into_string().expect("a plain name"))
    });
    let kinds: Vec<String> = kinds.collect();
    assert!(kinds.iter().any(|kind| kind == "redis"), "{kinds:?}");
    for kind in &kinds {
        for case in CASES {
            assert!(
                list.contains(&format!("conformance::{kind}::{case}: test")),
                "{kind} lacks {case}"
            );
        }
    }
}
