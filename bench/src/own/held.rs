//! Locks that stay held from round to round, to see what many of them cost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;

use super::system::{Held, System};
use crate::cpu;
use crate::memory;
use crate::order::Order;
use crate::peers::Holding;

/// How many are asked for at once.
const AT_ONCE: u64 = 64;

/// What is held so far.
#[derive(Default)]
pub struct Holder(Vec<Held>);

impl Holder {
    /// Takes locks, or releases some, until `count` are held; then rests for `seconds`.
    pub async fn hold(&mut self, system: &Arc<System>, order: &Order) -> Result<Holding> {
        memory::count();
        let count: usize = order.number("count")?;
        let before = self.0.len();
        let (cpu, start) = (cpu::own_seconds(), Instant::now());
        while self.0.len() > count {
            let at_once = (self.0.len() - count).min(AT_ONCE as usize);
            let some = self.0.split_off(self.0.len() - at_once);
            let mut all = JoinSet::new();
            for held in some {
                let system = Arc::clone(system);
                all.spawn(async move { system.release(held).await });
            }
            for released in all.join_all().await {
                released?;
            }
        }
        while self.0.len() < count {
            self.take((count - self.0.len()) as u64, system, order).await?;
        }
        let (took, took_cpu) = (start.elapsed(), cpu::own_seconds() - cpu);
        let cpu = cpu::own_seconds();
        tokio::time::sleep(Duration::try_from_secs_f64(order.number("seconds")?)?).await;
        Ok(Holding {
            changed: self.0.len().abs_diff(before) as u64,
            seconds: took.as_secs_f64(),
            cpu_seconds: took_cpu,
            rest_cpu_seconds: cpu::own_seconds() - cpu,
            heap_bytes: memory::live_bytes() as f64,
        })
    }

    async fn take(&mut self, missing: u64, system: &Arc<System>, order: &Order) -> Result<()> {
        let name = order.text("name")?;
        let first = self.0.len() as u64;
        let mut all = JoinSet::new();
        for serial in first..first + missing.min(AT_ONCE) {
            let (system, name) = (Arc::clone(system), format!("{name}/{serial}"));
            all.spawn(async move { system.try_lock(&name).await });
        }
        for held in all.join_all().await {
            self.0.push(held?);
        }
        Ok(())
    }
}
