//! Locks in one SQLite file.

#![cfg(feature = "sqlite")]

mod busy;
mod files;
mod locks;
mod processes;
mod waiting;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{self, ClientId, Node};
use quorlock::runtime::{Runtime, TokioRuntime};
use quorlock::{Builder, Locker, Settings};
use rusqlite::Connection;
use tempfile::TempDir;

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(30);

/// A directory of its own for each test, which goes away with it, and a file in it that is not
/// there yet.
struct Place {
    directory: TempDir,
    file: PathBuf,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("locks.db");
        Self { directory, file }
    }

    fn url(&self) -> String {
        url(&self.file)
    }

    /// A locker of its own, as another process would have.
    async fn locker(&self) -> Locker {
        patient(&self.file).connect().await.expect("a locker")
    }

    async fn node(&self, settings: &Settings) -> Arc<dyn Node> {
        let node = open(&self.url(), settings);
        node.ready().await.expect("a file that keeps locks");
        node
    }

    /// The file behind the back of the locks.
    fn sql(&self) -> Connection {
        Connection::open(&self.file).expect("the file")
    }
}

fn url(file: &Path) -> String {
    format!("sqlite:{}", file.display())
}

/// Time limits that no machine is too slow for.
fn patient(file: &Path) -> Builder {
    Locker::builder().nodes([url(file)]).ttl(LONG).node_limit(LONG / 5).connect_limit(LONG)
}

fn open(url: &str, settings: &Settings) -> Arc<dyn Node> {
    let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime::current());
    node::open([url], settings, &runtime, ClientId::random(&*runtime))
        .expect("a good URL")
        .remove(0)
}
