//! Locks on etcd clusters.
//!
//! What is not tried: members whose clocks jump. etcd reads its clocks without the C library, so that the library that
//! gives Redis servers a clock of their own changes nothing for it. Nothing rests on how a member's clock is set: leases
//! are counted by one that nobody sets.

mod full;
mod go_peer;
mod members;
mod partitions;
mod refusals;
mod shared;
mod stopped;

use std::process::Command;
use std::time::Duration;

use quorlock::{Builder, Locker};
use quorlock_testkit::{EtcdCluster, skipping};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

/// For a locker on these endpoints. However slow the machine is, nothing fails for want of time alone.
fn on(endpoints: &[String]) -> Builder {
    let url = format!("etcd://{}", endpoints.join(","));
    Locker::builder().nodes([url]).connect_limit(LONG)
}

/// The endpoints, that of `first` before the others.
fn first(cluster: &EtcdCluster, first: usize) -> Vec<String> {
    let mut endpoints = cluster.endpoints();
    endpoints.swap(0, first);
    endpoints
}

/// Runs etcdctl against the first member.
fn etcdctl(cluster: &EtcdCluster, args: &[&str]) -> String {
    etcdctl_at(cluster, 0, args)
}

/// Runs etcdctl against a member.
fn etcdctl_at(cluster: &EtcdCluster, member: usize, args: &[&str]) -> String {
    let endpoint = format!("--endpoints={}", cluster.endpoints()[member]);
    let mut etcdctl = Command::new(skipping::program("etcdctl"));
    let output = etcdctl.arg(endpoint).args(args).output().expect("etcdctl");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}
