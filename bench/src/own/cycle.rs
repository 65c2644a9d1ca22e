//! Lock + release of free names, by some workers at once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use tokio::task::LocalSet;

use super::system::System;
use crate::cpu;
use crate::order::Order;
use crate::peers::Cycles;
use crate::stats::at;

/// What the workers of one round share.
#[derive(Default)]
struct Tally {
    begun: Cell<u64>,
    samples: RefCell<Vec<Duration>>,
    failed: Cell<u64>,
    error: RefCell<Option<String>>,
}

pub async fn cycles(system: &Rc<System>, order: &Order) -> Result<Cycles> {
    let (concurrency, count): (usize, u64) = (order.number("concurrency")?, order.number("count")?);
    let limit = Duration::try_from_secs_f64(order.number("seconds")?)?;
    let tally = Rc::new(Tally::default());
    let (cpu, start) = (cpu::own_seconds(), Instant::now());
    let workers = LocalSet::new();
    for index in 0..concurrency {
        let (system, tally) = (Rc::clone(system), Rc::clone(&tally));
        let prefix = format!("{}/{index}", order.text("name")?);
        workers.spawn_local(async move {
            for serial in 0_u64.. {
                if start.elapsed() >= limit || tally.begun.get() >= count {
                    return;
                }
                tally.begun.set(tally.begun.get() + 1);
                let name = format!("{prefix}/{serial}");
                let begun = Instant::now();
                match cycle(&system, &name).await {
                    Ok(()) => tally.samples.borrow_mut().push(begun.elapsed()),
                    Err(error) => {
                        tally.failed.set(tally.failed.get() + 1);
                        tally.error.borrow_mut().get_or_insert_with(|| error.to_string());
                    }
                }
            }
        });
    }
    workers.await;
    let (took, cpu) = (start.elapsed(), cpu::own_seconds() - cpu);
    let report = report(tally.samples.take(), took, cpu);
    Ok(Cycles { failed: tally.failed.get(), error: tally.error.take(), ..report })
}

async fn cycle(system: &System, name: &str) -> Result<(), Error> {
    system.release(system.try_lock(name).await?).await
}

/// What samples say, if nothing has failed.
pub fn report(mut samples: Vec<Duration>, took: Duration, cpu_seconds: f64) -> Cycles {
    samples.sort_unstable();
    let quantile_us = |quantile| match samples.as_slice() {
        [] => 0.0,
        samples => at(samples, quantile).as_secs_f64() * 1e6,
    };
    Cycles {
        cycles: samples.len() as u64,
        seconds: took.as_secs_f64(),
        cpu_seconds,
        p50_us: quantile_us(0.5),
        p99_us: quantile_us(0.99),
        failed: 0,
        error: None,
    }
}
