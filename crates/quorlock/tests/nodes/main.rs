//! Each kind of node: that all of them do the same, and what is particular to one.

#[cfg(all(
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zookeeper"
))]
mod conformance;
#[cfg(feature = "zookeeper")]
mod curator;
mod earlier_build;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(all(feature = "mysql", feature = "postgres", feature = "redis"))]
mod mysql;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod peer;
#[cfg(feature = "postgres")]
mod postgres;
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "zookeeper")]
mod zookeeper;
