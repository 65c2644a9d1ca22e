//! Rows as answers.

use std::time::Duration;

use tokio_postgres::{Error, Row};

use super::verbs::{Caller, Function};
use crate::name::Name;
use crate::node::{Answer, Failure, FailureKind, Listed, Queued, Record, Seen, marker, refusals};

/// What a function has returned. Its columns are those of `reply` in `sql/tables.sql`.
struct Reply<'a> {
    said: &'a str,
    number: u64,
    token: Option<&'a [u8]>,
    left: Duration,
    note: Option<&'a [u8]>,
    waiters: Option<u64>,
    quarantine: Duration,
    marker: &'a str,
}

impl<'a> Reply<'a> {
    fn read(row: &'a Row) -> Result<Self, Error> {
        let number = |column: &str| -> Result<Option<u64>, Error> {
            let number: Option<i64> = row.try_get(column)?;
            Ok(number.map(|number| u64::try_from(number).unwrap_or(0)))
        };
        let micros = |column| Ok(Duration::from_micros(number(column)?.unwrap_or(0)));
        Ok(Self {
            said: row.try_get("said")?,
            number: number("number")?.unwrap_or(0),
            token: row.try_get("token")?,
            left: micros("left_us")?,
            note: row.try_get("note")?,
            waiters: number("waiters")?,
            quarantine: micros("quarantine_us")?,
            marker: row.try_get::<_, Option<&str>>("marker")?.unwrap_or(""),
        })
    }

    fn record(&self) -> Option<Record> {
        self.token.map(|token| Record::new(token, Some(self.left)))
    }
}

/// How a call was sent that a row is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sending {
    pub(super) function: Function,
    /// The time of day that was sent along, and the time now.
    pub(super) sent_us: u64,
    pub(super) now_us: u64,
    /// Sent once before, over a connection that broke before the answer came.
    pub(super) again: bool,
}

/// Reads a row.
pub(super) fn read(sending: Sending, caller: &Caller, row: &Row) -> Answer {
    if sending.function == Function::List {
        return listed(row).map_or_else(|error| unexpected(&error.to_string()), answer_listed);
    }
    let reply = match Reply::read(row) {
        Ok(reply) => reply,
        Err(error) => return unexpected(&error.to_string()),
    };
    match reply.said {
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
            let seen = Seen::new(record, reply.note, reply.waiters);
            let quarantine = Some(reply.quarantine).filter(|left| !left.is_zero());
            Answer::Seen(Box::new(seen.quarantined(quarantine)))
        }
        "marker" => {
            let text = reply.marker.as_bytes();
            Answer::Marker(Some(Box::new(marker::read(text, &caller.start, reply.number))))
        }
        "CLOCK" => {
            let Sending { sent_us, now_us, .. } = sending;
            Answer::Failed(refusals::clock(reply.number, sent_us, now_us, caller.ahead()))
        }
        "MARKER" => {
            let marker = marker::read(reply.marker.as_bytes(), &caller.start, reply.number);
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

pub(super) fn tended(caller: &Caller, row: &Row) -> Option<Tended> {
    let reply = Reply::read(row).ok()?;
    let votes = reply.marker.starts_with(&caller.voter);
    Some(Tended { votes, more: reply.waiters == Some(1) })
}

fn listed(row: &Row) -> Result<Listed, Error> {
    let names: Vec<&[u8]> = row.try_get("names")?;
    let next: Option<&[u8]> = row.try_get("next")?;
    Ok(Listed {
        names: names.into_iter().filter_map(|name| Name::new(name).ok()).collect(),
        next: next.map(<[u8]>::to_vec),
    })
}

fn answer_listed(listed: Listed) -> Answer {
    Answer::Listed(Box::new(listed))
}

fn unexpected(what: &str) -> Answer {
    let text = format!("gave an answer that makes no sense: {what}");
    Answer::Failed(Failure::new(FailureKind::Broken, text))
}
