//! Waiters that take turns with one name.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;

use super::system::System;
use crate::clock::{Alarm, now_ns};
use crate::cpu;
use crate::order::Order;
use crate::peers::Contention;

/// Between two turns of a waiter.
const PAUSE_US: Range<u64> = 2_500..7_500;

pub async fn contend(system: &Arc<System>, order: &Order) -> Result<Contention> {
    let (first, count): (u64, u64) = (order.number("first")?, order.number("waiters")?);
    let name: Arc<str> = order.text("name")?.into();
    let hold = Duration::from_micros(order.number("hold_us")?);
    let time: Range<u64> = order.number("from_ns")?..order.number("to_ns")?;
    let cpu = cpu::own_seconds();
    let mut waiters = JoinSet::new();
    for waiter in first..first + count {
        let (system, name, time) = (Arc::clone(system), Arc::clone(&name), time.clone());
        waiters.spawn(take_turns(waiter, system, name, hold, time));
    }
    let mut turns = Vec::new();
    while let Some(done) = waiters.join_next().await {
        turns.extend(done??);
    }
    Ok(Contention { turns, cpu_seconds: cpu::own_seconds() - cpu, failed: 0, error: None })
}

async fn take_turns(
    waiter: u64,
    system: Arc<System>,
    name: Arc<str>,
    hold: Duration,
    time: Range<u64>,
) -> Result<Vec<[u64; 4]>> {
    let alarm = Alarm::new()?;
    let mut random = waiter.wrapping_add(time.start) | 1;
    let mut turns = Vec::new();
    alarm.sleep(Duration::from_nanos(time.start.saturating_sub(now_ns()))).await?;
    loop {
        // xorshift: any spread will do.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let pause_us = PAUSE_US.start + random % (PAUSE_US.end - PAUSE_US.start);
        alarm.sleep(Duration::from_micros(pause_us)).await?;
        let asked = now_ns();
        if asked >= time.end {
            return Ok(turns);
        }
        let over = tokio::time::sleep(Duration::from_nanos(time.end - asked));
        let held = tokio::select! {
            biased;
            held = system.lock(&name) => held?,
            () = over => {
                turns.push([waiter, asked, 0, 0]);
                return Ok(turns);
            }
        };
        let acquired = now_ns();
        alarm.sleep(hold).await?;
        let released = now_ns();
        system.release(held).await?;
        turns.push([waiter, asked, acquired, released]);
    }
}
