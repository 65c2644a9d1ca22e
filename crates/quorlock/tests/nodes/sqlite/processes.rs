//! Several processes with one file.

use std::fs;
use std::io::{BufRead, BufReader, stdin};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use quorlock::Locker;
use quorlock::runtime::{Runtime, TokioRuntime};
use quorlock_testkit::{DEADLINE, eventually_async};

use super::{LONG, Place, patient, url};

const TTL: Duration = Duration::from_millis(500);
const PROCESSES: usize = 50;
const INCREMENTS: usize = 200;

/// This very program, running one of the tests below that are not tests.
pub(super) fn start(what: &str, place: &Place) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", what, "--nocapture"])
        .env("QUORLOCK_TEST_FILE", &place.file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process")
}

fn file_from_parent() -> PathBuf {
    std::env::var_os("QUORLOCK_TEST_FILE").expect("set by `start`").into()
}

/// Not a test: what `a_killed_process_holds_its_lock_for_the_rest_of_its_time` starts and kills.
#[tokio::test]
#[ignore = "waits to be killed"]
async fn killed_with_a_lock() {
    let locker = Locker::builder().nodes([url(&file_from_parent())]).ttl(TTL);
    let _guard = locker.connect().await.unwrap().lock("a").await.unwrap();
    println!("\nlocked");
    // Ends when the parent of this process does.
    stdin().lines().for_each(drop);
}

#[tokio::test]
async fn a_killed_process_holds_its_lock_for_the_rest_of_its_time() {
    let place = Place::new();
    let runtime = TokioRuntime::current();
    let before = runtime.now();
    let mut process = start("sqlite::processes::killed_with_a_lock", &place);
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "locked"));
    process.kill().unwrap();
    process.wait().unwrap();

    let guard = place.locker().await.lock("a").wait(DEADLINE).await.unwrap();
    let took = runtime.now().since(before);
    assert!(took >= TTL, "the record of the killed process was gone after {took:?}");
    guard.release().await.unwrap();
}

/// Not a test: one of the processes of `no_increment_of_any_process_is_lost`.
#[tokio::test]
#[ignore = "counts together with others"]
async fn counts() {
    let file = file_from_parent();
    let counter = file.with_extension("count");
    let locker = patient(&file).connect().await.unwrap();
    for _ in 0..INCREMENTS {
        let guard = locker.lock("counter").await.unwrap();
        let count: usize = fs::read_to_string(&counter).unwrap().parse().unwrap();
        fs::write(&counter, (count + 1).to_string()).unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn no_increment_of_any_process_is_lost() {
    let place = Place::new();
    let counter = place.file.with_extension("count");
    fs::write(&counter, "0").unwrap();
    let processes: Vec<_> =
        (0..PROCESSES).map(|_| start("sqlite::processes::counts", &place)).collect();
    for process in processes {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    assert_eq!(fs::read_to_string(&counter).unwrap(), (PROCESSES * INCREMENTS).to_string());
}

/// Not a test: one of the processes of `a_killed_process_stops_nobody_else`.
#[tokio::test]
#[ignore = "waits to be killed"]
async fn counts_until_killed() {
    let file = file_from_parent();
    let counter = file.with_extension("count");
    let locker = Locker::builder().nodes([url(&file)]).ttl(TTL).connect_limit(LONG);
    let locker = locker.node_limit(TTL / 5).connect().await.unwrap();
    std::thread::spawn(|| {
        // The process that started it is gone.
        stdin().lines().for_each(drop);
        std::process::exit(0);
    });
    loop {
        // On a machine under load the lock may be lost before it is of use.
        let Ok(guard) = locker.lock("counter").await else { continue };
        let counted = guard.run(async {
            let count = fs::read_to_string(&counter).unwrap();
            fs::write(counter.with_extension("new"), format!("{count}x")).unwrap();
            fs::rename(counter.with_extension("new"), &counter).unwrap();
        });
        if counted.await.is_ok() {
            drop(guard.release().await);
        }
    }
}

/// Holders and waiters, at whatever they are at. A grant to one of them is worth a TTL at the most.
#[tokio::test]
async fn a_killed_process_stops_nobody_else() {
    let place = Place::new();
    let counter = place.file.with_extension("count");
    fs::write(&counter, "").unwrap();
    let count = || fs::read(&counter).unwrap().len();
    let start = || start("sqlite::processes::counts_until_killed", &place);
    let mut processes: Vec<_> = (0..6).map(|_| start()).collect();
    let runtime = TokioRuntime::current();
    for round in 0..40_usize {
        let before = count();
        // They are all at work, and at another point each time.
        eventually_async("the others go on", async || count() > before + round % 4).await;
        let mut bytes = [0; 2];
        runtime.random(&mut bytes);
        std::thread::sleep(Duration::from_micros(u16::from_le_bytes(bytes).into()) / 32);
        let mut process = std::mem::replace(&mut processes[round % 6], start());
        process.kill().unwrap();
        process.wait().unwrap();
    }
    for mut process in processes {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    // Nobody is left, and a client that comes now finds nothing in its way but the last record.
    let guard = place.locker().await.lock("counter").wait(DEADLINE).await.unwrap();
    guard.release().await.unwrap();
    let left =
        "SELECT (SELECT count(*) FROM lock WHERE token != x'') + (SELECT count(*) FROM ticket)";
    let left: i64 = place.sql().query_row(left, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}
