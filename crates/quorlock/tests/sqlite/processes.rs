//! Several processes with one file.

use std::fs;
use std::io::{BufRead, BufReader, stdin};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use quorlock::Locker;
use quorlock::runtime::{Runtime, TokioRuntime};
use quorlock_testkit::DEADLINE;

use super::{Place, patient, url};

const TTL: Duration = Duration::from_millis(500);
const PROCESSES: usize = 20;
const INCREMENTS: usize = 50;

/// This very program, running one of the tests below that are not tests.
fn start(what: &str, place: &Place) -> Child {
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
    // Ends when whoever started this process does.
    stdin().lines().for_each(drop);
}

#[tokio::test]
async fn a_killed_process_holds_its_lock_for_the_rest_of_its_time() {
    let place = Place::new();
    let runtime = TokioRuntime::current();
    let before = runtime.now();
    let mut process = start("processes::killed_with_a_lock", &place);
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
    let locker = patient(&file).longest_retry_delay(Duration::from_millis(5));
    let locker = locker.connect().await.unwrap();
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
    let processes: Vec<_> = (0..PROCESSES).map(|_| start("processes::counts", &place)).collect();
    for process in processes {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    assert_eq!(fs::read_to_string(&counter).unwrap(), (PROCESSES * INCREMENTS).to_string());
}
