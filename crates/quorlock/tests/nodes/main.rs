//! Each kind of node: that all of them do the same, and what is particular to one.

#[cfg(all(feature = "redis", feature = "sqlite"))]
mod conformance;
#[cfg(feature = "zookeeper")]
mod curator;
mod earlier_build;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod peer;
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "zookeeper")]
mod zookeeper;
