//! Quorlock and rslock, with the same verbs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use quorlock::Locker;
use quorlock::node::Node;
use quorlock::node::memory::MemoryNode;
use rslock::LockManager;

use super::variants::{ENGINES, Home, VARIANTS};
use crate::systems::{TTL, rslock_at, rslock_once};

/// Stands behind the name of a variant whose settings are the defaults.
pub const DEFAULTS: &str = "@defaults";

pub enum System {
    Quorlock(Locker),
    /// One manager for single attempts, one for as many as are wanted.
    Rslock(LockManager, LockManager),
    /// No lock at all: what a check for two holders at once must find.
    Nothing,
}

pub enum Held {
    Quorlock(quorlock::Guard),
    Rslock(rslock::Lock),
    Nothing,
}

impl System {
    /// `ttl` is of its locks.
    pub async fn connect(name: &str, nodes: Vec<String>, ttl: Duration) -> Result<Self> {
        let variant = name.trim_end_matches(DEFAULTS);
        if let Some(variant) = VARIANTS.iter().chain(ENGINES).find(|it| it.name == variant) {
            let builder = match name.ends_with(DEFAULTS) {
                true => Locker::builder(),
                // Longer than the default, so that a machine that stalls for a moment fails no attempt.
                false => Locker::builder().node_limit(Duration::from_millis(500)).ttl(ttl),
            };
            let builder = (variant.set_up)(builder);
            let builder = match variant.home {
                Home::Servers | Home::File => builder.nodes(nodes),
                Home::Memory => builder
                    .with_nodes(nodes.iter().map(|_| Arc::new(MemoryNode::new()) as Arc<dyn Node>)),
            };
            return Ok(Self::Quorlock(builder.connect().await?));
        }
        match name {
            "rslock" => Ok(Self::Rslock(rslock_once(nodes.clone()), rslock_at(nodes, u32::MAX))),
            "nothing" => Ok(Self::Nothing),
            other => Err(anyhow!("there is no system {other}")),
        }
    }

    /// One attempt.
    pub async fn try_lock(&self, name: &str) -> Result<Held> {
        match self {
            Self::Quorlock(locker) => Ok(Held::Quorlock(locker.try_lock(name).await?)),
            Self::Rslock(once, _) => rslocked(once, name).await,
            Self::Nothing => Ok(Held::Nothing),
        }
    }

    /// As many attempts as it takes.
    pub async fn lock(&self, name: &str) -> Result<Held> {
        match self {
            Self::Quorlock(locker) => Ok(Held::Quorlock(locker.lock(name).await?)),
            Self::Rslock(_, patient) => rslocked(patient, name).await,
            Self::Nothing => Ok(Held::Nothing),
        }
    }

    pub async fn release(&self, held: Held) -> Result<()> {
        match (self, held) {
            (_, Held::Quorlock(guard)) => drop(guard.release().await?),
            (Self::Rslock(manager, _), Held::Rslock(lock)) => manager.unlock(&lock).await,
            _ => {}
        }
        Ok(())
    }
}

async fn rslocked(manager: &LockManager, name: &str) -> Result<Held> {
    let lock = manager.lock(name, TTL).await.map_err(|error| anyhow!("rslock: {error}"))?;
    Ok(Held::Rslock(lock))
}
