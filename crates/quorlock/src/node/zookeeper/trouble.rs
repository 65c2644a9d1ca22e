//! What the errors of servers mean, with remedies.

use super::wire::Code;
use crate::node::{Failure, FailureKind};

/// Why a request was not done.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The servers say so: it was not done, and will not be.
    Code(Code),
    Failed(Failure),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Trouble {
    /// For people, about what lies below `chroot`.
    pub(super) fn failure(self, chroot: &str) -> Failure {
        match self {
            Self::Code(code) => meaning(code, chroot),
            Self::Failed(failure) => failure,
        }
    }
}

/// What speaks another protocol.
pub(super) fn not_zookeeper() -> Failure {
    let text = "it does not speak as a ZooKeeper server does; name host and client port of one";
    Failure::new(FailureKind::Unreachable, text)
}

/// What an error of a server means.
pub(super) fn meaning(code: Code, chroot: &str) -> Failure {
    let (kind, text) = match code {
        Code::NO_RIGHTS => (
            FailureKind::Unfit,
            format!(
                "this user has no rights at {chroot}, or the password is not the one that its nodes were created \
                 with; write zookeeper://user:password@host/chroot, or let the user read, write, create and \
                 delete there (setAcl -R)"
            ),
        ),
        Code::INVALID_ACL | Code::LOGIN_FAILED => (
            FailureKind::Unfit,
            "it refuses the user or the password; correct them in the URL".to_owned(),
        ),
        Code::UNKNOWN_REQUEST => (
            FailureKind::Unfit,
            "it does not know a request that ZooKeeper 3.6 knows; upgrade it".to_owned(),
        ),
        Code::READ_ONLY => (
            FailureKind::Unreachable,
            "it has lost the others and lets nobody write; start the members that are down"
                .to_owned(),
        ),
        Code::QUOTA => (
            FailureKind::Rejected,
            format!("the quota of {chroot} is used up; raise it with setquota"),
        ),
        Code::SESSION_OVER | Code::SESSION_MOVED => {
            (FailureKind::Unreachable, "the session has ended".to_owned())
        }
        Code::TOO_MUCH_TO_DO => (FailureKind::Unreachable, "it has too much to do".to_owned()),
        Code::NO_NODE => {
            (FailureKind::Unreachable, format!("nodes below {chroot} were deleted meanwhile"))
        }
        Code(code) => (FailureKind::Rejected, format!("it refuses with the error {code}")),
    };
    Failure::new(kind, text)
}
