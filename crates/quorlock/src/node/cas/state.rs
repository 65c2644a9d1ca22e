//! What is kept of a lock besides who holds it until when: its token, its fence, its note and its queue.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::str::SplitWhitespace;
use std::time::Duration;

use crate::node::{ClientId, Proposal, Secret, Ticket, TicketNumber};
use crate::runtime::Moment;
use crate::token::Token;
use quorlock_protocol::ticket_kept;

/// The first line of every value.
const FIRST: &str = "quorlock 1";
/// No more than this is read: no store takes as much.
const MOST_BYTES: usize = 4 << 20;
/// So many can wait for one lock. With all that is said of each of them, and with all who can hold the lock, it is
/// smaller than what a store refuses: 1 MiB for a request to ZooKeeper, and 1.5 MiB for one to etcd.
pub(super) const MOST_WAITING: usize = 2_500;

/// What is kept of a lock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::node) struct State {
    /// Of the holder. Without meaning if nobody holds the lock.
    pub(super) token: Option<Token>,
    /// The last fence that was given out.
    pub(super) fence: u64,
    pub(super) note: Option<Noted>,
    pub(super) queue: Queue,
}

/// What a holder says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Noted {
    /// When it is not shown any more, by the time of day.
    pub(super) until_us: u64,
    pub(super) text: String,
}

/// Who waits for a lock, in the order of their turns: by ticket number and token, so that two tickets with one number
/// have an order as well.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Queue(BTreeMap<(u64, Vec<u8>), Place>);

/// What the latest request with a ticket said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) token: Token,
    pub(super) client: ClientId,
    pub(super) waiter: u64,
    pub(super) secret: Secret,
    pub(super) sent: Moment,
    pub(super) ttl: Duration,
    pub(super) proposal: Option<Proposal>,
    /// The time of day at which it was asked for, by the clock of its client.
    pub(super) asked_us: u64,
    /// What the clock of the store said when it was written; `None` if it has none, or if that is to be known once
    /// this is written.
    pub(super) seen_us: Option<u64>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, token: &Token) -> bool {
        self.0.values().any(|place| place.token == *token)
    }

    /// Takes or keeps a place, and returns its ticket number.
    pub(super) fn join(&mut self, ticket: &Ticket, place: Place) -> u64 {
        let mine = self.leave(&place.token);
        let ticket_no = match ticket.ticket_no {
            TicketNumber::Agreed(ticket_no) => ticket_no,
            TicketNumber::New(least) => mine.unwrap_or_else(|| {
                let last = self.0.last_key_value().map(|((last, _), _)| last.saturating_add(1));
                last.map_or(least, |behind| behind.max(least))
            }),
        };
        self.put(ticket_no, place);
        ticket_no
    }

    pub(super) fn put(&mut self, ticket_no: u64, place: Place) {
        self.0.insert((ticket_no, place.token.text().to_vec()), place);
    }

    /// Gives up a place, and returns the ticket number it had.
    pub(super) fn leave(&mut self, token: &Token) -> Option<u64> {
        let key = self.0.iter().find(|(_, place)| place.token == *token)?.0.clone();
        self.0.remove(&key);
        Some(key.0)
    }

    /// Takes out the first waiter.
    pub(super) fn next(&mut self) -> Option<Place> {
        self.0.pop_first().map(|(_, place)| place)
    }

    /// The clients of those that stand in front, each once, and no more than so many.
    pub(super) fn first_clients(&self, most: usize) -> Vec<ClientId> {
        let mut clients = Vec::new();
        for place in self.0.values() {
            if clients.len() == most {
                break;
            }
            if !clients.contains(&place.client) {
                clients.push(place.client);
            }
        }
        clients
    }

    /// Those who have not asked for longer than any waiter goes without asking again have given up, though their
    /// clients may be there.
    ///
    /// The times are of two clocks. If these are further apart than tickets are kept, a waiter may lose its place to
    /// this, which it has again once it asks.
    pub(super) fn remove_forgotten(&mut self, wall_us: u64) {
        self.0.retain(|_, place| place.kept_until_us() >= wall_us);
    }

    /// These clients are not there any more.
    pub(super) fn remove_clients(&mut self, clients: &[ClientId]) {
        self.0.retain(|_, place| !clients.contains(&place.client));
    }
}

impl State {
    /// The token of the holder, if the lock is held.
    pub(in crate::node) fn holder(&self) -> Option<Token> {
        self.token
    }

    pub(in crate::node) fn set_holder(&mut self, token: Token) {
        self.token = Some(token);
    }

    /// The longest TTL that tickets of a client ask for; `None` if it waits for nothing.
    pub(in crate::node) fn longest_ttl(&self, client: ClientId) -> Option<Duration> {
        let mine = self.queue.0.values().filter(|place| place.client == client);
        mine.map(|place| place.ttl).max()
    }

    /// How many stand in its queue.
    pub(in crate::node) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Whether anybody stands in its queue.
    pub(in crate::node) fn is_waited_for(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether there is no room for one more in the queue.
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= MOST_WAITING
    }

    /// What was written by the version that this was read from was written at that time of the store's clock.
    ///
    /// No ticket is noted as seen later than a clock within its window, of which `ahead` is a part, can have said:
    /// another who is given the lock would have it for that much longer.
    pub(in crate::node) fn set_seen(&mut self, at_us: u64, ahead: Duration) {
        for place in self.queue.0.values_mut() {
            let latest_us = match place.asked_us {
                0 => u64::MAX,
                asked_us => asked_us.saturating_add(micros(ahead)),
            };
            place.seen_us.get_or_insert(at_us.min(latest_us));
        }
    }

    /// As text that people can read.
    pub(in crate::node) fn encode(&self) -> Vec<u8> {
        self.text(false).into_bytes()
    }

    /// The same for a store with a clock.
    pub(in crate::node) fn encode_timed(&self) -> Vec<u8> {
        self.text(true).into_bytes()
    }

    fn text(&self, is_timed: bool) -> String {
        let mut text = format!("{FIRST}\nfence {}\n", self.fence);
        // Writing to a string does not fail.
        if let Some(token) = &self.token {
            let _ = writeln!(text, "holder {}", token.text().as_str());
        }
        if let Some(Noted { until_us, text: note }) = &self.note {
            let _ = writeln!(text, "note {until_us} {}", note.escape_default());
        }
        for ((ticket_no, _), place) in &self.queue.0 {
            let Place { token, client, waiter, secret, sent, ttl, proposal, asked_us, seen_us } =
                place;
            let (least, block) = proposal.map_or((0, 0), |it| (it.least, it.block));
            let secret = secret.text();
            let _ = write!(
                text,
                "ticket {ticket_no} {} {client} {waiter} {} {} {} {least} {block}",
                token.text().as_str(),
                String::from_utf8_lossy(&secret),
                sent.as_nanos(),
                ttl.as_micros(),
            );
            let _ = match (is_timed, seen_us) {
                (false, _) | (true, None) => writeln!(text, " {asked_us}"),
                (true, Some(seen_us)) => writeln!(text, " {asked_us} {seen_us}"),
            };
        }
        text
    }

    /// Reads such a text; `None` if it is something else.
    pub(in crate::node) fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes.get(..bytes.len().min(MOST_BYTES))?).ok()?;
        let mut lines = text.lines();
        lines.next().filter(|first| *first == FIRST)?;
        let mut state = Self::default();
        for line in lines {
            let (what, rest) = line.split_once(' ')?;
            match what {
                "fence" => state.fence = rest.parse().ok()?,
                "holder" => state.token = Some(Token::parse(rest.as_bytes())?),
                "note" => {
                    let (until_us, note) = rest.split_once(' ')?;
                    let (until_us, text) = (until_us.parse().ok()?, unescaped(note)?);
                    state.note = Some(Noted { until_us, text });
                }
                "ticket" => {
                    let (ticket_no, place) = Place::decode(rest)?;
                    state.queue.put(ticket_no, place);
                }
                // Of a later version of this library, which may mean anything.
                _ => return None,
            }
        }
        Some(state)
    }
}

impl Place {
    /// Twice as long as its client has to ask again, so that clocks may be apart by as much. Earlier versions of this
    /// library have not always noted when it was.
    fn kept_until_us(&self) -> u64 {
        let kept = ticket_kept(self.ttl).saturating_mul(2);
        match self.asked_us {
            0 => u64::MAX,
            asked_us => asked_us.saturating_add(micros(kept)),
        }
    }

    fn decode(line: &str) -> Option<(u64, Self)> {
        let mut words = line.split_whitespace();
        let ticket_no = number(&mut words)?;
        let token = Token::parse(words.next()?.as_bytes())?;
        let client = ClientId(u64::from_str_radix(words.next()?, 16).ok()?);
        let waiter = number(&mut words)?;
        let secret = Secret::parse(words.next()?.as_bytes())?;
        let sent = Moment::from_nanos(number(&mut words)?);
        let ttl = Duration::from_micros(number(&mut words)?);
        let (least, block) = (number(&mut words)?, number(&mut words)?);
        let block = u16::try_from(block).ok()?;
        let proposal = (block > 0).then_some(Proposal { least, block });
        let mut stamp = || words.next().map_or(Some(None), |word| word.parse().ok().map(Some));
        let (asked_us, seen_us) = (stamp()?.unwrap_or(0), stamp()?);
        let place = Self { token, client, waiter, secret, sent, ttl, proposal, asked_us, seen_us };
        Some((ticket_no, place))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn number(words: &mut SplitWhitespace<'_>) -> Option<u64> {
    words.next()?.parse().ok()
}

/// Undoes `escape_default`.
pub(in crate::node) fn unescaped(text: &str) -> Option<String> {
    let (mut plain, mut rest) = (String::new(), text.chars());
    while let Some(char) = rest.next() {
        if char != '\\' {
            plain.push(char);
            continue;
        }
        plain.push(match rest.next()? {
            't' => '\t',
            'r' => '\r',
            'n' => '\n',
            'u' => {
                rest.next().filter(|open| *open == '{')?;
                let digits: String = rest.by_ref().take_while(|char| *char != '}').collect();
                char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?
            }
            other => other,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::TokioRuntime;

    fn place(runtime: &TokioRuntime, proposal: Option<Proposal>) -> Place {
        Place {
            token: Token::random(runtime),
            client: ClientId::random(runtime),
            waiter: 7,
            secret: Secret::random(runtime),
            sent: Moment::from_nanos(123_456_789),
            ttl: Duration::from_micros(10_000_001),
            proposal,
            asked_us: 0,
            seen_us: None,
        }
    }

    #[tokio::test]
    async fn what_is_written_is_read() {
        let runtime = TokioRuntime::current();
        let mut state = State { fence: u64::MAX, ..State::default() };
        assert!(!state.is_waited_for());
        assert_eq!(State::decode(&state.encode()), Some(state.clone()));
        state.token = Some(Token::random(&runtime));
        let text = "two\nlines, a \\ and a \"quote\", \u{e9}\u{1f512}\t\u{7}".to_owned();
        state.note = Some(Noted { until_us: 9, text });
        state.queue.put(1, place(&runtime, None));
        state.queue.put(u64::MAX, place(&runtime, Some(Proposal { least: 5, block: 128 })));
        assert_eq!(State::decode(&state.encode()), Some(state.clone()));
        let stamped = Place { asked_us: 7, ..place(&runtime, None) };
        state.queue.put(4, stamped);
        assert_eq!(State::decode(&state.encode()), Some(state.clone()), "when it was asked for");
        state.queue.leave(&stamped.token);
        state.queue.put(2, stamped);
        state.queue.put(3, Place { asked_us: 8, seen_us: Some(9), ..stamped });
        let read = State::decode(&state.encode_timed());
        assert_eq!(read.as_ref(), Some(&state));
        let mut read = read.unwrap_or_default();
        read.set_seen(11, Duration::from_micros(3));
        let seen: Vec<_> = read.queue.0.values().map(|place| place.seen_us).collect();
        assert_eq!(seen, [Some(11), Some(10), Some(9), Some(11)]);
    }

    #[tokio::test]
    async fn anything_else_is_no_lock() {
        let mut state = State::default();
        let runtime = TokioRuntime::current();
        state.queue.put(1, Place { asked_us: 17, ..place(&runtime, None) });
        let whole = state.encode();
        let last = whole.len() - 1;
        for end in 0..last {
            // A whole line less is a smaller lock.
            let read = State::decode(&whole[..end]);
            assert!(read.is_none() || read.is_some_and(|read| read != state), "{end}");
        }
        for text in
            ["", "x", "quorlock 2\nfence 1\n", "quorlock 1\nfence x\n", "quorlock 1\nnew 1\n"]
        {
            assert_eq!(State::decode(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(State::decode(b"quorlock 1\nfence \xff\n"), None);
    }

    #[tokio::test]
    async fn a_new_ticket_is_behind_all_and_an_agreed_one_where_it_says() {
        let runtime = TokioRuntime::current();
        let ticket = |ticket_no| Ticket {
            client: ClientId(1),
            waiter: 1,
            secret: Secret::random(&runtime),
            ticket_no,
            sent: Moment::from_nanos(0),
            keep: Duration::ZERO,
        };
        let [a, b] = [(); 2].map(|()| place(&runtime, None));
        let mut queue = Queue::default();
        assert_eq!(queue.join(&ticket(TicketNumber::New(5)), a), 5);
        assert_eq!(queue.join(&ticket(TicketNumber::New(5)), b), 6);
        assert_eq!(queue.join(&ticket(TicketNumber::New(1)), a), 5, "it keeps its place");
        assert_eq!(queue.join(&ticket(TicketNumber::Agreed(2)), b), 2);
        assert_eq!(queue.next(), Some(b));
        assert_eq!(queue.first_clients(1), [a.client]);
        queue.remove_clients(&[a.client]);
        assert!(queue.is_empty());
    }
}
