//! What clients sent to the servers, command by command.
//!
//! The servers' own log of slow commands has them all if every command is slow enough for it. It has what
//! clients send and not what scripts call, and costs a server less than a client that looks on.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail, ensure};
use quorlock_testkit::{RedisServer, Reply};

use super::scripts::{Scripts, Verb};

/// More commands than a round can have.
const ENTRIES: &str = "4000000";

/// The logs of some servers.
pub struct Log<'a>(&'a [RedisServer]);

/// What they have seen.
#[derive(Debug, Default)]
pub struct Seen {
    commands: BTreeMap<Verb, u64>,
    /// The tokens of those who asked some node to confirm a fence.
    confirmed: BTreeSet<Vec<u8>>,
}

impl<'a> Log<'a> {
    /// Logs everything from now on.
    pub fn of(servers: &'a [RedisServer]) -> Result<Self> {
        for server in servers {
            let set = ["CONFIG", "SET", "slowlog-log-slower-than", "0", "slowlog-max-len", ENTRIES];
            ensure!(server.command(&set) == Reply::Simple("OK".into()), "no log of all commands");
        }
        Ok(Self(servers))
    }

    pub fn clear(&self) -> Result<()> {
        for server in self.0 {
            ensure!(server.command(&["SLOWLOG", "RESET"]) == Reply::Simple("OK".into()), "SLOWLOG");
        }
        Ok(())
    }

    /// What has been asked about locks whose names start with `names`, since it was cleared.
    pub fn seen(&self, scripts: &Scripts, names: &str) -> Result<Seen> {
        let mut seen = Seen::default();
        for server in self.0 {
            let Reply::Array(entries) = server.command(&["SLOWLOG", "GET", ENTRIES]) else {
                bail!("SLOWLOG GET");
            };
            for entry in &entries {
                let Some(args) = args(entry) else { bail!("not an entry of the log: {entry:?}") };
                seen.note(&args, scripts, names);
            }
        }
        Ok(seen)
    }
}

impl Seen {
    pub fn commands(&self, verb: Verb) -> u64 {
        self.commands.get(&verb).copied().unwrap_or(0)
    }

    /// How many acquisitions were confirmed.
    pub fn confirmed(&self) -> usize {
        self.confirmed.len()
    }

    /// Notes `EVALSHA HASH 1 LOCK TOKEN …`.
    fn note(&mut self, args: &[&[u8]], scripts: &Scripts, names: &str) {
        let [b"EVALSHA", hash, b"1", lock, token, ..] = args else { return };
        if !lock.starts_with(names.as_bytes()) {
            return;
        }
        let Some(verb) = scripts.verb(hash) else { return };
        *self.commands.entry(verb).or_default() += 1;
        if verb == Verb::Confirm {
            self.confirmed.insert(token.to_vec());
        }
    }
}

/// The words of the command in an entry: a number, a time, how long it took, the words, and whose it was.
fn args(entry: &Reply) -> Option<Vec<&[u8]>> {
    let Reply::Array(parts) = entry else { return None };
    let Reply::Array(words) = parts.get(3)? else { return None };
    let word = |word| match word {
        &Reply::Bulk(Some(ref bytes)) => Some(bytes.as_slice()),
        _ => None,
    };
    words.iter().map(word).collect()
}

#[cfg(test)]
mod tests {
    use quorlock::{Dialect, Locker};
    use quorlock_testkit::servers;

    use super::*;

    #[test]
    fn who_has_to_confirm_a_fence_counts_once() -> Result<()> {
        let servers = servers(3);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let urls = servers.iter().map(RedisServer::url);
        let connect = Locker::builder()
            .redis(quorlock::RedisOptions::default().dialect(Dialect::Redlock))
            .nodes(urls);
        let mut locker = None;
        let scripts = Scripts::watch(&servers[0], || {
            locker = Some(runtime.block_on(connect.connect())?);
            Ok(())
        })?;
        let locker = locker.expect("it has connected");
        // Whichever two of them answer first, they do not agree.
        for (server, fence) in servers.iter().zip(["4000000000000000", "5000000000000000"]) {
            server.command(&["SET", "bench/a:quorlock:fence", fence]);
        }
        let log = Log::of(&servers)?;
        log.clear()?;
        runtime.block_on(async {
            for name in ["bench/a", "bench/a", "bench/b", "other"] {
                locker.try_lock(name).await?.release().await?;
            }
            locker.shutdown().await;
            anyhow::Ok(())
        })?;
        let seen = log.seen(&scripts, "bench/")?;
        assert_eq!(seen.confirmed(), 1);
        assert_eq!(seen.commands(Verb::Confirm), 3);
        assert_eq!(seen.commands(Verb::Acquire), 9);
        assert_eq!(seen.commands(Verb::Release), 9);
        log.clear()?;
        assert_eq!(log.seen(&scripts, "bench/")?.commands(Verb::Acquire), 0);
        Ok(())
    }
}
