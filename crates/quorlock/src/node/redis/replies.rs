//! Replies as answers.

use std::time::Duration;

use super::error::rejected;
use super::marker;
use super::resp::Value;
use super::verbs::{Dialect, Sent, Strict};
use crate::name::Name;
use crate::node::{Answer, Failure, FailureKind, Listed, Marker, Queued, Record, Seen};
use quorlock_protocol::{Carries, Untimely};

/// What a reply asks for.
#[derive(Debug)]
pub(super) enum Reading {
    Answer(Answer),
    /// The server does not know the script, so nothing ran: send its source.
    SendSource,
    /// The shortcut did nothing: send the script.
    SendScript,
}

/// Reads the reply to what was sent. `sent_us` and `now_us` give the time of day then and now.
pub(super) fn read(
    sent: Sent,
    dialect: &mut Dialect,
    sent_us: impl FnOnce() -> u64,
    now_us: impl FnOnce() -> u64,
    reply: &Value<'_>,
) -> Reading {
    let answer = match (sent, reply) {
        // It is read where it is of use.
        (Sent::Tend, _) => Answer::Done,
        (Sent::Shortcut, Value::Int(1)) => Answer::Done,
        (Sent::Shortcut, reply) => {
            match (reply, &mut dialect.shortcut) {
                // The script tells what is there instead.
                (Value::Int(0), Some(shortcut)) => shortcut.was_refused(),
                (Value::Error(text), _) if text.starts_with(b"WRONGTYPE") => {}
                // A user without the right to it, most likely.
                (_, shortcut) => *shortcut = None,
            }
            return Reading::SendScript;
        }
        (Sent::Marker, _) if dialect.strict.is_none() => Answer::Marker(None),
        (_, Value::Error(text)) if text.starts_with(b"NOSCRIPT") => return Reading::SendSource,
        (_, Value::Error(text)) => Answer::Failed(rejected(text)),
        (Sent::Set, Value::Simple(b"OK")) => Answer::Granted { fence: 0 },
        (Sent::Set, Value::Null) | (Sent::Ours, Value::Int(-1)) | (Sent::Done, Value::Int(0)) => {
            Answer::Refused
        }
        (Sent::Ours | Sent::Wait { .. }, Value::Int(number @ 0..)) => {
            Answer::Granted { fence: number.unsigned_abs() }
        }
        (Sent::Done, Value::Int(1)) => Answer::Done,
        (Sent::Done, Value::Int(2)) => Answer::LeftToOthers,
        (Sent::Ours | Sent::Wait { .. } | Sent::Marker, Value::Array(parts))
            if is_refusal(parts) =>
        {
            let refusal = refusal(parts, dialect.strict.as_ref(), sent_us(), now_us());
            Answer::Failed(refusal.unwrap_or_else(|| unexpected(reply)))
        }
        (Sent::Marker, Value::Array(parts)) => match (&dialect.strict, parts.as_slice()) {
            (Some(strict), [Value::Bulk(text), Value::Bulk(now)]) => match digits(now) {
                Some(now_us) => {
                    Answer::Marker(Some(Box::new(marker::read(text, &strict.run_id, now_us))))
                }
                None => Answer::Failed(unexpected(reply)),
            },
            _ => Answer::Failed(unexpected(reply)),
        },
        (Sent::Wait { told }, Value::Array(parts)) => match queued(parts, told) {
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
        (Sent::List, Value::Array(parts)) => match listed(parts, &dialect.prefix) {
            Some(listed) => Answer::Listed(Box::new(listed)),
            None => Answer::Failed(unexpected(reply)),
        },
        _ => Answer::Failed(unexpected(reply)),
    };
    Reading::Answer(answer)
}

pub(super) fn is_refusal(parts: &[Value<'_>]) -> bool {
    matches!(parts, [Value::Bulk(b"CLOCK" | b"MARKER" | b"NUMBER"), _, ..])
}

/// Why a server has not looked at a request, or casts no vote.
fn refusal(
    parts: &[Value<'_>],
    strict: Option<&Strict>,
    sent_us: u64,
    now_us: u64,
) -> Option<Failure> {
    match parts {
        [Value::Bulk(b"CLOCK"), Value::Bulk(server_us)] => {
            let ahead = strict?.ahead();
            Some(clock_refusal(Untimely::of(digits(server_us)?, sent_us, now_us, ahead)))
        }
        [Value::Bulk(b"NUMBER"), Value::Bulk(number)] => {
            Some(Failure::fence(digits(number)?, sent_us))
        }
        [Value::Bulk(b"MARKER"), Value::Bulk(text), Value::Bulk(server_us)] => {
            let strict = strict?;
            let marker = marker::read(text, &strict.run_id, digits(server_us)?);
            Some(casts_no_vote(&marker, strict))
        }
        _ => None,
    }
}

/// Why a server with this marker casts no vote for clients of this set.
fn casts_no_vote(marker: &Marker, strict: &Strict) -> Failure {
    let (ours, quiet) = (&strict.members, strict.quiet());
    let carries = marker.carries(ours);
    let left = marker.quiet(ours, quiet);
    let why = match carries {
        Carries::Another => {
            return Failure::new(FailureKind::OtherSet, marker.of_another_set(ours));
        }
        Carries::Formed { .. } => RESTARTED.to_owned(),
        Carries::Nothing if marker.restarted => RESTARTED.to_owned(),
        Carries::Nothing => without_mark(&strict.prefix()),
        Carries::Forming { due: false } => forming(&strict.prefix()),
        // Another member is waited for, and nobody knows how long.
        Carries::Forming { due: true } => WAITS.to_owned(),
        Carries::Closed { .. } => REPLACED.to_owned(),
    };
    Failure::quarantined(left, matches!(carries, Carries::Formed { .. }), &why)
}

const RESTARTED: &str = "started again or emptied, and locks may be forgotten; wait, and the votes come back by themselves";
const WAITS: &str = "no node of a set that forms votes before all of them are there; see that the others can \
                     be reached";
const REPLACED: &str = "the old set of nodes is being replaced by this one; run the change again: quorlock nodes \
                        add, remove or replace";

/// A prefix without a mark cannot be told from one whose keys were removed, even if the server votes for others.
fn without_mark(prefix: &str) -> String {
    if prefix.is_empty() {
        return "no mark is there: new, or emptied and locks may be forgotten; wait, or run quorlock init if all \
                nodes are new"
            .to_owned();
    }
    format!(
        "no mark is there for the prefix {prefix}: the prefix is new, or its keys were removed and locks may be \
         forgotten; wait, or run quorlock init --prefix {prefix} if nobody has used it"
    )
}

fn forming(prefix: &str) -> String {
    if prefix.is_empty() {
        return "the set of nodes is new, or too many of them were started or emptied and may have forgotten \
                locks; wait, or run quorlock init if no lock was ever taken on them"
            .to_owned();
    }
    format!(
        "the prefix {prefix} is new on these nodes, or too many of them may have forgotten its locks; wait, or run \
         quorlock init --prefix {prefix} if nobody has used it"
    )
}

/// The server's time was too far from the time of sending.
fn clock_refusal(untimely: Untimely) -> Failure {
    let (apart, side) = match untimely {
        Untimely::Late(late) => {
            let text =
                format!("the request was under way for {late:.1?}, too long to be looked at");
            return Failure::new(FailureKind::Late, text);
        }
        Untimely::Behind(apart) => (apart, "behind"),
        Untimely::Ahead(apart) => (apart, "ahead of"),
    };
    let text = format!(
        "its clock is {apart:.1?} {side} this machine's; let a daemon such as chrony keep the clocks \
         of all machines"
    );
    let apart_us = i64::try_from(apart.as_micros()).unwrap_or(i64::MAX);
    let behind = matches!(untimely, Untimely::Behind(_));
    Failure::clock(if behind { -apart_us } else { apart_us }, text)
}

fn digits(text: &[u8]) -> Option<u64> {
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
            Value::Int(number),
            Value::Int(quarantine),
        ] => {
            let number = u64::try_from(*number).ok()?;
            (Some(record(token, *left).with_fence(number)), Some(*noted), waiters, quarantine)
        }
        _ => return None,
    };
    let quarantine = u64::try_from(*quarantine).ok().filter(|left| *left > 0);
    let seen = Seen::new(record, noted, u64::try_from(*waiters).ok());
    Some(seen.quarantined(quarantine.map(Duration::from_millis)))
}

fn queued(parts: &[Value<'_>], told: bool) -> Option<Queued> {
    let (number, record) = match parts {
        [Value::Bulk(number)] => (number, None),
        [Value::Bulk(number), Value::Bulk(token), Value::Int(left)] => {
            (number, Some(record(token, *left)))
        }
        _ => return None,
    };
    Some(Queued { ticket_no: digits(number)?, record, will_notify: told })
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
