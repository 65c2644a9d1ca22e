//! This program as one of the peers: Quorlock in all its variants, rslock, and the limits. It talks
//! with the runner as the others do; see `peers/README.md`.

mod bare;
mod believe;
mod burst;
mod contend;
mod cycle;
mod held;
mod redis_benchmark;
mod release;
mod system;
mod variants;

use std::io::{BufRead, stdin};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;
use tokio::sync::mpsc;

use self::bare::Bare;
use self::held::Holder;
use self::redis_benchmark::RedisBenchmark;
pub use self::system::DEFAULTS;
use self::system::System;
pub use self::variants::{Home, VARIANTS};
use crate::order::Order;
use crate::systems::TTL;

/// The hidden benchmark that is a peer.
pub const PEER: &str = "peer";

/// The echo server of [`TCP`], a process of its own as servers are.
pub use self::bare::{ECHO, echo};

/// The limits: commands on bare sockets, bytes that come back as they are, the server's own tool.
pub const BARE: &str = "bare";
pub const TCP: &str = "tcp";
pub const REDIS_BENCHMARK: &str = "redis-benchmark";

enum Peer {
    System(Arc<System>, Holder),
    Bare(Bare),
    RedisBenchmark(RedisBenchmark),
}

impl Peer {
    async fn connect(args: &Order) -> Result<Self> {
        let nodes = urls(args.text("nodes")?);
        let ttl = match args.text("ttl_ms") {
            Ok(_) => Duration::from_millis(args.number("ttl_ms")?),
            Err(_) => TTL,
        };
        Ok(match args.text("system")? {
            BARE => Self::Bare(Bare::to_servers(&nodes)?),
            TCP => Self::Bare(Bare::to_echoes(nodes.len())?),
            REDIS_BENCHMARK => Self::RedisBenchmark(RedisBenchmark::of(&nodes[0])?),
            name => {
                Self::System(Arc::new(System::connect(name, nodes, ttl).await?), Holder::default())
            }
        })
    }

    async fn round(&mut self, order: &Order) -> Result<Value> {
        Ok(match (self, order.text("workload")?) {
            (Self::Bare(bare), "cycle") => serde_json::to_value(bare.cycles(order)?)?,
            (Self::RedisBenchmark(tool), "cycle") => serde_json::to_value(tool.cycles(order)?)?,
            (Self::System(system, _), "cycle") => {
                serde_json::to_value(cycle::cycles(system, order).await?)?
            }
            (Self::System(system, _), "contend") => {
                serde_json::to_value(contend::contend(system, order).await?)?
            }
            (Self::System(system, _), "believe") => {
                serde_json::to_value(believe::believe(system, order).await?)?
            }
            (Self::System(system, _), "burst") => {
                serde_json::to_value(burst::burst(system, order).await?)?
            }
            (Self::System(system, holder), "hold") => {
                serde_json::to_value(holder.hold(system, order).await?)?
            }
            (_, workload) => bail!("there is no workload {workload} for this"),
        })
    }
}

/// The URLs of a list. What has no scheme is one more member of the one before.
fn urls(list: &str) -> Vec<String> {
    let mut urls: Vec<String> = Vec::new();
    for part in list.split(',') {
        match urls.last_mut() {
            // A file's URL has none of these slashes, and is alone.
            Some(members) if !part.contains("://") => {
                members.push(',');
                members.push_str(part);
            }
            _ => urls.push(part.to_owned()),
        }
    }
    urls
}

/// Runs as a peer.
pub async fn serve(words: &[&str]) -> Result<()> {
    let mut peer = Peer::connect(&Order::parse(words.iter().copied())?).await?;
    peer.round(&Order::cycles(&format!("bench/ready/{}", std::process::id()), 1, 1, 60.0)).await?;
    println!("ready");
    let (sender, mut lines) = mpsc::unbounded_channel();
    // A thread that waits for lines, so that what is held is extended meanwhile.
    std::thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    while let Some(line) = lines.recv().await {
        let order = Order::parse(line.split_whitespace().skip(1))?;
        println!("{}", peer.round(&order).await?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_one_cluster_are_one_url() {
        for (list, expected) in [
            ("redis://a:1,redis://b:2", vec!["redis://a:1", "redis://b:2"]),
            ("etcd://a:1,b:2,c:3", vec!["etcd://a:1,b:2,c:3"]),
            ("sqlite:/tmp/x", vec!["sqlite:/tmp/x"]),
        ] {
            assert_eq!(urls(list), expected);
        }
    }
}
