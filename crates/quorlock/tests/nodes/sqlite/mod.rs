//! Locks in one SQLite file.

mod boot;
mod busy;
mod connect;
mod earlier_records;
mod identity;
mod place;
mod processes;
mod verbs;
mod wake;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{self, ClientId, Node, NodeOptions};
use quorlock::runtime::{Runtime, TokioRuntime};
use quorlock::{Builder, Locker, Settings};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
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

    /// The file behind the back of the locks. What it has beside it stays there, as it does when
    /// locks let go of it.
    fn sql(&self) -> Connection {
        let sql = Connection::open(&self.file).expect("the file");
        sql.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).expect("a connection");
        sql
    }

    /// Whether this process has the file open.
    fn is_open_here(&self) -> bool {
        let open = std::fs::read_dir("/proc/self/fd").expect("a list");
        let mut open = open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        open.any(|file| file == self.file)
    }

    /// Leaves the file as a restart of the machine does: it is of another boot, and the ends of its
    /// records are on a clock that has begun anew since.
    fn restart(&self) {
        let sql = self.sql();
        sql.execute("UPDATE boot SET id = 'another'", []).expect("a boot");
        sql.execute("UPDATE lock SET expires_ns = expires_ns + 1000000000000000", [])
            .expect("locks");
        let _: i64 =
            sql.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).expect("moved");
    }

    /// Overwrites the first page of a table.
    fn damage(&self, table: &str) {
        let page = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
        let page: u32 = self.sql().query_row(page, [table], |row| row.get(0)).expect("a table");
        let file = std::fs::OpenOptions::new().write(true).open(&self.file).expect("the file");
        let at = u64::from(page - 1) * 1_024;
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xa5; 1_024], at).expect("written");
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
    node::open([url], settings, &NodeOptions::default(), &runtime, ClientId::random(&*runtime))
        .expect("a good URL")
        .remove(0)
}
