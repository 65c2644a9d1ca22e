//! What is locked on: three members of each engine, which wait for their disks where they have any use for one.

use quorlock_testkit::{EtcdCluster, RedisServer, ZooKeeperEnsemble, servers};

use crate::cpu;
use crate::peers::Engine;

const MEMBERS: usize = 3;

/// All of them, side by side. Who is not asked costs next to nothing.
pub struct Servers {
    etcd: EtcdCluster,
    zookeeper: ZooKeeperEnsemble,
    redis: Vec<RedisServer>,
}

impl Servers {
    pub fn start() -> Self {
        Self {
            etcd: EtcdCluster::start_durable(MEMBERS),
            zookeeper: ZooKeeperEnsemble::start_durable(MEMBERS),
            redis: servers(MEMBERS),
        }
    }

    /// What a client is told of them.
    pub fn nodes(&self, engine: Engine) -> Vec<String> {
        match engine {
            Engine::Etcd => vec![self.etcd.url()],
            Engine::ZooKeeper => vec![self.zookeeper.url()],
            Engine::Redis => self.redis.iter().map(RedisServer::url).collect(),
        }
    }

    /// Processor time of all members so far.
    pub fn cpu_seconds(&self, engine: Engine) -> f64 {
        let of = |pid| cpu::seconds_of(pid).unwrap_or(0.0);
        match engine {
            Engine::Etcd => (0..MEMBERS).map(|member| of(self.etcd.pid(member))).sum(),
            Engine::ZooKeeper => (0..MEMBERS).map(|member| of(self.zookeeper.pid(member))).sum(),
            Engine::Redis => self.redis.iter().map(|server| of(server.pid())).sum(),
        }
    }

    /// What stands behind an acknowledged lock.
    pub fn durability() -> Vec<String> {
        vec![
            "three members of each on this machine, on one disk; etcd with its own defaults of time".into(),
            "etcd, ZooKeeper: what is acknowledged was written and fsynced by a majority of the members".into(),
            "Redis: memory only, without persistence; strict takes a node that forgot for one that may not vote".into(),
        ]
    }
}
