//! The verbs on a map.

use std::time::Duration;

use super::queue::{Place, Queue};
use super::{GrantMessage, Kept, KeptFence, Noted, Records};
use crate::name::Name;
use crate::node::participants::{Left, Participants};
use crate::node::{
    Answer, Failure, Grant, Holder, Listed, ParticipantId, Proposal, Queued, Record, Request,
    Restore, Seen, Ticket, Verb, noted,
};
use crate::runtime::Moment;
use crate::token::Token;
use quorlock_protocol::FENCES_END;

const FIRST_SWEEP: usize = 1_024;
/// Fences follow the clock: after so long any new one is higher than those of before.
const FENCES_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Whose turn it is.
enum Turn {
    /// The turn of the client that asks: the record is left to it.
    Mine,
    /// Another's, which has the record and is to be notified.
    Another(GrantMessage),
    /// No waiter is there.
    Nobody,
}

impl Records {
    pub(super) fn answer(&mut self, request: &Request<'_>) -> (Answer, Option<GrantMessage>) {
        let now = request.sent;
        let name = request.name.as_bytes();
        let kept = self.by_name.get_mut(name).filter(|kept| kept.expires > now);
        let answer = match request.verb {
            Verb::Acquire { token, ttl, proposal } => {
                if kept.is_some() {
                    return (Answer::Refused, None);
                }
                match self.give_fence(name, proposal, now) {
                    Ok(fence) => {
                        self.store(name, &token.text(), now, now.after(ttl));
                        Answer::Granted { fence }
                    }
                    Err(last) => used_up(last, request.wall_us),
                }
            }
            Verb::Confirm { token, fence } => {
                if !kept.is_some_and(|kept| kept.is_of(token)) {
                    return (Answer::Refused, None);
                }
                if fence >= FENCES_END {
                    return (used_up(fence, request.wall_us), None);
                }
                Answer::Granted { fence: self.raise_fence(name, fence, now) }
            }
            Verb::Extend { token, ttl, restore, participant } => {
                match (kept, restore) {
                    (Some(kept), _) => {
                        if !kept.is_of(token) || !kept.keep(participant, ttl, now) {
                            return (Answer::Refused, None);
                        }
                        Answer::Granted { fence: self.raise_fence(name, 0, now) }
                    }
                    (None, Restore::WinBack(last)) if last < FENCES_END => {
                        self.store(name, &token.text(), now, now.after(ttl));
                        if let Some(kept) = self.by_name.get_mut(name) {
                            kept.participants = Participants::alone(participant, kept.expires);
                        }
                        if let Some(queue) = self.queues.get_mut(name) {
                            queue.leave(token);
                        }
                        Answer::Granted { fence: self.raise_fence(name, last, now) }
                    }
                    // It never forgets, so there is nothing to heal.
                    (None, _) => return (Answer::Refused, None),
                }
            }
            Verb::Wait { token, ttl, ticket, yielding, proposal } => {
                if let Err(last) = self.next_fence(name, proposal) {
                    return (used_up(last, request.wall_us), None);
                }
                let place = Place { ticket, ttl, sent: now, proposal };
                return self.wait(name, token, place, yielding);
            }
            Verb::Release { token, next, participant, .. } => {
                return self.release(name, token, participant, next, now);
            }
            Verb::Inspect => Answer::Seen(Box::new(self.seen(name, now))),
            Verb::SetNote { token, note, keep } => {
                if !kept.is_some_and(|kept| kept.is_of(token)) {
                    return (Answer::Refused, None);
                }
                if note.is_empty() {
                    self.notes.remove(name);
                } else {
                    let text = noted(Holder::of(&token.text()), note);
                    self.sweep(now);
                    self.notes.insert(name.to_vec(), Noted { text, expires: now.after(keep) });
                }
                Answer::Done
            }
            Verb::ForceRelease { holder } => match kept {
                Some(kept) if Holder::of(&kept.token) == holder => {
                    self.notes.remove(name);
                    return (Answer::Done, self.free(name, 0, now));
                }
                _ => Answer::Refused,
            },
            Verb::Look | Verb::Mark(_) => Answer::Marker(None),
            Verb::List { .. } => {
                let live = self.by_name.iter().filter(|(_, kept)| kept.expires > now);
                let ours = live.filter(|(_, kept)| Token::parse(&kept.token).is_some());
                let names = ours.filter_map(|(name, _)| Name::new(name).ok()).collect();
                Answer::Listed(Box::new(Listed { names, next: None }))
            }
        };
        (answer, None)
    }

    fn wait(
        &mut self,
        name: &[u8],
        token: &Token,
        place: Place,
        yielding: bool,
    ) -> (Answer, Option<GrantMessage>) {
        let (now, ttl, client) = (place.sent, place.ttl, place.ticket.client);
        let proposal = place.proposal;
        let mut mine = false;
        let kept = self.by_name.get_mut(name).filter(|kept| kept.expires > now);
        let mut until = now.after(ttl);
        let mut record = None;
        match kept {
            Some(kept) if kept.is_of(token) => {
                mine = true;
                until = until.max(kept.expires);
                // Who takes part has not yielded.
                if !yielding || kept.participants.are_there(now) {
                    kept.keep(None, ttl, now);
                    let least = proposal.map_or(0, Proposal::last);
                    return (Answer::Granted { fence: self.raise_fence(name, least, now) }, None);
                }
            }
            Some(kept) => record = Some(kept.record(now)),
            None => {}
        }
        let queue = self.queues.entry(name.to_vec()).or_default();
        if !queue.is_live(now) {
            *queue = Queue::default();
        }
        let ticket_no = queue.join(token, place);
        let message = match record {
            Some(_) => None,
            None => match self.pass_on(name, Some(token), proposal.map_or(0, |it| it.least), now) {
                Turn::Another(message) => Some(message),
                Turn::Mine | Turn::Nobody => {
                    self.store(name, &token.text(), now, until);
                    let proposal = proposal.filter(|_| !mine);
                    // There is one: that was seen before.
                    let fence = self.give_fence(name, proposal, now).unwrap_or_else(|last| last);
                    return (Answer::Granted { fence }, None);
                }
            },
        };
        let listener = self.listeners.get(&client);
        let will_notify = listener.is_some_and(|listener| listener.inbox.strong_count() > 0);
        (Answer::Queued(Box::new(Queued { ticket_no, record, will_notify })), message)
    }

    fn release(
        &mut self,
        name: &[u8],
        token: &Token,
        participant: Option<ParticipantId>,
        next: u64,
        now: Moment,
    ) -> (Answer, Option<GrantMessage>) {
        if participant.is_none()
            && let Some(queue) = self.queues.get_mut(name)
        {
            queue.leave(token);
        }
        let kept = self.by_name.get_mut(name);
        let mine = kept.filter(|kept| kept.expires > now && kept.is_of(token));
        let left = mine.map(|kept| (kept.participants.leave(participant, now), kept));
        let (answer, message) = match left {
            None | Some((Left::All, _)) => (Answer::Refused, None),
            Some((Left::Others(until), kept)) => {
                kept.expires = until;
                (Answer::LeftToOthers, None)
            }
            Some((Left::Nobody, _)) => (Answer::Done, self.free(name, next, now)),
        };
        self.drop_queue_unless_live(name, now);
        (answer, message)
    }

    /// Drops a record, or passes it on.
    fn free(&mut self, name: &[u8], next: u64, now: Moment) -> Option<GrantMessage> {
        match self.pass_on(name, None, next, now) {
            Turn::Another(message) => Some(message),
            Turn::Mine | Turn::Nobody => {
                self.by_name.remove(name);
                None
            }
        }
    }

    fn seen(&self, name: &[u8], now: Moment) -> Seen {
        let kept = self.by_name.get(name).filter(|kept| kept.expires > now);
        let noted = self.notes.get(name).filter(|noted| noted.expires > now);
        let queue = self.queues.get(name).filter(|queue| queue.is_live(now));
        Seen::new(
            kept.map(|kept| {
                let fence = self.fences.get(name).map_or(0, |kept| kept.last);
                kept.record(now).with_fence(fence)
            }),
            noted.map(|noted| noted.text.as_bytes()),
            Some(queue.map_or(0, |queue| queue.len() as u64)),
        )
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len() + self.queues.len() + self.notes.len()
    }

    /// Passes a record on to the first in the queue that is still there, with the fence `next` at
    /// least.
    fn pass_on(&mut self, name: &[u8], me: Option<&Token>, next: u64, now: Moment) -> Turn {
        let mut turn = Turn::Nobody;
        while let Some(queue) = self.queues.get_mut(name).filter(|queue| queue.is_live(now))
            && let Some((token, place)) = queue.next()
        {
            if me.is_some_and(|me| token == *me.text()) {
                turn = Turn::Mine;
                break;
            }
            let listener = self.listeners.get(&place.ticket.client);
            let Some((node, inbox)) = listener.and_then(|it| Some((it.node, it.inbox.upgrade()?)))
            else {
                continue;
            };
            let others = queue.is_live(now);
            let Ticket { waiter, secret, sent, .. } = place.ticket;
            let proposal = place.proposal.map(|wanted| wanted.at_least(next));
            // There is no fence for this waiter: it is passed over.
            let Ok(fence) = self.give_fence(name, proposal, now) else { continue };
            let message =
                GrantMessage { node, inbox, grant: Grant { waiter, secret, sent, others, fence } };
            // The client that passes it on may have read the clock before the new holder did: the record
            // must last as long as the holder believes.
            self.store(name, &token, now, now.max(place.sent).after(place.ttl));
            turn = Turn::Another(message);
            break;
        }
        self.drop_queue_unless_live(name, now);
        turn
    }

    /// Reserves the fences of a new holder, and returns the last of them; or the last that was given out, if
    /// there is none above it.
    fn give_fence(
        &mut self,
        name: &[u8],
        proposal: Option<Proposal>,
        now: Moment,
    ) -> Result<u64, u64> {
        let fence = self.next_fence(name, proposal)?;
        Ok(self.raise_fence(name, fence, now))
    }

    /// The last fence of a new holder, which no other has yet.
    fn next_fence(&self, name: &[u8], proposal: Option<Proposal>) -> Result<u64, u64> {
        let last = self.fences.get(name).map_or(0, |kept| kept.last);
        proposal.map_or(Ok(0), |it| it.after(last).ok_or_else(|| last.max(it.last())))
    }

    /// Raises the last fence to `fence` at least, and returns it.
    fn raise_fence(&mut self, name: &[u8], fence: u64, now: Moment) -> u64 {
        match self.fences.get_mut(name) {
            Some(kept) => {
                kept.last = kept.last.max(fence);
                kept.used = now;
                kept.last
            }
            None if fence == 0 => 0,
            None => {
                self.fences.insert(name.to_vec(), KeptFence { last: fence, used: now });
                fence
            }
        }
    }

    fn store(&mut self, name: &[u8], token: &[u8], now: Moment, expires: Moment) {
        self.sweep(now);
        let kept = Kept { token: token.to_vec(), expires, participants: Participants::default() };
        self.by_name.insert(name.to_vec(), kept);
    }

    fn drop_queue_unless_live(&mut self, name: &[u8], now: Moment) {
        if self.queues.get(name).is_some_and(|queue| !queue.is_live(now)) {
            self.queues.remove(name);
        }
    }

    fn sweep(&mut self, now: Moment) {
        if self.len() + self.fences.len() < self.sweep_at.max(FIRST_SWEEP) {
            return;
        }
        self.by_name.retain(|_, kept| kept.expires > now);
        self.queues.retain(|_, queue| queue.is_live(now));
        self.notes.retain(|_, noted| noted.expires > now);
        self.fences.retain(|_, kept| kept.used.after(FENCES_KEPT) > now);
        self.listeners.retain(|_, listener| listener.inbox.strong_count() > 0);
        // Twice what is left, so that each insertion pays for a constant share of the sweeping.
        self.sweep_at = 2 * (self.len() + self.fences.len());
    }
}

fn used_up(fence: u64, wall_us: u64) -> Answer {
    Answer::Failed(Failure::fence(fence, wall_us))
}

impl Kept {
    fn is_of(&self, token: &Token) -> bool {
        self.token == *token.text()
    }

    /// Keeps it longer for one of those who hold it, unless they are too many.
    fn keep(&mut self, who: Option<ParticipantId>, ttl: Duration, now: Moment) -> bool {
        let end = now.after(ttl);
        let room = self.participants.extend(who, end, self.expires, now);
        if room {
            self.expires = self.expires.max(end);
        }
        room
    }

    fn record(&self, now: Moment) -> Record {
        Record::new(&self.token, Some(self.expires.since(now)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Weak};
    use std::time::Duration;

    use super::super::Listener;
    use super::*;
    use crate::name::Name;
    use crate::node::{ClientId, Inbox, Secret, TicketNumber};
    use crate::runtime::TokioRuntime;

    struct Deaf;

    impl Inbox for Deaf {
        fn granted(&self, _node: usize, _grant: Grant) {}
        fn interrupted(&self, _node: usize) {}
        fn unsettled(&self, _node: usize) {}
        fn session_ended(&self, _node: usize) {}
    }

    const TTL: Duration = Duration::from_secs(10);

    fn second(second: u64) -> Moment {
        Moment::from_nanos(second * 1_000_000_000)
    }

    struct Node {
        records: Records,
        name: Name,
        ticket: Ticket,
        inbox: Option<Arc<Deaf>>,
    }

    impl Node {
        fn new() -> Self {
            let runtime = TokioRuntime::current();
            let client = ClientId::random(&runtime);
            let inbox = Arc::new(Deaf);
            let mut records = Records::default();
            let listener = Listener { node: 0, inbox: Arc::downgrade(&inbox) as Weak<dyn Inbox> };
            records.listeners.insert(client, listener);
            let (secret, ticket_no) = (Secret::random(&runtime), TicketNumber::New(1));
            let ticket = Ticket {
                client,
                waiter: 1,
                secret,
                ticket_no,
                sent: second(0),
                keep: Duration::MAX,
            };
            Self { records, name: Name::new("n").unwrap(), ticket, inbox: Some(inbox) }
        }

        fn ask(&mut self, at: Moment, verb: Verb<'_>) -> (Answer, Option<Moment>) {
            let request = Request { name: &self.name, sent: at, wall_us: 0, verb };
            let (answer, message) = self.records.answer(&request);
            (answer, message.map(|message| message.grant.sent))
        }

        fn wait(&mut self, at: Moment, token: &Token) -> Answer {
            let verb = Verb::Wait {
                token,
                ttl: TTL,
                ticket: Ticket { sent: at, ..self.ticket },
                yielding: false,
                proposal: None,
            };
            self.ask(at, verb).0
        }

        fn left(&mut self, at: Moment) -> Option<Duration> {
            match self.ask(at, Verb::Inspect) {
                (Answer::Seen(seen), None) => seen.record.and_then(|record| record.remaining),
                other => panic!("{:?}", other.0),
            }
        }
    }

    fn tokens() -> [Token; 2] {
        [(); 2].map(|()| Token::random(&TokioRuntime::current()))
    }

    /// The release was made before the ticket was asked for, and came after it.
    #[tokio::test]
    async fn a_grant_lasts_as_long_as_its_holder_believes() {
        let ([first, next], mut node) = (tokens(), Node::new());
        assert!(matches!(node.wait(second(1), &first), Answer::Done | Answer::Granted { .. }));
        assert!(matches!(node.wait(second(5), &next), Answer::Queued(_)));
        let (_, message) = node.ask(
            second(2),
            Verb::Release { token: &first, until: None, next: 0, queued: true, participant: None },
        );
        assert_eq!(message, Some(second(5)));
        assert_eq!(node.left(second(5)), Some(TTL));
    }

    #[tokio::test]
    async fn a_client_that_does_not_listen_is_not_notified() {
        let ([first, next], mut node) = (tokens(), Node::new());
        assert!(matches!(node.wait(second(1), &first), Answer::Done | Answer::Granted { .. }));
        let will_notify = |answer| matches!(answer, Answer::Queued(queued) if queued.will_notify);
        assert!(will_notify(node.wait(second(1), &next)));
        node.inbox = None;
        assert!(!will_notify(node.wait(second(1), &next)));
    }

    #[tokio::test]
    async fn a_queue_that_nobody_asks_after_is_forgotten() {
        for (released_at, served) in [(second(31), true), (second(32), false)] {
            let ([first, next], mut node) = (tokens(), Node::new());
            assert!(matches!(node.wait(second(1), &first), Answer::Done | Answer::Granted { .. }));
            assert!(matches!(node.wait(second(2), &next), Answer::Queued(_)));
            for at in [9, 18, 27] {
                node.ask(
                    second(at),
                    Verb::Extend {
                        token: &first,
                        ttl: TTL,
                        restore: Restore::Never,
                        participant: None,
                    },
                );
            }
            let (_, message) = node.ask(
                released_at,
                Verb::Release {
                    token: &first,
                    until: None,
                    next: 0,
                    queued: true,
                    participant: None,
                },
            );
            assert_eq!(message.is_some(), served, "{released_at:?}");
            assert_eq!(node.left(released_at).is_some(), served);
            assert!(node.records.queues.is_empty());
        }
    }

    #[tokio::test]
    async fn what_nobody_comes_back_for_is_swept_out() {
        let ([first, next], mut node) = (tokens(), Node::new());
        for index in 0..FIRST_SWEEP {
            node.name = Name::new(format!("abandoned/{index}")).unwrap();
            node.wait(second(1), &first);
            node.wait(second(1), &next);
        }
        assert_eq!(node.records.by_name.len() + node.records.queues.len(), 2 * FIRST_SWEEP);
        for index in 0..4 * FIRST_SWEEP {
            node.name = Name::new(format!("later/{index}")).unwrap();
            assert!(matches!(
                node.wait(second(100), &first),
                Answer::Done | Answer::Granted { .. }
            ));
        }
        assert!(node.records.queues.is_empty());
        assert!(node.records.by_name.keys().all(|name| name.starts_with(b"later/")));
    }
}
