//! Locks on etcd clusters.

mod go_peer;
mod members;
mod refusals;
mod shared;

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
    let endpoint = format!("--endpoints={}", cluster.endpoints()[0]);
    let mut etcdctl = Command::new(skipping::program("etcdctl"));
    let output = etcdctl.arg(endpoint).args(args).output().expect("etcdctl");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}
