//! Looking at locks from outside, and taking them away.

use std::collections::BTreeSet;
use std::future::poll_fn;

use crate::Error;
use crate::drive::{
    ForceReleaseRound, InspectRound, ListProgress, ListRound, NodeRelease, Status, Verdict,
};
use crate::error::{NodeAnswer, NodeAnswers};
use crate::locker::Locker;
use crate::name::Name;
use crate::node::Failure;

/// What the nodes know of all locks, from [`Locker::list_known`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Listing {
    /// The locks that are not free, in the order of their names.
    pub locks: Vec<Status>,
    /// The nodes that could not be asked, and why.
    pub silent: NodeAnswers,
    /// Whether so many were asked that no lock can be missing.
    pub complete: bool,
}

/// So many locks are looked at at once.
const LOOKS_AT_ONCE: usize = 64;

impl Locker {
    /// Asks every node who holds a lock. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a name that no lock can have. What went wrong at a node stands in the
    /// status.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    pub async fn inspect(&self, name: impl AsRef<[u8]>) -> Result<Status, Error> {
        let round = InspectRound::start(self.core(), self.core().settings.name(name)?);
        Ok(poll_fn(|cx| round.poll(cx)).await)
    }

    /// All locks that are not free, in the order of their names. Changes nothing.
    ///
    /// On Redis that goes through all keys of the database, a few hundred at a time, so that nobody
    /// else has to wait for it. Locks that are taken or freed meanwhile may be missing. So are those
    /// that other Redlock libraries hold, whose keys look like any others: [`inspect`](Self::inspect)
    /// shows them by name.
    ///
    /// # Errors
    /// [`Error::NoQuorum`]: so many nodes could not be asked that a lock may be missing. A node whose
    /// list goes in circles, takes more than 131,072 steps (some 130 million keys) or more than 64 MiB of
    /// names counts as one of them.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    pub async fn list(&self) -> Result<Vec<Status>, Error> {
        let Listing { locks, silent, complete } = self.list_known().await;
        if complete {
            return Ok(locks);
        }
        let core = self.core();
        let have = core.nodes.len() - silent.0.len();
        let need = core.quorum.too_many();
        Err(Error::too_few_nodes("listed their locks", have, need, core.quorum, silent))
    }

    /// The locks that the nodes know of which can be asked, and which of them cannot: in an outage some may be
    /// missing, and of others it is not known whether they are held. Changes nothing. Apart from that it is as
    /// [`list`](Self::list).
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    pub async fn list_known(&self) -> Listing {
        let core = self.core();
        let mut names = BTreeSet::new();
        let mut silent = Vec::new();
        for node in 0..core.nodes.len() {
            match self.list_node(node).await {
                Ok(listed) => names.extend(listed),
                Err(failure) => {
                    silent.push(NodeAnswer { node: core.label(node), failure: Some(failure) });
                }
            }
        }
        // A lock that is held is on a majority, so on one of so many nodes.
        let complete = core.nodes.len() - silent.len() >= core.quorum.too_many();
        let silent = NodeAnswers(silent);
        let mut locks = Vec::new();
        let mut names = names.into_iter();
        loop {
            let rounds = names.by_ref().take(LOOKS_AT_ONCE);
            let rounds: Vec<_> = rounds.map(|name| InspectRound::start(core, name)).collect();
            if rounds.is_empty() {
                return Listing { locks, silent, complete };
            }
            for round in rounds {
                let status = poll_fn(|cx| round.poll(cx)).await;
                // Nodes keep the names of locks that are free, for a day.
                if status.verdict() != Verdict::Free && status.is_recorded() {
                    locks.push(status);
                }
            }
        }
    }

    async fn list_node(&self, node: usize) -> Result<Vec<Name>, Failure> {
        let (mut names, mut from) = (Vec::new(), Vec::new());
        let mut progress = ListProgress::default();
        loop {
            let round = ListRound::start(self.core(), Name::of_no_lock(), node, from);
            let listed = poll_fn(|cx| round.poll(cx)).await?;
            progress.step(&listed)?;
            names.extend(listed.names);
            match listed.next {
                Some(next) => from = next,
                None => return Ok(names),
            }
        }
    }

    /// Takes a lock away from its holder: for people, when a holder is known to be gone or out
    /// of order.
    ///
    /// **The holder is not asked.** It learns of its loss when it next extends the lock, and may work
    /// on until then while another holder has it.
    ///
    /// What `seen` shows is dropped on every node, or passed on to the next waiter, as a release would.
    /// A record that another holder has got in the meantime is left alone. The lock may be one of
    /// another library. Returns what became of it on each node.
    ///
    /// # Errors
    /// [`Error::NoQuorum`]: too few nodes answered; what the others hold ends by itself.
    ///
    /// # Cancel safety
    /// Dropping it takes nothing back: the nodes have been asked when this is first polled.
    pub async fn force_release(&self, seen: &Status) -> Result<Vec<NodeRelease>, Error> {
        let round = ForceReleaseRound::start(self.core(), seen);
        poll_fn(|cx| round.poll(cx)).await
    }
}
