//! A round of one call, for talking to a node by hand.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use quorlock::node::{
    Answer, Call, Failure, Holder, Listed, Node, ParticipantId, Proposal, Queued, Record, Request,
    Restore, Round, Seen, Ticket, Verb,
};
use quorlock::runtime::{Moment, Runtime, TokioRuntime};
use quorlock::{Name, Token};
use tokio::sync::Notify;

use crate::DEADLINE;

/// Asks one node one thing, and keeps what it says.
#[derive(Debug)]
pub struct Probe {
    name: Name,
    token: Token,
    ask: Ask,
    sent: Moment,
    wall_us: u64,
    said: Mutex<Option<Answer>>,
    answered: Notify,
}

#[derive(Debug, Clone)]
enum Ask {
    Acquire(Duration, Option<Proposal>),
    Confirm(u64),
    Extend(Duration, Restore, Option<ParticipantId>),
    Release { next: u64, queued: bool, participant: Option<ParticipantId> },
    Wait { ttl: Duration, ticket: Ticket, yielding: bool, proposal: Option<Proposal> },
    Inspect,
    SetNote(String),
    ForceRelease(Holder),
    List(Vec<u8>),
}

/// Any fence, and one of them.
const PROPOSAL: Proposal = Proposal { least: 1, block: 1 };

fn wall_us() -> u64 {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    u64::try_from(wall.as_micros()).expect("before the year 500000")
}

/// An owner of records: a name and a token, and whether it wants a fence.
#[derive(Debug, Clone)]
pub struct Owner {
    name: Name,
    token: Token,
    proposal: Option<Proposal>,
    /// Whether it has ever asked for a place in a queue.
    queued: Arc<AtomicBool>,
}

/// A new owner of `name`.
///
/// # Panics
/// For a name that no lock can have, and outside of a tokio runtime.
#[must_use]
pub fn owner(name: impl AsRef<[u8]>) -> Owner {
    let name = Name::new(name).expect("a name for a lock");
    let token = Token::random(&TokioRuntime::current());
    Owner { name, token, proposal: Some(PROPOSAL), queued: Arc::default() }
}

impl Owner {
    /// The owner of another name by the same token.
    ///
    /// # Panics
    /// For a name that no lock can have.
    #[must_use]
    pub fn also_of(&self, name: impl AsRef<[u8]>) -> Self {
        let name = Name::new(name).expect("a name for a lock");
        Self { name, queued: Arc::default(), ..self.clone() }
    }

    /// The same owner, which wants no fence.
    #[must_use]
    pub fn without_fence(self) -> Self {
        Self { proposal: None, ..self }
    }

    /// Asks `node` for the name.
    pub fn acquire(&self, node: &Arc<dyn Node>, ttl: Duration) -> Arc<Probe> {
        self.ask(node, Ask::Acquire(ttl, self.proposal))
    }

    /// The same with a proposal of fences.
    pub fn acquire_fenced(
        &self,
        node: &Arc<dyn Node>,
        ttl: Duration,
        proposal: Proposal,
    ) -> Arc<Probe> {
        self.ask(node, Ask::Acquire(ttl, Some(proposal)))
    }

    /// Asks `node` to confirm a fence.
    pub fn confirm(&self, node: &Arc<dyn Node>, fence: u64) -> Arc<Probe> {
        self.ask(node, Ask::Confirm(fence))
    }

    /// Asks `node` to keep the record longer.
    pub fn extend(&self, node: &Arc<dyn Node>, ttl: Duration) -> Arc<Probe> {
        self.ask(node, Ask::Extend(ttl, Restore::Never, None))
    }

    /// The same, and to take the record anew if it is not there, as a holder with this last fence.
    pub fn win_back(&self, node: &Arc<dyn Node>, ttl: Duration, last: u64) -> Arc<Probe> {
        self.ask(node, Ask::Extend(ttl, Restore::WinBack(last), None))
    }

    /// Asks `node` to list who takes part in what this owner has made, and to keep the record longer.
    pub fn take_part(
        &self,
        node: &Arc<dyn Node>,
        participant: ParticipantId,
        ttl: Duration,
    ) -> Arc<Probe> {
        self.ask(node, Ask::Extend(ttl, Restore::Never, Some(participant)))
    }

    /// Asks `node` to take a participant off that list.
    pub fn leave(&self, node: &Arc<dyn Node>, participant: ParticipantId) -> Arc<Probe> {
        self.ask(node, Ask::Release { next: 0, queued: false, participant: Some(participant) })
    }

    /// Asks `node` to drop the record.
    pub fn release(&self, node: &Arc<dyn Node>) -> Arc<Probe> {
        self.release_to(node, 0)
    }

    /// The same, with the least fence for the next holder.
    pub fn release_to(&self, node: &Arc<dyn Node>, next: u64) -> Arc<Probe> {
        let queued = self.queued.load(Ordering::Relaxed);
        self.ask(node, Ask::Release { next, queued, participant: None })
    }

    /// Asks `node` for the name, or for a place in its queue.
    pub fn wait(
        &self,
        node: &Arc<dyn Node>,
        ttl: Duration,
        ticket: Ticket,
        yielding: bool,
    ) -> Arc<Probe> {
        self.ask(node, Ask::Wait { ttl, ticket, yielding, proposal: self.proposal })
    }

    /// The same with a proposal of fences.
    pub fn wait_fenced(
        &self,
        node: &Arc<dyn Node>,
        ttl: Duration,
        (ticket, yielding): (Ticket, bool),
        proposal: Proposal,
    ) -> Arc<Probe> {
        self.ask(node, Ask::Wait { ttl, ticket, yielding, proposal: Some(proposal) })
    }

    /// The same, as if it had been sent at another time.
    pub fn wait_sent_at(
        &self,
        sent: Moment,
        node: &Arc<dyn Node>,
        ttl: Duration,
        ticket: Ticket,
    ) -> Arc<Probe> {
        let proposal = self.proposal;
        self.ask_sent_at(sent, node, Ask::Wait { ttl, ticket, yielding: false, proposal })
    }

    /// Asks `node` who holds the name.
    pub fn inspect(&self, node: &Arc<dyn Node>) -> Arc<Probe> {
        self.ask(node, Ask::Inspect)
    }

    /// Who holds the name, by `node`.
    ///
    /// # Panics
    /// If the node does not say.
    pub async fn seen(&self, node: &Arc<dyn Node>) -> Option<Record> {
        self.looked(node).await.record
    }

    /// The same, with what lies beside the record.
    ///
    /// # Panics
    /// If the node does not say.
    pub async fn looked(&self, node: &Arc<dyn Node>) -> Seen {
        match self.inspect(node).answer().await {
            Answer::Seen(seen) => *seen,
            other => panic!("a look was answered with {other:?}"),
        }
    }

    /// Asks `node` to keep a note beside the record for a minute, or to drop an empty one.
    pub fn set_note(&self, node: &Arc<dyn Node>, note: &str) -> Arc<Probe> {
        self.ask(node, Ask::SetNote(note.to_owned()))
    }

    /// Asks `node` to take the name away from that holder.
    pub fn take_from(&self, holder: Holder, node: &Arc<dyn Node>) -> Arc<Probe> {
        self.ask(node, Ask::ForceRelease(holder))
    }

    /// The names of all locks of `node`, sorted.
    ///
    /// # Panics
    /// If the node does not say.
    pub async fn list(&self, node: &Arc<dyn Node>) -> Vec<Name> {
        let (mut all, mut from) = (Vec::new(), Vec::new());
        loop {
            match self.ask(node, Ask::List(from)).answer().await {
                Answer::Listed(listed) => {
                    let Listed { names, next } = *listed;
                    all.extend(names);
                    match next {
                        Some(next) => from = next,
                        None => break,
                    }
                }
                other => panic!("a list was asked for, and this is none: {other:?}"),
            }
        }
        all.sort();
        all.dedup();
        all
    }

    /// What others may know of this owner.
    #[must_use]
    pub fn holder(&self) -> Holder {
        Holder::of(&self.token.text())
    }

    /// What proves that a record is this owner's.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    fn ask(&self, node: &Arc<dyn Node>, ask: Ask) -> Arc<Probe> {
        self.ask_sent_at(TokioRuntime::current().now(), node, ask)
    }

    fn ask_sent_at(&self, sent: Moment, node: &Arc<dyn Node>, ask: Ask) -> Arc<Probe> {
        if let Ask::Wait { .. } = ask {
            self.queued.store(true, Ordering::Relaxed);
        }
        let probe = Arc::new(Probe {
            name: self.name.clone(),
            token: self.token,
            ask,
            sent,
            wall_us: wall_us(),
            said: Mutex::new(None),
            answered: Notify::new(),
        });
        node.submit(Call::new(Arc::clone(&probe) as Arc<dyn Round>, 0));
        probe
    }
}

impl Probe {
    /// What the node says, once it says it.
    ///
    /// # Panics
    /// If it says nothing for a long time.
    pub async fn answer(&self) -> Answer {
        let said = async {
            loop {
                let answered = self.answered.notified();
                if let Some(answer) = &*self.said() {
                    return answer.clone();
                }
                answered.await;
            }
        };
        tokio::time::timeout(DEADLINE, said).await.expect("an answer")
    }

    /// When it was asked.
    #[must_use]
    pub fn sent(&self) -> Moment {
        self.sent
    }

    /// The ticket that it asked with, if it asked for a place in a queue.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        match self.ask {
            Ask::Wait { ticket, .. } => Some(ticket),
            _ => None,
        }
    }

    /// Our place in the queue.
    ///
    /// # Panics
    /// If we have none.
    pub async fn queued(&self) -> Queued {
        match self.answer().await {
            Answer::Queued(queued) => *queued,
            other => panic!("not a place in the queue: {other:?}"),
        }
    }

    /// Whether the node did it.
    ///
    /// # Panics
    /// If it said anything but yes or no.
    pub async fn is_done(&self) -> bool {
        match self.answer().await {
            Answer::Granted { .. } | Answer::Done => true,
            Answer::Refused => false,
            other => panic!("neither done nor refused: {other:?}"),
        }
    }

    /// Whether the node has left the record to others who hold it.
    ///
    /// # Panics
    /// If it said that it did nothing.
    pub async fn is_left(&self) -> bool {
        match self.answer().await {
            Answer::LeftToOthers => true,
            Answer::Done => false,
            other => panic!("neither left nor done: {other:?}"),
        }
    }

    /// The last fence of our block.
    ///
    /// # Panics
    /// If the record is not ours.
    pub async fn fence(&self) -> u64 {
        match self.answer().await {
            Answer::Granted { fence } => fence,
            other => panic!("not granted: {other:?}"),
        }
    }

    fn said(&self) -> std::sync::MutexGuard<'_, Option<Answer>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Round for Probe {
    fn request(&self, _node: usize) -> Request<'_> {
        let token = &self.token;
        let verb = match self.ask {
            Ask::Acquire(ttl, proposal) => Verb::Acquire { token, ttl, proposal },
            Ask::Confirm(fence) => Verb::Confirm { token, fence },
            Ask::Extend(ttl, restore, participant) => {
                Verb::Extend { token, ttl, restore, participant }
            }
            Ask::Release { next, queued, participant } => {
                let until = Some(self.sent.after(Duration::from_secs(60)));
                Verb::Release { token, until, next, queued, participant }
            }
            Ask::Wait { ttl, ticket, yielding, proposal } => {
                let ticket = Ticket { sent: self.sent, ..ticket };
                Verb::Wait { token, ttl, ticket, yielding, proposal }
            }
            Ask::Inspect => Verb::Inspect,
            Ask::SetNote(ref note) => Verb::SetNote { token, note, keep: Duration::from_secs(60) },
            Ask::ForceRelease(holder) => Verb::ForceRelease { holder },
            Ask::List(ref from) => Verb::List { from },
        };
        Request { name: &self.name, sent: self.sent, wall_us: self.wall_us, verb }
    }

    fn cast(self: Arc<Self>, _node: usize, answer: Answer) {
        *self.said() = Some(answer);
        self.answered.notify_waiters();
    }

    /// A machine under load may be late: only the answer counts here.
    fn overdue(self: Arc<Self>, _node: usize, _why: Failure) {}
}
