//! What an error of PostgreSQL means, and what to do about it.

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::node::{Failure, FailureKind};
use crate::text::harmless;

/// So much of what a server says is shown, in characters.
const SHOWN: usize = 300;

/// Raised by `sql/rules.sql`.
const OTHER_SESSION: &str = "QL001";

/// Why a pooler cannot be used that gives each transaction another connection.
pub(super) const POOLED: &str = "is reached by way of a pooler that gives each transaction another connection, as PgBouncer does \
     with pool_mode = transaction: calls would lose their order, and no waiter could be notified; connect directly, or \
     by a database of the pooler with pool_mode = session";

/// Why a connection could not be made, or its greeting failed.
pub(super) fn unreachable(error: &Error) -> Failure {
    match error.as_db_error() {
        Some(said) => rejected(said),
        None if error.is_closed() => {
            Failure::new(FailureKind::Unreachable, "the server closed the connection")
        }
        None => {
            let text =
                format!("cannot connect: {}; is it up, and is the address right?", whole(error));
            Failure::new(FailureKind::Unreachable, text)
        }
    }
}

/// Why a connection is of no more use; `None` if the error is about one call alone.
pub(super) fn broken(error: &Error) -> Option<Failure> {
    match error.as_db_error() {
        Some(said) if said.code().code() == OTHER_SESSION => {
            Some(Failure::new(FailureKind::Unfit, POOLED))
        }
        Some(said) if is_fatal(said) => {
            let text = format!("the server ended the connection: {}", shown(said));
            Some(Failure::new(FailureKind::Unreachable, text))
        }
        Some(_) => None,
        None => Some(Failure::new(FailureKind::Unreachable, whole(error))),
    }
}

fn is_fatal(said: &DbError) -> bool {
    matches!(said.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
}

/// Whether the same may work a moment later: somebody else was in the way.
pub(super) fn may_pass(error: &Error) -> bool {
    let passing = [
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::QUERY_CANCELED,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::T_R_SERIALIZATION_FAILURE,
    ];
    error.code().is_some_and(|code| passing.contains(code))
}

/// An error as a failure with a remedy. Nothing was changed.
pub(super) fn rejected(said: &DbError) -> Failure {
    let code = said.code();
    let (kind, remedy) = if *code == SqlState::INVALID_PASSWORD
        || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION
    {
        (FailureKind::Unfit, "check user and password in the URL, and pg_hba.conf of the server")
    } else if *code == SqlState::INVALID_CATALOG_NAME {
        (FailureKind::Unfit, "create the database, or name another one in the URL")
    } else if *code == SqlState::TOO_MANY_CONNECTIONS {
        (
            FailureKind::Unreachable,
            "each locker keeps one connection; raise max_connections, or the limit of the role or the database",
        )
    } else if *code == SqlState::CANNOT_CONNECT_NOW {
        (FailureKind::Unreachable, "wait until it is up")
    } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        (
            FailureKind::Unfit,
            "have the owner of the schema run SELECT quorlock.let_lock('ROLE') for this role, with the name of the schema \
             in the place of quorlock",
        )
    } else if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
        (
            FailureKind::Unfit,
            "it can only be read; name its primary, or let the role write: default_transaction_read_only",
        )
    } else if *code == SqlState::UNDEFINED_FUNCTION
        || *code == SqlState::INVALID_SCHEMA_NAME
        || *code == SqlState::UNDEFINED_TABLE
    {
        (FailureKind::Unfit, "the schema was changed or removed; run quorlock init")
    } else if *code == SqlState::LOCK_NOT_AVAILABLE {
        (
            FailureKind::Rejected,
            "another transaction holds the row of this lock, as one does that has checked in with it and has not ended; end \
             it, and see pg_blocking_pids",
        )
    } else if *code == SqlState::QUERY_CANCELED {
        (FailureKind::Rejected, "it took too long; see what keeps the server busy")
    } else if *code == SqlState::DISK_FULL || *code == SqlState::OUT_OF_MEMORY {
        (FailureKind::Rejected, "make room on the server")
    } else {
        (FailureKind::Rejected, "")
    };
    let said = shown(said);
    let text = if remedy.is_empty() { said } else { format!("{said}: {remedy}") };
    Failure::new(kind, text)
}

/// Its message alone: what comes with it may name values, and a token may be among them.
fn shown(said: &DbError) -> String {
    harmless(said.message(), SHOWN).into_owned()
}

/// With what lies behind it.
fn whole(error: &Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
