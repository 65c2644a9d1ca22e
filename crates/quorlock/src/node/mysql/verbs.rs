//! Requests as calls of procedures.

use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, Params, Row, Value};

use super::connect::client_number;
use super::options::MysqlOptions;
use crate::node::incoming::named;
use crate::node::marker::{self, Written};
use crate::node::{
    Holder, MAX_NOTED_BYTES, Members, ParticipantId, Proposal, Request, Restore, TicketNumber,
    Verb, noted,
};

/// The procedures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Procedure {
    Acquire,
    Confirm,
    Extend,
    Release,
    ForceRelease,
    Wait,
    Inspect,
    List,
    SetNote,
    Mark,
    Tend,
}

impl Procedure {
    /// The call, with a place for each argument.
    fn sql(self) -> &'static str {
        match self {
            Self::Acquire => "CALL quorlock_acquire(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            Self::Confirm => "CALL quorlock_confirm(?, ?, ?, ?, ?, ?, ?, ?)",
            Self::Extend => "CALL quorlock_extend(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            Self::Release => "CALL quorlock_release(?, ?, ?, ?, ?, ?, ?, ?, ?)",
            Self::ForceRelease => "CALL quorlock_force_release(?, ?, ?, ?, ?, ?, ?)",
            Self::Wait => "CALL quorlock_wait(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            Self::Inspect => "CALL quorlock_inspect(?, ?, ?, ?, ?, ?, ?)",
            Self::List => "CALL quorlock_list(?)",
            Self::SetNote => "CALL quorlock_set_note(?, ?, ?, ?, ?, ?, ?, ?, ?)",
            Self::Mark => "CALL quorlock_mark(?, ?, ?, ?, ?, ?, ?, ?, ?)",
            Self::Tend => "CALL quorlock_tend(?, ?, ?, ?, ?)",
        }
    }

    /// Calls it. The first time on a connection it is prepared there.
    pub(super) async fn call(
        self,
        conn: &mut Conn,
        arguments: Vec<Value>,
    ) -> Result<Vec<Row>, Error> {
        conn.exec(self.sql(), Params::Positional(arguments)).await
    }
}

/// What each call says of the connection that it goes over.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    options: MysqlOptions,
    max_ttl: Duration,
    pub(super) members: Members,
    /// The name of the connections.
    pub(super) session: String,
    /// Which server, or which start of it, is at their other end.
    pub(super) start: String,
    /// How the marker of a database begins that votes.
    pub(super) voter: String,
}

impl Caller {
    /// One that is not connected yet.
    pub(super) fn new(options: &MysqlOptions, max_ttl: Duration, members: &Members) -> Self {
        Self {
            options: options.clone(),
            max_ttl,
            members: members.clone(),
            session: String::new(),
            start: String::new(),
            voter: String::new(),
        }
    }

    /// The connections have that name, and lead to this server.
    pub(super) fn connected(&mut self, session: &str, start: &str) {
        session.clone_into(&mut self.session);
        start.clone_into(&mut self.start);
        self.voter = marker::of_a_voter(start, &self.members);
    }

    pub(super) fn ahead(&self) -> Duration {
        self.options.clock_ahead
    }

    pub(super) fn quiet(&self) -> Duration {
        self.options.quarantine(self.max_ttl)
    }

    /// The procedure for a request, with its arguments.
    pub(super) fn encode(&self, request: &Request<'_>) -> (Procedure, Vec<Value>) {
        let name = || Value::from(request.name.as_bytes());
        let (procedure, own) = match request.verb {
            Verb::Acquire { token, ttl, proposal } => {
                let (least, block) = fences(proposal);
                let own = vec![name(), token_of(token), micros(ttl), number(least), number(block)];
                (Procedure::Acquire, own)
            }
            Verb::Confirm { token, fence } => {
                (Procedure::Confirm, vec![name(), token_of(token), number(fence)])
            }
            Verb::Extend { token, ttl, restore, participant } => {
                let (restore, last) = match restore {
                    Restore::Never => ("no", 0),
                    Restore::Heal(last) => ("heal", last),
                    Restore::WinBack(last) => ("win", last),
                };
                let own = vec![
                    name(),
                    token_of(token),
                    micros(ttl),
                    restore.into(),
                    number(last),
                    who(participant),
                ];
                (Procedure::Extend, own)
            }
            Verb::Release { token, next, participant, .. } => {
                let own = vec![name(), token_of(token), number(next), who(participant)];
                (Procedure::Release, own)
            }
            Verb::Wait { token, ttl, ticket, yielding, proposal } => {
                let (least, block) = fences(proposal);
                let (place, agreed) = match ticket.ticket_no {
                    TicketNumber::New(least) => (least, false),
                    TicketNumber::Agreed(place) => (place, true),
                };
                let own = vec![
                    name(),
                    token_of(token),
                    micros(ttl),
                    client_number(ticket.client).into(),
                    Value::from(&named(&ticket)[..]),
                    ticket.sent.as_nanos().into(),
                    micros(ticket.keep),
                    number(place),
                    agreed.into(),
                    yielding.into(),
                    number(least),
                    number(block),
                ];
                (Procedure::Wait, own)
            }
            Verb::Inspect => (Procedure::Inspect, vec![name(), micros(self.quiet())]),
            Verb::SetNote { token, note, keep } => {
                let text = token.text();
                let note =
                    if note.is_empty() { String::new() } else { noted(Holder::of(&text), note) };
                debug_assert!(note.len() <= 2 * MAX_NOTED_BYTES);
                (Procedure::SetNote, vec![name(), token_of(token), note.into(), micros(keep)])
            }
            Verb::ForceRelease { holder } => {
                let digits = holder.to_string();
                (Procedure::ForceRelease, vec![name(), digits.trim_start_matches('#').into()])
            }
            Verb::List { from } => return (Procedure::List, vec![from.into()]),
            Verb::Look => (Procedure::Mark, vec![Value::NULL; 4]),
            Verb::Mark(mark) => {
                let Written { seen, head, after_us, tail } =
                    marker::write(mark, &self.start, self.quiet(), self.max_ttl);
                let after_us = u64::try_from(after_us).unwrap_or(u64::MAX);
                (Procedure::Mark, vec![seen.into(), head.into(), number(after_us), tail.into()])
            }
        };
        (procedure, self.signed(own, request.wall_us))
    }

    /// The call that looks after the database.
    pub(super) fn tend(&self, wall_us: u64) -> (Procedure, Vec<Value>) {
        (Procedure::Tend, self.signed(Vec::new(), wall_us))
    }

    fn signed(&self, mut own: Vec<Value>, wall_us: u64) -> Vec<Value> {
        own.extend([
            Value::from(self.session.as_str()),
            number(wall_us),
            micros(self.options.clock_behind),
            micros(self.options.clock_ahead),
            Value::from(self.voter.as_str()),
        ]);
        own
    }
}

fn token_of(token: &crate::Token) -> Value {
    Value::from(&token.text()[..])
}

fn who(participant: Option<ParticipantId>) -> Value {
    participant.map(|who| who.to_string()).unwrap_or_default().into()
}

/// What a holder wants; a block of none if it wants no fences.
fn fences(proposal: Option<Proposal>) -> (u64, u64) {
    proposal.map_or((0, 0), |Proposal { least, block }| (least, u64::from(block)))
}

/// What no number of the server's can be is the highest of them: it is refused for that.
fn number(number: u64) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Microseconds, rounded up: a node may keep a record longer than it is believed, never shorter. No time of a lock comes
/// near the quarter of all numbers.
fn micros(duration: Duration) -> Value {
    let micros = duration.as_nanos().div_ceil(1_000);
    Value::Int(i64::try_from(micros).unwrap_or(i64::MAX).min(i64::MAX / 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_microsecond_is_a_whole_one() {
        for (duration, us) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_nanos(1_000), 1),
            (Duration::from_nanos(1_001), 2),
            (Duration::MAX, i64::MAX / 4),
        ] {
            assert_eq!(micros(duration), Value::Int(us), "{duration:?}");
        }
        assert_eq!(number(u64::MAX), Value::Int(i64::MAX));
    }
}
