//! Other processes that keep the file to themselves, or take it away.

use std::fs;
use std::time::Duration;

use quorlock::node::{Answer, FailureKind};
use quorlock::{Error, Locker, Settings};
use quorlock_testkit::conformance::owner;
use quorlock_testkit::eventually_async;

use super::{LONG, Place};

const WRITE: &str = "BEGIN IMMEDIATE";

#[tokio::test]
async fn a_call_waits_for_other_writers() {
    let place = Place::new();
    let (node, impatient) = (place.node(&patient()).await, place.node(&Settings::default()).await);
    let other = place.sql();
    other.execute_batch(WRITE).unwrap();
    let owner = owner("a");
    let acquired = owner.acquire(&node, LONG);
    let released = owner.release(&node);
    // When one node has given up, the other has met the writer too.
    assert!(matches!(owner.inspect(&impatient).answer().await, Answer::Failed(_)));
    other.execute_batch("COMMIT").unwrap();
    assert!(acquired.is_done().await);
    assert!(released.is_done().await);
}

/// The second finds the file free, the first may not have noticed yet.
#[tokio::test]
async fn no_call_overtakes_one_that_waits_for_other_writers() {
    let place = Place::new();
    let node = place.node(&patient()).await;
    let other = place.sql();
    for _ in 0..50 {
        other.execute_batch(WRITE).unwrap();
        let (first, second) = (owner("a"), owner("a"));
        let granted = first.acquire(&node, LONG);
        other.execute_batch("COMMIT").unwrap();
        let refused = second.acquire(&node, LONG);
        assert!(granted.is_done().await);
        assert!(!refused.is_done().await);
        assert!(first.release(&node).is_done().await);
    }
}

/// Not even one whose round was told not to wait.
#[tokio::test]
async fn no_call_overtakes_a_release_that_is_kept_for_later() {
    let place = Place::new();
    let locker = impatient(&place).await;
    for _ in 0..10 {
        let guard = locker.lock("a").await.unwrap();
        let other = place.sql();
        other.execute_batch(WRITE).unwrap();
        let error = guard.release().await.unwrap_err();
        assert!(matches!(error, Error::NoQuorum { .. }), "{error}");
        other.execute_batch("COMMIT").unwrap();
        // On a slow machine the file may seem to be busy for a while. But it is never taken.
        eventually_async("the name is free", async || match locker.try_lock("a").await {
            Ok(guard) => guard.release().await.is_ok(),
            Err(Error::NoQuorum { .. }) => false,
            Err(error) => panic!("{error}"),
        })
        .await;
    }
}

#[tokio::test]
async fn a_call_that_waited_too_long_did_not_run() {
    let place = Place::new();
    let node = place.node(&Settings::default()).await;
    let other = place.sql();
    other.execute_batch(WRITE).unwrap();
    let owner = owner("a");
    for probe in [owner.acquire(&node, LONG), owner.extend(&node, LONG), owner.inspect(&node)] {
        let answer = probe.answer().await;
        let Answer::Failed(failure) = answer else { panic!("{answer:?}") };
        assert_eq!(failure.kind(), FailureKind::Rejected);
        assert!(failure.to_string().contains("is busy"), "{failure}");
        assert!(failure.to_string().contains("200ms"), "{failure}");
    }
    other.execute_batch("COMMIT").unwrap();
    assert!(owner.seen(&node).await.is_none());
}

#[tokio::test]
async fn a_release_is_not_waited_for_but_runs_when_it_can() {
    let place = Place::new();
    let locker = impatient(&place).await;
    let guard = locker.lock("a").await.unwrap();
    let other = place.sql();
    other.execute_batch(WRITE).unwrap();
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, Error::NoQuorum { .. }), "{error}");
    let error = locker.try_lock("a").await.unwrap_err();
    assert!(matches!(error, Error::NoQuorum { .. }), "{error}");

    other.execute_batch("COMMIT").unwrap();
    eventually_async("the name is free", async || {
        locker.inspect("a").await.unwrap().remaining() == Some(Duration::ZERO)
    })
    .await;
}

#[tokio::test]
async fn a_dropped_locker_gives_up_on_a_busy_file() {
    let place = Place::new();
    let node = place.node(&Settings::default()).await;
    let owner = owner("a");
    assert!(owner.acquire(&node, LONG).is_done().await);
    let other = place.sql();
    other.execute_batch(WRITE).unwrap();
    let released = owner.release(&node);
    drop(node);
    assert!(matches!(released.answer().await, Answer::Failed(_)));
}

#[tokio::test]
async fn a_removed_file_is_opened_anew_by_all() {
    for gone in [&["", "-wal", "-shm"][..], &[""]] {
        let place = Place::new();
        let (here, there) = (place.locker().await, place.locker().await);
        let _lost = here.lock("a").await.unwrap();
        for suffix in gone {
            fs::remove_file(format!("{}{suffix}", place.file.display())).unwrap();
        }
        let _guard = there.try_lock("a").await.unwrap();
        let error = here.try_lock("a").await.unwrap_err();
        assert!(matches!(error, Error::Taken { .. }), "{error}");
    }
}

fn patient() -> Settings {
    let mut settings = Settings::default();
    settings.node_limit = LONG / 5;
    settings
}

async fn impatient(place: &Place) -> Locker {
    let builder = Locker::builder().nodes([place.url()]).ttl(LONG);
    builder.node_limit(Duration::from_millis(50)).connect().await.expect("a locker")
}
