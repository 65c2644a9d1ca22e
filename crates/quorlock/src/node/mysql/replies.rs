//! Rows as answers.

use std::time::Duration;

use mysql_async::Row;
use mysql_async::prelude::FromValue;

use super::verbs::{Caller, Procedure};
use crate::name::Name;
use crate::node::{Answer, Failure, FailureKind, Listed, Queued, Record, Seen, marker, refusals};

/// What a procedure has answered with. Its columns are those that `sql/rules.sql` names; each answer has some of them.
struct Reply {
    said: String,
    number: u64,
    token: Option<Vec<u8>>,
    left: Duration,
    note: Option<Vec<u8>>,
    waiters: Option<u64>,
    quarantine: Duration,
    marker: Vec<u8>,
    listener: Option<u64>,
}

/// A column, if the answer has it.
fn column<T: FromValue>(row: &Row, name: &str) -> Option<T> {
    row.get_opt::<Option<T>, _>(name)?.ok()?
}

impl Reply {
    fn read(row: &Row) -> Option<Self> {
        let number = |name| -> Option<u64> {
            let number: i64 = column(row, name)?;
            Some(u64::try_from(number).unwrap_or(0))
        };
        let micros = |name| Duration::from_micros(number(name).unwrap_or(0));
        Some(Self {
            said: column(row, "said")?,
            number: number("number").unwrap_or(0),
            token: column(row, "token"),
            left: micros("left_us"),
            note: column(row, "note"),
            waiters: number("waiters"),
            quarantine: micros("quarantine_us"),
            marker: column(row, "marker").unwrap_or_default(),
            listener: number("listener"),
        })
    }

    fn record(&self) -> Option<Record> {
        self.token.as_deref().map(|token| Record::new(token, Some(self.left)))
    }
}

/// How a call was sent that rows are for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sending {
    pub(super) procedure: Procedure,
    /// The time of day that was sent along, and the time now.
    pub(super) sent_us: u64,
    pub(super) now_us: u64,
    /// Sent once before, over a connection that broke before the answer came.
    pub(super) again: bool,
}

/// An answer, and the connection that has to be told that a message is there.
pub(super) struct Read {
    pub(super) answer: Answer,
    pub(super) listener: Option<u64>,
}

/// Reads the rows of an answer.
pub(super) fn read(sending: Sending, caller: &Caller, rows: &[Row]) -> Read {
    if sending.procedure == Procedure::List {
        return Read { answer: Answer::Listed(Box::new(listed(rows))), listener: None };
    }
    let Some(reply) = rows.first().and_then(Reply::read) else {
        return Read { answer: unexpected("no row"), listener: None };
    };
    Read { answer: answer(sending, caller, &reply), listener: reply.listener }
}

fn answer(sending: Sending, caller: &Caller, reply: &Reply) -> Answer {
    match &*reply.said {
        "granted" => Answer::Granted { fence: reply.number },
        // The first sending of a release may have run before its connection broke: that nothing is there any more is
        // what it was for.
        "refused" if sending.again => Answer::Done,
        "refused" => Answer::Refused,
        "done" => Answer::Done,
        "left" => Answer::LeftToOthers,
        "queued" => Answer::Queued(Box::new(Queued {
            ticket_no: reply.number,
            record: reply.record(),
            will_notify: true,
        })),
        "free" | "held" => {
            let record = reply.record().map(|record| record.with_fence(reply.number));
            let seen = Seen::new(record, reply.note.as_deref(), reply.waiters);
            let quarantine = Some(reply.quarantine).filter(|left| !left.is_zero());
            Answer::Seen(Box::new(seen.quarantined(quarantine)))
        }
        "marker" => {
            let marker = marker::read(&reply.marker, &caller.start, reply.number);
            Answer::Marker(Some(Box::new(marker)))
        }
        "CLOCK" => {
            let Sending { sent_us, now_us, .. } = sending;
            Answer::Failed(refusals::clock(reply.number, sent_us, now_us, caller.ahead()))
        }
        "MARKER" => {
            let marker = marker::read(&reply.marker, &caller.start, reply.number);
            let quiet = caller.quiet();
            Answer::Failed(refusals::casts_no_vote(&marker, &caller.members, quiet, b""))
        }
        "FENCE" => Answer::Failed(Failure::fence(reply.number, sending.sent_us)),
        other => unexpected(other),
    }
}

/// What a look after the database has said.
pub(super) struct Tended {
    /// Whether it votes, or will by itself.
    pub(super) votes: bool,
    /// Whether there is so much to clear away that the next step should come soon.
    pub(super) more: bool,
}

pub(super) fn tended(caller: &Caller, rows: &[Row]) -> Option<Tended> {
    let reply = Reply::read(rows.first()?)?;
    let votes = reply.marker.starts_with(caller.voter.as_bytes());
    Some(Tended { votes, more: reply.waiters == Some(1) })
}

/// So many names an answer has that goes on, as `sql/looks.sql` says.
const PAGE: usize = 256;

fn listed(rows: &[Row]) -> Listed {
    let names = rows.iter().filter_map(|row| Some((column::<Vec<u8>>(row, "name")?, row)));
    let names: Vec<_> = names.collect();
    let next = names.last().filter(|_| rows.len() >= PAGE).map(|(name, _)| name.clone());
    let held = names.into_iter().filter(|(_, row)| column::<i64>(row, "held") == Some(1));
    Listed { names: held.filter_map(|(name, _)| Name::new(name).ok()).collect(), next }
}

fn unexpected(what: &str) -> Answer {
    let text = format!("gave an answer that makes no sense: {what}");
    Answer::Failed(Failure::new(FailureKind::Broken, text))
}
