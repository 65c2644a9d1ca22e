//! Every kind of node does the same: the conformance suite on each of them.

use std::process::Command;
use std::sync::Arc;

use quorlock::node::memory::MemoryNode;
use quorlock::node::{self, ClientId, Node};
use quorlock::runtime::{Runtime, TokioRuntime};
use quorlock::{Settings, node::Failure};
use quorlock_testkit::conformance::{Backend, CASES};
use quorlock_testkit::{RedisServer, conformance};

struct Memory(Arc<MemoryNode>);

impl Backend for Memory {
    fn open(&self) -> Arc<dyn Node> {
        Arc::clone(&self.0) as Arc<dyn Node>
    }
}

async fn memory() -> Option<Memory> {
    Some(Memory(Arc::new(MemoryNode::new())))
}

/// Anything that is reached by a URL. Handles are opened and waited for beforehand, since a case
/// asks for them without waiting.
struct ByUrl<K> {
    nodes: std::sync::Mutex<Vec<Arc<dyn Node>>>,
    /// What has to live as long as the nodes.
    _keep: K,
}

impl<K> Backend for ByUrl<K> {
    fn open(&self) -> Arc<dyn Node> {
        self.nodes.lock().expect("no test has failed here").pop().expect("two handles a case")
    }
}

async fn by_url<K>(url: String, keep: K) -> Option<ByUrl<K>> {
    let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime::current());
    let mut nodes = Vec::new();
    for _ in 0..2 {
        let node = node::open([&url], &Settings::default(), &runtime, ClientId::random(&*runtime))
            .expect("a good URL")
            .remove(0);
        let ready: Result<(), Failure> = node.ready().await;
        ready.expect("a node that is up");
        nodes.push(node);
    }
    Some(ByUrl { nodes: std::sync::Mutex::new(nodes), _keep: keep })
}

async fn redis() -> Option<ByUrl<RedisServer>> {
    let server = RedisServer::start();
    by_url(server.url(), server).await
}

/// A Valkey server has commands of its own for some verbs. `cargo xtask test` names one.
async fn valkey() -> Option<ByUrl<RedisServer>> {
    let program = std::env::var_os("QUORLOCK_TEST_VALKEY")?;
    let server = RedisServer::builder().program(program).start();
    by_url(server.url(), server).await
}

async fn sqlite() -> Option<ByUrl<tempfile::TempDir>> {
    let directory = tempfile::tempdir().expect("a directory");
    by_url(format!("sqlite:{}/locks.db", directory.path().display()), directory).await
}

conformance!(memory, super::memory().await);
conformance!(redis, super::redis().await);
conformance!(sqlite, super::sqlite().await);
conformance!(valkey, super::valkey().await);

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
        let is_kind = entry.path().is_dir();
        is_kind.then(|| entry.file_name().into_string().expect("a plain name"))
    });
    let kinds: Vec<String> = kinds.collect();
    assert!(kinds.iter().any(|kind| kind == "redis"), "{kinds:?}");
    for kind in &kinds {
        for case in CASES {
            assert!(list.contains(&format!("{kind}::{case}: test")), "{kind} lacks {case}");
        }
    }
}
