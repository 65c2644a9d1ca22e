//! A pooler that gives each transaction another connection is refused; one that leaves a client its own is not noticed.

use std::fs;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use quorlock_testkit::{PostgresServer, eventually, eventually_async, skipping, test};

use super::{NAME, init, on};

/// PgBouncer before a server.
struct Pooler {
    child: Child,
    dir: tempfile::TempDir,
}

impl Pooler {
    fn before(server: &PostgresServer, mode: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(dir.path(), everybody).expect("a directory");
        let config = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr =\nunix_socket_dir = {}\n\
             auth_type = any\npool_mode = {mode}\nlogfile = {}\n",
            server.addr().port(),
            dir.path().display(),
            dir.path().join("log").display(),
        )
        .replace("* = ", "postgres = user=postgres ");
        let file = dir.path().join("pgbouncer.ini");
        fs::write(&file, config).expect("a file");
        let child = Command::new("setpriv")
            .args([
                "--pdeathsig",
                "KILL",
                "--reuid",
                "postgres",
                "--regid",
                "postgres",
                "--clear-groups",
            ])
            .arg(skipping::program("pgbouncer"))
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("setpriv is part of every Debian");
        let pooler = Self { child, dir };
        let socket = pooler.dir.path().join(".s.PGSQL.6432");
        eventually("it listens", || UnixStream::connect(&socket).is_ok());
        pooler
    }

    fn url(&self) -> String {
        let dir = self.dir.path().display();
        format!("postgres://postgres@/postgres?host={dir}&port=6432&name=lock-a")
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
async fn a_pooler_of_transactions_is_refused_with_the_remedy() {
    let _ = skipping::program("pgbouncer");
    let server = PostgresServer::start();
    init([format!("{}?name=lock-a", server.url())]).await;
    let pooler = Pooler::before(&server, "transaction");
    // Its first connection may be new to the server. It is found when another one is given out.
    let first = on([pooler.url()]).connect().await;
    let second = on([pooler.url()]).connect().await;
    let mut errors = Vec::new();
    for locker in [first, second] {
        match locker {
            Ok(locker) => {
                errors.extend(locker.try_lock(NAME).await.err().map(|error| error.to_string()))
            }
            Err(error) => errors.push(error.to_string()),
        }
    }
    assert!(!errors.is_empty(), "it is not noticed");
    let says = |error: &String| {
        error.contains("pool_mode = session") && error.contains("connect directly")
    };
    assert!(errors.iter().any(says), "{errors:?}");
}

#[test]
async fn a_pooler_of_sessions_works_as_a_server_does() {
    let _ = skipping::program("pgbouncer");
    let server = PostgresServer::start();
    init([format!("{}?name=lock-a", server.url())]).await;
    let pooler = Pooler::before(&server, "session");
    let (first, second) = (
        on([pooler.url()]).connect().await.expect("up"),
        on([pooler.url()]).connect().await.expect("up"),
    );
    let guard = first.lock(NAME).await.expect("free");
    let waiting = tokio::spawn(second.lock(NAME).into_future());
    eventually_async("it waits", async || {
        server.sql("SELECT count(*) FROM quorlock.ticket", &[]) == "1\n"
    })
    .await;
    guard.release().await.expect("released");
    let guard = waiting.await.expect("no panic").expect("its turn");
    guard.release().await.expect("released");
    // One that is used again is used again.
    drop((first, second));
    for _ in 0..3 {
        let locker = on([pooler.url()]).connect().await.expect("up");
        locker.try_lock(NAME).await.expect("free").release().await.expect("released");
    }
}
