//! Requests as they lie in packets.

use std::sync::Arc;
use std::time::Duration;

use quorlock::Token;
use quorlock::node::{Holder, Mark, ParticipantId, Proposal, Request, Restore, Ticket, Verb};
use quorlock::runtime::Moment;

use crate::trace::VerbKind;

/// A request as it lies in a packet.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) name: Vec<u8>,
    /// No server looks at it: a ticket says when it was sent by itself.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for a real server beside the simulated one")
    )]
    pub(crate) sent: Moment,
    pub(crate) wall_us: u64,
    /// The digest of the set of nodes that its client was given.
    pub(crate) set: Arc<str>,
    pub(crate) verb: AskedVerb,
}

#[derive(Debug, Clone)]
pub(crate) enum AskedVerb {
    Acquire {
        token: Token,
        ttl: Duration,
        proposal: Option<Proposal>,
    },
    Confirm {
        token: Token,
        fence: u64,
    },
    Extend {
        token: Token,
        ttl: Duration,
        restore: Restore,
        participant: Option<ParticipantId>,
    },
    Wait {
        token: Token,
        ttl: Duration,
        ticket: Ticket,
        yielding: bool,
        proposal: Option<Proposal>,
    },
    Release {
        token: Token,
        next: u64,
        participant: Option<ParticipantId>,
        queued: bool,
    },
    Inspect,
    SetNote {
        token: Token,
        note: String,
        keep: Duration,
    },
    ForceRelease {
        holder: Holder,
    },
    List,
    /// A look at the marker, or something to write there.
    Mark(Option<Mark>),
}

impl Asked {
    pub(crate) fn of(request: &Request<'_>, set: &Arc<str>) -> Self {
        let verb = match request.verb {
            Verb::Acquire { token, ttl, proposal } => {
                AskedVerb::Acquire { token: *token, ttl, proposal }
            }
            Verb::Confirm { token, fence } => AskedVerb::Confirm { token: *token, fence },
            Verb::Extend { token, ttl, restore, participant } => {
                AskedVerb::Extend { token: *token, ttl, restore, participant }
            }
            Verb::Wait { token, ttl, ticket, yielding, proposal } => {
                AskedVerb::Wait { token: *token, ttl, ticket, yielding, proposal }
            }
            Verb::Release { token, next, participant, queued, .. } => {
                AskedVerb::Release { token: *token, next, participant, queued }
            }
            Verb::Inspect => AskedVerb::Inspect,
            Verb::SetNote { token, note, keep } => {
                AskedVerb::SetNote { token: *token, note: note.to_owned(), keep }
            }
            Verb::ForceRelease { holder } => AskedVerb::ForceRelease { holder },
            Verb::List { .. } => AskedVerb::List,
            Verb::Look => AskedVerb::Mark(None),
            Verb::Mark(mark) => AskedVerb::Mark(Some(mark.clone())),
        };
        let name = request.name.as_bytes().to_vec();
        // As the grant message repeats it.
        let sent = match request.verb {
            Verb::Wait { ticket, .. } => ticket.sent,
            _ => request.sent,
        };
        Self { name, sent, wall_us: request.wall_us, set: Arc::clone(set), verb }
    }

    pub(crate) fn kind(&self) -> VerbKind {
        match self.verb {
            AskedVerb::Acquire { .. } => VerbKind::Acquire,
            AskedVerb::Confirm { .. } => VerbKind::Confirm,
            AskedVerb::Extend { restore: Restore::Never, .. } => VerbKind::Extend,
            AskedVerb::Extend { restore: Restore::Heal(_), .. } => VerbKind::Heal,
            AskedVerb::Extend { restore: Restore::WinBack(_), .. } => VerbKind::WinBack,
            AskedVerb::Wait { .. } => VerbKind::Wait,
            AskedVerb::Release { .. } => VerbKind::Release,
            _ => VerbKind::Look,
        }
    }

    pub(crate) fn token(&self) -> Option<&Token> {
        match &self.verb {
            AskedVerb::Acquire { token, .. }
            | AskedVerb::Confirm { token, .. }
            | AskedVerb::Extend { token, .. }
            | AskedVerb::Wait { token, .. }
            | AskedVerb::Release { token, .. }
            | AskedVerb::SetNote { token, .. } => Some(token),
            _ => None,
        }
    }
}
