//! One client: what it knows of the lock, and what it may conclude.

use crate::node::Request;
use crate::setup::{ENOUGH, Fence, NODES, Setup, Time, Variant};

/// Where a client stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// It wants nothing.
    #[default]
    Idle,
    /// It has asked for the lock.
    Asking {
        /// When it did so first.
        since: Time,
    },
    /// A majority has granted it the lock, with different fences.
    Confirming {
        /// The largest of them.
        fence: Fence,
        /// When it asked first.
        since: Time,
    },
    /// It has the lock.
    Holding {
        /// Its fence.
        fence: Fence,
        /// Until when.
        until: Time,
        /// When the extension that is under way was sent.
        extending: Option<Time>,
    },
}

/// One client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client {
    /// Where it stands.
    pub phase: Phase,
}

/// What lies between one client and one node: what is under way, and what the client was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Side {
    /// What the client has sent and the node has not seen.
    pub under_way: Option<Request>,
    /// The fence that the node granted the lock with; 0 if it did not.
    pub fence: Fence,
    /// Until when the client may believe in its record on this node; 0 if there is none.
    pub lease: Time,
    /// Whether the node has confirmed the fence, or answered the extension.
    pub counted: bool,
    /// Whether the client has heard of the node's present marker.
    pub informed: bool,
}

impl Client {
    /// Whether it has the lock, and may believe so at `now`.
    #[must_use]
    pub fn inside(&self, now: Time) -> bool {
        matches!(self.phase, Phase::Holding { until, .. } if now < until)
    }

    /// The fence and the deadline that it may conclude from what the nodes have said.
    #[must_use]
    pub fn won(&self, setup: &Setup, sides: &[Side; NODES], now: Time) -> Option<(Fence, Time)> {
        let (fence, until) = match self.phase {
            Phase::Asking { .. } => {
                let fence = agreed(sides)?;
                (
                    fence,
                    majority(sides.map(|side| if side.fence == fence { side.lease } else { 0 })),
                )
            }
            Phase::Confirming { fence, .. } => {
                let confirmed = sides.iter().filter(|side| side.counted).count();
                // The votes that the deadline counts from are those that the fence counts on.
                let leases = sides.map(|side| match setup.variant {
                    Variant::DeadlineFromAnyVotes => side.lease,
                    _ if side.counted => side.lease,
                    _ => 0,
                });
                (fence, if confirmed >= ENOUGH { majority(leases) } else { 0 })
            }
            Phase::Idle | Phase::Holding { .. } => return None,
        };
        (now < until).then_some((fence, until))
    }

    /// The fence that is yet to be confirmed: a majority has granted the lock, not with one fence.
    #[must_use]
    pub fn divided(&self, sides: &[Side; NODES], now: Time) -> Option<Fence> {
        let largest = sides.iter().map(|side| side.fence).max()?;
        let (unconfirmed, fence) = match self.phase {
            Phase::Idle | Phase::Holding { .. } => return None,
            Phase::Asking { .. } => (agreed(sides).is_none(), largest),
            // A vote has come since. One may have gone too, but a fence never becomes smaller.
            Phase::Confirming { fence, .. } => {
                let open =
                    |side: &Side| side.fence > 0 && !side.counted && side.under_way.is_none();
                (largest > fence || sides.iter().any(open), largest.max(fence))
            }
        };
        let enough = majority(sides.map(|side| side.lease)) > now;
        (unconfirmed && enough).then_some(fence)
    }

    /// The new deadline, if a majority has answered the extension in time.
    #[must_use]
    pub fn renewed(&self, setup: &Setup, sides: &[Side; NODES], now: Time) -> Option<Time> {
        let Phase::Holding { until, extending: Some(sent), .. } = self.phase else {
            return None;
        };
        let enough = sides.iter().filter(|side| side.counted).count() >= ENOUGH;
        let in_time = now < until || setup.variant == Variant::LateExtension;
        (enough && in_time).then(|| until.max(sent + setup.belief())).filter(|until| now < *until)
    }
}

/// The fence that a majority has granted the lock with.
fn agreed(sides: &[Side; NODES]) -> Option<Fence> {
    sides.iter().map(|side| side.fence).find(|fence| {
        *fence > 0 && sides.iter().filter(|side| side.fence == *fence).count() >= ENOUGH
    })
}

/// The end of the lease that a majority stands for: the middle one of three.
fn majority(mut leases: [Time; NODES]) -> Time {
    leases.sort_unstable();
    leases[NODES - ENOUGH]
}
