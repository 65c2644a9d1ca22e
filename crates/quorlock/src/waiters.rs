//! Which waiter to notify when a node sends a grant message.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::core::Core;
use crate::drive::{ReleaseRound, WaitRound};
use crate::locked::locked;
use crate::name::Name;
use crate::node::{Grant, Inbox};
use crate::token::Token;
use quorlock_protocol::{Moment, NodeSet};

/// The waiters of one locker, by the id that their tickets carry.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// A waiter's place here is the lower half of its id.
    places: Vec<Option<Weak<WaitRound>>>,
    free: Vec<u32>,
    /// The upper half: places are used again, ids are not.
    serial: u32,
    /// Those that have left lately, by their ids, and until when each is remembered, in the order of their leaving.
    gone: HashMap<u64, Gone>,
    forgotten: VecDeque<(Moment, u64)>,
}

/// A waiter that has left. A request of it that comes to a node after its release, as over a connection that
/// could not be ended there, may yet be granted.
#[derive(Debug)]
pub(crate) struct Gone {
    pub(crate) waiter: u64,
    pub(crate) name: Name,
    pub(crate) token: Token,
    /// Its tickets and records last for so long at the most.
    pub(crate) expires_after: Duration,
}

/// So many of them are remembered at the most, some ten megabytes.
const MOST_GONE: usize = 1 << 16;

impl Waiters {
    /// Makes a waiter with an id of its own.
    pub(crate) fn admit(&self, make: impl FnOnce(u64) -> WaitRound) -> Arc<WaitRound> {
        let mut state = locked(&self.0);
        state.serial = state.serial.wrapping_add(1);
        let place = state.free.pop().unwrap_or_else(|| {
            state.places.push(None);
            // There is not enough memory for more.
            u32::try_from(state.places.len() - 1).unwrap_or(u32::MAX)
        });
        let wait = Arc::new(make(u64::from(state.serial) << 32 | u64::from(place)));
        state.places[place as usize] = Some(Arc::downgrade(&wait));
        wait
    }

    /// Another id for the waiter with this one, at the same place.
    pub(crate) fn new_id(&self, id: u64) -> u64 {
        let mut state = locked(&self.0);
        state.serial = state.serial.wrapping_add(1);
        u64::from(state.serial) << 32 | id & u64::from(u32::MAX)
    }

    /// The waiter with this id is none any more.
    pub(crate) fn dismiss(&self, id: u64) {
        let mut state = locked(&self.0);
        let Some(place) = state.places.get_mut(place_of(id)).and_then(Option::take) else {
            return;
        };
        state.free.push(id as u32);
        if state.free.len() == state.places.len() {
            // The room of a crowd is not kept.
            (state.places, state.free) = (Vec::new(), Vec::new());
        }
        drop(state);
        drop(place);
    }

    /// A waiter has left, and given back what it had.
    pub(crate) fn left(&self, gone: Gone, now: Moment) {
        let mut state = locked(&self.0);
        while let Some((until, waiter)) = state.forgotten.front().copied()
            && (until <= now || state.forgotten.len() == MOST_GONE)
        {
            state.forgotten.pop_front();
            state.gone.remove(&waiter);
        }
        if state.gone.is_empty() {
            // The room of a crowd is not kept.
            (state.gone, state.forgotten) = (HashMap::new(), VecDeque::new());
        }
        state.forgotten.push_back((now.after(gone.expires_after), gone.waiter));
        state.gone.insert(gone.waiter, gone);
    }

    /// What a waiter that has left may have been granted since.
    fn leftover(&self, waiter: u64) -> Option<(Name, Token, Duration)> {
        let state = locked(&self.0);
        let gone = state.gone.get(&waiter)?;
        Some((gone.name.clone(), gone.token, gone.expires_after))
    }

    pub(crate) fn len(&self) -> usize {
        let state = locked(&self.0);
        state.places.len() - state.free.len()
    }

    /// The waiter with exactly this id, and not another that has its place by now.
    fn find(&self, id: u64) -> Option<Arc<WaitRound>> {
        let wait = locked(&self.0).places.get(place_of(id))?.as_ref()?.upgrade()?;
        (wait.waiter() == id).then_some(wait)
    }

    /// One that stands for this lock.
    pub(crate) fn of(&self, name: &Name) -> Option<Arc<WaitRound>> {
        self.all().into_iter().find(|wait| wait.is_for(name))
    }

    pub(crate) fn all(&self) -> Vec<Arc<WaitRound>> {
        locked(&self.0).places.iter().flatten().filter_map(Weak::upgrade).collect()
    }
}

fn place_of(id: u64) -> usize {
    id as u32 as usize
}

impl Inbox for Core {
    fn granted(&self, node: usize, grant: Grant) {
        // Everything else in a message can be guessed by anybody who may send one.
        if grant.secret != self.secrets.of(node, grant.waiter, grant.sent) {
            tracing::debug!(node = self.label(node), "a message of a grant that nobody asked for");
            return;
        }
        if let Some(wait) = self.waiters.find(grant.waiter) {
            wait.notified(node, grant);
        } else if let Some((name, token, expires_after)) = self.waiters.leftover(grant.waiter)
            && let Some(core) = self.this.upgrade()
        {
            // Nobody comes for it: others do not have to wait until it ends.
            let mut on = NodeSet::EMPTY;
            on.insert(node);
            ReleaseRound::new(&core, name, (token, None), on, true, expires_after).send();
        }
    }

    fn interrupted(&self, node: usize) {
        for wait in self.waiters.all() {
            wait.interrupted(node);
        }
    }

    fn unsettled(&self, _node: usize) {
        self.see_to_membership();
    }

    fn session_ended(&self, node: usize) {
        self.watchdog.session_ended(node);
        // Tickets have gone with it.
        self.interrupted(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Locker;
    use crate::node::memory::MemoryNode;
    use crate::node::{
        Answer, Call, Capabilities, ClientId, Failure, Node, Request, Round, Secret, Ticket,
        TicketNumber, Verb,
    };
    use crate::runtime::{BoxFuture, TokioRuntime, wall_us};

    /// A node whose fences follow the clock.
    #[derive(Debug)]
    struct ByClock(MemoryNode);

    impl Node for ByClock {
        fn label(&self) -> &str {
            self.0.label()
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities { fences_by_clock: true, ..self.0.capabilities() }
        }

        fn ready(&self) -> BoxFuture<'_, Result<(), Failure>> {
            self.0.ready()
        }

        fn submit(&self, call: Call) {
            self.0.submit(call);
        }

        fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
            self.0.listen(client, node, inbox);
        }
    }

    /// A holder, and a waiter behind it.
    async fn standing() -> (Locker, crate::Guard, Arc<WaitRound>) {
        let node = Arc::new(ByClock(MemoryNode::new())) as Arc<dyn Node>;
        let locker = Locker::builder().with_nodes([node]).connect().await.unwrap();
        let guard = locker.lock("taken").await.unwrap();
        let options = locker.lock("taken").options();
        let wait = WaitRound::start(locker.core(), Name::new("taken").unwrap(), options);
        (locker, guard, wait)
    }

    #[tokio::test]
    async fn a_message_counts_with_the_secret_of_its_own_request_alone() {
        let (locker, _guard, wait) = standing().await;
        let (core, waiter, sent) = (locker.core(), wait.waiter(), locker.core().now());
        let fence = wall_us(&*core.runtime) + 1_000_000;
        let right = core.secrets.of(0, waiter, sent);
        let later = sent.after(std::time::Duration::from_nanos(1));
        for (secret, sent) in [
            (Secret::random(&*core.runtime), sent),
            (core.secrets.of(1, waiter, sent), sent),
            (core.secrets.of(0, waiter + 1, sent), sent),
            (right, later),
        ] {
            core.granted(0, Grant { waiter, secret, sent, others: false, fence });
            assert_eq!(wait.defeated().granted, 0);
        }
        core.granted(0, Grant { waiter, secret: right, sent, others: false, fence });
        assert_eq!(wait.defeated().granted, 1);
        wait.leave();
    }

    /// Whatever goes on at the node that sends it.
    #[tokio::test]
    async fn a_message_with_a_fence_that_cannot_be_does_not_count() {
        let (locker, _guard, wait) = standing().await;
        let (core, waiter, sent) = (locker.core(), wait.waiter(), locker.core().now());
        let secret = core.secrets.of(0, waiter, sent);
        let now = wall_us(&*core.runtime);
        let two_days = 2 * 86_400_000_000;
        for fence in [0, 1, now - two_days, now + two_days, 1 << 53, u64::MAX] {
            core.granted(0, Grant { waiter, secret, sent, others: false, fence });
            assert_eq!(wait.defeated().granted, 0, "{fence}");
        }
        let fence = now + 1_000_000;
        core.granted(0, Grant { waiter, secret, sent, others: false, fence });
        assert_eq!(wait.defeated().granted, 1);
        wait.leave();
    }

    /// A request with a ticket that comes to the node after the release of it.
    struct Late {
        name: Name,
        token: Token,
        ticket: Ticket,
    }

    impl Round for Late {
        fn request(&self, _node: usize) -> Request<'_> {
            let (ttl, ticket) = (Duration::from_secs(10), self.ticket);
            let verb =
                Verb::Wait { token: &self.token, ttl, ticket, yielding: false, proposal: None };
            Request { name: &self.name, sent: ticket.sent, wall_us: 0, verb }
        }

        fn cast(self: Arc<Self>, _node: usize, answer: Answer) {
            assert!(matches!(answer, Answer::Queued(_)), "{answer:?}");
        }

        fn overdue(self: Arc<Self>, _node: usize, _why: Failure) {}
    }

    #[tokio::test]
    async fn what_somebody_is_granted_who_has_left_is_given_back_at_once() {
        let (locker, guard, wait) = standing().await;
        let (core, waiter, token) = (locker.core(), wait.waiter(), wait.token());
        wait.leave();
        let (sent, ticket_no) = (core.now(), TicketNumber::New(1));
        let secret = core.secrets.of(0, waiter, sent);
        let ticket =
            Ticket { client: core.client, waiter, secret, ticket_no, sent, keep: Duration::MAX };
        let late = Late { name: Name::new("taken").unwrap(), token, ticket };
        core.nodes[0].submit(Call::new(Arc::new(late), 0));
        guard.release().await.unwrap();
        let seen = locker.inspect("taken").await.unwrap();
        assert_eq!(seen.holder(), None, "{seen:?}");
        locker.try_lock("taken").await.unwrap().release().await.unwrap();
    }

    /// However many have left since, until nothing of it can be left on a node.
    #[tokio::test]
    async fn waiters_that_left_are_remembered_for_as_long_as_a_node_may_serve_them() {
        let waiters = Waiters::default();
        let expires_after = Duration::from_secs(40);
        let token = Token::random(&TokioRuntime::current());
        let leave = |waiter, at_ms| {
            let gone = Gone { waiter, name: Name::new("left").unwrap(), token, expires_after };
            waiters.left(gone, Moment::default().after(Duration::from_millis(at_ms)));
        };
        (0..1_000).for_each(|waiter| leave(waiter, waiter));
        assert!(waiters.leftover(0).is_some() && waiters.leftover(999).is_some());
        leave(1_000, 40_500);
        assert!(waiters.leftover(500).is_none(), "its time is over");
        assert!(waiters.leftover(501).is_some());
        leave(1_001, 90_000);
        assert_eq!(locked(&waiters.0).gone.len(), 1);
    }

    /// A late message for a waiter that has left must not be taken for another's.
    #[tokio::test]
    async fn places_are_used_again_and_ids_are_not() {
        let node = Arc::new(MemoryNode::new()) as Arc<dyn Node>;
        let locker = Locker::builder().with_nodes([node]).connect().await.unwrap();
        let _guard = locker.lock("taken").await.unwrap();
        let core = locker.core();
        let new_waiter = || {
            let options = locker.lock("taken").options();
            WaitRound::start(core, Name::new("taken").unwrap(), options)
        };
        let (first, second) = (new_waiter(), new_waiter());
        let gone = first.waiter();
        first.leave();
        let third = new_waiter();
        assert_eq!(place_of(third.waiter()), place_of(gone));
        assert!(core.waiters.find(gone).is_none());
        assert!(Arc::ptr_eq(&core.waiters.find(third.waiter()).unwrap(), &third));
        assert_eq!(core.waiters.len(), 2);
        second.leave();
        third.leave();
        assert_eq!((core.waiters.len(), core.waiters.find(gone).is_none()), (0, true));
    }
}
