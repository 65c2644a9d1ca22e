//! What the exit code says.
//!
//! The codes above 63 are those of `sysexits.h` and of `timeout`, `env` and the shell, so that
//! scripts find what they know. A command may end with any of them itself: its own code is passed
//! on as it is.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::SystemTime;

use quorlock::Error;
use rustix::process::Signal;

use crate::note;

/// Something is wrong with the nodes, though enough of them can be used.
pub(crate) const ERRORS_FOUND: u8 = 1;
/// Too few nodes can be reached.
pub(crate) const UNAVAILABLE: u8 = 69;
/// Another holds the lock, and no wait was asked for.
pub(crate) const TAKEN: u8 = 75;
/// The lock was lost while the command ran.
pub(crate) const LOST: u8 = 76;
/// Arguments or settings that cannot work.
pub(crate) const MISUSE: u8 = 78;
/// The lock did not become free in time.
pub(crate) const WAITED: u8 = 124;
/// Something failed that should not.
pub(crate) const OWN_FAILURE: u8 = 125;
/// The command is there, but cannot be run.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command is not there.
pub(crate) const NOT_FOUND: u8 = 127;

/// How this process ends when its command has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Code(u8),
    /// By a signal that it was sent, as the command was.
    By(Signal),
    /// By a key at the terminal. The command had that for itself: everybody in the group of this
    /// process, such as a script that runs it, would have got the signal otherwise.
    AllBy(Signal),
}

impl End {
    /// The code that a shell shows.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::By(signal) | Self::AllBy(signal) => of_signal(signal),
        }
    }
}

/// Why there is no better result: what to say, and the code to end with.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl Failed {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let message = note::why_taken(&error, SystemTime::now());
        Self::new(code_of(&error), message.unwrap_or_else(|| error.to_string()))
    }
}

fn code_of(error: &Error) -> u8 {
    match error {
        Error::Taken { .. } => TAKEN,
        Error::NoQuorum { .. } | Error::Quarantined { .. } | Error::Clock { .. } => UNAVAILABLE,
        // Who waited for nodes rather than for the lock has to look at the nodes.
        Error::TimedOut { last, .. } if code_of(last) == UNAVAILABLE => UNAVAILABLE,
        Error::TimedOut { .. } => WAITED,
        Error::Lost { .. } => LOST,
        // The one thing a single node can stand in the way with is a name that is in use for
        // something else: another name or prefix is needed.
        Error::Misuse { .. } | Error::Node { .. } => MISUSE,
        _ => OWN_FAILURE,
    }
}

/// The code for a command that has ended, as a shell has it.
pub(crate) fn of_command(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(OWN_FAILURE),
        (None, Some(signal)) => above_128(signal),
        (None, None) => OWN_FAILURE,
    }
}

/// The code of a process that a signal has ended, as a shell has it.
pub(crate) fn of_signal(signal: Signal) -> u8 {
    above_128(signal.as_raw())
}

fn above_128(signal: i32) -> u8 {
    u8::try_from(signal).ok().and_then(|n| n.checked_add(128)).unwrap_or(OWN_FAILURE)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quorlock::{Name, NodeAnswers};

    use super::*;

    fn no_quorum() -> Error {
        Error::NoQuorum {
            verb: "granted the lock x".into(),
            have: 0,
            need: 1,
            nodes: 1,
            answers: NodeAnswers::default(),
        }
    }

    fn timed_out(last: Error) -> Error {
        let name = Name::new("x").unwrap();
        Error::TimedOut { name, waited: Duration::from_secs(1), last: Box::new(last) }
    }

    #[test]
    fn waiting_in_vain_for_the_lock_differs_from_waiting_for_nodes() {
        let taken = Error::Taken {
            name: Name::new("x").unwrap(),
            holder: None,
            remaining: None,
            note: None,
        };
        assert_eq!(code_of(&taken), 75);
        assert_eq!(code_of(&timed_out(taken)), 124);
        assert_eq!(code_of(&no_quorum()), 69);
        assert_eq!(code_of(&timed_out(no_quorum())), 69);
        let (name, answers) = (Name::new("x").unwrap(), NodeAnswers::default());
        let remaining = Duration::from_secs(1);
        let waits = Error::Quarantined { name: name.clone(), remaining, answers: answers.clone() };
        assert_eq!((code_of(&waits), code_of(&timed_out(waits))), (69, 69));
        let apart = Error::Clock { name, answers };
        assert_eq!((code_of(&apart), code_of(&timed_out(apart))), (69, 69));
    }

    #[test]
    fn the_code_of_a_command_is_its_own_or_128_and_its_signal() {
        // As wait(2) encodes them: the code in the second byte, the signal in the first.
        assert_eq!(of_command(ExitStatus::from_raw(0)), 0);
        assert_eq!(of_command(ExitStatus::from_raw(255 << 8)), 255);
        assert_eq!(of_command(ExitStatus::from_raw(9)), 137);
        assert_eq!(of_signal(Signal::TERM), 143);
    }
}
