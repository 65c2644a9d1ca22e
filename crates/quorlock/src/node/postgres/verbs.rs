//! Requests as calls of functions.

use std::error::Error as StdError;
use std::time::Duration;

use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Error, Row, Statement};

use super::connect::client_number;
use super::options::PostgresOptions;
use crate::node::incoming::named;
use crate::node::marker::{self, Written};
use crate::node::{
    Holder, MAX_NOTED_BYTES, Members, ParticipantId, Proposal, Request, Restore, TicketNumber,
    Verb, noted,
};

/// The functions, in the order of [`FUNCTIONS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
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

/// Their names, and the types of their own arguments; and whether those of the connection follow.
const FUNCTIONS: &[(&str, &[Type], bool)] = {
    const BYTES: Type = Type::BYTEA;
    const NUMBER: Type = Type::INT8;
    const TEXT: Type = Type::TEXT;
    const FLAG: Type = Type::BOOL;
    &[
        ("acquire", &[BYTES, BYTES, NUMBER, NUMBER, NUMBER], true),
        ("confirm", &[BYTES, BYTES, NUMBER], true),
        ("extend", &[BYTES, BYTES, NUMBER, TEXT, NUMBER, TEXT], true),
        ("release", &[BYTES, BYTES, NUMBER, TEXT], true),
        ("force_release", &[BYTES, BYTES], true),
        (
            "wait",
            &[BYTES, BYTES, NUMBER, NUMBER, TEXT, TEXT, NUMBER, NUMBER, FLAG, FLAG, NUMBER, NUMBER],
            true,
        ),
        ("inspect", &[BYTES, NUMBER], true),
        ("list", &[BYTES], false),
        ("set_note", &[BYTES, BYTES, BYTES, NUMBER], true),
        ("mark", &[TEXT, TEXT, NUMBER, TEXT], true),
        ("tend", &[], true),
    ]
};

/// The types of the arguments of the connection.
const OF_CONNECTION: [Type; 5] = [Type::TEXT, Type::INT8, Type::INT8, Type::INT8, Type::TEXT];

/// All functions, prepared on one connection.
#[derive(Debug)]
pub(super) struct Statements(Vec<Statement>);

impl Statements {
    pub(super) async fn prepare(client: &Client, schema: &str) -> Result<Self, Error> {
        let mut statements = Vec::new();
        for (name, own, with_connection) in FUNCTIONS {
            let mut types = own.to_vec();
            if *with_connection {
                types.extend(OF_CONNECTION);
            }
            let places: Vec<_> = (1..=types.len()).map(|place| format!("${place}")).collect();
            let sql = format!("SELECT * FROM {schema}.{name}({})", places.join(", "));
            statements.push(client.prepare_typed(&sql, &types).await?);
        }
        Ok(Self(statements))
    }

    /// Calls a function, which answers with one row. What it asks for is written when this is first looked after.
    pub(super) async fn ask(
        &self,
        client: &Client,
        function: Function,
        arguments: &[Argument],
    ) -> Result<Row, Error> {
        let arguments: Vec<_> =
            arguments.iter().map(|argument| argument as &(dyn ToSql + Sync)).collect();
        client.query_one(&self.0[function as usize], &arguments).await
    }
}

/// An argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Argument {
    Bytes(Vec<u8>),
    Number(i64),
    Text(String),
    Flag(bool),
    Null,
}

impl ToSql for Argument {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self {
            Self::Bytes(bytes) => bytes.to_sql(kind, out),
            Self::Number(number) => number.to_sql(kind, out),
            Self::Text(text) => text.to_sql(kind, out),
            Self::Flag(flag) => flag.to_sql(kind, out),
            Self::Null => Ok(IsNull::Yes),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// What each call says of the connection that it goes over.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    options: PostgresOptions,
    max_ttl: Duration,
    pub(super) members: Members,
    /// The name of the connection.
    pub(super) session: String,
    /// Which start of the server is at its other end.
    pub(super) start: String,
    /// How the marker of a database begins that votes.
    pub(super) voter: String,
}

impl Caller {
    /// One that is not connected yet.
    pub(super) fn new(options: &PostgresOptions, max_ttl: Duration, members: &Members) -> Self {
        Self {
            options: options.clone(),
            max_ttl,
            members: members.clone(),
            session: String::new(),
            start: String::new(),
            voter: String::new(),
        }
    }

    /// The connection has that name, and leads to this start of a server.
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

    /// The function for a request, with its arguments.
    pub(super) fn encode(&self, request: &Request<'_>) -> (Function, Vec<Argument>) {
        use Argument::{Bytes, Flag, Null, Text};
        let name = || Bytes(request.name.as_bytes().to_vec());
        let (function, own) = match request.verb {
            Verb::Acquire { token, ttl, proposal } => {
                let (least, block) = fences(proposal);
                let own = vec![name(), token_of(token), micros(ttl), number(least), number(block)];
                (Function::Acquire, own)
            }
            Verb::Confirm { token, fence } => {
                (Function::Confirm, vec![name(), token_of(token), number(fence)])
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
                    Text(restore.to_owned()),
                    number(last),
                    who(participant),
                ];
                (Function::Extend, own)
            }
            Verb::Release { token, next, participant, .. } => {
                let own = vec![name(), token_of(token), number(next), who(participant)];
                (Function::Release, own)
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
                    Argument::Number(client_number(ticket.client)),
                    Text(String::from_utf8_lossy(&named(&ticket)).into_owned()),
                    Text(ticket.sent.as_nanos().to_string()),
                    micros(ticket.keep),
                    number(place),
                    Flag(agreed),
                    Flag(yielding),
                    number(least),
                    number(block),
                ];
                (Function::Wait, own)
            }
            Verb::Inspect => (Function::Inspect, vec![name(), micros(self.quiet())]),
            Verb::SetNote { token, note, keep } => {
                let text = token.text();
                let note =
                    if note.is_empty() { String::new() } else { noted(Holder::of(&text), note) };
                debug_assert!(note.len() <= 2 * MAX_NOTED_BYTES);
                let own = vec![name(), token_of(token), Bytes(note.into_bytes()), micros(keep)];
                (Function::SetNote, own)
            }
            Verb::ForceRelease { holder } => {
                (Function::ForceRelease, vec![name(), Bytes(holder.bytes().to_vec())])
            }
            Verb::List { from } => return (Function::List, vec![Bytes(from.to_vec())]),
            Verb::Look => (Function::Mark, vec![Null, Null, Null, Null]),
            Verb::Mark(mark) => {
                let Written { seen, head, after_us, tail } =
                    marker::write(mark, &self.start, self.quiet(), self.max_ttl);
                let after_us = u64::try_from(after_us).unwrap_or(u64::MAX);
                // A text that nobody can have written is none that is there.
                let seen = String::from_utf8_lossy(seen).into_owned();
                (Function::Mark, vec![Text(seen), Text(head), number(after_us), Text(tail)])
            }
        };
        (function, self.signed(own, request.wall_us))
    }

    /// The call that looks after the database.
    pub(super) fn tend(&self, wall_us: u64) -> (Function, Vec<Argument>) {
        (Function::Tend, self.signed(Vec::new(), wall_us))
    }

    fn signed(&self, mut own: Vec<Argument>, wall_us: u64) -> Vec<Argument> {
        own.extend([
            Argument::Text(self.session.clone()),
            number(wall_us),
            micros(self.options.clock_behind),
            micros(self.options.clock_ahead),
            Argument::Text(self.voter.clone()),
        ]);
        own
    }
}

fn token_of(token: &crate::Token) -> Argument {
    Argument::Bytes(token.text().to_vec())
}

fn who(participant: Option<ParticipantId>) -> Argument {
    Argument::Text(participant.map(|who| who.to_string()).unwrap_or_default())
}

/// What a holder wants; a block of none if it wants no fences.
fn fences(proposal: Option<Proposal>) -> (u64, u64) {
    proposal.map_or((0, 0), |Proposal { least, block }| (least, u64::from(block)))
}

/// What no number of the server's can be is the highest of them: it is refused for that.
fn number(number: u64) -> Argument {
    Argument::Number(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Microseconds, rounded up: a node may keep a record longer than it is believed, never shorter. No time of a lock comes
/// near the half of all numbers.
fn micros(duration: Duration) -> Argument {
    let micros = duration.as_nanos().div_ceil(1_000);
    Argument::Number(i64::try_from(micros).unwrap_or(i64::MAX).min(i64::MAX / 4))
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
            assert_eq!(micros(duration), Argument::Number(us), "{duration:?}");
        }
        assert_eq!(number(u64::MAX), Argument::Number(i64::MAX));
    }

    #[test]
    fn every_function_has_a_place() {
        let all = [
            (Function::Acquire, "acquire"),
            (Function::Confirm, "confirm"),
            (Function::Extend, "extend"),
            (Function::Release, "release"),
            (Function::ForceRelease, "force_release"),
            (Function::Wait, "wait"),
            (Function::Inspect, "inspect"),
            (Function::List, "list"),
            (Function::SetNote, "set_note"),
            (Function::Mark, "mark"),
            (Function::Tend, "tend"),
        ];
        assert_eq!(all.len(), FUNCTIONS.len());
        for (function, name) in all {
            assert_eq!(FUNCTIONS[function as usize].0, name);
        }
    }
}
