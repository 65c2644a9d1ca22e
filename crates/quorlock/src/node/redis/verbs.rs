//! Requests as commands, replies as answers.

use std::sync::LazyLock;
use std::time::Duration;

use super::error::rejected;
use super::resp::{Command, Value};
use crate::node::{Answer, Failure, FailureKind, Record, Request, Verb};

/// How this server wants to be spoken to.
#[derive(Debug, Clone, Default)]
pub(super) struct Dialect {
    /// Put before each name.
    pub(super) prefix: Vec<u8>,
    /// A command that deletes a key if its value is equal, where the server has one.
    pub(super) delete_if_equal: Option<DeleteIfEqual>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeleteIfEqual {
    /// `DELEX key IFEQ value`, Redis 8.4 and later.
    Delex,
    /// `DELIFEQ key value`, Valkey 9 and later.
    Delifeq,
}

/// What was sent, for reading the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Acquire,
    Extend,
    Release,
    Inspect,
}

/// What a reply asks for.
#[derive(Debug)]
pub(super) enum Reading {
    Answer(Answer),
    /// The server does not know the script, so nothing ran: send its source.
    SendSource,
}

struct Script {
    source: &'static str,
    sha: String,
}

impl Script {
    fn new(source: &'static str) -> Self {
        Self { source, sha: sha1_smol::Sha1::from(source).digest().to_string() }
    }
}

static EXTEND: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/extend.lua")));
static RELEASE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/release.lua")));
static INSPECT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/inspect.lua")));

/// The sources of all scripts. A new connection loads them, so that no call has to be repeated.
pub(super) fn scripts() -> [&'static str; 3] {
    [EXTEND.source, RELEASE.source, INSPECT.source]
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
                let token = &token.text();
                match self.delete_if_equal {
                    Some(DeleteIfEqual::Delex) => Command::new(out, 4)
                        .arg(b"DELEX")
                        .arg2(&self.prefix, name)
                        .arg(b"IFEQ")
                        .arg(token),
                    Some(DeleteIfEqual::Delifeq) => {
                        Command::new(out, 3).arg(b"DELIFEQ").arg2(&self.prefix, name).arg(token)
                    }
                    None => self.script(&RELEASE, source, name, 1, out).arg(token),
                };
                Sent::Release
            }
            Verb::Wait { .. } => Sent::Inspect,
            Verb::Inspect => {
                self.script(&INSPECT, source, name, 0, out);
                Sent::Inspect
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
        let command = Command::new(out, 4 + args);
        let command = if source {
            command.arg(b"EVAL").arg(script.source.as_bytes())
        } else {
            command.arg(b"EVALSHA").arg(script.sha.as_bytes())
        };
        command.number(1).arg2(&self.prefix, name)
    }
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
        (Sent::Extend | Sent::Release, Value::Int(1)) => Answer::Done,
        (Sent::Extend | Sent::Release, Value::Int(0)) => Answer::Refused,
        (Sent::Inspect, Value::Array(parts)) => match parts.as_slice() {
            [Value::Bulk(b"none") | Value::Simple(b"none")] => Answer::Seen(None),
            [Value::Bulk(b"string"), Value::Bulk(token), Value::Int(left)] => {
                let remaining = u64::try_from(*left).ok().map(Duration::from_millis);
                Answer::Seen(Some(Record::new(token, remaining)))
            }
            [Value::Bulk(kind)] => Answer::Failed(wrong_type(kind)),
            _ => Answer::Failed(unexpected(reply)),
        },
        _ => Answer::Failed(unexpected(reply)),
    };
    Reading::Answer(answer)
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
