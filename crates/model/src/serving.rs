//! What a node does with a request, and what the client makes of the answer.

use crate::client::Phase;
use crate::node::{Answer, FOREVER, Grant, Owner, Request};
use crate::setup::{FENCES_PER_TICK, Fence, Setup, Time, Variant};
use crate::world::{Events, World};

impl World {
    pub(crate) fn serve(
        &mut self,
        setup: &Setup,
        client: usize,
        node: usize,
        clock: Time,
        heard: bool,
    ) -> bool {
        let column = &mut self.columns[node];
        let Some(request) = column.sides[client].under_way.take() else {
            return false;
        };
        let forgotten = column.node.forgotten;
        let memory = &mut column.node.memory;
        let before = *memory;
        match request {
            Request::Acquire { sent, proposal, informed } => {
                let answer =
                    memory.acquire(setup, Owner::of(client), (sent, proposal, informed), clock);
                let news = *memory != before || self.tells(client, node, heard, answer);
                self.early_vote |= matches!(answer, Answer::Granted(_)) && clock < forgotten;
                if heard {
                    self.hear_vote(setup, client, node, sent, answer);
                }
                news
            }
            Request::Extend { sent, fence, heal, informed } => {
                let answer = memory.extend(setup, client, (fence, heal, informed), clock);
                self.early_vote |= answer == Answer::WonBack && clock < forgotten;
                let news = *memory != before || self.tells(client, node, heard, answer);
                if heard {
                    self.hear_extension(setup, client, node, sent, answer);
                }
                news
            }
            Request::Confirm { fence } => {
                let answer = memory.confirm(setup, client, fence);
                let news = *memory != before || self.tells(client, node, heard, answer);
                if heard && answer == Answer::Confirmed {
                    self.hear_confirm(setup, client, node, fence);
                }
                news
            }
            Request::Release { sent } => {
                let grant = memory.release(setup, Owner::of(client), sent, 1 - client);
                let news = *memory != before;
                self.passed_on(setup, node, sent, grant, heard);
                news
            }
        }
    }

    pub(crate) fn stray(&mut self, setup: &Setup, node: usize, sent: Time) -> bool {
        self.strays -= 1;
        let node = &mut self.columns[node].node;
        let before = node.memory;
        // It was sent before its client could hear of any marker but the first.
        let request = (sent, sent * FENCES_PER_TICK, false);
        let answer = node.memory.acquire(setup, Owner::Gone, request, sent);
        self.early_vote |= matches!(answer, Answer::Granted(_)) && sent < node.forgotten;
        node.memory != before
    }

    /// Whether an answer is heard that the client does not know yet.
    fn tells(&self, client: usize, node: usize, heard: bool, answer: Answer) -> bool {
        let column = &self.columns[node];
        heard
            && match answer {
                Answer::Held | Answer::Refused => false,
                Answer::Quarantined => {
                    column.node.memory.quarantine == FOREVER && !column.sides[client].informed
                }
                _ => true,
            }
    }

    pub(crate) fn passed_on(
        &mut self,
        setup: &Setup,
        node: usize,
        clock: Time,
        grant: Option<Grant>,
        heard: bool,
    ) {
        let Some(grant) = grant else {
            return;
        };
        self.early_vote |= clock < self.columns[node].node.forgotten;
        if heard {
            self.events.add(Events::PASSED_ON);
            self.hear_vote(setup, grant.client, node, grant.sent, Answer::Granted(grant.fence));
        }
    }

    fn hear_vote(&mut self, setup: &Setup, client: usize, node: usize, sent: Time, answer: Answer) {
        let side = &mut self.columns[node].sides[client];
        side.informed = true;
        let (given, lease) = match answer {
            Answer::Granted(given) => (given, sent + setup.belief()),
            _ => (0, 0),
        };
        match self.clients[client].phase {
            Phase::Idle => {}
            Phase::Asking { .. } => {
                side.fence = given;
                side.lease = lease;
            }
            Phase::Confirming { fence, .. } => {
                side.fence = given;
                side.lease = lease;
                // A larger one does not confirm this fence: the holder before may have had one
                // in between.
                side.counted =
                    given == fence || setup.variant == Variant::LateVoteConfirms && given > fence;
            }
            Phase::Holding { .. } => side.lease = side.lease.max(lease),
        }
    }

    fn hear_confirm(&mut self, setup: &Setup, client: usize, node: usize, confirmed: Fence) {
        if let Phase::Confirming { fence, since } = self.clients[client].phase
            && fence == confirmed
        {
            let side = &mut self.columns[node].sides[client];
            side.counted = true;
            // The node may have granted the lock without the client's knowledge, and not before it
            // was asked.
            side.lease = side.lease.max(since + setup.belief());
        }
    }

    fn hear_extension(
        &mut self,
        setup: &Setup,
        client: usize,
        node: usize,
        sent: Time,
        answer: Answer,
    ) {
        let side = &mut self.columns[node].sides[client];
        side.informed = true;
        let Phase::Holding { extending, .. } = self.clients[client].phase else {
            return;
        };
        // A node in quarantine may have voted for another since, and not know it any more.
        let unbroken = self.now < side.lease;
        let counts = match answer {
            Answer::Extended { quarantined } => {
                !quarantined || unbroken || setup.variant == Variant::LateExtension
            }
            // It counts from this request, like a vote.
            Answer::WonBack => true,
            Answer::Healed => unbroken || setup.variant == Variant::UnguardedHeal,
            _ => false,
        };
        if counts {
            match answer {
                Answer::Healed => self.events.add(Events::HEALED),
                Answer::WonBack => self.events.add(Events::WON_BACK),
                _ => {}
            }
            side.counted = extending == Some(sent);
            side.lease = side.lease.max(sent + setup.belief());
        }
    }
}
