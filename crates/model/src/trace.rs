//! A run in words.

use std::fmt::{self, Arguments, Display, Formatter, Write};

use stateright::Model;

use crate::client::Phase;
use crate::node::{FOREVER, Fault, Marker, Owner, Request};
use crate::setup::{CLIENTS, NODES, Setup};
use crate::world::{Action, World};

/// What the clients are called.
const NAMES: [&str; CLIENTS] = ["A", "B"];

/// One step of a run: what happened, and what is different after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What happened.
    pub what: String,
    /// Each node and client that changed, as it is now.
    pub after: Vec<String>,
}

/// Puts a run in words.
///
/// The checker looks at worlds in which nodes and clients have no names ([`World::sorted`]), so it
/// knows only what each looks like. The run is therefore made once more, with names.
pub(crate) fn tell(setup: &Setup, run: &[World]) -> Vec<Step> {
    let mut world = World::start(setup);
    let mut steps = vec![Step { what: "at the start".to_owned(), after: world.parts() }];
    let mut actions = Vec::new();
    for sorted in run.iter().skip(1) {
        setup.actions(&world, &mut actions);
        let (action, next) = actions
            .drain(..)
            .filter_map(|action| Some((action, setup.after(&world, action)?)))
            .find(|(_, next)| next.sorted() == *sorted)
            .expect("what can happen does not depend on names");
        let old = world.parts();
        let after = next.parts().into_iter().filter(|part| !old.contains(part)).collect();
        steps.push(Step { what: action.to_string(), after });
        world = next;
    }
    steps
}

impl Display for Action {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Tick => write!(f, "time passes"),
            Self::Ask(client, 0) => write!(f, "{} asks all nodes", NAMES[client]),
            Self::Ask(client, by) => {
                write!(f, "{} asks all nodes, and proposes {by} more", NAMES[client])
            }
            Self::AskAgain(client) => {
                write!(f, "{} asks those again that have not granted it", NAMES[client])
            }
            Self::Confirm { client, everybody } => {
                let whom = if everybody { "all nodes" } else { "those that granted it" };
                write!(f, "{} sends the largest fence to {whom}", NAMES[client])
            }
            Self::Release(client) => write!(f, "{} releases", NAMES[client]),
            Self::Extend(client) => write!(f, "{} extends", NAMES[client]),
            Self::Serve { client, node, clock, heard } => {
                let lost = if heard { "" } else { ", and the answer is lost" };
                write!(f, "node {node} serves {}", NAMES[client])?;
                if clock > 0 {
                    write!(f, " by its clock at {clock}")?;
                }
                f.write_str(lost)
            }
            Self::Disbelieve { client, node } => {
                write!(f, "node {node} refuses {}, as its clock is far ahead", NAMES[client])
            }
            Self::ReleaseOld { node, heard, .. } => {
                let lost = if heard { "" } else { ", and the grant message is lost" };
                write!(f, "node {node} serves a release of an earlier round{lost}")
            }
            Self::Suffer(node, Fault::Emptied) => write!(f, "node {node} forgets everything"),
            Self::Suffer(node, Fault::Restored) => write!(f, "node {node} restarts from its disk"),
            Self::Stray { node, sent } => {
                write!(f, "node {node} serves a request of {sent} from an earlier round")
            }
            Self::Sync(node) => write!(f, "node {node} writes to its disk"),
        }
    }
}

impl World {
    /// The time, each node and each client.
    fn parts(&self) -> Vec<String> {
        let mut parts = vec![format!("it is {}", self.now)];
        parts.extend((0..NODES).map(|node| self.node(node)));
        parts.extend((0..CLIENTS).map(|client| self.client(client)));
        parts
    }

    fn node(&self, node: usize) -> String {
        let memory = &self.columns[node].node.memory;
        let mut text = match memory.record.owner {
            Owner::Nobody => format!("node {node} is free"),
            Owner::Client(client) => {
                format!("node {node} is {}'s", NAMES[usize::from(client)])
            }
            Owner::Gone => format!("node {node} is an old token's"),
        };
        match memory.record.expiry {
            0 if memory.record.owner == Owner::Nobody => {}
            0 => text.push_str(", expired"),
            expiry => add(&mut text, format_args!(" until {expiry}")),
        }
        if memory.record.fence > 0 {
            add(&mut text, format_args!(", c = {}", memory.record.fence));
        }
        match memory.marker {
            Marker::Absent => text.push_str(", no marker"),
            Marker::OfAnotherRun => text.push_str(", marker of another run"),
            Marker::OfThisRun if memory.quarantine == FOREVER => {
                text.push_str(", in quarantine");
            }
            Marker::OfThisRun if memory.quarantine > 0 => {
                add(&mut text, format_args!(", in quarantine until {}", memory.quarantine));
            }
            Marker::OfThisRun => {}
        }
        for (client, ticket) in memory.waiting.iter().enumerate() {
            if let Some(ticket) = ticket {
                add(&mut text, format_args!(", {} waits since {}", NAMES[client], ticket.sent));
            }
        }
        text
    }

    fn client(&self, client: usize) -> String {
        let name = NAMES[client];
        let mut text = match self.clients[client].phase {
            Phase::Idle => format!("{name} is idle"),
            Phase::Asking { .. } => format!("{name} asks"),
            Phase::Confirming { fence, .. } => format!("{name} confirms {fence}"),
            Phase::Holding { fence, until, .. } => {
                format!("{name} HOLDS THE LOCK until {until}, with fence {fence}")
            }
        };
        for (node, side) in self.sides(client).iter().enumerate() {
            if side.fence > 0 && side.lease == 0 {
                add(&mut text, format_args!("; node {node} gave {}, which is over", side.fence));
            } else if side.fence > 0 {
                let (fence, lease) = (side.fence, side.lease);
                add(&mut text, format_args!("; node {node} gave {fence} until {lease}"));
            } else if side.lease > 0 {
                add(&mut text, format_args!("; on node {node} until {}", side.lease));
            }
        }
        for (node, side) in self.sides(client).iter().enumerate() {
            let what = match side.under_way {
                None => continue,
                Some(Request::Acquire { sent, .. }) => format!("request of {sent}"),
                Some(Request::Extend { sent, .. }) => format!("extension of {sent}"),
                Some(Request::Confirm { fence }) => format!("confirm of {fence}"),
                Some(Request::Release { .. }) => "release".to_owned(),
            };
            add(&mut text, format_args!("; {what} to node {node}"));
        }
        text
    }
}

fn add(text: &mut String, what: Arguments<'_>) {
    text.write_fmt(what).expect("a string takes in everything");
}
