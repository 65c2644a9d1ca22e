//! A peer's process, seen from the one that started it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::de::DeserializeOwned;

use super::{System, Tools};
use crate::order::Order;

/// How long a peer may take to get ready.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Dropping it kills it.
pub struct Process {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    log: PathBuf,
}

impl Process {
    pub fn start(tools: &Tools, system: &System, nodes: &[String]) -> Result<Self> {
        Self::start_with(tools, system, nodes, &[])
    }

    /// The same with more arguments.
    pub fn start_with(
        tools: &Tools,
        system: &System,
        nodes: &[String],
        more: &[(&str, String)],
    ) -> Result<Self> {
        let command = tools.command(system.made).map_err(|why| anyhow!("missing: {why}"))?;
        let log = tools.logs.join(format!("{}.log", system.name));
        // Killed with this process, in whatever way that ends.
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .args(command)
            .args([format!("system={}", system.name), format!("nodes={}", nodes.join(","))])
            .args(more.iter().map(|(key, value)| format!("{key}={value}")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .spawn()
            .context("setpriv does not start")?;
        let input = child.stdin.take().context("no stdin")?;
        let output = BufReader::new(child.stdout.take().context("no stdout")?);
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Ok(Self { child, input, lines, log })
    }

    /// Waits until it is connected.
    pub fn ready(&mut self) -> Result<()> {
        let line = self.line(START_LIMIT)?;
        ensure!(line == "ready", "it said {line:?} at first");
        Ok(())
    }

    pub fn go(&mut self, order: &Order) -> Result<()> {
        writeln!(self.input, "{order}").map_err(|_| anyhow!("ended: {}", self.last_words()))
    }

    /// What it has to say of the round.
    pub fn report<T: DeserializeOwned>(&mut self, limit: Duration) -> Result<T> {
        let line = self.line(limit)?;
        serde_json::from_str(&line).with_context(|| format!("not a report: {line}"))
    }

    fn line(&mut self, limit: Duration) -> Result<String> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => bail!("no answer in {} s", limit.as_secs()),
            Err(RecvTimeoutError::Disconnected) => bail!("ended: {}", self.last_words()),
        }
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let line = log.lines().rev().find(|line| !line.trim().is_empty());
        line.map_or_else(|| "without a word".to_owned(), |line| line.trim().to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
