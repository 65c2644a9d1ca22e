//! Servers, as far as locks can tell: what they keep, whom they tell, and how they fail.

mod redlock;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use quorlock::Token;
use quorlock::node::{Answer, ClientId, Grant, Holder, Request, Ticket, Verb};
use quorlock::runtime::Moment;

use crate::clock::Clock;
use crate::planted::Planted;
use crate::trace::{Kept, Reply, VerbKind, digest};

/// A request as it lies in a packet.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) name: Vec<u8>,
    pub(crate) sent: Moment,
    pub(crate) verb: AskedVerb,
}

#[derive(Debug, Clone)]
pub(crate) enum AskedVerb {
    Acquire { token: Token, ttl: Duration },
    Extend { token: Token, ttl: Duration },
    Wait { token: Token, ttl: Duration, ticket: Ticket, yielding: bool },
    Release { token: Token },
    Inspect,
    Describe { token: Token, note: String, keep: Duration },
    Break { holder: Holder },
    List,
}

impl Asked {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        let verb = match request.verb {
            Verb::Acquire { token, ttl } => AskedVerb::Acquire { token: *token, ttl },
            Verb::Extend { token, ttl } => AskedVerb::Extend { token: *token, ttl },
            Verb::Wait { token, ttl, ticket, yielding } => {
                AskedVerb::Wait { token: *token, ttl, ticket, yielding }
            }
            Verb::Release { token, .. } => AskedVerb::Release { token: *token },
            Verb::Inspect => AskedVerb::Inspect,
            Verb::Describe { token, note, keep } => {
                AskedVerb::Describe { token: *token, note: note.to_owned(), keep }
            }
            Verb::Break { holder } => AskedVerb::Break { holder },
            Verb::List { .. } => AskedVerb::List,
        };
        Self { name: request.name.as_bytes().to_vec(), sent: request.sent, verb }
    }

    pub(crate) fn kind(&self) -> VerbKind {
        match self.verb {
            AskedVerb::Acquire { .. } => VerbKind::Acquire,
            AskedVerb::Extend { .. } => VerbKind::Extend,
            AskedVerb::Wait { .. } => VerbKind::Wait,
            AskedVerb::Release { .. } => VerbKind::Release,
            _ => VerbKind::Look,
        }
    }

    pub(crate) fn token(&self) -> Option<&Token> {
        match &self.verb {
            AskedVerb::Acquire { token, .. }
            | AskedVerb::Extend { token, .. }
            | AskedVerb::Wait { token, .. }
            | AskedVerb::Release { token }
            | AskedVerb::Describe { token, .. } => Some(token),
            _ => None,
        }
    }
}

/// What a script does besides answering.
pub(crate) struct Words<'a> {
    /// Whom the server believes to listen.
    pub(crate) listeners: &'a dyn Fn(ClientId) -> bool,
    /// What it has told them.
    pub(crate) said: Vec<(ClientId, Grant)>,
}

impl Words<'_> {
    /// Tells a client of a grant; `false` if nobody listens.
    fn publish(&mut self, client: ClientId, grant: Grant) -> bool {
        let heard = (self.listeners)(client);
        if heard {
            self.said.push((client, grant));
        }
        heard
    }
}

/// What a server keeps, by dialect.
#[derive(Debug, Clone)]
pub(crate) enum Data {
    Redlock(redlock::Data),
}

/// How much a server has lost when it is there again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loses {
    Nothing,
    Everything,
    /// What it wrote in this last time, in nanoseconds.
    Last(u64),
}

/// A server.
pub(crate) struct Server {
    pub(crate) clock: Clock,
    pub(crate) up: bool,
    /// So many faults have stopped it: what it is sent waits.
    pub(crate) stopped: u32,
    /// How much longer every request takes.
    pub(crate) slow: u64,
    /// Another one after each start.
    pub(crate) run_id: u64,
    data: Data,
    /// What it kept after each change of the last seconds, if somebody may want it back.
    history: Option<VecDeque<(u64, Data)>>,
    planted: Option<Planted>,
}

/// So far back a server can be thrown.
const HISTORY: u64 = 4_000_000_000;

impl Server {
    pub(crate) fn new(clock: Clock, run_id: u64, forgets: bool, planted: Option<Planted>) -> Self {
        let data = Data::Redlock(redlock::Data::default());
        let history = forgets.then(|| VecDeque::from([(0, data.clone())]));
        Self { clock, up: true, stopped: 0, slow: 0, run_id, data, history, planted }
    }

    /// Does what is asked at a true time.
    pub(crate) fn execute(&mut self, asked: &Asked, now: u64, words: &mut Words<'_>) -> Answer {
        let clock = self.clock.at(now);
        let answer = match &mut self.data {
            Data::Redlock(data) => data.execute(asked, clock, words, self.planted),
        };
        if let Some(history) = &mut self.history {
            while history.len() > 1 && history.get(1).is_some_and(|(at, _)| at + HISTORY < now) {
                history.pop_front();
            }
            history.push_back((now, self.data.clone()));
        }
        answer
    }

    /// The record of a lock, as it counts at a true time.
    pub(crate) fn kept(&self, name: &[u8], now: u64) -> Kept {
        let clock = self.clock.at(now);
        match &self.data {
            Data::Redlock(data) => data.kept(name, clock),
        }
    }

    /// Forgets something.
    pub(crate) fn forget(&mut self, loses: Loses, now: u64) {
        self.data = match loses {
            Loses::Nothing => return,
            Loses::Everything => match &self.data {
                Data::Redlock(_) => Data::Redlock(redlock::Data::default()),
            },
            Loses::Last(span) => {
                let then = now.saturating_sub(span);
                let history = self.history.iter().flatten();
                match history.take_while(|(at, _)| *at <= then).last() {
                    Some((_, data)) => data.clone(),
                    None => return,
                }
            }
        };
    }

    /// How many records and queues count at a true time.
    pub(crate) fn counts(&self, now: u64) -> (usize, usize) {
        let clock = self.clock.at(now);
        match &self.data {
            Data::Redlock(data) => data.counts(clock),
        }
    }
}

/// How an answer looks in a trace.
pub(crate) fn reply(answer: &Answer) -> Reply {
    match answer {
        Answer::Done => Reply::Done,
        Answer::Refused | Answer::Queued(_) => Reply::Refused,
        Answer::Failed(_) => Reply::NoVote,
        Answer::Seen(_) | Answer::Listed(_) => Reply::Told,
    }
}

/// The digest of a token in a trace; zero for none.
pub(crate) fn digest_of(token: Option<&Token>) -> u64 {
    token.map_or(0, |token| digest(&token.text()))
}

/// The locks by the numbers that traces have for them.
pub(crate) fn number_of(name: &[u8]) -> u8 {
    name.first().copied().unwrap_or_default().wrapping_sub(b'a')
}

/// Names in the order of their bytes, so that nothing depends on chance.
pub(crate) type ByName<T> = BTreeMap<Vec<u8>, T>;
