//! What a held lock and a waiter cost in memory, and what waiting sends to the nodes.
//!
//! Each figure is taken in a process of its own, so that no memory is left over from another. The
//! process is this program, started by itself.

mod allocator;
mod held;
mod waiters;

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};
use quorlock_testkit::{RedisServer, Reply};

pub use self::allocator::{Counting, count, live_bytes};

/// The hidden benchmark that takes one figure.
pub const PART: &str = "memory-part";

const LOCKS: usize = 10_000;
/// What Quorlock is held to.
const HELD_GOAL_BYTES: f64 = 300.0;
const WAITER_GOAL_BYTES: f64 = 400.0;

pub fn compare() -> Result<()> {
    println!("\nmemory of {LOCKS} held locks, bytes each, beyond the guard that the caller keeps");
    println!("goal: heap ≤ {HELD_GOAL_BYTES}");
    println!("nodes  system     guard    heap  resident  left after release  goal");
    each("held")?;
    println!(
        "\nmemory of {LOCKS} waiters for as many taken names, bytes each, beyond a task that waits \
         for nothing in a future of the same size"
    );
    println!("goal: heap ≤ {WAITER_GOAL_BYTES}, no commands");
    println!(
        "nodes  system    future    heap    most  resident  commands/s per node  left after drop  \
         goal"
    );
    each("waiters")
}

fn each(what: &str) -> Result<()> {
    for nodes in ["1", "5"] {
        for system in ["rslock", "quorlock"] {
            let mut command = Command::new(std::env::current_exe()?);
            let status = command.args([PART, what, system, nodes]).status()?;
            ensure!(status.success(), "{what} of {system} failed");
        }
    }
    Ok(())
}

/// Takes one figure and prints its row.
pub fn part(args: &[&str]) -> Result<()> {
    allocator::count();
    let [what, system, nodes] = args else { bail!("three arguments are needed") };
    let nodes = nodes.parse()?;
    match *what {
        "held" => held::measure(system, nodes),
        "waiters" => waiters::measure(system, nodes),
        other => bail!("no figure {other}"),
    }
}

/// The memory in use at a moment.
#[derive(Debug, Clone, Copy)]
struct Memory {
    live: f64,
    resident: f64,
}

impl Memory {
    fn now() -> Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        let resident: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(Self { live: allocator::live_bytes() as f64, resident: resident * 1024.0 })
    }

    /// What has come since `before`, for each of the locks.
    fn each_since(self, before: Self) -> Self {
        let each = LOCKS as f64;
        Self {
            live: (self.live - before.live) / each,
            resident: (self.resident - before.resident) / each,
        }
    }
}

/// A token as the library makes them: what others take is polled for, since it comes back without a
/// word.
const HOLDER: &str = "ql:0123456789012345678901234567890123456789";
const HELD_MS: &str = "600000";

/// Makes the names taken, by somebody else, with a record as the strict dialect has them.
fn take(servers: &[RedisServer], names: &[String]) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let (seconds, micros) = (now.as_secs(), now.subsec_micros());
    let record = format!("quorlock {:016} {HOLDER} {seconds} {micros} {HELD_MS}", now.as_micros());
    for server in servers {
        let mut client = server.connect()?;
        for chunk in names.chunks(500) {
            for name in chunk {
                client.send(&["SET", name, &record, "PX", HELD_MS])?;
            }
            for _ in chunk {
                ensure!(client.receive()? == Reply::Simple("OK".into()), "SET");
            }
        }
    }
    Ok(())
}

/// The marks in the last column.
fn verdict(system: &str, reached: bool) -> &'static str {
    match (system, reached) {
        ("quorlock", true) => "reached",
        ("quorlock", false) => "missed",
        _ => "",
    }
}
