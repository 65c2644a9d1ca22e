//! Locks on ZooKeeper ensembles.

mod clocks;
mod hostile;
mod members;
mod refusals;
mod sessions;

use std::time::Duration;

use quorlock::{Builder, Locker};
use quorlock_testkit::{ZooKeeperClient, ZooKeeperEnsemble};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

/// For a locker on these endpoints, below `chroot`. However slow the machine is, nothing fails for want of time alone.
fn on(endpoints: &[String], chroot: &str) -> Builder {
    let url = format!("zookeeper://{}{chroot}", endpoints.join(","));
    Locker::builder().nodes([url]).connect_limit(LONG)
}

/// The endpoints, that of `first` before the others.
fn first(ensemble: &ZooKeeperEnsemble, first: usize) -> Vec<String> {
    let mut endpoints = ensemble.endpoints();
    endpoints.swap(0, first);
    endpoints
}

/// Somebody who looks at what one member has.
fn beside(ensemble: &ZooKeeperEnsemble, member: usize) -> ZooKeeperClient {
    ZooKeeperClient::connect(&ensemble.endpoints()[member]).expect("a member that is up")
}

/// Where a lock lies: the only one below `chroot`.
fn only_lock(client: &mut ZooKeeperClient, chroot: &str) -> String {
    let locks = format!("{chroot}/locks");
    let buckets = client.children(&locks).into_iter().map(|bucket| format!("{locks}/{bucket}"));
    let paths: Vec<_> = buckets
        .flat_map(|bucket| {
            let children = client.children(&bucket).into_iter();
            children.map(|lock| format!("{bucket}/{lock}")).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(paths.len(), 1, "{paths:?}");
    paths.into_iter().next().expect("one")
}
