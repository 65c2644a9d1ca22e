//! Locks in one SQLite file, beside what the file alone costs.

mod crowd;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use quorlock::Locker;
use quorlock::node::Node;
use quorlock::node::memory::MemoryNode;
use rusqlite::{Connection, OpenFlags, params};
use tempfile::TempDir;

pub use crowd::{MEMBER, Part, member};

use crate::stats::Timings;
use crate::systems::{TTL, quorlock_at, quorlock_cycle};

const ROUNDS: usize = 25;
const CYCLES: usize = 400;
/// As long as the tokens that locks carry.
const TOKEN: [u8; 43] = [b'x'; 43];

/// What is measured, in turns.
const SYSTEMS: [&str; 4] = ["two empty transactions", "insert, delete", "quorlock", "no file"];

pub async fn compare() -> Result<()> {
    println!("lock + release in one SQLite file, µs (median of {ROUNDS} rounds of {CYCLES})");
    println!("system                      p50      p99   p50/empty");
    let directory = tempfile::tempdir()?;
    let mut bare = Bare::open(&directory)?;
    let file = directory.path().join("locks.db");
    let locker = quorlock_at([url(&file)]).await?;
    let memory = Arc::new(MemoryNode::new()) as Arc<dyn Node>;
    let memory = Locker::builder().ttl(TTL).with_nodes([memory]).connect().await?;
    let mut timings: [Timings; SYSTEMS.len()] = Default::default();
    let mut serial = 0;
    // The first round warms up and is not counted.
    for round in 0..=ROUNDS {
        for (system, timings) in timings.iter_mut().enumerate() {
            let mut samples = Vec::with_capacity(CYCLES);
            for _ in 0..CYCLES {
                serial += 1;
                let name = format!("bench/{serial}");
                let start = Instant::now();
                match system {
                    0 => bare.empty()?,
                    1 => bare.cycle(&name)?,
                    2 => quorlock_cycle(&locker, &name).await?,
                    _ => quorlock_cycle(&memory, &name).await?,
                }
                samples.push(start.elapsed());
            }
            if round > 0 {
                timings.add(samples);
            }
        }
    }
    let empty = timings[0].quantile_us(0.5);
    for (system, timings) in SYSTEMS.iter().zip(&timings) {
        let (p50, p99) = (timings.quantile_us(0.5), timings.quantile_us(0.99));
        println!("{system:<22}  {p50:>7.1}  {p99:>7.1}  {:>9.2}", p50 / empty);
    }
    crowd::measure().await
}

fn url(file: &Path) -> String {
    format!("sqlite:{}", file.display())
}

/// A file with a table of names, used by nothing but this.
struct Bare(Connection);

impl Bare {
    fn open(directory: &TempDir) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let file = Connection::open_with_flags(directory.path().join("bare.db"), flags)?;
        file.pragma_update(None, "page_size", 1_024)?;
        let mode: String =
            file.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
        ensure!(mode == "wal", "the journal mode is {mode}");
        file.pragma_update(None, "synchronous", "off")?;
        file.execute_batch(
            "CREATE TABLE lock(name BLOB PRIMARY KEY, token BLOB, ends INTEGER) WITHOUT ROWID",
        )?;
        Ok(Self(file))
    }

    fn empty(&mut self) -> Result<()> {
        for _ in 0..2 {
            self.run("BEGIN IMMEDIATE")?;
            self.run("COMMIT")?;
        }
        Ok(())
    }

    fn cycle(&mut self, name: &str) -> Result<()> {
        self.run("BEGIN IMMEDIATE")?;
        let mut insert = self.0.prepare_cached("INSERT INTO lock VALUES (?1, ?2, ?3)")?;
        insert.execute(params![name.as_bytes(), &TOKEN[..], 1])?;
        self.run("COMMIT")?;
        self.run("BEGIN IMMEDIATE")?;
        let mut delete =
            self.0.prepare_cached("DELETE FROM lock WHERE name = ?1 AND token = ?2")?;
        delete.execute(params![name.as_bytes(), &TOKEN[..]])?;
        self.run("COMMIT")
    }

    fn run(&self, statement: &str) -> Result<()> {
        self.0.prepare_cached(statement)?.execute([])?;
        Ok(())
    }
}
