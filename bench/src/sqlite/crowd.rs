//! One name that the processes of a machine hand around.

use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::url;
use crate::stats::at;
use crate::systems::quorlock_at;

/// The hidden benchmark that is one of the processes.
pub const MEMBER: &str = "sqlite-member";

const PROCESSES: usize = 50;
const TIME: Duration = Duration::from_secs(5);

/// What one process does.
#[derive(Debug, Clone)]
pub struct Part {
    file: PathBuf,
}

impl Part {
    pub fn parse(args: &[&str]) -> Result<Self> {
        let [file] = args else { bail!("a member needs a file") };
        Ok(Self { file: file.into() })
    }
}

/// Starts the processes, lets them lock and release for a while, and says how often they did.
pub async fn measure() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("locks.db");
    let mut members = Vec::new();
    for _ in 0..PROCESSES {
        members.push(Member::start(&file)?);
    }
    for member in &mut members {
        member.wait_for("ready")?;
    }
    for member in &mut members {
        let input = member.process.stdin.as_mut().context("no input")?;
        writeln!(input, "go")?;
    }
    let mut turns = Vec::new();
    for member in &mut members {
        turns.push(member.line()?.parse::<u64>()?);
    }
    let total: u64 = turns.iter().sum();
    turns.sort_unstable();
    let rate = total as f64 / TIME.as_secs_f64();
    println!("one name, {PROCESSES} processes for {TIME:?}: {rate:.0} turns/s, each process");
    let [least, middle, most] = [0.0, 0.5, 1.0].map(|quantile| at(&turns, quantile));
    println!("had {least} at the least, {middle} in the middle, {most} at the most");
    Ok(())
}

/// One of the processes.
pub async fn member(part: Part) -> Result<()> {
    let locker = quorlock_at([url(&part.file)]).await?;
    println!("ready");
    stdin().lines().next().context("nobody started it")??;
    let (start, mut turns) = (Instant::now(), 0_u64);
    while start.elapsed() < TIME {
        // A process that finds the file busy for too long tries again.
        if let Ok(guard) = locker.lock("crowd").await {
            turns += 1;
            drop(guard.release().await);
        }
    }
    println!("{turns}");
    stdout().flush()?;
    Ok(())
}

/// A process, seen from the one that started it. Dropping it ends it.
struct Member {
    process: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Member {
    fn start(file: &std::path::Path) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(MEMBER).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let output = BufReader::new(process.stdout.take().context("no output")?);
        Ok(Self { process, output })
    }

    fn wait_for(&mut self, word: &str) -> Result<()> {
        let line = self.line()?;
        ensure!(line == word, "a process said {line:?} instead of {word:?}");
        Ok(())
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _waited = self.process.wait();
    }
}
