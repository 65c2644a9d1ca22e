//! Requests as commands, replies as answers.

use std::sync::LazyLock;
use std::time::Duration;

use super::error::rejected;
use super::resp::{Command, Value};
use crate::name::Name;
use crate::node::{
    Answer, ClientId, Failure, FailureKind, Holder, Listed, Queued, Record, Request, Seen, Ticket,
    TicketNumber, Verb, noted,
};

/// How this server wants to be spoken to.
#[derive(Debug, Clone, Default)]
pub(super) struct Dialect {
    /// Put before each name.
    pub(super) prefix: Vec<u8>,
    /// Whose word of grants comes over the connection.
    pub(super) told: Option<ClientId>,
}

/// What was sent, for reading the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Acquire,
    Extend,
    Release,
    Wait {
        /// Whether word of a grant to this ticket will come.
        told: bool,
    },
    Inspect,
    Describe,
    Break,
    List,
}

/// What a reply asks for.
#[derive(Debug)]
pub(super) enum Reading {
    Answer(Answer),
    /// The server does not know the script, so nothing ran: send its source.
    SendSource,
}

struct Script {
    source: String,
    sha: String,
}

impl Script {
    /// A script without its comments, which would be most of every greeting.
    fn new(source: &str) -> Self {
        let lines = source.lines().map(str::trim_start);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("--"));
        let source = lines.collect::<Vec<_>>().join("\n");
        Self { sha: sha1_smol::Sha1::from(&source).digest().to_string(), source }
    }
}

static EXTEND: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/extend.lua")));
static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("lua/pass_on.lua"), include_str!("lua/release.lua")))
});
static WAIT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("lua/pass_on.lua"), include_str!("lua/wait.lua")))
});
static INSPECT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/inspect.lua")));
static DESCRIBE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/describe.lua")));
static BREAK: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("lua/pass_on.lua"), include_str!("lua/break.lua")))
});
static LIST: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/list.lua")));

/// The sources of the scripts that every lock needs. A new connection loads them, so that no call
/// has to be repeated. The others are sent with their first use.
pub(super) fn scripts() -> [&'static str; 4] {
    [&EXTEND.source, &RELEASE.source, &WAIT.source, &INSPECT.source]
}

impl Dialect {
    /// Writes the command for a request. Scripts go by their hash, or whole with `source`.
    pub(super) fn encode(&self, request: &Request<'_>, source: bool, out: &mut Vec<u8>) -> Sent {
        let name = request.name.as_bytes();
        match request.verb {
            Verb::Acquire { token, ttl } => {
                Command::new(out, 6)
                    .arg(b"SET")
                    .arg2(&self.prefix, name)
                    .arg(&token.text())
                    .arg(b"NX")
                    .arg(b"PX")
                    .number(millis(ttl));
                Sent::Acquire
            }
            Verb::Extend { token, ttl } => {
                self.script(&EXTEND, source, name, 2, out).arg(&token.text()).number(millis(ttl));
                Sent::Extend
            }
            Verb::Release { token, .. } => {
                self.script(&RELEASE, source, name, 1, out).arg(&token.text());
                Sent::Release
            }
            Verb::Wait { token, ttl, ticket: Ticket { client, waiter, number }, yielding } => {
                let (number, kind) = match number {
                    TicketNumber::New(least) => (least, &b"new"[..]),
                    TicketNumber::Agreed(number) => (number, &b"agreed"[..]),
                };
                self.script(&WAIT, source, name, 8, out)
                    .arg(&token.text())
                    .number(millis(ttl))
                    .arg(client.to_string().as_bytes())
                    .number(waiter)
                    .number(request.sent.as_nanos())
                    .number(number)
                    .arg(kind)
                    .arg(if yielding { b"yield" } else { b"keep" });
                Sent::Wait { told: self.told == Some(client) }
            }
            Verb::Inspect => {
                self.script(&INSPECT, source, name, 0, out);
                Sent::Inspect
            }
            Verb::Describe { token, note, keep } => {
                let text = token.text();
                let noted =
                    if note.is_empty() { String::new() } else { noted(Holder::of(&text), note) };
                self.script(&DESCRIBE, source, name, 3, out)
                    .arg(&text)
                    .arg(noted.as_bytes())
                    .number(millis(keep));
                Sent::Describe
            }
            Verb::Break { holder } => {
                self.script(&BREAK, source, name, 1, out).arg(holder.to_string().as_bytes());
                Sent::Break
            }
            Verb::List { from } => {
                let from = if from.is_empty() { b"0" } else { from };
                Self::call(&LIST, source, 3, out)
                    .number(0)
                    .arg(from)
                    .arg(&pattern(&self.prefix))
                    .number(self.prefix.len() as u64);
                Sent::List
            }
        }
    }

    fn script<'a>(
        &self,
        script: &Script,
        source: bool,
        name: &[u8],
        args: usize,
        out: &'a mut Vec<u8>,
    ) -> Command<'a> {
        Self::call(script, source, 1 + args, out).number(1).arg2(&self.prefix, name)
    }

    /// A script, up to the number of its keys.
    fn call<'a>(script: &Script, source: bool, args: usize, out: &'a mut Vec<u8>) -> Command<'a> {
        let command = Command::new(out, 3 + args);
        if source {
            command.arg(b"EVAL").arg(script.source.as_bytes())
        } else {
            command.arg(b"EVALSHA").arg(script.sha.as_bytes())
        }
    }
}

/// What matches all that starts with `prefix`.
fn pattern(prefix: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(prefix.len() + 1);
    for &byte in prefix {
        if br"*?[]^-\".contains(&byte) {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern.push(b'*');
    pattern
}

/// Milliseconds, rounded up: a node may keep a record longer than it is believed, never shorter.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Reads the reply to what was sent.
pub(super) fn read(sent: Sent, reply: &Value<'_>) -> Reading {
    let answer = match (sent, reply) {
        (_, Value::Error(text)) if text.starts_with(b"NOSCRIPT") => return Reading::SendSource,
        (_, Value::Error(text)) => Answer::Failed(rejected(text)),
        (Sent::Acquire, Value::Simple(b"OK")) => Answer::Done,
        (Sent::Acquire, Value::Null) => Answer::Refused,
        (
            Sent::Extend | Sent::Release | Sent::Wait { .. } | Sent::Describe | Sent::Break,
            Value::Int(1),
        ) => Answer::Done,
        (Sent::Extend | Sent::Release | Sent::Describe | Sent::Break, Value::Int(0)) => {
            Answer::Refused
        }
        (Sent::Wait { told }, Value::Array(parts)) => match queued(parts, told) {
            Some(queued) => Answer::Queued(queued),
            None => Answer::Failed(unexpected(reply)),
        },
        (Sent::Inspect, Value::Array(parts)) => match parts.as_slice() {
            [Value::Bulk(b"none"), Value::Int(waiters)] => {
                Answer::Seen(Seen::new(None, None, u64::try_from(*waiters).ok()))
            }
            [
                Value::Bulk(b"string"),
                Value::Bulk(token),
                Value::Int(left),
                Value::Bulk(noted),
                Value::Int(waiters),
            ] => {
                let record = Some(record(token, *left));
                Answer::Seen(Seen::new(record, Some(noted), u64::try_from(*waiters).ok()))
            }
            [Value::Bulk(kind)] => Answer::Failed(wrong_type(kind)),
            _ => Answer::Failed(unexpected(reply)),
        },
        (Sent::List, Value::Array(parts)) => match listed(parts) {
            Some(listed) => Answer::Listed(listed),
            None => Answer::Failed(unexpected(reply)),
        },
        _ => Answer::Failed(unexpected(reply)),
    };
    Reading::Answer(answer)
}

fn queued(parts: &[Value<'_>], told: bool) -> Option<Queued> {
    let (number, record) = match parts {
        [Value::Bulk(number)] => (number, None),
        [Value::Bulk(number), Value::Bulk(token), Value::Int(left)] => {
            (number, Some(record(token, *left)))
        }
        _ => return None,
    };
    let number = std::str::from_utf8(number).ok()?.parse().ok()?;
    Some(Queued { number, record, told })
}

fn listed(parts: &[Value<'_>]) -> Option<Listed> {
    let [Value::Bulk(cursor), names @ ..] = parts else { return None };
    let names = names.iter().filter_map(|name| match name {
        // What cannot be a name is not a lock of ours.
        Value::Bulk(name) => Name::new(name).ok(),
        _ => None,
    });
    let next = (*cursor != b"0").then(|| cursor.to_vec());
    Some(Listed { names: names.collect(), next })
}

fn record(token: &[u8], left_ms: i64) -> Record {
    Record::new(token, u64::try_from(left_ms).ok().map(Duration::from_millis))
}

fn wrong_type(kind: &[u8]) -> Failure {
    let kind = kind.escape_ascii();
    let text = format!(
        "the key holds a {kind}, not a lock; choose another name or a prefix, or delete the key"
    );
    Failure::new(FailureKind::WrongType, text)
}

/// A reply that makes no sense says nothing about whether the command ran. What it holds is not
/// shown: it may be somebody's token.
fn unexpected(reply: &Value<'_>) -> Failure {
    let kind = match reply {
        Value::Null => "nothing",
        Value::Simple(_) => "a simple string",
        Value::Error(_) => "an error",
        Value::Int(_) => "a number",
        Value::Bulk(_) => "a string",
        Value::Array(_) => "an array",
        Value::Map(_) => "a map",
        Value::Push(_) => "a push message",
    };
    let text = format!("answered with {kind}, which is no answer to the command");
    Failure::new(FailureKind::Broken, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_matches_itself_alone() {
        assert_eq!(pattern(b""), b"*");
        assert_eq!(pattern(br"a*[b]?\^-"), br"a\*\[b\]\?\\\^\-*");
    }
}
