//! How many commands clients send to a server.
//!
//! `INFO commandstats` counts what clients send and what scripts call alike. `MONITOR` tells the two
//! apart but slows the server down. So `MONITOR` looks on for a moment before the measured time, which
//! gives for each command the share that came from clients, and the counts of the measured time are
//! multiplied by it. A command that was not seen in that moment counts in full.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use quorlock_testkit::{RedisServer, Reply};

const END: &str = "bench-monitor-end";

/// By command, the share of its calls that came from clients and not from scripts.
#[derive(Debug, Default)]
pub struct Shares(BTreeMap<String, (f64, f64)>);

impl Shares {
    /// Watches a server for so long.
    pub fn watch(server: &RedisServer, time: Duration) -> Result<Self> {
        let mut monitor = server.connect()?;
        ensure!(monitor.command(&["MONITOR"])? == Reply::Simple("OK".into()), "MONITOR");
        thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(time);
                server.command(&["PING", END]);
            });
            let mut shares = Self::default();
            loop {
                match monitor.receive()? {
                    Reply::Simple(line) if line.contains(END) => return Ok(shares),
                    Reply::Simple(line) => shares.note(&line),
                    other => bail!("MONITOR said {other:?}"),
                }
            }
        })
    }

    /// A line such as `1794799735.5 [0 lua] "SET" …`, where a client's address may stand for `lua`.
    fn note(&mut self, line: &str) {
        let mut parts = line.splitn(4, ' ');
        let Some(source) = parts.nth(2) else { return };
        let Some(command) = parts.next().and_then(|rest| rest.split('"').nth(1)) else { return };
        let seen = self.0.entry(command.to_lowercase()).or_default();
        seen.0 += f64::from(u8::from(source != "lua]"));
        seen.1 += 1.0;
    }

    fn of(&self, command: &str) -> f64 {
        let command = command.split('|').next().unwrap_or(command);
        self.0.get(command).map_or(1.0, |(clients, all)| clients / all)
    }
}

/// Counts from now on what clients send to each of these servers on average.
pub fn count_from_now(servers: &[RedisServer]) -> Result<impl Fn(&Shares) -> Result<f64>> {
    let calls = || servers.iter().map(Calls::of).collect::<Result<Vec<_>>>();
    let before = calls()?;
    Ok(move |shares: &Shares| {
        let sent = calls()?.into_iter().zip(&before).map(|(now, before)| now.since(before, shares));
        Ok(sent.sum::<f64>() / servers.len() as f64)
    })
}

/// What one server has counted so far.
pub struct Calls(BTreeMap<String, f64>);

impl Calls {
    pub fn of(server: &RedisServer) -> Result<Self> {
        let Reply::Bulk(Some(text)) = server.command(&["INFO", "commandstats"]) else {
            bail!("no commandstats");
        };
        let text = String::from_utf8(text)?;
        let calls = text.lines().filter_map(|line| {
            let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((command.to_owned(), rest.split(',').next()?.parse().ok()?))
        });
        Ok(Self(calls.collect()))
    }

    /// What clients sent from then to now, without the one `INFO` that was needed to know.
    pub fn since(&self, before: &Self, shares: &Shares) -> f64 {
        let each = self.0.iter().map(|(command, calls)| {
            let mut calls = calls - before.0.get(command).unwrap_or(&0.0);
            if command == "info" {
                calls -= 1.0;
            }
            calls * shares.of(command)
        });
        each.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scripts_call_does_not_count() -> Result<()> {
        let server = RedisServer::start();
        let work = || {
            for _ in 0..10 {
                let script = "redis.call('SET','a',1) redis.call('PUBLISH','b',1)";
                server.command(&["EVAL", script, "0"]);
                server.command(&["SET", "a", "2"]);
                server.command(&["GET", "a"]);
            }
        };
        let shares = thread::scope(|scope| {
            let watching = scope.spawn(|| Shares::watch(&server, Duration::from_millis(300)));
            thread::sleep(Duration::from_millis(100));
            work();
            watching.join().expect("no panic")
        })?;
        let before = Calls::of(&server)?;
        work();
        assert_eq!(Calls::of(&server)?.since(&before, &shares), 30.0);
        // Without having watched, everything counts.
        assert_eq!(Calls::of(&server)?.since(&before, &Shares::default()), 50.0 + 1.0);
        Ok(())
    }
}
