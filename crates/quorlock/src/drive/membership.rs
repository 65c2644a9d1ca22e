//! Brings the nodes to carry the set that this client was given.
//!
//! Nobody is asked for it on the way of a lock. A node that casts no vote says so in its greeting or in its
//! answer, and one task per locker then looks at all nodes and does what the rules allow
//! ([`next_membership_step`]). It ends when all nodes vote, or when nothing more can be done.
//!
//! What is written rests on what was read on *all* nodes, which may change meanwhile. So every write carries the
//! time of day from before the first look, and a node refuses it when that is too long ago: no write takes effect
//! later than the clock window after the look that it rests on. Two such times are shorter than a quarantine.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::core::Core;
use crate::locked::locked;
use crate::name::Name;
use crate::node::{
    Answer, Call, Failure, FailureKind, Mark, Marker, MarkerState, Members, Node, Request, Round,
    Verb, Writes,
};
use crate::runtime::{Moment, Runtime, random_u64, wall_us};
use crate::waitable::Waitable;
use quorlock_protocol::{Carries, MembershipStep, Quorum, next_membership_step};

/// From one attempt that came to nothing to the next.
const PAUSE: Duration = Duration::from_millis(200);

/// From one look to the next while nobody gets a lock, since a member that is needed cannot be asked.
const RETRY: Duration = Duration::from_secs(2);

/// How soon it is looked again, if a node has said meanwhile that it does not vote.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// So many steps in a row are taken at the most: no set needs more, unless others change it as well.
const MOST_STEPS: usize = 8;

/// What is known of one node: its marker, or why it is not known. `None` inside if nodes of its kind have none.
pub(crate) type Known = Result<Option<Marker>, Failure>;

/// The markers of some nodes, as they were found.
pub(crate) struct Looked {
    pub(crate) known: Vec<Known>,
    /// The time of day before the first of them was asked.
    wall_us: u64,
}

impl Looked {
    /// Looks at the markers of all nodes.
    pub(crate) async fn at(nodes: &[Arc<dyn Node>], runtime: &dyn Runtime) -> Self {
        let wall_us = wall_us(runtime);
        let marks = nodes.iter().map(|_| None).collect();
        let known = MarkerRound::ask(nodes, runtime, wall_us, marks, |_| true).await;
        let known = known.into_iter().map(|known| known.unwrap_or_else(|| Err(Failure::closed())));
        Self { known: known.collect(), wall_us }
    }

    /// Has those nodes write a mark for which there is one. What is known of the others is left as it is.
    pub(crate) async fn mark(
        &mut self,
        nodes: &[Arc<dyn Node>],
        runtime: &dyn Runtime,
        marks: Vec<Option<Mark>>,
    ) {
        let asked: Vec<bool> = marks.iter().map(Option::is_some).collect();
        let answers =
            MarkerRound::ask(nodes, runtime, self.wall_us, marks, |node| asked[node]).await;
        for (known, answer) in self.known.iter_mut().zip(answers) {
            if let Some(answer) = answer {
                *known = answer;
            }
        }
    }
}

/// Asks nodes for their markers, or to change them.
struct MarkerRound {
    name: Name,
    sent: Moment,
    wall_us: u64,
    /// What each node is asked to write; `None` for a look.
    marks: Vec<Option<Mark>>,
    state: Waitable<State>,
}

struct State {
    known: Vec<Option<Known>>,
}

impl MarkerRound {
    async fn ask(
        nodes: &[Arc<dyn Node>],
        runtime: &dyn Runtime,
        wall_us: u64,
        marks: Vec<Option<Mark>>,
        asked: impl Fn(usize) -> bool,
    ) -> Vec<Option<Known>> {
        let known = vec![None; nodes.len()];
        let round = Arc::new(Self {
            name: Name::of_no_lock(),
            sent: runtime.now(),
            wall_us,
            marks,
            state: Waitable::new(State { known }),
        });
        for (index, node) in nodes.iter().enumerate().filter(|(index, _)| asked(*index)) {
            node.submit(Call::new(Arc::clone(&round) as Arc<dyn Round>, index));
        }
        poll_fn(|cx| round.poll(cx, &asked)).await
    }

    fn poll(
        &self,
        cx: &mut Context<'_>,
        asked: impl Fn(usize) -> bool,
    ) -> Poll<Vec<Option<Known>>> {
        self.state.poll(cx, |state| {
            let mut known = state.known.iter().enumerate();
            known
                .all(|(node, known)| known.is_some() || !asked(node))
                .then(|| std::mem::take(&mut state.known))
        })
    }

    fn take_in(&self, node: usize, known: Known) {
        self.state.update_and_wake(|state| {
            if let Some(before) = state.known.get_mut(node) {
                *before = Some(known);
            }
            true
        });
    }
}

impl Round for MarkerRound {
    fn request(&self, node: usize) -> Request<'_> {
        let Self { name, sent, wall_us, .. } = self;
        let verb = match self.marks.get(node) {
            Some(Some(mark)) => Verb::Mark(mark),
            _ => Verb::Look,
        };
        Request { name, sent: *sent, wall_us: *wall_us, verb }
    }

    fn cast(self: Arc<Self>, node: usize, answer: Answer) {
        self.take_in(
            node,
            match answer {
                Answer::Marker(marker) => Ok(marker.map(|marker| *marker)),
                Answer::Failed(failure) => Err(failure),
                _ => Err(Failure::new(FailureKind::Broken, "answered a look with a vote")),
            },
        );
    }

    fn overdue(self: Arc<Self>, node: usize, why: Failure) {
        self.take_in(node, Err(why));
    }
}

/// What came of an attempt to bring all nodes to carry a set.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// All of them carry it, and vote now or by themselves after a while.
    Yes,
    /// After so long something can be done.
    After(Duration),
    /// Not before a member can be asked that is needed.
    Blocked,
    /// Not while some of them carry another set; or those that cannot be asked are not needed.
    No,
}

/// The nodes of a set, and what they are to agree on.
pub(crate) struct Set<'a> {
    pub(crate) nodes: &'a [Arc<dyn Node>],
    pub(crate) members: &'a Members,
    pub(crate) quorum: Quorum,
    pub(crate) runtime: &'a dyn Runtime,
    /// Whether a node without a marker is new, and has nothing to forget.
    pub(crate) trusting: bool,
    /// What is known of nodes that are not in it, but in a set that it replaces.
    pub(crate) former: &'a [Carries],
}

impl Set<'_> {
    /// Looks at all nodes, and does what can be done at once.
    pub(crate) async fn settle(&self) -> (Settled, Vec<Known>) {
        let mut looked = Looked::at(self.nodes, self.runtime).await;
        for _ in 0..MOST_STEPS {
            let marks = self.marks(&looked.known);
            if marks.iter().all(Option::is_none) {
                break;
            }
            looked.mark(self.nodes, self.runtime, marks).await;
        }
        (self.settled(&looked.known), looked.known)
    }

    fn carries(&self, known: &Known) -> Option<Carries> {
        match known {
            Ok(Some(marker)) => Some(marker.carries(self.members)),
            // It votes for everybody.
            Ok(None) => Some(Carries::Formed { due: true }),
            Err(_) => None,
        }
    }

    /// What each node is to write next.
    fn marks(&self, known: &[Known]) -> Vec<Option<Mark>> {
        let carries: Vec<_> = known.iter().map(|known| self.carries(known)).collect();
        let step = next_membership_step(self.quorum, &carries, self.former);
        let writes = |node: usize, marker: &Marker| {
            let is_new = matches!(marker.state, MarkerState::Absent | MarkerState::Blank);
            if self.trusting && is_new {
                return Some(Writes::Formed(self.members.clone()));
            }
            if marker.state == MarkerState::Absent {
                // First of all it gets something by which it is known if it is emptied again.
                return Some(Writes::Blank);
            }
            let (step, nodes) = step?;
            nodes.contains(node).then(|| match step {
                MembershipStep::Form => Writes::Forming(self.members.clone()),
                MembershipStep::Complete => Writes::Formed(self.members.clone()),
                MembershipStep::TakeBack => Writes::TakenBack(self.members.clone()),
            })
        };
        let mark = |(node, known): (usize, &Known)| {
            let Ok(Some(marker)) = known else { return None };
            let writes = writes(node, marker)?;
            let (seen, nonce) = (marker.instance.clone(), random_u64(self.runtime));
            Some(Mark { seen, writes, nonce })
        };
        known.iter().enumerate().map(mark).collect()
    }

    fn settled(&self, known: &[Known]) -> Settled {
        let carries: Vec<_> = known.iter().map(|known| self.carries(known)).collect();
        if carries.iter().all(|carries| matches!(carries, Some(Carries::Formed { .. }))) {
            return Settled::Yes;
        }
        let carried = |carries: &Option<Carries>| {
            matches!(carries, Some(Carries::Formed { .. } | Carries::Forming { .. }))
        };
        if !carries.iter().all(carried) {
            let formed = carries.iter().filter(|it| matches!(it, Some(Carries::Formed { .. })));
            let votes = formed.count() >= self.quorum.enough();
            // What is there votes without those that are not; without a quorum all have to be waited for.
            return if votes || carries.contains(&Some(Carries::Another)) {
                Settled::No
            } else {
                Settled::Blocked
            };
        }
        let forming = |marker: &&Marker| marker.state == MarkerState::Forming;
        let left = known.iter().flatten().flatten().filter(forming).map(|marker| marker.left);
        Settled::After(left.max().unwrap_or_default())
    }
}

/// The task that does it, of which there is one at a time.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    running: AtomicBool,
    /// Somebody asked for it since it last looked.
    asked: AtomicBool,
    /// A node that belongs to another set and keeps ours from voting, when it last looked, and what that says.
    conflict: Mutex<Option<(String, Failure)>>,
    /// Until when it is known, in nanoseconds, that those nodes which cast no vote do so by themselves.
    begun_until: AtomicU64,
}

impl Settling {
    /// A node that belongs to another set and keeps ours from voting, when that was last looked at.
    pub(crate) fn conflict(&self) -> Option<(String, Failure)> {
        locked(&self.conflict).clone()
    }

    /// Whether some node has said that it does not vote.
    pub(crate) fn is_under_way(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }
}

impl Core {
    /// Some node casts no vote: sees to it in the background, unless that is done already.
    pub(crate) fn see_to_membership(&self) {
        self.settling.asked.store(true, Ordering::Release);
        if !self.settling.running.swap(true, Ordering::AcqRel) {
            self.runtime.spawn(Box::pin(see_to_it(Running(Weak::clone(&self.this)))));
        }
    }

    /// A look at a lock has found a node that casts no vote. It does not tell whether that time has begun: sees to
    /// it, unless that is known.
    pub(crate) fn seen_in_quarantine(&self) {
        let known = Moment::from_nanos(self.settling.begun_until.load(Ordering::Acquire));
        if !self.settling.is_under_way() && self.runtime.now() >= known {
            self.see_to_membership();
        }
    }

    /// Does what can be done at once.
    pub(crate) async fn settle(&self) -> Settled {
        self.settling.asked.store(false, Ordering::Release);
        let set = Set {
            nodes: &self.nodes,
            members: &self.members,
            quorum: self.quorum,
            runtime: &*self.runtime,
            trusting: self.settings.trust_new_nodes,
            former: &[],
        };
        let (settled, known) = set.settle().await;
        let other = known.iter().enumerate().find_map(|(node, known)| match known {
            Ok(Some(marker)) if marker.carries(&self.members) == Carries::Another => {
                let text = marker.of_another_set(&self.members);
                Some((self.label(node), Failure::new(FailureKind::OtherSet, text)))
            }
            _ => None,
        });
        let formed =
            known.iter().filter(|known| matches!(set.carries(known), Some(Carries::Formed { .. })));
        let forms = formed.count() >= self.quorum.enough();
        let before =
            std::mem::replace(&mut *locked(&self.settling.conflict), other.filter(|_| !forms));
        let news = before.is_none() && self.settling.conflict().is_some();
        if settled == Settled::Yes {
            let left = known.iter().flatten().flatten().map(|marker| marker.left).max();
            let until = self.runtime.now().after(left.unwrap_or_default());
            self.settling.begun_until.store(until.as_nanos(), Ordering::Release);
        }
        if news || settled == Settled::Yes {
            for wait in self.waiters.all() {
                wait.votes_may_be_had();
            }
        }
        settled
    }
}

/// The task is there as long as this is. However it ends, by a panic too, another one can begin after it.
struct Running(Weak<Core>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(core) = self.0.upgrade() {
            core.settling.running.store(false, Ordering::Release);
        }
    }
}

async fn see_to_it(mut running: Running) {
    loop {
        let core = Weak::clone(&running.0);
        if !settle_until_done(&core).await {
            return;
        }
        drop(running);
        let Some(strong) = core.upgrade() else { return };
        // A call in between has found it running, and left it to this task.
        let asked = strong.settling.asked.load(Ordering::Acquire);
        if !asked || strong.settling.running.swap(true, Ordering::AcqRel) {
            return;
        }
        running = Running(core);
    }
}

/// Until nothing more can be done. Returns whether the locker is still there.
async fn settle_until_done(core: &Weak<Core>) -> bool {
    loop {
        let Some(strong) = core.upgrade() else { return false };
        let looked_at = strong.now();
        let settled = strong.settle().await;
        let pause = match settled {
            Settled::After(left) => left.max(PAUSE),
            Settled::Blocked => RETRY,
            Settled::Yes | Settled::No => PAUSE,
        };
        let until = looked_at.after(pause);
        // The locker may be dropped meanwhile.
        drop(strong);
        if !rest(core, until).await {
            return false;
        }
        if matches!(settled, Settled::Yes | Settled::No) {
            return true;
        }
    }
}

/// Waits until then, in short naps: timers stand still while the machine is suspended, and a node may say
/// meanwhile that it does not vote, which is another one perhaps. Returns whether the locker is still there.
async fn rest(core: &Weak<Core>, until: Moment) -> bool {
    loop {
        let Some(strong) = core.upgrade() else { return false };
        let left = until.since(strong.now());
        if left.is_zero() {
            return true;
        }
        let nap = strong.runtime.sleep(left.min(LONGEST_NAP));
        drop(strong);
        nap.await;
        let Some(strong) = core.upgrade() else { return false };
        if strong.settling.asked.load(Ordering::Acquire) {
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::Locker;
    use crate::node::memory::MemoryNode;
    use crate::node::{Capabilities, ClientId, Inbox};
    use crate::runtime::BoxFuture;

    /// A node of somebody's own making, with a bug that shows once.
    #[derive(Debug)]
    struct PanicsAtFirstLook(MemoryNode, AtomicUsize);

    impl Node for PanicsAtFirstLook {
        fn label(&self) -> &str {
            self.0.label()
        }

        fn capabilities(&self) -> Capabilities {
            self.0.capabilities()
        }

        fn ready(&self) -> BoxFuture<'_, Result<(), Failure>> {
            self.0.ready()
        }

        fn submit(&self, call: Call) {
            let looks = matches!(call.request().verb, Verb::Look);
            assert!(!looks || self.1.fetch_add(1, Ordering::SeqCst) > 0, "the first look");
            self.0.submit(call);
        }

        fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
            self.0.listen(client, node, inbox);
        }
    }

    #[tokio::test]
    async fn a_task_that_panics_is_followed_by_another() {
        let node = Arc::new(PanicsAtFirstLook(MemoryNode::new(), AtomicUsize::new(0)));
        let all = [Arc::clone(&node) as Arc<dyn Node>];
        let locker = Locker::builder().with_nodes(all).connect().await.unwrap();
        for looks in 1..3 {
            locker.core().see_to_membership();
            for _ in 0..64 {
                tokio::task::yield_now().await;
            }
            assert_eq!(node.1.load(Ordering::SeqCst), looks);
        }
    }
}
