//! A process with some of the waiters in it.
//!
//! It is this program, started by itself. It says `ready` when it is connected, learns from its
//! standard input when to begin and to end, and writes its turns to its standard output.

use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use quorlock::Locker;
use rslock::LockManager;
use tokio::task::{JoinSet, LocalSet};

use super::turns::Turn;
use crate::clock::{Alarm, now_ns};
use crate::systems::{TTL, quorlock_at, rslock_at};

/// The hidden benchmark that is a worker.
pub const WORKER: &str = "waiting-worker";

/// Between two turns of a waiter. Without it, who polls gets the lock back from itself before
/// others look, and seems fast.
const PAUSE_US: std::ops::Range<u64> = 2_500..7_500;

/// What the waiters of one process do.
#[derive(Debug, Clone)]
pub struct Work {
    pub system: String,
    pub name: String,
    pub first: u32,
    pub waiters: u32,
    pub hold: Duration,
    pub urls: Vec<String>,
}

impl Work {
    pub fn parse(args: &[&str]) -> Result<Self> {
        let [system, name, first, waiters, hold_us, urls @ ..] = args else {
            bail!("too few arguments for a worker");
        };
        Ok(Self {
            system: (*system).to_owned(),
            name: (*name).to_owned(),
            first: first.parse()?,
            waiters: waiters.parse()?,
            hold: Duration::from_micros(hold_us.parse()?),
            urls: urls.iter().map(|url| (*url).to_owned()).collect(),
        })
    }
}

/// A worker's process, seen from the one that started it. Dropping it kills it.
pub struct Worker {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Worker {
    pub fn start(work: &Work) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([WORKER, &work.system, &work.name]);
        command.args([work.first.to_string(), work.waiters.to_string()]);
        command.arg(work.hold.as_micros().to_string()).args(&work.urls);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Self { child, output })
    }

    /// Waits until it is connected.
    pub fn ready(&mut self) -> Result<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(line == "ready\n", "a worker did not get ready");
        Ok(())
    }

    pub fn go(&mut self, from_ns: u64, to_ns: u64) -> Result<()> {
        let mut input = self.child.stdin.take().context("no input")?;
        Ok(writeln!(input, "{from_ns} {to_ns}")?)
    }

    pub fn turns(mut self) -> Result<Vec<Turn>> {
        let mut turns = Vec::new();
        for line in (&mut self.output).lines() {
            turns.push(line?.parse()?);
        }
        ensure!(self.child.wait()?.success(), "a worker failed");
        Ok(turns)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It has ended already, unless something went wrong.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

enum System {
    Quorlock(Locker),
    Rslock(LockManager),
    /// No lock at all: what the check for two holders at once must find.
    Nothing,
}

enum Held {
    Quorlock(quorlock::Guard),
    Rslock(rslock::Lock),
    Nothing,
}

impl System {
    async fn connect(work: &Work) -> Result<Self> {
        Ok(match work.system.as_str() {
            "quorlock" => Self::Quorlock(quorlock_at(work.urls.clone()).await?),
            "rslock" => Self::Rslock(rslock_at(work.urls.clone(), u32::MAX)),
            "nothing" => Self::Nothing,
            other => bail!("no system {other}"),
        })
    }

    async fn lock(&self, name: &str) -> Result<Held> {
        Ok(match self {
            Self::Quorlock(locker) => Held::Quorlock(locker.lock(name).await?),
            Self::Rslock(manager) => {
                let lock = manager.lock(name, TTL).await;
                Held::Rslock(lock.map_err(|error| anyhow!("rslock: {error}"))?)
            }
            Self::Nothing => Held::Nothing,
        })
    }

    async fn release(&self, held: Held) -> Result<()> {
        match (self, held) {
            (_, Held::Quorlock(guard)) => drop(guard.release().await?),
            (Self::Rslock(manager), Held::Rslock(lock)) => manager.unlock(&lock).await,
            _ => {}
        }
        Ok(())
    }
}

/// Runs as a worker.
pub async fn run(work: Work) -> Result<()> {
    let system = Rc::new(System::connect(&work).await?);
    // Connections and scripts are in place before the clock runs.
    let first = work.first;
    system.release(system.lock(&format!("{}/warm/{first}", work.name)).await?).await?;
    println!("ready");
    let mut line = String::new();
    stdin().read_line(&mut line)?;
    let (from, to) = line.trim().split_once(' ').context("no time to start")?;
    let time = from.parse()?..to.parse()?;

    let mut waiters = JoinSet::new();
    let local = LocalSet::new();
    for waiter in first..first + work.waiters {
        let (system, work, time) = (Rc::clone(&system), work.clone(), time.clone());
        waiters.spawn_local_on(wait_again_and_again(waiter, system, work, time), &local);
    }
    let turns = local.run_until(async {
        let mut turns = Vec::new();
        while let Some(done) = waiters.join_next().await {
            turns.extend(done??);
        }
        anyhow::Ok(turns)
    });
    let mut out = std::io::BufWriter::new(stdout().lock());
    for turn in turns.await? {
        writeln!(out, "{turn}")?;
    }
    Ok(out.flush()?)
}

async fn wait_again_and_again(
    waiter: u32,
    system: Rc<System>,
    work: Work,
    time: std::ops::Range<u64>,
) -> Result<Vec<Turn>> {
    let alarm = Alarm::new()?;
    let mut random = u64::from(waiter).wrapping_add(time.start) | 1;
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
            held = system.lock(&work.name) => held?,
            () = over => {
                turns.push(Turn { waiter, asked, held: None });
                return Ok(turns);
            }
        };
        let acquired = now_ns();
        alarm.sleep(work.hold).await?;
        let released = now_ns();
        system.release(held).await?;
        turns.push(Turn { waiter, asked, held: Some((acquired, released)) });
    }
}
