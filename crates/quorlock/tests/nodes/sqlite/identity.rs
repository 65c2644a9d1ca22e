//! Files that are removed, replaced or cut short while they are in use.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use quorlock::runtime::{Runtime, TokioRuntime};
use quorlock::{Error, Locker};
use quorlock_testkit::{DEADLINE, eventually};

use super::processes::start;
use super::{LONG, Place, url};

const TTL: Duration = Duration::from_secs(2);

impl Place {
    fn beside(&self, suffix: &str) -> PathBuf {
        format!("{}{suffix}", self.file.display()).into()
    }

    fn remove(&self, suffixes: &[&str]) {
        for suffix in suffixes {
            fs::remove_file(self.beside(suffix)).expect("a file");
        }
    }
}

/// No lock here lasts longer than this TTL.
async fn short_lived(file: &Path) -> Locker {
    let locker = Locker::builder().nodes([url(file)]).ttl(TTL).max_ttl(TTL).node_limit(TTL / 5);
    locker.connect_limit(LONG).connect().await.expect("a locker")
}

/// Not a test: a process that waits for a lock in what it finds.
#[tokio::test]
#[ignore = "wants what another process has"]
async fn comes_in() {
    let file = std::env::var("QUORLOCK_TEST_FILE").expect("set by the parent");
    let locker = short_lived(Path::new(&file)).await;
    match locker.lock("a").wait(3 * TTL).await {
        Ok(guard) => {
            println!("\nanswer: {}", TokioRuntime::current().now().as_nanos());
            drop(guard.release().await);
        }
        Err(Error::TimedOut { .. }) => println!("\nanswer: {}", u64::MAX),
        Err(error) => println!("\nanswer: {error}"),
    }
}

/// Whatever is removed, replaced or emptied under a holder: nobody else comes in while it believes.
async fn nobody_comes_in_beside_a_holder(what: &str, tamper: impl FnOnce(&Place)) -> bool {
    let place = Place::new();
    let runtime = TokioRuntime::current();
    let locker = short_lived(&place.file).await;
    fs::copy(&place.file, place.beside("-copy")).expect("a copy");
    let guard = locker.lock("a").await.expect("a free lock");
    tamper(&place);
    let mut child = start("sqlite::identity::comes_in", &place);
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let (sender, answers) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = output.lines().map_while(Result::ok);
        let answer = lines.find_map(|line| line.strip_prefix("answer: ").map(str::to_owned));
        sender.send(answer.expect("an answer")).expect("a listener");
        lines.for_each(drop);
    });
    let mut believed = 0;
    let answer = loop {
        if guard.is_held() {
            believed = runtime.now().after(guard.remaining()).as_nanos();
        }
        if let Ok(answer) = answers.try_recv() {
            break answer;
        }
        runtime.sleep(Duration::from_millis(2)).await;
    };
    child.wait().expect("an end");
    let came: u64 = answer.parse().expect(&answer);
    assert!(came >= believed, "{what}: two inside, for {} ns at least", believed - came);
    came < u64::MAX
}

#[tokio::test]
async fn nobody_comes_in_when_the_wal_is_gone() {
    for gone in [&["-wal", "-shm"][..], &["-wal"]] {
        let what = gone.join(" ");
        let came = nobody_comes_in_beside_a_holder(&what, |place| place.remove(gone)).await;
        assert!(came, "the file is of use again");
    }
}

#[tokio::test]
async fn nobody_comes_in_when_the_wal_is_moved_away() {
    let away = |place: &Place| fs::rename(place.beside("-wal"), place.beside("-old")).unwrap();
    assert!(nobody_comes_in_beside_a_holder("moved", away).await, "the file is of use again");
}

#[tokio::test]
async fn nobody_comes_in_when_the_wal_is_emptied() {
    let empty = |place: &Place| drop(File::create(place.beside("-wal")).unwrap());
    assert!(nobody_comes_in_beside_a_holder("emptied", empty).await, "the file is of use again");
}

/// A copy from before the lock was taken is known by the number of its file.
#[tokio::test]
async fn nobody_comes_in_when_the_file_is_replaced_by_a_copy() {
    for gone in [&["-wal", "-shm"][..], &[]] {
        let replace = |place: &Place| {
            fs::rename(place.beside("-copy"), &place.file).unwrap();
            place.remove(gone);
        };
        let came = nobody_comes_in_beside_a_holder("replaced", replace).await;
        assert!(came, "the file is of use again");
    }
}

/// All of it is in the WAL: the holder goes on.
#[tokio::test]
async fn a_holder_keeps_its_lock_without_the_shm() {
    assert!(!nobody_comes_in_beside_a_holder("-shm", |place| place.remove(&["-shm"])).await);
}

/// What is done to a file, and its name.
type Way<'a> = (&'a str, &'a dyn Fn(&Place));

#[tokio::test]
async fn a_holder_is_told_when_its_file_is_removed_replaced_or_overwritten() {
    let other = Place::new();
    short_lived(&other.file).await.lock("b").await.unwrap().release().await.unwrap();
    let _: i64 =
        other.sql().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |r| r.get(0)).unwrap();
    let ways: [Way<'_>; 3] = [
        ("removed", &|place| place.remove(&["", "-wal", "-shm"])),
        ("replaced", &|place| {
            fs::copy(&other.file, place.beside("-new")).unwrap();
            fs::rename(place.beside("-new"), &place.file).unwrap();
        }),
        ("restored", &|place| {
            fs::copy(&other.file, &place.file).unwrap();
            place.remove(&["-wal", "-shm"]);
        }),
    ];
    for (way, tamper) in ways {
        let place = Place::new();
        let guard = short_lived(&place.file).await.lock("a").await.unwrap();
        tamper(&place);
        let lost = tokio::time::timeout(DEADLINE, guard.lost()).await;
        assert!(lost.is_ok(), "{way}: the holder has not noticed");
    }
}

/// Two lockers of one process share what SQLite has of a file.
#[tokio::test]
async fn all_lockers_of_a_process_let_go_of_what_was_removed() {
    let place = Place::new();
    let (here, idle) = (short_lived(&place.file).await, short_lived(&place.file).await);
    idle.try_lock("b").await.unwrap().release().await.unwrap();
    place.remove(&["-shm"]);
    let guard = here.try_lock("a").await.unwrap();
    let mut child = start("sqlite::identity::tries", &place);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let answer = lines.find(|line| line.starts_with("tried: ")).unwrap();
    lines.for_each(drop);
    child.wait().unwrap();
    assert!(answer.contains("taken"), "{answer}");
    guard.extend().await.unwrap();
    guard.release().await.unwrap();
    idle.try_lock("a").await.unwrap().release().await.unwrap();
}

/// Not a test: a process that tries once.
#[tokio::test]
#[ignore = "tries what another process has"]
async fn tries() {
    let file = std::env::var("QUORLOCK_TEST_FILE").expect("set by the parent");
    match short_lived(Path::new(&file)).await.try_lock("a").await {
        Ok(_) => println!("\ntried: got it"),
        Err(Error::Taken { .. }) => println!("\ntried: taken"),
        Err(error) => println!("\ntried: {error}"),
    }
}

/// Not a test: a process that is at work with a file that is cut short.
#[tokio::test]
#[ignore = "goes on when it is told to"]
async fn goes_on() {
    let file = std::env::var("QUORLOCK_TEST_FILE").expect("set by the parent");
    let locker = super::patient(Path::new(&file)).connect().await.unwrap();
    let guard = locker.lock("a").await.unwrap();
    println!("\nlocked");
    let mut lines = std::io::stdin().lines();
    lines.next();
    guard.extend().await.unwrap();
    println!("\nwent on");
    lines.next();
    guard.release().await.unwrap();
    locker.try_lock("b").await.unwrap().release().await.unwrap();
    println!("\nended well");
}

#[tokio::test]
async fn a_shm_that_is_cut_short_ends_nobody() {
    for length in [0, 1, 4_096] {
        let place = Place::new();
        let cut = || {
            let file = OpenOptions::new().write(true).open(place.beside("-shm")).unwrap();
            file.set_len(length).unwrap();
        };
        let begin = || {
            let mut process = start("sqlite::identity::goes_on", &place);
            let output = BufReader::new(process.stdout.take().unwrap()).lines();
            (process, output.map_while(Result::ok))
        };
        let (mut holder, mut said) = begin();
        assert!(said.any(|line| line == "locked"));
        let (mut waiter, mut waiter_said) = begin();
        eventually("it waits", || place.tickets() == 1);
        for what in ["went on", "ended well"] {
            cut();
            holder.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            assert!(said.any(|line| line == what), "cut to {length}: not {what:?}");
        }
        assert!(waiter_said.any(|line| line == "locked"), "it got its turn");
        for what in ["went on", "ended well"] {
            cut();
            waiter.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            assert!(waiter_said.any(|line| line == what), "cut to {length}: not {what:?}");
        }
        said.chain(waiter_said).for_each(drop);
        assert!(holder.wait().unwrap().success() && waiter.wait().unwrap().success());
    }
}
