//! Waiting for a lock in the queues of all nodes.

use alloc::boxed::Box;
use core::iter::repeat_n;
use core::num::NonZero;
use core::time::Duration;

use crate::node_standing::{Micros, NodeStanding, Notes};
use crate::{Fences, HolderFence, MAX_NODES, Moment, NodeSet, Quorum, Terms};

/// A node keeps a place in a queue for so many TTLs after the latest request with it.
pub const TICKET_TTLS: u32 = 3;
/// But not for less than this.
pub const TICKET_LEAST: Duration = Duration::from_secs(3);

/// How long a node keeps a place in a queue after the latest request with it, of a lock with this TTL. A waiter that
/// waits for longer asks again in time, though nothing else is to be expected.
#[must_use]
pub fn ticket_kept(ttl: Duration) -> Duration {
    ttl.saturating_mul(TICKET_TTLS).max(TICKET_LEAST)
}

/// A waiter that has a part of the nodes, and has offered it in vain, offers it again after this part of a TTL,
/// then after twice as long and so on: a ticket that stands before ours may have come later than the offer.
const FIRST_OFFER: u32 = 64;
/// But not less often than this.
const LAST_OFFER: u32 = 4;

/// One waiter's standing on all nodes, from its first ticket to a majority.
///
/// ```text
///   ask all ──▶ each node: granted │ queued, at ticket n, free at T │ silent
///      ▲             │
///      │             ├─ a majority granted ───────────────▶ Won, if it lasts long enough
///      │             ├─ tickets differ ─▶ ask those below with the highest: all sort alike
///      │             ├─ a minority granted ─▶ if one other has a majority: give it back
///      │             │                        otherwise yield it to waiters before us there,
///      │             │                        now and then again while nothing comes of it
///      │             └─ otherwise rest: until a grant message, or T
///      └──────────────────────────────────────┘
/// ```
///
/// # Why a grant counts
///
/// A node passes the record on at a moment of its own choosing, which the waiter does not know.
/// But it does so after it has seen some request of the waiter, and it says which: `sent`. The
/// record lasts for a whole TTL from the grant, so it lasts at least until `sent` + TTL. A lock is
/// won with a majority of such records, and ends with the first of them: at every moment of its
/// validity a majority of the nodes names this waiter and no other.
///
/// From the moment a record is offered to others (*yielded*) it does not count, until the node has
/// answered that very request. A later one may overtake it, over another connection or where a server has forgotten
/// its scripts, and what that keeps the offer gives away. So nothing is won while an offer is open. If
/// its answer does not come in time, or is lost, the token is given back on all nodes.
///
/// # A waiter behind a holder keeps no node from it
///
/// A node that comes back is free, and goes to the first that asks. While one other holds the lock on a
/// majority of the nodes, such a record is of no use to a waiter: it gets the lock from that majority,
/// passed on or at the end of its records. But the holder needs it, to lose another node later. So it is given
/// back at once, for the holder's next extension.
///
/// A release may run late, or twice. So what is given back is the *token*, on all nodes: the waiter goes on with
/// another one, at the same place in their queues.
#[derive(Debug, Clone)]
pub struct Queueing {
    nodes: Box<[NodeStanding]>,
    /// Asked, and not answered yet.
    pending: NodeSet,
    /// When all nodes were last asked.
    asked_at: Moment,
    /// When any of them was.
    last_sent: Moment,
    /// Where our tickets stand, by what the nodes have said so far; zero if they have said nothing.
    ticket_no: u64,
    /// Nothing before the first of them: there may be many waiters, and most have none.
    grants: Option<Box<Grants>>,
}

/// What there is to know of the nodes that have granted it, and of those that had.
#[derive(Debug, Clone)]
struct Grants {
    nodes: Box<[Grant]>,
    /// Whether they have been offered to others since all nodes were asked.
    yielded: bool,
    /// How often that was done since it has had a part of the nodes, and when it was last.
    offers: u32,
    offered_at: Moment,
}

#[derive(Debug, Clone, Copy)]
struct Grant {
    /// The record there is ours for a TTL from this request at least.
    since: Moment,
    /// The highest fence that the node gave us with its record.
    fence: u64,
    /// When its record was last offered to others: grant messages from before that are void.
    yielded_at: Moment,
    /// So many offers it has not answered yet.
    open: u16,
    /// So is a message about a request that was sent before this: it was heard already, or the node has
    /// said since that another has the record.
    void_before: Moment,
}

/// What a node answered to a waiter in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePlace {
    /// Where its ticket stands there.
    pub ticket_no: u64,
    /// When the record there ends, unless it is renewed; `None` for never.
    pub free_at: Option<Moment>,
    /// Whether the node will send a grant message.
    pub will_notify: bool,
    /// Who has the record, by some digest; `None` if that is not known.
    pub holder: Option<NonZero<u32>>,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The lock is held until then.
    Won {
        /// The end of the validity.
        valid_until: Moment,
        /// The fence of the holder. If it is not agreed on, it has to be confirmed before the
        /// lock may be used.
        fence: HolderFence,
    },
    /// Ask these nodes.
    Ask {
        /// Which.
        nodes: NodeSet,
        /// Whether to give up what they have granted to waiters before us.
        yielding: bool,
    },
    /// Another holds the lock on a majority, and some nodes have granted it to us; or nobody knows what has
    /// become of an offer. Release the token on all nodes, and [start over](Queueing::start_over) with another one.
    GiveBack,
    /// Answers are still to come.
    Pending,
    /// Ask all nodes then, unless a grant message comes before.
    Until(Moment),
    /// So many nodes will not send a grant message that waiting for it is no use: ask all again after a while.
    Poll,
    /// So few nodes can be asked that nothing is to be had: ask all again after a while.
    Unreachable,
}

impl Queueing {
    /// A waiter that has asked no node yet.
    #[must_use]
    pub fn new(quorum: Quorum) -> Self {
        Self {
            nodes: repeat_n(NodeStanding::Unknown, quorum.nodes()).collect(),
            pending: NodeSet::EMPTY,
            asked_at: Moment::default(),
            last_sent: Moment::default(),
            ticket_no: 0,
            grants: None,
        }
    }

    const fn quorum(&self) -> Quorum {
        Quorum::of_all(&self.nodes)
    }

    /// These nodes are being asked, by requests whose first byte leaves after `now`. Returns when
    /// they count as sent: no two do at the same moment, however coarse the clock, so that it tells
    /// what was asked before an offer from what was asked after it.
    #[must_use = "the requests have to carry it"]
    pub fn ask(&mut self, nodes: NodeSet, yielding: bool, now: Moment) -> Moment {
        let sent = now.max(self.last_sent.after(Duration::from_nanos(1)));
        self.last_sent = sent;
        self.pending = self.pending.union(nodes);
        if yielding {
            let grants = grants(&mut self.grants, self.nodes.len());
            grants.yielded = true;
            grants.offers = grants.offers.saturating_add(1);
            grants.offered_at = sent;
            let those = self.nodes.iter_mut().zip(&mut grants.nodes).enumerate();
            for (_, (stand, grant)) in those.filter(|(node, _)| nodes.contains(*node)) {
                *stand = NodeStanding::Unknown;
                grant.yielded_at = sent;
                grant.open = grant.open.saturating_add(1);
            }
        } else if nodes.len() == self.nodes.len() {
            self.asked_at = sent;
            for stand in self.nodes.iter_mut().filter(|stand| **stand == NodeStanding::Spared) {
                *stand = NodeStanding::Unknown;
            }
            let votes = self.votes();
            if let Some(grants) = &mut self.grants {
                grants.yielded = false;
                if votes == 0 {
                    grants.offers = 0;
                }
            }
        }
        sent
    }

    /// Whether any node has been asked.
    #[must_use]
    pub fn has_asked(&self) -> bool {
        self.last_sent > Moment::default()
    }

    /// `node` has answered an offer, or has not been sent it: what it says counts again.
    pub fn offer_answered(&mut self, node: usize) {
        if let Some(grant) = self.grants.as_mut().and_then(|grants| grants.nodes.get_mut(node)) {
            grant.open = grant.open.saturating_sub(1);
        }
    }

    /// Whether some node has not answered an offer.
    fn has_open_offer(&self) -> bool {
        self.grants.as_ref().is_some_and(|grants| grants.nodes.iter().any(|grant| grant.open > 0))
    }

    /// `node` answers our request of `sent`: its record is ours, with this fence.
    pub fn granted(&mut self, node: usize, sent: Moment, fence: u64) {
        let count = self.nodes.len();
        let Some(stand) = self.nodes.get_mut(node) else { return };
        let grant = &mut grants(&mut self.grants, count).nodes[node];
        if sent < grant.yielded_at || grant.open > 0 {
            return;
        }
        let before = core::mem::replace(stand, NodeStanding::Granted);
        if before == NodeStanding::Granted {
            grant.since = grant.since.max(sent);
            grant.fence = grant.fence.max(fence);
        } else {
            (grant.since, grant.fence) = (sent, fence);
        }
    }

    /// `node` has sent a message that its record is ours, with this fence, having seen our request of
    /// `sent`. Returns whether it counts.
    ///
    /// A node that has granted a ticket has none any more: before its next message it has to see a later
    /// request. So each counts once, and none after the node has answered a later request otherwise.
    #[must_use = "what does not count is not to be acted upon"]
    pub fn notified(&mut self, node: usize, sent: Moment, fence: u64) -> bool {
        let count = self.nodes.len();
        if node >= count {
            return false;
        }
        let grant = &mut grants(&mut self.grants, count).nodes[node];
        if sent < grant.yielded_at.max(grant.void_before) || grant.open > 0 {
            return false;
        }
        grant.void_before = sent.after(Duration::from_nanos(1));
        // The holder there has let go of it, and so of the others.
        if let Some(NodeStanding::Queued { notes: gone, .. }) = self.nodes.get(node).copied() {
            for stand in &mut self.nodes {
                if let NodeStanding::Queued { notes, .. } = stand
                    && notes.holder() == gone.holder()
                {
                    *notes = notes.without_holder();
                }
            }
        }
        self.granted(node, sent, fence);
        true
    }

    /// `node` says to our request of `sent` that another has the record.
    pub fn queued(&mut self, node: usize, sent: Moment, place: QueuePlace) {
        let QueuePlace { ticket_no, free_at, will_notify, holder } = place;
        if ticket_no > self.ticket_no {
            self.ticket_no = ticket_no;
            for stand in &mut self.nodes {
                if let NodeStanding::Queued { notes, .. } = stand {
                    *notes = notes.below();
                }
            }
        }
        // A grant message that has seen this request has overtaken the answer to it.
        if self.grant(node).is_some_and(|grant| grant.since >= sent) {
            return;
        }
        if let Some(grant) = self.grants.as_mut().and_then(|grants| grants.nodes.get_mut(node)) {
            grant.void_before = grant.void_before.max(sent);
        }
        if let Some(stand) = self.nodes.get_mut(node) {
            let free_at = free_at.map_or(Micros::NEVER, Micros::at_or_after);
            let notes = Notes::new(ticket_no < self.ticket_no, holder);
            *stand = NodeStanding::Queued { free_at, will_notify, notes };
        }
    }

    /// Whether one other holds the lock on a majority of the nodes, as far as is known at `now`.
    #[must_use]
    pub fn is_taken(&self, now: Moment) -> bool {
        let holder = |stand: &NodeStanding| match stand {
            NodeStanding::Queued { free_at, notes, .. } if free_at.moment() > now => notes.holder(),
            _ => None,
        };
        let enough = self.quorum().enough();
        self.nodes.iter().filter_map(holder).any(|one| {
            self.nodes.iter().filter(|stand| holder(stand) == Some(one)).count() >= enough
        })
    }

    /// The token is being released on all nodes, and requests from now on carry another one. What nodes say to any
    /// request before is not to be taken in any more. Returns which nodes to ask: those whose records are given back
    /// to a holder are left to it, until all are asked again.
    #[must_use = "the others are to be asked"]
    pub fn start_over(&mut self) -> NodeSet {
        let left_to_holder = !self.has_open_offer();
        for stand in &mut self.nodes {
            *stand = match stand {
                NodeStanding::Granted if left_to_holder => NodeStanding::Spared,
                NodeStanding::Spared => NodeStanding::Spared,
                _ => NodeStanding::Unknown,
            };
        }
        self.pending = NodeSet::EMPTY;
        self.grants = None;
        self.those(|stand| stand != NodeStanding::Spared)
    }

    /// `node` has answered, or is not waited for any longer.
    pub const fn answered(&mut self, node: usize) {
        self.pending.remove(node);
    }

    /// `node` cannot be asked. What it granted before it still keeps.
    pub fn missed(&mut self, node: usize) {
        self.answered(node);
        if let Some(stand @ NodeStanding::Queued { .. }) = self.nodes.get_mut(node) {
            *stand = NodeStanding::Unknown;
        }
    }

    /// The ticket number on which the nodes have agreed, once any of them has given one.
    #[must_use]
    pub const fn ticket_no(&self) -> Option<u64> {
        if self.ticket_no == 0 { None } else { Some(self.ticket_no) }
    }

    /// How many nodes have granted it.
    #[must_use]
    pub fn votes(&self) -> usize {
        self.granted_nodes().len()
    }

    /// How many nodes say that another has it.
    #[must_use]
    pub fn refusals(&self) -> usize {
        self.those(|stand| matches!(stand, NodeStanding::Queued { .. })).len()
    }

    /// What to do at `now`, for a lock of these terms that is of use only with more than `least` of
    /// its validity left.
    #[must_use]
    pub fn step(&self, terms: &Terms, least: Duration, now: Moment) -> Step {
        let open = self.has_open_offer();
        if let Some(sent) = self.majority_since().filter(|_| !open) {
            let valid_until = terms.valid_until(sent);
            // One that is about to end would be lost before it is of use: renew it first, unless
            // that was just tried.
            let half = terms.validity() / 2;
            let tried = now < self.asked_at.after(half);
            let needed = if tried && self.pending.is_empty() { least } else { least.max(half) };
            if now < valid_until.before(needed) {
                return Step::Won { valid_until, fence: self.holder_fence() };
            }
            if self.pending.is_empty() && !tried {
                return Step::Ask { nodes: NodeSet::first(self.nodes.len()), yielding: false };
            }
        }
        if !self.pending.is_empty() {
            return Step::Pending;
        }
        if open {
            return Step::GiveBack;
        }
        let granted = self.granted_nodes();
        if !granted.is_empty() && self.is_taken(now) {
            return Step::GiveBack;
        }
        let below = self.below();
        if !below.is_empty() {
            return Step::Ask { nodes: below, yielding: false };
        }
        if !granted.is_empty() && !self.grants.as_ref().is_some_and(|grants| grants.yielded) {
            return Step::Ask { nodes: granted, yielding: true };
        }
        self.rest(granted.len(), terms)
    }

    fn rest(&self, granted: usize, terms: &Terms) -> Step {
        let mut free_at = [Moment::MAX; MAX_NODES];
        let (mut queued, mut notifying) = (0, 0);
        for stand in &self.nodes {
            if let NodeStanding::Queued { free_at: at, will_notify, .. } = *stand {
                free_at[queued] = at.moment();
                queued += 1;
                notifying += usize::from(will_notify);
            }
        }
        let missing = self.quorum().enough().saturating_sub(granted);
        if queued < missing || missing == 0 {
            return Step::Unreachable;
        }
        if notifying < missing {
            return Step::Poll;
        }
        let free_at = &mut free_at[..queued];
        free_at.sort_unstable();
        let kept = ticket_kept(terms.ttl) / 3 * 2;
        let until = free_at[missing - 1].min(self.asked_at.after(kept));
        Step::Until(if granted == 0 { until } else { until.min(self.next_offer(terms)) })
    }

    /// When to ask all nodes once more, and to offer again what they have granted.
    fn next_offer(&self, terms: &Terms) -> Moment {
        let Some(grants) = &self.grants else { return Moment::MAX };
        let doublings = grants.offers.saturating_sub(1).min(FIRST_OFFER.ilog2());
        let rest = (terms.ttl / FIRST_OFFER).saturating_mul(1 << doublings);
        grants.offered_at.after(rest.min(terms.ttl / LAST_OFFER))
    }

    /// The sending of the oldest request that the best majority of grants stands on.
    fn majority_since(&self) -> Option<Moment> {
        let mut since = [Moment::default(); MAX_NODES];
        let mut count = 0;
        for grant in self.granted_by() {
            since[count] = grant.since;
            count += 1;
        }
        let since = &mut since[..count];
        since.sort_unstable_by(|a, b| b.cmp(a));
        since.get(self.quorum().enough() - 1).copied()
    }

    /// The nodes on whose grants a lock is won that lasts for as long as `step` said. Others may have granted it for a
    /// shorter time.
    #[must_use]
    pub fn backing(&self) -> NodeSet {
        let Some(since) = self.majority_since() else { return NodeSet::EMPTY };
        let mut sure = NodeSet::EMPTY;
        for node in 0..self.nodes.len() {
            if self.grant(node).is_some_and(|grant| grant.since >= since) {
                sure.insert(node);
            }
        }
        sure
    }

    fn holder_fence(&self) -> HolderFence {
        let mut fences = Fences::default();
        for grant in self.granted_by() {
            fences.record(grant.fence);
        }
        fences.highest(self.quorum())
    }

    /// What `node` has granted, if it has.
    fn grant(&self, node: usize) -> Option<&Grant> {
        let granted = *self.nodes.get(node)? == NodeStanding::Granted;
        self.grants.as_ref().filter(|_| granted)?.nodes.get(node)
    }

    fn granted_by(&self) -> impl Iterator<Item = &Grant> {
        (0..self.nodes.len()).filter_map(|node| self.grant(node))
    }

    fn granted_nodes(&self) -> NodeSet {
        self.those(|stand| stand == NodeStanding::Granted)
    }

    /// The nodes where our ticket number is lower than elsewhere.
    fn below(&self) -> NodeSet {
        self.those(|stand| matches!(stand, NodeStanding::Queued { notes, .. } if notes.is_below()))
    }

    fn those(&self, which: impl Fn(NodeStanding) -> bool) -> NodeSet {
        let mut those = NodeSet::EMPTY;
        for (node, stand) in self.nodes.iter().enumerate() {
            if which(*stand) {
                those.insert(node);
            }
        }
        those
    }
}

/// Those of a waiter on so many nodes.
fn grants(grants: &mut Option<Box<Grants>>, nodes: usize) -> &mut Grants {
    grants.get_or_insert_with(|| {
        let never = Moment::default();
        let grant =
            Grant { since: never, fence: 0, yielded_at: never, open: 0, void_before: never };
        Box::new(Grants {
            nodes: repeat_n(grant, nodes).collect(),
            yielded: false,
            offers: 0,
            offered_at: never,
        })
    })
}
