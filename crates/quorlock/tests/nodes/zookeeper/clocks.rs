//! Leaders whose clocks are off, or jump. They make no second holder, and the error names the clock.

use std::time::Duration;

use quorlock::Error;
use quorlock_testkit::{ZooKeeperEnsemble, test};

use super::{LONG, on};

/// The record seems to have ended long ago, by the leader's clock and to every reader.
#[test]
async fn a_clock_that_is_far_ahead_ends_no_lock() {
    let ensemble = ZooKeeperEnsemble::start_with_clocks(1);
    let open = || on(&ensemble.endpoints(), "").ttl(LONG / 2).max_ttl(LONG).connect();
    let (holder, other) = (open().await.expect("connected"), open().await.expect("connected"));
    let guard = holder.lock("x").await.expect("free");
    ensemble.jump_ms(0, 120_000);
    let error = other.try_lock("x").await.expect_err("it is held");
    assert!(matches!(error, Error::Taken { .. } | Error::Clock { .. }), "{error}");
    let error = other.try_lock("y").await.expect_err("nothing can be believed");
    let text = error.to_string();
    assert!(
        matches!(error, Error::Clock { .. }) && text.contains("ahead of this machine's"),
        "{text}"
    );
    assert!(guard.is_held());
    // Every write of that time is judged by the next: none lasts for longer than it should.
    ensemble.jump_ms(0, -120_000);
    guard.release().await.expect("released");
    other.lock("x").wait(LONG).await.expect("free").release().await.expect("released");
    other.lock("y").wait(LONG).await.expect("it was taken back").release().await.expect("released");
}

/// The record would end before its holder stops believing in it.
#[test]
async fn a_clock_that_is_behind_grants_nothing() {
    let ensemble = ZooKeeperEnsemble::start_with_clocks(1);
    let locker = on(&ensemble.endpoints(), "").connect().await.expect("connected");
    ensemble.jump_ms(0, -5_000);
    let error = locker.try_lock("x").await.expect_err("nothing can be believed");
    let text = error.to_string();
    assert!(matches!(error, Error::Clock { .. }), "{text}");
    assert!(text.contains("behind this machine's") && text.contains("chrony"), "{text}");
    ensemble.jump_ms(0, 5_000);
    // It was taken back.
    locker.try_lock("x").await.expect("free").release().await.expect("released");
}

/// Who waits is told, and gets its turn once the clock is right.
#[test]
async fn a_waiter_outlasts_a_clock_that_is_off() {
    let ensemble = ZooKeeperEnsemble::start_with_clocks(1);
    let open = || on(&ensemble.endpoints(), "").ttl(Duration::from_secs(5)).connect();
    let (holder, next) = (open().await.expect("connected"), open().await.expect("connected"));
    let guard = holder.lock("x").await.expect("free");
    ensemble.jump_ms(0, -60_000);
    let waiter = tokio::spawn(async move { next.lock("x").wait(LONG).await });
    let error = guard.extend().await.expect_err("nobody knows what became of it");
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    ensemble.jump_ms(0, 60_000);
    drop(guard);
    waiter.await.expect("no panic").expect("its turn").release().await.expect("released");
}

/// What is a leader's time is said with its name, and how far it is off.
#[test]
async fn the_doctor_compares_the_leaders_clock() {
    let ensemble = ZooKeeperEnsemble::start_with_clocks(1);
    let endpoints = ensemble.endpoints();
    let builder = || on(&endpoints, "");
    let text = |checkup: &quorlock::admin::Checkup| {
        let findings = checkup.nodes.iter().flat_map(|node| &node.findings);
        findings.map(|finding| format!("{}: {}\n", finding.check, finding.text)).collect::<String>()
    };
    let checkup = builder().admin().examine("trial").await.expect("good settings");
    let found = text(&checkup);
    for part in [
        "class: CP: one ZooKeeper ensemble of 1",
        "leader: ",
        "clock: the leader's clock is within",
        "rights: a lock can be taken, extended and released",
        "wake-up: waiters are told",
    ] {
        assert!(found.contains(part), "{part} in {found}");
    }
    assert!(checkup.nodes[0].usable, "{found}");
    ensemble.jump_ms(0, 60_000);
    let checkup = builder().admin().examine("trial").await.expect("good settings");
    let found = text(&checkup);
    assert!(found.contains("ahead of that of this machine"), "{found}");
    assert!(!checkup.nodes[0].usable, "{found}");
}
