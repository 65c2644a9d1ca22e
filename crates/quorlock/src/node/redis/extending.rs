//! Extensions as commands: one alone, or many in one.

use super::resp::Command;
use super::verbs::{By, Encoder, Sent, millis};
use crate::node::{Request, Restore, Verb};

/// So many arguments belong to each lock.
pub(super) const ARGS: usize = 5;

/// Writes what the script is told of one lock.
pub(super) fn arguments<'a>(command: Command<'a>, verb: Verb<'_>) -> Command<'a> {
    let Verb::Extend { token, ttl, restore, participant } = verb else { return command };
    let (how, last) = match restore {
        Restore::Never => (&b"no"[..], 0),
        Restore::Heal(last) => (&b"heal"[..], last),
        Restore::WinBack(last) => (&b"win"[..], last),
    };
    let command = command.arg(&token.text()).number(millis(ttl)).arg(how).number(last);
    match participant {
        Some(participant) => command.arg(participant.to_string().as_bytes()),
        None => command.arg(b"maker"),
    }
}

impl Encoder {
    /// Writes one command for some extensions, which are all sent at the same time.
    pub(super) fn extend(&mut self, requests: &[Request<'_>], by: By, out: &mut Vec<u8>) -> Sent {
        if let [alone] = requests {
            return self.encode(alone, by, out);
        }
        let Some(first) = requests.first() else { return Sent::Ours };
        let (count, whole) = (requests.len(), by == By::Source);
        let script = &self.dialect.scripts().extend;
        let mut command = self.call(script, whole, count * (1 + ARGS), out).number(count as u64);
        for request in requests {
            command = command.arg2(&self.prefix, request.name.as_bytes());
        }
        for request in requests {
            command = arguments(command, request.verb);
        }
        self.dialect.sign(command, first.wall_us);
        Sent::Together(u16::try_from(count).unwrap_or(u16::MAX))
    }
}
