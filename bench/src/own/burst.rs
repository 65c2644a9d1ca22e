//! Many names at once: all are asked for in one moment, held together, and released in one moment.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Error, Result};
use tokio::task::JoinSet;

use super::system::System;
use crate::cpu;
use crate::order::Order;
use crate::peers::Burst;

pub async fn burst(system: &Arc<System>, order: &Order) -> Result<Burst> {
    let (name, count) = (order.text("name")?, order.number::<u64>("count")?);
    let cpu = cpu::own_seconds();
    let mut error = None;
    let mut note = |why: Error| {
        error.get_or_insert_with(|| why.to_string());
    };
    let start = Instant::now();
    let mut locks = JoinSet::new();
    for serial in 0..count {
        let (system, name) = (Arc::clone(system), format!("{name}/{serial}"));
        locks.spawn(async move { system.try_lock(&name).await });
    }
    let mut held = Vec::new();
    while let Some(lock) = locks.join_next().await {
        match lock? {
            Ok(lock) => held.push(lock),
            Err(why) => note(why),
        }
    }
    let lock_seconds = start.elapsed().as_secs_f64();
    let not_held = count - held.len() as u64;
    let start = Instant::now();
    let mut releases = JoinSet::new();
    for lock in held {
        let system = Arc::clone(system);
        releases.spawn(async move { system.release(lock).await });
    }
    let mut not_released = 0;
    while let Some(release) = releases.join_next().await {
        if let Err(why) = release? {
            not_released += 1;
            note(why);
        }
    }
    let release_seconds = start.elapsed().as_secs_f64();
    let cpu_seconds = cpu::own_seconds() - cpu;
    Ok(Burst { lock_seconds, release_seconds, not_held, not_released, cpu_seconds, error })
}
