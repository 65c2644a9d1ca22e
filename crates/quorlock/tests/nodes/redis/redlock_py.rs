//! Locks are shared with a Redlock client by other hands: redlock-py, as it is published.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use quorlock::{Error, Locker, Loss};
use quorlock_testkit::skipping::lacks;
use quorlock_testkit::{
    DEADLINE, RedisServer, Reply, eventually_async as eventually, servers, test,
};

/// Longer than any test waits.
const TTL_MS: u64 = 60_000;

/// The foreign client, in a process of its own that ends with this.
struct Foreign {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Foreign {
    /// Without a Python to run it with, the test is skipped.
    fn start(servers: &[RedisServer]) -> Self {
        let python = std::env::var_os("QUORLOCK_TEST_PYTHON").unwrap_or_else(|| {
            let remedy = "`cargo xtask test` installs it";
            lacks(
                "python",
                format_args!("QUORLOCK_TEST_PYTHON names no Python with redlock-py: {remedy}"),
            )
        });
        let mut process = Command::new(python)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nodes/redis/redlock_py.py"))
            .args(servers.iter().map(RedisServer::url))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python starts");
        let input = process.stdin.take().expect("piped");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        Self { process, input, output }
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").expect("the foreign client listens");
        let mut answer = String::new();
        self.output.read_line(&mut answer).expect("the foreign client answers");
        assert!(!answer.is_empty(), "the foreign client has ended");
        answer.trim().to_owned()
    }

    fn lock(&mut self, name: &str, ttl_ms: u64) -> bool {
        match &*self.ask(&format!("lock {name} {ttl_ms}")) {
            "locked" => true,
            "refused" => false,
            other => panic!("{other}"),
        }
    }

    /// It does not tell whether it worked: that shows on the servers.
    fn unlock(&mut self, name: &str) {
        assert_eq!(self.ask(&format!("unlock {name}")), "unlocked");
    }

    fn unlock_guess(&mut self, name: &str) {
        assert_eq!(self.ask(&format!("unlock-guess {name}")), "unlocked");
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = writeln!(self.input, "quit");
        let _ = self.process.wait();
    }
}

/// A time limit that no machine is too slow for, and a TTL for tests that let a lock run out.
async fn locker(servers: &[RedisServer]) -> Locker {
    Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
        .nodes(servers.iter().map(RedisServer::url))
        .ttl(Duration::from_secs(20))
        .node_limit(Duration::from_millis(400))
        .connect_limit(DEADLINE)
        .connect()
        .await
        .expect("a locker")
}

/// What each server holds under the name.
fn tokens(servers: &[RedisServer], name: &str) -> Vec<Reply> {
    servers.iter().map(|server| server.command(&["GET", name])).collect()
}

/// A lock is won, and given back, by two of three: the third follows a moment later.
async fn all(servers: &[RedisServer], name: &str, what: &str, is: impl Fn(&Reply) -> bool) {
    eventually(what, async || tokens(servers, name).iter().all(&is)).await;
}

fn is_free(token: &Reply) -> bool {
    *token == Reply::Bulk(None)
}

#[test]
async fn what_quorlock_holds_the_foreign_client_does_not_get() {
    let servers = servers(3);
    let mut foreign = Foreign::start(&servers);
    let locker = locker(&servers).await;
    let guard = locker.lock("ours").await.expect("free");
    all(&servers, "ours", "taken", |token| !is_free(token)).await;
    let ours = tokens(&servers, "ours");
    assert!(!foreign.lock("ours", TTL_MS));
    assert_eq!(tokens(&servers, "ours"), ours, "nothing was changed");
    guard.extend().await.expect("still held");
    guard.release().await.expect("released");
    all(&servers, "ours", "free", is_free).await;
    assert!(foreign.lock("ours", TTL_MS));
}

#[test]
async fn what_the_foreign_client_holds_quorlock_does_not_get() {
    let servers = servers(3);
    let mut foreign = Foreign::start(&servers);
    let locker = locker(&servers).await;
    assert!(foreign.lock("theirs", TTL_MS));
    let theirs = tokens(&servers, "theirs");
    let error = locker.try_lock("theirs").await.expect_err("taken");
    let Error::Taken { holder, remaining: Some(remaining), .. } = &error else {
        panic!("{error:?}");
    };
    assert!(holder.is_some(), "{error}");
    assert!(*remaining > DEADLINE && *remaining <= Duration::from_millis(TTL_MS), "{error}");
    assert_eq!(tokens(&servers, "theirs"), theirs, "nothing was changed");
    foreign.unlock("theirs");
    assert!(tokens(&servers, "theirs").iter().all(is_free));
    locker.try_lock("theirs").await.expect("free").release().await.expect("released");
}

#[test]
async fn the_foreign_client_cannot_release_what_quorlock_holds() {
    let servers = servers(3);
    let mut foreign = Foreign::start(&servers);
    let locker = locker(&servers).await;
    // The foreign client holds it first, until it runs out.
    eventually("free", async || foreign.lock("handed-on", 1_000)).await;
    let theirs = tokens(&servers, "handed-on");
    let guard = locker.lock("handed-on").wait(DEADLINE).await.expect("it runs out");
    all(&servers, "handed-on", "run out", |token| is_free(token) || !theirs.contains(token)).await;
    let ours = tokens(&servers, "handed-on");
    assert!(ours.iter().filter(|token| !is_free(token)).count() >= 2, "{ours:?}");
    foreign.unlock("handed-on");
    foreign.unlock_guess("handed-on");
    assert_eq!(tokens(&servers, "handed-on"), ours, "nothing was changed");
    guard.release().await.expect("still held");
}

#[test]
async fn quorlock_cannot_release_what_the_foreign_client_holds() {
    let servers = servers(3);
    let mut foreign = Foreign::start(&servers);
    let locker = locker(&servers).await;
    // Quorlock holds it first, until it runs out.
    let lock = locker.lock("handed-on").ttl(Duration::from_secs(2)).fixed().wait(DEADLINE);
    let guard = lock.await.expect("free");
    let ours = tokens(&servers, "handed-on");
    eventually("it runs out", async || foreign.lock("handed-on", TTL_MS)).await;
    assert!(!guard.is_held(), "two hold it at the same time");
    all(&servers, "handed-on", "run out", |token| is_free(token) || !ours.contains(token)).await;
    let theirs = tokens(&servers, "handed-on");
    let error = guard.extend().await.expect_err("not ours");
    assert!(matches!(error, Error::Lost { reason: Loss::Expired, .. }), "{error}");
    let error = guard.release().await.expect_err("not ours");
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert_eq!(tokens(&servers, "handed-on"), theirs, "nothing was changed");
    foreign.unlock("handed-on");
    assert!(tokens(&servers, "handed-on").iter().all(is_free));
}
