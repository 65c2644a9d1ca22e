//! What every round, guard and locker shares.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::drive::Settling;
use crate::gate::Gate;
use crate::lease_clock::LeaseClock;
use crate::line::Lines;
use crate::node::{
    Answer, Call, ClientId, Failure, FailureKind, Members, Node, Queued, Round, Secrets,
};
use crate::non_voting::WarnedNodes;
use crate::runtime::{Runtime, wall_us};
use crate::settings::Settings;
use crate::waiters::Waiters;
use crate::watchdog::Watchdog;
use quorlock_protocol::{Moment, NodeSet, Proposal, Quorum, Terms, Upkeep, plausible};

pub(crate) struct Core {
    /// Itself, for tasks that must not keep it alive.
    pub(crate) this: Weak<Self>,
    pub(crate) nodes: Box<[Arc<dyn Node>]>,
    pub(crate) quorum: Quorum,
    pub(crate) settings: Settings,
    pub(crate) runtime: Arc<dyn Runtime>,
    /// What leases are counted by.
    pub(crate) clock: Arc<LeaseClock>,
    /// Set by a shutdown: no new locks after it.
    pub(crate) closed: AtomicBool,
    pub(crate) releases: Pending,
    /// Who wants a new lock passes it before the nodes are asked.
    pub(crate) gate: Gate,
    /// How many claims there have been, as far as it goes.
    pub(crate) lots: AtomicU8,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) lines: Lines,
    pub(crate) waiters: Waiters,
    /// What this locker's tickets name it by.
    pub(crate) client: ClientId,
    /// What messages about them have to repeat.
    pub(crate) secrets: Secrets,
    /// The highest fence that any of its locks had.
    pub(crate) highest: AtomicU64,
    /// The nodes that do not vote and that a warning was logged for.
    pub(crate) warned: WarnedNodes,
    /// The set of nodes that all clients have to agree on.
    pub(crate) members: Members,
    pub(crate) settling: Settling,
    /// How most of its locks are looked after.
    pub(crate) upkeep: Upkeep,
}

/// When something is sent, by both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    pub(crate) sent: Moment,
    /// Read after `sent`: nodes count a lease from it, and must not begin before its holder does.
    pub(crate) wall_us: u64,
}

impl Core {
    /// A lot for the next claim, as far as can be from those that were given out last; zero for the first.
    pub(crate) fn next_lot(&self) -> u8 {
        self.lots.fetch_add(1, Ordering::Relaxed).reverse_bits()
    }

    /// The time that leases are counted by. It is not what is sent to the nodes.
    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// The time for a round whose first byte is about to leave, and from which no lease counts.
    pub(crate) fn stamp(&self) -> Stamp {
        let sent = self.runtime.now();
        Stamp { sent, wall_us: self.wall_us() }
    }

    /// The time of day.
    pub(crate) fn wall_us(&self) -> u64 {
        wall_us(&*self.runtime)
    }

    /// The fence to propose for a new holder, at this time of day; zero if holders have none.
    pub(crate) fn next_fence(&self, wall_us: u64) -> u64 {
        if !self.settings.fences {
            return 0;
        }
        if self.settings.own_order {
            // It says that one is wanted, and nothing more.
            return 1;
        }
        wall_us.max(self.highest.load(Ordering::Relaxed).saturating_add(1))
    }

    /// The fences to propose for a new holder who may be followed by others of this process, for so many turns
    /// at the most: fewer while the fences of this locker are ahead of the clock.
    pub(crate) fn proposal(&self, wall_us: u64, turns: u16) -> Option<Proposal> {
        let least = self.next_fence(wall_us);
        (least > 0).then(|| Proposal { least, block: turns }.within(wall_us))
    }

    /// What `node` has answered to what was sent at that time of day. A fence that it cannot have given out is
    /// a failure of the node, whatever else it says; and so is a place in its queue that nobody can have there, since
    /// other nodes would be asked for the same.
    pub(crate) fn heard(&self, node: usize, wall_us: u64, answer: Answer) -> Answer {
        if let Answer::Queued(queued) = &answer
            && let Queued { ticket_no, .. } = **queued
            && !self.believes(node, wall_us, ticket_no)
        {
            let text = format!("says that our place in its queue is {ticket_no}, which cannot be");
            return Answer::Failed(Failure::new(FailureKind::Broken, text));
        }
        match answer.fence() {
            Some(fence) if !self.believes(node, wall_us, fence) => {
                Answer::Failed(Failure::fence(fence, wall_us))
            }
            _ => answer,
        }
    }

    /// Whether `node` can have given out this fence at this time of day.
    pub(crate) fn believes(&self, node: usize, wall_us: u64, fence: u64) -> bool {
        plausible(fence, wall_us)
            || self.nodes.get(node).is_some_and(|node| !node.capabilities().fences_by_clock)
    }

    /// A lock of this process has these fences: what is proposed from now on is higher.
    pub(crate) fn note_fence(&self, last: u64) {
        self.highest.fetch_max(last, Ordering::Relaxed);
    }

    /// Puts a round before all nodes. Their answers may come in before this returns.
    pub(crate) fn ask_all<R: Round + 'static>(&self, round: &Arc<R>) {
        self.ask(round, NodeSet::first(self.nodes.len()));
    }

    /// Puts a round before these nodes. Their answers may come in before this returns.
    pub(crate) fn ask<R: Round + 'static>(&self, round: &Arc<R>, nodes: NodeSet) {
        for (index, node) in self.nodes.iter().enumerate().filter(|(n, _)| nodes.contains(*n)) {
            node.submit(Call::new(Arc::clone(round) as Arc<dyn Round>, index));
        }
    }

    /// What a lease of `ttl` is worth on these nodes: the most careful of them decides.
    pub(crate) fn terms(&self, ttl: Duration) -> Terms {
        self.settings.terms(ttl)
    }

    /// How a lease of `ttl` is looked after.
    pub(crate) fn upkeep(&self, ttl: Duration, renew: bool) -> Upkeep {
        if !renew {
            Upkeep::fixed(&self.terms(ttl), self.settings.loss_lead)
        } else if ttl == self.settings.ttl {
            self.upkeep
        } else {
            self.settings.upkeep(ttl)
        }
    }

    pub(crate) fn label(&self, node: usize) -> String {
        self.nodes.get(node).map_or_else(String::new, |node| node.label().to_owned())
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("nodes", &self.nodes)
            .field("settings", &self.settings)
            .field("lines", &self.lines.len())
            .field("waiters", &self.waiters.len())
            .field("alarms", &self.watchdog.len())
            .finish_non_exhaustive()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.watchdog.close();
    }
}

/// Counts releases and notes that some node has neither answered nor let time out.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    count: AtomicUsize,
    none_left: Notify,
}

impl Pending {
    pub(crate) fn begin(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        if self.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.none_left.notify_waiters();
        }
    }

    pub(crate) async fn drained(&self) {
        loop {
            // Made before the look, so that the last one to end cannot slip in between.
            let none_left = self.none_left.notified();
            if self.count.load(Ordering::Acquire) == 0 {
                return;
            }
            none_left.await;
        }
    }
}
