//! Replies as answers.

use std::time::Duration;

use super::dialect::DialectState;
use super::error::rejected;
use super::resp::Value;
use super::verbs::{Encoder, Sent};
use crate::name::Name;
use crate::node::{Answer, Failure, FailureKind, Listed, Marker, Queued, Record, Seen};

/// What a reply leads to.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The call is answered.
    Answered(Answer),
    /// The command that was to do without a script has done nothing: the script is sent.
    SendScript,
    /// The server does not know the script, so that nothing ran: its source is sent.
    SendSource,
    /// The server does not know the script, and a release that is under way takes back what the call asks for.
    /// Sent again, it would come behind that release.
    NotNeeded,
    /// The server does not know the script, though its source was sent.
    NotKnown,
}

/// How the command was sent that a reply is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sending {
    pub(super) sent: Sent,
    /// Sent once before, over a connection that broke before the reply came.
    pub(super) again: bool,
    /// Sent with the source of its script.
    pub(super) with_source: bool,
}

/// Reads the reply to what was sent. `sent_us` and `now_us` give the time of day then and now; `taken_back`, whether
/// a release that is under way takes back what the call asks for.
pub(super) fn read(
    sending: Sending,
    encoder: &mut Encoder,
    sent_us: impl FnOnce() -> u64,
    now_us: impl FnOnce() -> u64,
    taken_back: impl FnOnce() -> bool,
    reply: &Value<'_>,
) -> Outcome {
    let answer = match (sending.sent, reply) {
        // It is read where it is of use.
        (Sent::Tend, _) | (Sent::Shortcut, Value::Int(1)) => Answer::Done,
        (Sent::Shortcut, reply) => {
            encoder.dialect.shortcut_failed(reply);
            return Outcome::SendScript;
        }
        (Sent::NoMarker, _) => Answer::Marker(None),
        (_, Value::Error(text)) if text.starts_with(b"NOSCRIPT") => {
            return if sending.with_source {
                Outcome::NotKnown
            } else if taken_back() {
                Outcome::NotNeeded
            } else {
                Outcome::SendSource
            };
        }
        (_, Value::Error(text)) => Answer::Failed(rejected(text)),
        (Sent::Set, Value::Simple(b"OK")) => Answer::Granted { fence: 0 },
        // The first sending of a release may have run before its connection broke: that nothing is there any
        // more is what it was for.
        (Sent::Done, Value::Int(0)) if sending.again => Answer::Done,
        (Sent::Set, Value::Null) | (Sent::Ours, Value::Int(-1)) | (Sent::Done, Value::Int(0)) => {
            Answer::Refused
        }
        (Sent::Ours | Sent::Wait { .. }, Value::Int(fence @ 0..)) => {
            Answer::Granted { fence: fence.unsigned_abs() }
        }
        (Sent::Done, Value::Int(1)) => Answer::Done,
        (Sent::Done, Value::Int(2)) => Answer::LeftToOthers,
        (Sent::Ours | Sent::Wait { .. } | Sent::Marker, Value::Array(parts))
            if is_refusal(parts) =>
        {
            let refusal = refusal(parts, &encoder.dialect, sent_us(), now_us());
            Answer::Failed(refusal.unwrap_or_else(|| unexpected(reply)))
        }
        (Sent::Marker, Value::Array(parts)) => match marker(parts, &encoder.dialect) {
            Some(marker) => Answer::Marker(Some(Box::new(marker))),
            None => Answer::Failed(unexpected(reply)),
        },
        (Sent::Wait { will_notify }, Value::Array(parts)) => match queued(parts, will_notify) {
            Some(queued) => Answer::Queued(Box::new(queued)),
            None => Answer::Failed(unexpected(reply)),
        },
        (Sent::Inspect, Value::Array(parts)) => match parts.as_slice() {
            [Value::Bulk(kind)] => Answer::Failed(wrong_type(kind)),
            parts => match seen(parts) {
                Some(seen) => Answer::Seen(Box::new(seen)),
                None => Answer::Failed(unexpected(reply)),
            },
        },
        (Sent::List, Value::Array(parts)) => match listed(parts, &encoder.prefix) {
            Some(listed) => Answer::Listed(Box::new(listed)),
            None => Answer::Failed(unexpected(reply)),
        },
        _ => Answer::Failed(unexpected(reply)),
    };
    Outcome::Answered(answer)
}

pub(super) fn is_refusal(parts: &[Value<'_>]) -> bool {
    matches!(parts, [Value::Bulk(b"CLOCK" | b"MARKER" | b"NUMBER"), _, ..])
}

/// Why a server has not looked at a request, or casts no vote.
fn refusal(
    parts: &[Value<'_>],
    dialect: &DialectState,
    sent_us: u64,
    now_us: u64,
) -> Option<Failure> {
    match parts {
        [Value::Bulk(b"NUMBER"), Value::Bulk(fence)] => {
            Some(Failure::fence(digits(fence)?, sent_us))
        }
        parts => dialect.refusal(parts, sent_us, now_us),
    }
}

fn marker(parts: &[Value<'_>], dialect: &DialectState) -> Option<Marker> {
    match parts {
        [Value::Bulk(text), Value::Bulk(now)] => dialect.read_marker(text, digits(now)?),
        _ => None,
    }
}

pub(super) fn digits(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn seen(parts: &[Value<'_>]) -> Option<Seen> {
    let (record, noted, waiters, quarantine) = match parts {
        [Value::Bulk(b"free"), Value::Int(waiters), Value::Int(quarantine)] => {
            (None, None, waiters, quarantine)
        }
        [
            Value::Bulk(b"held"),
            Value::Bulk(token),
            Value::Int(left),
            Value::Bulk(noted),
            Value::Int(waiters),
            Value::Int(fence),
            Value::Int(quarantine),
        ] => {
            let fence = u64::try_from(*fence).ok()?;
            (Some(record(token, *left).with_fence(fence)), Some(*noted), waiters, quarantine)
        }
        _ => return None,
    };
    let quarantine = u64::try_from(*quarantine).ok().filter(|left| *left > 0);
    let seen = Seen::new(record, noted, u64::try_from(*waiters).ok());
    Some(seen.quarantined(quarantine.map(Duration::from_millis)))
}

fn queued(parts: &[Value<'_>], will_notify: bool) -> Option<Queued> {
    let (ticket_no, record) = match parts {
        [Value::Bulk(ticket_no)] => (ticket_no, None),
        [Value::Bulk(ticket_no), Value::Bulk(token), Value::Int(left)] => {
            (ticket_no, Some(record(token, *left)))
        }
        _ => return None,
    };
    Some(Queued { ticket_no: digits(ticket_no)?, record, will_notify })
}

fn listed(parts: &[Value<'_>], prefix: &[u8]) -> Option<Listed> {
    let [Value::Bulk(cursor), names @ ..] = parts else { return None };
    // It goes back as it came.
    digits(cursor)?;
    let names = names.iter().filter_map(|name| match name {
        // What cannot be a name is not a lock of ours.
        Value::Bulk(name) => Name::behind(prefix, name).ok(),
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
