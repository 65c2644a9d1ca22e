//! A process that is really stopped: it writes to a file of SQLite, with the check and without.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write, stdin};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use quorlock::{Builder, Guard, Locker};
use quorlock_testkit::eventually;
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};

use super::database::Database;
use super::{LONG, page};

/// Short, as the test waits for its end; extended while its process runs.
const TTL: Duration = Duration::from_secs(2);
const ID: i64 = 42;

fn locker(dir: &Path) -> Builder {
    let url = format!("sqlite:{}", dir.join("locks.db").display());
    Locker::builder().nodes([url]).ttl(TTL).node_limit(TTL / 5).connect_limit(LONG)
}

/// One row that checks, and one that does not.
fn database(dir: &Path) -> Connection {
    let database = Connection::open(dir.join("data.db")).expect("a file");
    database.busy_timeout(LONG).expect("a time");
    database
}

/// Writes to both; returns which of them took it.
fn write(database: &Connection, guard: &Guard, balance: i64) -> (bool, bool) {
    let fence = i64::try_from(guard.fence()).expect("it fits");
    let values = [("id", ID), ("balance", balance), ("fence", fence)];
    let checked = database.write(page::sql("write a row that is there"), &values);
    let unchecked = database.write("UPDATE bare SET balance = :balance", &values);
    (checked == 1, unchecked == 1)
}

/// Not a test: the process that `a_stopped_process_writes_late_and_is_refused` stops.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "waits to be stopped"]
async fn writes_when_it_is_told_to() {
    let dir = PathBuf::from(std::env::var_os("QUORLOCK_TEST_DIR").expect("set by the test"));
    let (locker, database) = (locker(&dir).connect().await.unwrap(), database(&dir));
    let guard = locker.lock("account/42").await.unwrap();
    assert_eq!(write(&database, &guard, 1), (true, true));
    // Being careful does not help: between this question and the write it is stopped.
    println!("\nbefore: {}", guard.is_held());
    stdin().lines().next().expect("the word to go on").unwrap();
    println!("late: {:?}", write(&database, &guard, 3));
    println!("after: {}", guard.is_held());
}

/// A child that is not left behind if the test fails.
struct Running(Child);

impl Running {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    fn is_stopped(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).expect("it is there");
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(dir: &Path) -> Running {
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", "processes::writes_when_it_is_told_to", "--nocapture"])
        .env("QUORLOCK_TEST_DIR", dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    Running(child.expect("a process"))
}

fn find(lines: &mut Lines<BufReader<ChildStdout>>, start: &str) -> String {
    lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix(start).map(str::to_owned))
        .unwrap_or_else(|| panic!("the process ended without {start:?}"))
}

#[tokio::test]
async fn a_stopped_process_writes_late_and_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let database = database(dir.path());
    database.execute_batch("PRAGMA journal_mode = WAL").expect("a mode");
    database.write(page::sql("the table"), &[]);
    database.write("INSERT INTO account (id, balance) VALUES (:id, 0)", &[("id", ID)]);
    database.write("CREATE TABLE bare (balance BIGINT)", &[]);
    database.write("INSERT INTO bare VALUES (0)", &[]);

    let mut first = start(dir.path());
    let mut lines = BufReader::new(first.0.stdout.take().expect("piped")).lines();
    assert_eq!(find(&mut lines, "before: "), "true");
    kill_process(first.pid(), Signal::STOP).expect("it is there");
    eventually("it stands still", || first.is_stopped());

    // Nobody extends its lock any more.
    let second = locker(dir.path()).connect().await.expect("a locker");
    let guard = second.lock("account/42").wait(LONG).await.expect("when the lease has ended");
    assert_eq!(write(&database, &guard, 2), (true, true));

    let mut word = first.0.stdin.take().expect("piped");
    writeln!(word, "go on").expect("it is there");
    kill_process(first.pid(), Signal::CONT).expect("it is there");
    assert_eq!(find(&mut lines, "late: "), "(false, true)");
    assert_eq!(find(&mut lines, "after: "), "false", "it learns of its loss when it looks");
    assert_eq!(database.one("SELECT balance FROM account"), 2, "the work of the second holder");
    assert_eq!(database.one("SELECT balance FROM bare"), 3, "it is lost");
    drop(guard);
}
