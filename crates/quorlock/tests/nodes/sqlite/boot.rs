//! Processes that see another boot id, and machines that were restarted.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use quorlock::node::Proposal;
use quorlock::runtime::{Runtime, TokioRuntime};
use quorlock::{Locker, Settings};
use quorlock_testkit::conformance::owner;
use quorlock_testkit::{DEADLINE, eventually};

use super::{LONG, Place, patient, url};

const TTL: Duration = Duration::from_secs(2);
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const OTHER_BOOT_ID: &str = "11111111-2222-4333-8444-555555555555";

/// One of the tests below that are not tests, by way of `unshare` with these arguments and a shell
/// with this script. `None` where this user may not do that.
fn start_unshared(what: &str, place: &Place, how: &[&str], script: &str) -> Option<Child> {
    let allowed = Command::new("unshare").args(how).arg("true").output();
    if !allowed.is_ok_and(|allowed| allowed.status.success()) {
        eprintln!("skipped: this user may not `unshare {}`", how.join(" "));
        return None;
    }
    let boot_id = place.directory.path().join("boot_id");
    fs::write(&boot_id, OTHER_BOOT_ID).expect("a boot id");
    let mut command = Command::new("unshare");
    command.args(how).args(["sh", "-c", script]).arg(boot_id);
    command.arg(std::env::current_exe().expect("this program"));
    command.args(["--ignored", "--exact", what, "--nocapture"]);
    command.env("QUORLOCK_TEST_FILE", &place.file).stdin(Stdio::piped()).stdout(Stdio::piped());
    Some(command.spawn().expect("a process"))
}

/// As systemd-nspawn does it.
fn start_under_another_boot_id(what: &str, place: &Place) -> Option<Child> {
    let script = format!("mount --bind \"$0\" {BOOT_ID} && exec \"$@\"");
    start_unshared(what, place, &["--mount"], &script)
}

/// The rest of the line that starts with `what`.
fn said(child: &mut Child, what: &str) -> String {
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut lines = lines.map_while(Result::ok);
    let said = lines.find_map(|line| line.strip_prefix(what).map(str::to_owned));
    lines.for_each(drop);
    said.unwrap_or_else(|| panic!("the process has not said {what:?}"))
}

/// Not a test: a process that wants the lock that its parent has, or had.
#[tokio::test]
#[ignore = "wants what another process has"]
async fn wants_it_too() {
    let file = std::env::var("QUORLOCK_TEST_FILE").expect("set by the parent");
    let file = Path::new(&file);
    let got = match patient(file).connect().await {
        Ok(locker) => locker.lock("a").wait(DEADLINE).await,
        Err(error) => Err(error),
    };
    match got {
        Ok(guard) => {
            println!(
                "\nanswer: got {} {}",
                TokioRuntime::current().now().as_nanos(),
                guard.fence()
            );
        }
        Err(error) => println!("\nanswer: refused {error}"),
    }
}

#[tokio::test]
async fn a_process_that_sees_another_boot_id_does_not_empty_a_file_that_is_in_use() {
    let place = Place::new();
    let guard = place.locker().await.lock("a").await.unwrap();
    let Some(mut child) = start_under_another_boot_id("sqlite::boot::wants_it_too", &place) else {
        return;
    };
    let answer = said(&mut child, "answer: ");
    child.wait().unwrap();
    assert!(answer.starts_with("refused"), "{answer}");
    let own = fs::read_to_string(BOOT_ID).unwrap();
    for part in [own.trim(), OTHER_BOOT_ID, "in use", "systemd-nspawn"] {
        assert!(answer.contains(part), "{part}: {answer}");
    }
    guard.extend().await.unwrap();
    guard.release().await.unwrap();
}

/// Nobody has the file open, and yet somebody may believe in a record in it.
#[tokio::test]
async fn a_lock_that_was_kept_lasts_under_another_boot_id() {
    let place = Place::new();
    let before = TokioRuntime::current().now();
    let locker = Locker::builder().nodes([url(&place.file)]).ttl(TTL).node_limit(TTL / 5);
    let locker = locker.connect_limit(LONG).connect().await.unwrap();
    let guard = locker.lock("a").await.unwrap();
    let fence = guard.fence();
    guard.into_token().unwrap();
    drop(locker);
    eventually("the file is closed", || !place.is_open_here());
    let Some(mut child) = start_under_another_boot_id("sqlite::boot::wants_it_too", &place) else {
        return;
    };
    let answer = said(&mut child, "answer: ");
    child.wait().unwrap();
    let mut got = answer.strip_prefix("got ").expect(&answer).split(' ');
    let mut number = || got.next().unwrap().parse::<u64>().unwrap();
    assert!(number() >= before.after(TTL).as_nanos(), "it was still held");
    assert!(number() > fence);
}

#[tokio::test]
async fn a_process_with_a_boot_clock_of_its_own_is_refused() {
    let place = Place::new();
    place.locker().await;
    let namespace = ["--time", "--boottime", "1000"];
    let script = "exec \"$@\"";
    let Some(mut child) = start_unshared("sqlite::boot::wants_it_too", &place, &namespace, script)
    else {
        return;
    };
    let answer = said(&mut child, "answer: ");
    child.wait().unwrap();
    assert!(answer.contains("a boot clock of its own"), "{answer}");
}

/// The highest fence that any name has had, and the least that the next ones get though they ask
/// for less: the clock of the machine is behind.
async fn before_and_after(place: &Place, between: impl FnOnce()) -> (u64, [u64; 2]) {
    let wants = |least| Proposal { least, block: 4 };
    let node = place.node(&Settings::default()).await;
    let high = owner("a").acquire_fenced(&node, LONG, wants(1_000_000_000)).fence().await;
    let low = owner("b").acquire_fenced(&node, LONG, wants(1_000)).fence().await;
    assert!(low < high);
    drop(node);
    eventually("the file is closed", || !place.is_open_here());
    between();
    let node = place.node(&Settings::default()).await;
    let mut after = [0; 2];
    for (name, after) in ["a", "new"].iter().zip(&mut after) {
        *after = owner(name).acquire_fenced(&node, LONG, wants(1)).fence().await;
    }
    (high, after)
}

#[tokio::test]
async fn fences_grow_over_a_restart_after_which_the_clock_is_behind() {
    let place = Place::new();
    let (high, after) = before_and_after(&place, || place.restart()).await;
    assert!(after.iter().all(|after| after - 3 > high), "{after:?} after {high}");
}

/// A crash of the machine may damage what was written last.
#[tokio::test]
async fn fences_grow_though_the_records_are_damaged() {
    let place = Place::new();
    let damage = || {
        place.restart();
        place.damage("lock");
    };
    let (high, after) = before_and_after(&place, damage).await;
    assert!(after.iter().all(|after| after - 3 > high), "{after:?} after {high}");
}

#[tokio::test]
async fn fences_grow_though_names_are_forgotten() {
    let place = Place::new();
    let locker = place.locker().await;
    let held = locker.try_lock("a").await.unwrap();
    let last = held.fence();
    held.release().await.unwrap();
    let left = patient(&place.file).admin().forget(["a"]).await.unwrap();
    assert!(left.0.is_empty(), "{left}");
    let node = place.node(&Settings::default()).await;
    let wants = Proposal { least: 1, block: 1 };
    let next = owner("a").acquire_fenced(&node, LONG, wants).fence().await;
    assert!(next > last, "{next} after {last}");
}
