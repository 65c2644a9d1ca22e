//! The verbs on a map.

use super::{Kept, Records};
use crate::node::{Answer, Record, Request, Verb};
use crate::runtime::Moment;

const FIRST_SWEEP: usize = 1_024;

impl Records {
    pub(super) fn answer(&mut self, request: &Request<'_>) -> Answer {
        let now = request.sent;
        let name = request.name.as_bytes();
        let kept = self.by_name.get_mut(name).filter(|kept| kept.expires > now);
        match request.verb {
            Verb::Acquire { token, ttl } => {
                if kept.is_some() {
                    return Answer::Refused;
                }
                self.sweep(now);
                let token = token.text().to_vec();
                self.by_name.insert(name.to_vec(), Kept { token, expires: now.after(ttl) });
                Answer::Done
            }
            Verb::Extend { token, ttl } => match kept {
                Some(kept) if kept.token == *token.text() => {
                    kept.expires = kept.expires.max(now.after(ttl));
                    Answer::Done
                }
                _ => Answer::Refused,
            },
            Verb::Release { token, .. } => match kept {
                Some(kept) if kept.token == *token.text() => {
                    self.by_name.remove(name);
                    Answer::Done
                }
                _ => Answer::Refused,
            },
            Verb::Wait { .. } => Answer::Refused,
            Verb::Inspect => Answer::Seen(
                kept.map(|kept| Record::new(&kept.token, Some(kept.expires.since(now)))),
            ),
        }
    }

    fn sweep(&mut self, now: Moment) {
        if self.by_name.len() < self.sweep_at.max(FIRST_SWEEP) {
            return;
        }
        self.by_name.retain(|_, kept| kept.expires > now);
        // Twice what is left, so that each insertion pays for a constant share of the sweeping.
        self.sweep_at = 2 * self.by_name.len();
    }
}
