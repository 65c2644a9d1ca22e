//! Each kind of node: that all of them do the same, and what is particular to one.

#[cfg(all(
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite"
))]
mod conformance;
mod earlier_build;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(all(feature = "mysql", feature = "postgres", feature = "redis"))]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;
