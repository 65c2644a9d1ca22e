//! Each kind of node: that all of them do the same, and what is particular to one.

#[cfg(all(feature = "redis", feature = "sqlite"))]
mod conformance;
mod earlier_build;
#[cfg(feature = "etcd")]
mod etcd;
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "zookeeper")]
mod zookeeper;
