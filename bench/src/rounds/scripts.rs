//! Which script is which: on the wire they go by their hash.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use quorlock_testkit::{RedisServer, Reply};

const END: &str = "bench-scripts-end";

/// What a node is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Acquire,
    Wait,
    Extend,
    Confirm,
    Release,
}

macro_rules! lua {
    ($name:literal) => {
        include_str!(concat!("../../../crates/quorlock/src/node/redis/dialect/lua/", $name, ".lua"))
    };
}

/// How the script of each verb ends.
const ENDS: [(Verb, &str); 5] = [
    (Verb::Acquire, lua!("acquire")),
    (Verb::Wait, lua!("wait")),
    (Verb::Extend, lua!("extend")),
    (Verb::Confirm, lua!("confirm")),
    (Verb::Release, lua!("release")),
];

/// The verbs by the hashes of the scripts of one client.
#[derive(Debug)]
pub struct Scripts(BTreeMap<String, Verb>);

impl Scripts {
    /// Those that a client loads while `connect` lets it connect.
    pub fn watch(server: &RedisServer, connect: impl FnOnce() -> Result<()>) -> Result<Self> {
        let mut monitor = server.connect()?;
        ensure!(monitor.command(&["MONITOR"])? == Reply::Simple("OK".into()), "MONITOR");
        connect()?;
        server.command(&["PING", END]);
        let mut scripts = BTreeMap::new();
        loop {
            match monitor.receive()? {
                Reply::Simple(line) if line.contains(END) => break,
                Reply::Simple(line) => scripts.extend(loaded(server, &line)?),
                other => bail!("MONITOR said {other:?}"),
            }
        }
        let known = ENDS.iter().filter(|(verb, _)| scripts.values().any(|known| known == verb));
        ensure!(known.count() == ENDS.len(), "only these scripts were loaded: {scripts:?}");
        Ok(Self(scripts))
    }

    pub fn verb(&self, hash: &[u8]) -> Option<Verb> {
        self.0.get(std::str::from_utf8(hash).ok()?).copied()
    }
}

/// The script of a line such as `1794799735.5 [0 127.0.0.1:5] "SCRIPT" "LOAD" "…"`, if it is a verb's.
fn loaded(server: &RedisServer, line: &str) -> Result<Option<(String, Verb)>> {
    let Some((_, quoted)) = line.split_once(r#""SCRIPT" "LOAD" "#) else { return Ok(None) };
    let source = unquoted(quoted).with_context(|| format!("not a script: {quoted}"))?;
    let Some((verb, _)) = ENDS.iter().find(|(_, end)| source.ends_with(&bare(end))) else {
        return Ok(None);
    };
    match server.command(&["SCRIPT", "LOAD", &source]) {
        Reply::Bulk(Some(hash)) => Ok(Some((String::from_utf8(hash)?, *verb))),
        other => bail!("SCRIPT LOAD: {other:?}"),
    }
}

/// A source as it is sent: without comments and indents.
fn bare(source: &str) -> String {
    let lines = source.lines().map(str::trim_start);
    lines.filter(|line| !line.is_empty() && !line.starts_with("--")).collect::<Vec<_>>().join("\n")
}

/// What `MONITOR` shows in quotes. Scripts have no bytes that it would show as numbers.
fn unquoted(text: &str) -> Option<String> {
    let mut chars = text.strip_prefix('"')?.strip_suffix('"')?.chars();
    let mut out = String::new();
    while let Some(char) = chars.next() {
        out.push(match char {
            '\\' => match chars.next()? {
                'n' => '\n',
                't' => '\t',
                same @ ('"' | '\\') => same,
                _ => return None,
            },
            other => other,
        });
    }
    Some(out)
}
