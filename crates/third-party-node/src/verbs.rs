//! What the registry does with each verb.

use quorlock::node::{
    Answer, Failure, FailureKind, Holder, Listed, Proposal, Queued, Record, Request, Seen,
    TicketNumber, Verb,
};
use quorlock::{Name, Token};

use crate::{State, Stored};

/// Fences stay below this, as they do on every other kind of node.
const END: u64 = 1 << 53;

impl State {
    pub(crate) fn serve(&mut self, session: u64, request: &Request<'_>) -> Answer {
        let name = request.name;
        match request.verb {
            Verb::Acquire { .. } if self.records.contains_key(name) => Answer::Refused,
            Verb::Acquire { token, proposal, .. } => self.store(session, name, token, proposal),
            Verb::Confirm { token, fence } if self.is_held_by(name, token) => {
                self.raise(name, fence)
            }
            Verb::Extend { token, .. } if self.is_held_by(name, token) => self.granted(name),
            Verb::Wait { token, .. } if self.is_held_by(name, token) => self.granted(name),
            Verb::Wait { token, proposal, ticket, .. } => match self.record(name) {
                None => self.store(session, name, token, proposal),
                // There is no queue: the client asks again.
                record => {
                    let (TicketNumber::New(ticket_no) | TicketNumber::Agreed(ticket_no)) =
                        ticket.ticket_no;
                    Answer::Queued(Box::new(Queued { ticket_no, record, will_notify: false }))
                }
            },
            Verb::Release { token, .. } if self.is_held_by(name, token) => {
                self.records.remove(name);
                Answer::Done
            }
            Verb::SetNote { token, note, .. } if self.is_held_by(name, token) => {
                if let Some(stored) = self.records.get_mut(name) {
                    stored.note = (!note.is_empty()).then(|| note.to_owned());
                }
                Answer::Done
            }
            Verb::ForceRelease { holder } => match self.record(name) {
                Some(record) if record.holder == holder => {
                    self.records.remove(name);
                    Answer::Done
                }
                _ => Answer::Refused,
            },
            Verb::Confirm { .. }
            | Verb::Extend { .. }
            | Verb::Release { .. }
            | Verb::SetNote { .. } => Answer::Refused,
            Verb::Inspect => {
                let note = self.records.get(name).and_then(|stored| stored.note.clone());
                let record = self.record(name);
                Answer::Seen(Box::new(Seen { record, note, waiters: None, quarantine: None }))
            }
            Verb::List { .. } => {
                let names = self.records.keys().cloned().collect();
                Answer::Listed(Box::new(Listed { names, next: None }))
            }
            // It belongs to no set of nodes, and votes for all.
            Verb::Look | Verb::Mark(_) => Answer::Marker(None),
        }
    }

    fn store(
        &mut self,
        session: u64,
        name: &Name,
        token: &Token,
        proposal: Option<Proposal>,
    ) -> Answer {
        if let Some(Proposal { least, block }) = proposal {
            let first = least.max(self.last_fence(name) + 1);
            let last = first.saturating_add(u64::from(block).saturating_sub(1));
            if last >= END {
                let text = format!("has no fence left above {}", self.last_fence(name));
                return Answer::Failed(Failure::new(FailureKind::Fence, text));
            }
            self.fences.insert(name.clone(), last);
        }
        self.records.insert(name.clone(), Stored { token: *token, session, note: None });
        self.granted(name)
    }

    fn raise(&mut self, name: &Name, fence: u64) -> Answer {
        if fence >= END {
            let text = format!("cannot stand at {fence}: no fence is above it");
            return Answer::Failed(Failure::new(FailureKind::Fence, text));
        }
        let last = self.last_fence(name).max(fence);
        self.fences.insert(name.clone(), last);
        self.granted(name)
    }

    fn granted(&self, name: &Name) -> Answer {
        Answer::Granted { fence: self.last_fence(name) }
    }

    fn last_fence(&self, name: &Name) -> u64 {
        self.fences.get(name).copied().unwrap_or_default()
    }

    fn is_held_by(&self, name: &Name, token: &Token) -> bool {
        self.records.get(name).is_some_and(|stored| stored.token == *token)
    }

    /// It does not end by itself.
    fn record(&self, name: &Name) -> Option<Record> {
        let token = self.records.get(name)?.token;
        let holder = Holder::of(&token.text());
        let record = Record { holder, token: Some(token), remaining: None, fence: None };
        Some(record.with_fence(self.last_fence(name)))
    }
}
