//! Servers, as far as locks can tell: what they keep, whom they tell, and how they fail.
//!
//! `verbs`, `queue` and `participants` do what the scripts of all dialects do, `redlock` and `strict` what stands
//! before them: how a record lies on the server.

mod asked;
#[cfg(test)]
mod beside_a_server;
mod participants;
mod queue;
mod redlock;
#[cfg(test)]
mod shared_beside_a_server;
mod strict;
mod verbs;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use quorlock::Token;
use quorlock::node::{Answer, ClientId, Grant, Marker, Members, Ticket};

use crate::clock::Clock;
use crate::planted::Planted;
use crate::setup::{Dialect, Setup};
use crate::trace::{Kept, Reply, digest};
use crate::world::WALL_START;
pub(crate) use asked::{Asked, AskedVerb};
use verbs::{Keys, Records as _};

/// A script while it runs: time stands still.
pub(crate) struct Script<'a> {
    /// The server's clock, in nanoseconds.
    clock: u64,
    /// The earliest and the latest time of the server at which it looks at the request, in
    /// microseconds.
    window_us: (u64, u64),
    /// The client's time of day, in microseconds.
    wall_us: u64,
    /// Which start of the server the connection is to.
    run_id: u64,
    /// The digest of the set of nodes that the client was given.
    set: Arc<str>,
    /// How long to cast no vote after another start, in microseconds.
    quiet_us: u64,
    planted: Option<Planted>,
    /// Whom the server believes to listen.
    listeners: &'a dyn Fn(ClientId) -> bool,
    /// What it tells them.
    said: Vec<(ClientId, Grant)>,
}

impl Script<'_> {
    fn millis(&self) -> u64 {
        self.clock / 1_000_000
    }

    fn micros(&self) -> u64 {
        self.clock / 1_000
    }

    fn has(&self, bug: Planted) -> bool {
        self.planted == Some(bug)
    }

    /// Notifies a client of a grant; `false` if no connection listens.
    fn publish(&mut self, client: ClientId, grant: Grant) -> bool {
        let heard = (self.listeners)(client);
        if heard {
            self.said.push((client, grant));
        }
        heard
    }
}

/// What a server replies.
#[derive(Debug, Clone)]
pub(crate) enum Served {
    /// This.
    Answer(Answer),
    /// It casts no vote, by this marker.
    NoVote(Marker),
    /// It has not looked at the request: its clock shows this, in microseconds.
    Clock(u64),
    /// The same, but it did, and leaves it to the client to disregard the answer.
    Unchecked(u64),
}

/// What came of a request.
pub(crate) struct Execution {
    pub(crate) served: Served,
    /// Whom to tell of what.
    pub(crate) said: Vec<(ClientId, Grant)>,
    /// Until when it casts no vote, by its own clock in nanoseconds, if that is new.
    pub(crate) quarantined: Option<u64>,
}

/// What a server keeps, by dialect.
#[derive(Debug, Clone)]
enum Data {
    Redlock(Keys<redlock::Records>),
    Strict(Keys<strict::Records>),
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
    /// How long each request keeps it from the next, if there are so many that this matters.
    pub(crate) service: u64,
    /// It has something to do until then.
    pub(crate) busy_until: u64,
    /// Another one after each start.
    pub(crate) run_id: u64,
    data: Data,
    /// What it kept after each change of the last seconds, if somebody may want it back.
    history: Option<VecDeque<(u64, Data)>>,
    planted: Option<Planted>,
    quiet: Duration,
    /// The last fences before they were poisoned.
    sound: ByName<u64>,
}

impl Data {
    /// Shows the last fence of every lock, to be changed.
    fn fences(&mut self, change: impl FnMut(&[u8], &mut u64)) {
        match self {
            Self::Redlock(keys) => keys.records.fences(change),
            Self::Strict(keys) => keys.records.fences(change),
        }
    }
}

/// No run lasts until then, by whatever clock.
const IMPLAUSIBLE_US: u64 = WALL_START / 1_000 + 2 * 24 * 60 * 60 * 1_000_000;

/// So far back a server can be thrown.
const HISTORY: u64 = 4_000_000_000;

impl Server {
    /// A server that was there before, and knows that it has forgotten nothing.
    pub(crate) fn new(
        clock: Clock,
        run_id: u64,
        forgets: bool,
        setup: &Setup,
        members: Option<Members>,
    ) -> Self {
        let data = match setup.dialect {
            Dialect::Redlock => Data::Redlock(Keys::default()),
            Dialect::Strict => Data::Strict(Keys::of(match members {
                Some(members) => strict::Records::marked(run_id, members),
                None => strict::Records::default(),
            })),
        };
        let history = forgets.then(|| VecDeque::from([(0, data.clone())]));
        let quiet = setup.quarantine();
        let (planted, up) = (setup.planted, true);
        let sound = ByName::new();
        Self {
            clock,
            up,
            stopped: 0,
            slow: 0,
            service: 0,
            busy_until: 0,
            run_id,
            data,
            history,
            planted,
            quiet,
            sound,
        }
    }

    /// Does what is asked at a true time, over a connection to one start of it.
    pub(crate) fn execute(
        &mut self,
        asked: &Asked,
        run_id: u64,
        now: u64,
        listeners: &dyn Fn(ClientId) -> bool,
    ) -> Execution {
        let (behind, ahead) = Dialect::WINDOW_US;
        let mut script = Script {
            clock: self.clock.at(now),
            window_us: (asked.wall_us.saturating_sub(behind), asked.wall_us + ahead),
            wall_us: asked.wall_us,
            run_id,
            set: Arc::clone(&asked.set),
            quiet_us: self.quiet.as_micros() as u64,
            planted: self.planted,
            listeners,
            said: Vec::new(),
        };
        let before = self.quarantine();
        let served = match &mut self.data {
            Data::Redlock(keys) => keys.execute(asked, &mut script),
            Data::Strict(keys) => keys.execute(asked, &mut script),
        };
        let said = script.said;
        let after = self.quarantine();
        if let Some(history) = &mut self.history {
            while history.len() > 1 && history.get(1).is_some_and(|(at, _)| at + HISTORY < now) {
                history.pop_front();
            }
            history.push_back((now, self.data.clone()));
        }
        Execution { served, said, quarantined: after.filter(|_| after != before) }
    }

    /// Whether it votes for clients of this set, or will by itself, as it says in its greeting.
    pub(crate) fn votes_for(&self, set: &str) -> bool {
        match &self.data {
            Data::Redlock(_) => true,
            Data::Strict(keys) => keys.records.votes_for(set, self.run_id),
        }
    }

    fn quarantine(&self) -> Option<u64> {
        match &self.data {
            Data::Redlock(_) => None,
            Data::Strict(keys) => keys.records.quarantine(),
        }
    }

    /// The record of a lock, as it counts at a true time.
    pub(crate) fn kept(&self, name: &[u8], now: u64) -> Kept {
        let clock = self.clock.at(now);
        let (kept, fence) = match &self.data {
            Data::Redlock(Keys { records, .. }) => {
                (records.kept(name, clock), records.last_fence(name))
            }
            Data::Strict(Keys { records, .. }) => {
                (records.kept(name, clock), records.last_fence(name))
            }
        };
        let (token, until) = kept.map_or((0, 0), |(token, until)| (digest(token), until));
        Kept { token, until, fence }
    }

    /// Every lock that it knows has this last fence from now on, until it is put right.
    pub(crate) fn poison(&mut self, fence: u64) {
        self.cure();
        let sound = &mut self.sound;
        self.data.fences(|name, last| {
            sound.insert(name.to_vec(), *last);
            *last = fence;
        });
    }

    /// Puts implausible fences right.
    pub(crate) fn cure(&mut self) {
        let sound = std::mem::take(&mut self.sound);
        self.data.fences(|name, last| {
            if *last > IMPLAUSIBLE_US {
                *last = sound.get(name).copied().unwrap_or_default();
            }
        });
    }

    /// Forgets something.
    pub(crate) fn forget(&mut self, loses: Loses, now: u64) {
        self.data = match loses {
            Loses::Nothing => return,
            Loses::Everything => match &self.data {
                Data::Redlock(_) => Data::Redlock(Keys::default()),
                Data::Strict(_) => Data::Strict(Keys::default()),
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

    /// The tickets of a client.
    pub(crate) fn tickets(&self, client: ClientId) -> Vec<Ticket> {
        match &self.data {
            Data::Redlock(keys) => keys.tickets(client),
            Data::Strict(keys) => keys.tickets(client),
        }
    }

    /// How many records and queues count at a true time.
    pub(crate) fn counts(&self, now: u64) -> (usize, usize) {
        let clock = self.clock.at(now);
        match &self.data {
            Data::Redlock(keys) => keys.counts(clock),
            Data::Strict(keys) => keys.counts(clock),
        }
    }
}

/// How a reply looks in a trace.
pub(crate) fn reply(served: &Served) -> Reply {
    match served {
        Served::Answer(Answer::Done | Answer::LeftToOthers | Answer::Granted { .. }) => Reply::Done,
        Served::Answer(Answer::Refused | Answer::Queued(_)) => Reply::Refused,
        Served::Answer(Answer::Seen(_) | Answer::Listed(_) | Answer::Marker(_)) => Reply::Shown,
        Served::Answer(Answer::Failed(_))
        | Served::NoVote(_)
        | Served::Clock(_)
        | Served::Unchecked(_) => Reply::NoVote,
    }
}

/// The digest of a token in a trace; zero for none.
pub(crate) fn digest_of(token: Option<&Token>) -> u64 {
    token.map_or(0, |token| digest(&token.text()))
}

/// The locks by the indices that traces have for them.
pub(crate) fn lock_index(name: &[u8]) -> u16 {
    let first = name.first().copied().unwrap_or_default();
    match std::str::from_utf8(name.get(1..).unwrap_or_default()).map(str::parse::<u16>) {
        // One of a crowd.
        Ok(Ok(index)) if first == b'c' => index,
        _ => first.wrapping_sub(b'a').into(),
    }
}

/// Names in the order of their bytes, so that nothing depends on chance.
type ByName<T> = BTreeMap<Vec<u8>, T>;

/// Milliseconds, rounded up, as they go over the wire.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
