//! What an error of MySQL or MariaDB means, and what to do about it.

use mysql_async::{DriverError, Error, IoError, ServerError};

use crate::node::{Failure, FailureKind};
use crate::text::harmless;

/// So much of what a server says is shown, in characters.
const SHOWN: usize = 300;

/// Raised by `sql/rules.sql`, as the states of errors.
const OTHER_SESSION: &str = "QL001";
const OTHER_SETTINGS: &str = "QL002";

const DEADLOCK: u16 = 1213;
const LOCK_WAIT: u16 = 1205;
const INTERRUPTED: u16 = 1317;
/// The statement took too long for `max_statement_time`.
const STATEMENT_TIMEOUT: u16 = 1969;
/// No thread has this number.
const NO_SUCH_THREAD: u16 = 1094;

/// Why a proxy cannot be used that hands requests to connections of its own.
pub(super) const PROXIED: &str = "is reached by way of a proxy that hands requests to connections of its own, as ProxySQL and \
     MaxScale do: calls would lose their order, and no waiter could be notified; connect directly, or by a proxy that only \
     passes bytes on";

/// Why a connection could not be made, or its greeting failed.
pub(super) fn unreachable(error: &Error) -> Failure {
    match error {
        Error::Server(said) => rejected(said),
        Error::Driver(DriverError::ConnectionClosed) => {
            Failure::new(FailureKind::Unreachable, "the server closed the connection")
        }
        Error::Driver(DriverError::NoClientSslFlagFromServer) => {
            let text = "does not offer TLS, which the URL asks for; set it up there (ssl_cert, ssl_key), or write \
                        ssl-mode=disabled";
            Failure::new(FailureKind::Unfit, text)
        }
        error => {
            let text =
                format!("cannot connect: {}; is it up, and is the address right?", whole(error));
            Failure::new(FailureKind::Unreachable, text)
        }
    }
}

/// Why a connection is of no more use; `None` if the error is about one call alone.
pub(super) fn broken(error: &Error) -> Option<Failure> {
    let text = match error {
        Error::Server(said) => match (&*said.state, said.code) {
            (OTHER_SESSION, _) => return Some(Failure::new(FailureKind::Unfit, PROXIED)),
            (OTHER_SETTINGS, _) => shown(said),
            // A shutdown, or the end of the connection. What was interrupted may have run or not.
            (_, 1053 | 1077 | 1152 | 1927 | 2006 | 2013 | 4031 | INTERRUPTED) => {
                format!("the server ended the connection: {}", shown(said))
            }
            _ => return None,
        },
        error => whole(error),
    };
    Some(Failure::new(FailureKind::Unreachable, text))
}

/// Whether nothing was changed for that somebody else was in the way, so that the same may work a moment later.
pub(super) fn may_pass(error: &Error) -> bool {
    // 3572: the same as a lock wait, for a lock that is not waited for.
    let passing = [DEADLOCK, LOCK_WAIT, STATEMENT_TIMEOUT, 3572];
    matches!(error, Error::Server(said) if passing.contains(&said.code))
}

/// Whether somebody ended the call, to have it made anew.
pub(super) fn is_interrupted(error: &Error) -> bool {
    matches!(error, Error::Server(said) if said.code == INTERRUPTED)
}

/// Whether there is no connection with the number that was named.
pub(super) fn is_no_thread(error: &Error) -> bool {
    matches!(error, Error::Server(said) if said.code == NO_SUCH_THREAD)
}

/// Whether a server does not offer TLS.
pub(super) fn is_without_tls(error: &Error) -> bool {
    matches!(error, Error::Driver(DriverError::NoClientSslFlagFromServer))
}

/// Whether a procedure is not there, or may not be called.
pub(super) fn is_not_set_up(error: &Error) -> bool {
    matches!(error, Error::Server(said) if matches!(said.code, 1146 | 1305 | 1370))
}

/// An error as a failure with a remedy. Nothing was changed.
pub(super) fn rejected(said: &ServerError) -> Failure {
    let (kind, remedy) = match said.code {
        1045 | 1698 => (FailureKind::Unfit, "check user and password in the URL"),
        1044 => (
            FailureKind::Unfit,
            "create the database, or have somebody grant the user EXECUTE on it",
        ),
        1049 => (FailureKind::Unfit, "create the database, or name another one in the URL"),
        1040 | 1203 | 1226 => (
            FailureKind::Unreachable,
            "each locker keeps nine connections; raise max_connections, or the limits of the user",
        ),
        1129 | 1130 => (FailureKind::Unfit, "let the server take connections from this machine"),
        1142 | 1143 | 1227 | 1370 => (
            FailureKind::Unfit,
            "have somebody grant the user EXECUTE on the database: GRANT EXECUTE ON DATABASE.* TO USER",
        ),
        1290 | 1792 | 1836 => {
            (FailureKind::Unfit, "it can only be read; name its primary, or set read_only = OFF")
        }
        1146 | 1305 => {
            (FailureKind::Unfit, "the tables were changed or removed; run quorlock init")
        }
        1318 => (FailureKind::Unfit, "the procedures are of another version; run quorlock init"),
        1449 => (
            FailureKind::Unfit,
            "the user who ran quorlock init is gone, with whose rights the procedures run; run quorlock init as another",
        ),
        1665 => (FailureKind::Unfit, "set binlog_format = MIXED or ROW on the server"),
        LOCK_WAIT | 3572 => (
            FailureKind::Rejected,
            "another transaction holds the row of this lock; end it: see information_schema.INNODB_TRX",
        ),
        DEADLOCK => (FailureKind::Rejected, "others were in the way; try again"),
        STATEMENT_TIMEOUT => {
            (FailureKind::Rejected, "it took too long; see what keeps the server busy")
        }
        1021 | 1114 | 1041 => (FailureKind::Rejected, "make room on the server"),
        _ => (FailureKind::Rejected, ""),
    };
    let said = shown(said);
    let text = if remedy.is_empty() { said } else { format!("{said}: {remedy}") };
    Failure::new(kind, text)
}

/// What the server says.
fn shown(said: &ServerError) -> String {
    harmless(&said.message, SHOWN).into_owned()
}

/// Not as the library shows it, which may name values.
fn whole(error: &Error) -> String {
    match error {
        Error::Io(IoError::Io(error)) => error.to_string(),
        #[cfg(feature = "tls")]
        Error::Io(error) => error.to_string(),
        Error::Driver(DriverError::ConnectionClosed) => {
            "the server closed the connection".to_owned()
        }
        Error::Driver(DriverError::FromRow { .. } | DriverError::FromValue { .. }) => {
            "an answer makes no sense".to_owned()
        }
        error => harmless(&error.to_string(), SHOWN).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: u16, state: &str) -> Error {
        Error::Server(ServerError { code, message: "said".to_owned(), state: state.to_owned() })
    }

    #[test]
    fn what_ends_a_connection_is_told_from_what_ends_a_call() {
        assert_eq!(broken(&server(1644, OTHER_SESSION)).unwrap().kind(), FailureKind::Unfit);
        assert_eq!(broken(&server(1644, OTHER_SETTINGS)).unwrap().kind(), FailureKind::Unreachable);
        assert_eq!(broken(&server(1927, "70100")).unwrap().kind(), FailureKind::Unreachable);
        assert!(broken(&server(DEADLOCK, "40001")).is_none());
        assert!(may_pass(&server(DEADLOCK, "40001")) && may_pass(&server(LOCK_WAIT, "HY000")));
        assert!(!may_pass(&server(1305, "42000")) && is_not_set_up(&server(1305, "42000")));
    }
}
