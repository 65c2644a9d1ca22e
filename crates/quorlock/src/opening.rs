//! A locker that is being connected: its nodes are greeted, then asked what they can do, and the settings are made
//! to fit.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use crate::Error;
use crate::core::{Core, Pending};
use crate::drive::Settling;
use crate::error::{NodeAnswer, NodeAnswers};
use crate::gate::Gate;
use crate::lease_clock::LeaseClock;
use crate::line::Lines;
use crate::locker::Locker;
use crate::node::{Capabilities, Failure, FailureKind, Grant, Inbox, Node, NodeContext, Secrets};
use crate::non_voting::WarnedNodes;
use crate::settings::Settings;
use crate::waiters::Waiters;
use crate::watchdog::Watchdog;
use quorlock_protocol::{Drift, Quorum};

/// The nodes of a locker to be, which connect in the background.
pub(crate) struct Opening {
    nodes: Box<[Arc<dyn Node>]>,
    quorum: Quorum,
    context: NodeContext,
    wanted: Wanted,
    inbox: Arc<EarlyInbox>,
}

/// What a caller wants, whatever the nodes ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) node_limit: Option<Duration>,
    pub(crate) drift: Option<Drift>,
}

/// How each node's first attempt to connect ended; `None` if it still goes on.
pub(crate) type Readiness = Vec<Option<Result<(), Failure>>>;

/// Takes in what nodes say before there is a locker.
#[derive(Debug, Default)]
struct EarlyInbox {
    /// Some of them cast no vote.
    unsettled: AtomicBool,
}

impl Inbox for EarlyInbox {
    /// Nobody waits for a lock yet.
    fn granted(&self, _node: usize, _grant: Grant) {}

    fn interrupted(&self, _node: usize) {}

    fn unsettled(&self, _node: usize) {
        self.unsettled.store(true, Ordering::Release);
    }

    /// Nobody holds a lock yet.
    fn session_ended(&self, _node: usize) {}
}

impl Opening {
    pub(crate) fn new(
        nodes: Vec<Arc<dyn Node>>,
        quorum: Quorum,
        context: NodeContext,
        wanted: Wanted,
    ) -> Result<Self, Error> {
        let inbox = Arc::new(EarlyInbox::default());
        let opening = Self { nodes: nodes.into(), quorum, context, wanted, inbox };
        // What is known to be wrong by now need not wait for the nodes.
        opening.fitted()?;
        let inbox: Weak<dyn Inbox> = Arc::<EarlyInbox>::downgrade(&opening.inbox);
        opening.listen(&inbox);
        Ok(opening)
    }

    pub(crate) fn connect_limit(&self) -> Duration {
        self.context.settings.connect_limit
    }

    fn listen(&self, inbox: &Weak<dyn Inbox>) {
        for (index, node) in self.nodes.iter().enumerate() {
            node.listen(self.context.client, index, Weak::clone(inbox));
        }
    }

    /// Waits for the nodes. Once a majority is ready, the others have so long to be; without that they have as long
    /// again as the majority took.
    pub(crate) async fn wait_ready(&self, others: Option<Duration>) -> Readiness {
        let NodeContext { settings, runtime, .. } = &self.context;
        let mut waiting: Vec<_> = self.nodes.iter().map(|node| node.ready()).collect();
        let mut ready: Readiness = vec![None; waiting.len()];
        let mut end = runtime.sleep(settings.connect_limit);
        let began = runtime.now();
        let mut majority = false;
        poll_fn(|cx| {
            for (slot, future) in ready.iter_mut().zip(&mut waiting) {
                if slot.is_none()
                    && let Poll::Ready(result) = future.as_mut().poll(cx)
                {
                    *slot = Some(result);
                }
            }
            if ready.iter().all(Option::is_some) {
                return Poll::Ready(());
            }
            let count = ready.iter().filter(|slot| matches!(slot, Some(Ok(())))).count();
            if !majority && count >= self.quorum.enough() {
                majority = true;
                // To bring nodes to vote takes all of them. Otherwise those that are as fast as the others have
                // come by then, and one that hangs costs nothing.
                let limit = settings.node_limit;
                let took = runtime.now().since(began).min(limit);
                let unsettled = self.inbox.unsettled.load(Ordering::Acquire).then_some(limit);
                end = runtime.sleep(others.or(unsettled).unwrap_or(took));
            }
            end.as_mut().poll(cx)
        })
        .await;
        ready
    }

    /// Fails unless a majority is ready.
    pub(crate) fn check_ready(&self, ready: &Readiness) -> Result<(), Error> {
        let limit = self.connect_limit();
        let slow = || {
            let text =
                format!("not connected after {limit:?}; is it up, and is the address right?");
            Failure::new(FailureKind::Unreachable, text)
        };
        let failures = ready.iter().zip(&self.nodes).filter_map(|(result, node)| {
            let failure = match result {
                Some(Ok(())) => return None,
                Some(Err(failure)) => failure.clone(),
                None => slow(),
            };
            Some(NodeAnswer { node: node.label().to_owned(), failure: Some(failure) })
        });
        let failures: Vec<NodeAnswer> = failures.collect();
        for NodeAnswer { node, failure } in &failures {
            let Some(failure) = failure else { continue };
            if failure.kind() == FailureKind::Duplicate {
                return Err(Error::duplicate(node, failure));
            }
        }
        let have = ready.len() - failures.len();
        if have >= self.quorum.enough() {
            return Ok(());
        }
        Err(Error::no_quorum("can be used", have, self.quorum, NodeAnswers(failures)))
    }

    /// The settings as they fit what the nodes say that they can do, and that.
    fn fitted(&self) -> Result<(Settings, Vec<Capabilities>), Error> {
        let needs: Vec<_> = self.nodes.iter().map(|node| node.capabilities()).collect();
        self.check_alone(&needs)?;
        let mut settings = self.context.settings.clone();
        settings.fit(&needs, self.wanted.node_limit);
        settings.drift = self.wanted.drift.unwrap_or(settings.drift);
        settings.check()?;
        Ok((settings, needs))
    }

    /// Makes the locker.
    pub(crate) async fn finish(mut self) -> Result<Locker, Error> {
        let (settings, needs) = self.fitted()?;
        let NodeContext { runtime, client, members, .. } = self.context.clone();
        let by_wall_clock = needs.iter().any(|needs| needs.by_wall_clock);
        let clock = Arc::new(LeaseClock::new(&runtime, by_wall_clock));
        let core = Arc::new_cyclic(|this| Core {
            this: Weak::clone(this),
            nodes: std::mem::take(&mut self.nodes),
            quorum: self.quorum,
            upkeep: settings.upkeep(settings.ttl),
            settings,
            watchdog: Watchdog::start(&*runtime, &clock),
            secrets: Secrets::random(&*runtime),
            runtime,
            clock,
            closed: AtomicBool::new(false),
            releases: Pending::default(),
            gate: Gate::default(),
            lots: AtomicU8::new(0),
            lines: Lines::default(),
            waiters: Waiters::default(),
            client,
            highest: AtomicU64::new(0),
            warned: WarnedNodes::default(),
            members,
            settling: Settling::default(),
        });
        let inbox: Weak<dyn Inbox> = Arc::<Core>::downgrade(&core);
        for (index, node) in core.nodes.iter().enumerate() {
            node.listen(client, index, Weak::clone(&inbox));
        }
        // Read after the nodes tell the locker itself, so that nothing gets lost in between.
        if self.inbox.unsettled.load(Ordering::Acquire) {
            core.see_to_membership();
        }
        if core.settling.is_under_way() {
            // So that the first lock finds nodes that vote, if anything can be done for that at once.
            core.settle().await;
        }
        Ok(Locker::new(core))
    }

    /// A node that is a cluster by itself is not one of several.
    fn check_alone(&self, needs: &[Capabilities]) -> Result<(), Error> {
        let alone = self.nodes.iter().zip(needs).find(|(_, needs)| needs.stands_alone);
        match alone {
            Some((node, _)) if self.nodes.len() > 1 => Err(Error::misuse(
                format!(
                    "{} is a cluster by itself, and cannot be one of {} nodes",
                    node.label(),
                    self.nodes.len()
                ),
                "use it alone, or use nodes that are independent of each other",
            )),
            _ => Ok(()),
        }
    }
}
