//! Requests as commands.

use std::time::Duration;

use super::dialect::DialectState;
use super::extending;
use super::inbox::channel;
use super::resp::Command;
use super::scripts::Script;
use crate::node::incoming::named;
use crate::node::{ClientId, Holder, Proposal, Request, TicketNumber, Verb, noted};

/// Writes the commands for one server.
#[derive(Debug, Clone)]
pub(super) struct Encoder {
    /// Put before each name.
    pub(super) prefix: Vec<u8>,
    pub(super) dialect: DialectState,
    /// The client whose grant messages come over the connection.
    pub(super) subscriber: Option<ClientId>,
    /// Whether one script may be about several locks.
    pub(super) together: bool,
}

/// What a call is sent by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// One command that does it all, if there is one; otherwise its script.
    Shortest,
    /// The hash of its script.
    Script,
    /// The whole script.
    Source,
}

/// What was sent, for reading the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// The plain `SET` of a lock without a fence.
    Set,
    /// A script that says whether the record is ours.
    Ours,
    /// The same for so many locks, of which this is the first.
    Together(u16),
    /// A script that says whether it did something.
    Done,
    /// A command that did it, or nothing.
    Shortcut,
    Wait {
        /// Whether a message of a grant to this ticket will come.
        will_notify: bool,
    },
    Inspect,
    List,
    /// A script that tells of the marker.
    Marker,
    /// What stands for that where there is no marker.
    NoMarker,
    /// What nobody waits for, see [`Encoder::tend`].
    Tend,
}

impl Encoder {
    pub(super) fn new(prefix: &[u8], dialect: DialectState) -> Self {
        Self { prefix: prefix.to_vec(), dialect, subscriber: None, together: true }
    }

    /// Writes the command for a request.
    pub(super) fn encode(&mut self, request: &Request<'_>, by: By, out: &mut Vec<u8>) -> Sent {
        if let Some(sent) = self.dialect.write_own(&self.prefix, request, by, out) {
            return sent;
        }
        let whole = by == By::Source;
        let scripts = self.dialect.scripts();
        let script = |script: &Script, args, out| self.script(script, whole, request, args, out);
        let (command, sent) = match request.verb {
            Verb::Acquire { token, ttl, proposal } => {
                let (least, block) = fences(proposal);
                let command = script(&scripts.acquire, 4, out).arg(&token.text());
                // As text it is what the server stores, unless it knows a higher one.
                let last = least.saturating_add(block.saturating_sub(1));
                (command.number(millis(ttl)).number(last).number(block), Sent::Ours)
            }
            Verb::Confirm { token, fence } => {
                (script(&scripts.confirm, 2, out).arg(&token.text()).number(fence), Sent::Ours)
            }
            verb @ Verb::Extend { .. } => {
                let command = script(&scripts.extend, extending::ARGS, out);
                (extending::arguments(command, verb), Sent::Ours)
            }
            Verb::Release { token, next, participant: Some(participant), .. } => {
                let command = script(&scripts.leave, 3, out).arg(&token.text()).number(next);
                (command.arg(participant.to_string().as_bytes()), Sent::Done)
            }
            Verb::Release { token, next, queued, .. } => {
                let asks = queued && self.dialect.release_names_queue();
                let args = 2 + usize::from(asks);
                let command = script(&scripts.release, args, out).arg(&token.text()).number(next);
                (if asks { command.arg(b"queued") } else { command }, Sent::Done)
            }
            Verb::Wait { token, ttl, ticket, yielding, proposal } => {
                let (ticket_no, kind) = match ticket.ticket_no {
                    TicketNumber::New(least) => (least, &b"new"[..]),
                    TicketNumber::Agreed(ticket_no) => (ticket_no, &b"agreed"[..]),
                };
                let (least, block) = fences(proposal);
                let command = script(&scripts.wait, 10, out)
                    .arg(&token.text())
                    .number(millis(ttl))
                    .arg(&channel(&self.prefix, ticket.client))
                    .arg(&named(&ticket))
                    .number(ticket.sent.as_nanos())
                    .number(ticket_no)
                    .arg(kind)
                    .arg(if yielding { b"yield" } else { b"keep" })
                    .number(least)
                    .number(block);
                (command, Sent::Wait { will_notify: self.subscriber == Some(ticket.client) })
            }
            Verb::Inspect => (script(&scripts.inspect, 0, out), Sent::Inspect),
            Verb::SetNote { token, note, keep } => {
                let text = token.text();
                let noted =
                    if note.is_empty() { String::new() } else { noted(Holder::of(&text), note) };
                let command = script(&scripts.set_note, 3, out).arg(&text).arg(noted.as_bytes());
                (command.number(millis(keep)), Sent::Done)
            }
            Verb::ForceRelease { holder } => {
                let command =
                    script(&scripts.force_release, 1, out).arg(holder.to_string().as_bytes());
                (command, Sent::Done)
            }
            Verb::List { from } => {
                let from = if from.is_empty() { b"0" } else { from };
                let command = self
                    .call(&scripts.list, whole, 3, out)
                    .number(0)
                    .arg(from)
                    .arg(&pattern(&self.prefix))
                    .number(self.prefix.len() as u64);
                (command, Sent::List)
            }
            // A dialect with markers has written it. Otherwise the reply comes in its turn, whatever it is.
            Verb::Look | Verb::Mark(_) => {
                Command::new(out, 1).arg(b"PING");
                return Sent::NoMarker;
            }
        };
        self.dialect.sign(command, request.wall_us);
        sent
    }

    /// Writes the command that clears old locks away, at this time of day, and asks how the server is set up
    /// if it is given how many keys that had thrown away before. With its whole source: it is seldom sent.
    pub(super) fn tend(&self, wall_us: u64, evicted: Option<u64>, out: &mut Vec<u8>) {
        let source = self.dialect.scripts().tend.source.as_bytes();
        let command = Command::new(out, 5).arg(b"EVAL").arg(source).number(0).number(wall_us);
        match evicted {
            Some(evicted) => command.number(evicted),
            None => command.arg(b""),
        };
    }

    /// A script with the lock as its key.
    fn script<'a>(
        &self,
        script: &Script,
        whole: bool,
        request: &Request<'_>,
        args: usize,
        out: &'a mut Vec<u8>,
    ) -> Command<'a> {
        let name = request.name.as_bytes();
        self.call(script, whole, 1 + args, out).number(1).arg2(&self.prefix, name)
    }

    /// A script, up to the number of its keys.
    pub(super) fn call<'a>(
        &self,
        script: &Script,
        whole: bool,
        args: usize,
        out: &'a mut Vec<u8>,
    ) -> Command<'a> {
        script.call(whole, args + self.dialect.signature_args(), out)
    }
}

/// What a holder wants; a block of none if it wants no fences.
fn fences(proposal: Option<Proposal>) -> (u64, u64) {
    proposal.map_or((0, 0), |Proposal { least, block }| (least, u64::from(block)))
}

/// What matches all that starts with `prefix`.
pub(super) fn pattern(prefix: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(prefix.len() + 1);
    for &byte in prefix {
        if br"*?[]^-\".contains(&byte) {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern.push(b'*');
    pattern
}

/// Milliseconds, rounded up: a node may keep a record longer than it is believed, never shorter.
pub(super) fn millis(duration: Duration) -> u64 {
    let part = u64::from(duration.subsec_nanos().div_ceil(1_000_000));
    duration.as_secs().saturating_mul(1_000).saturating_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_millisecond_is_a_whole_one() {
        for (duration, ms) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_millis(7), 7),
            (Duration::new(3, 999_000_001), 4_000),
            (Duration::MAX, u64::MAX),
        ] {
            assert_eq!(millis(duration), ms, "{duration:?}");
        }
    }

    #[test]
    fn a_prefix_matches_itself_alone() {
        assert_eq!(pattern(b""), b"*");
        assert_eq!(pattern(br"a*[b]?\^-"), br"a\*\[b\]\?\\\^\-*");
    }
}
