//! A run in words.

use std::fmt::{self, Display, Formatter};

use stateright::Model;

use super::node::Marker;
use super::setup::{NODES, Setup};
use super::world::{Action, World};
use crate::trace::Step;

/// What the nodes are called.
const NAMES: [&str; NODES] = ["a", "b", "c", "d", "e"];

/// Puts a run in words.
///
/// The checker looks at worlds in which members that are alike have no names ([`World::sorted`]). The
/// run is therefore made once more, with names.
pub(super) fn tell(setup: &Setup, run: &[World]) -> Vec<Step> {
    let mut world = World::start(setup);
    let mut steps = vec![Step { what: "at the start".to_owned(), after: world.parts(setup) }];
    let mut actions = Vec::new();
    for sorted in run.iter().skip(1) {
        setup.actions(&world, &mut actions);
        let (action, next) = actions
            .drain(..)
            .map(|action| (action, world.after(setup, action)))
            .find(|(_, next)| next.sorted(setup) == *sorted)
            .expect("what can happen does not depend on names");
        let old = world.parts(setup);
        let after = next.parts(setup).into_iter().filter(|part| !old.contains(part)).collect();
        steps.push(Step { what: Shown(setup, action).to_string(), after });
        world = next;
    }
    steps
}

/// The members of a set, as a list.
struct List(u8);

impl Display for List {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let members = (0..NODES).filter(|node| self.0 & (1 << node) != 0);
        let names: Vec<_> = members.map(|node| NAMES[node]).collect();
        write!(f, "{{{}}}", names.join(","))
    }
}

impl Setup {
    fn list(&self, set: u8) -> List {
        List(self.bounds.sets[usize::from(set)])
    }
}

struct Shown<'a>(&'a Setup, Action);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(setup, action) = *self;
        match action {
            Action::Tick => f.write_str("time passes"),
            Action::TakeBack { set, node } => {
                write!(f, "a client of {} takes {} back", setup.list(set), NAMES[node])
            }
            Action::Form { set, node } => {
                write!(f, "a client of {} takes {} in", setup.list(set), NAMES[node])
            }
            Action::Complete { set, node } => {
                write!(
                    f,
                    "a client of {} tells {} that it has formed",
                    setup.list(set),
                    NAMES[node]
                )
            }
            Action::Close { from, to, node } => {
                let (from, to) = (setup.list(from), setup.list(to));
                write!(f, "an operator closes {} from {from} to {to}", NAMES[node])
            }
            Action::Empty(node) => write!(f, "{} forgets everything", NAMES[node]),
            Action::Restart(node, _) => write!(f, "{} restarts from its disk", NAMES[node]),
        }
    }
}

impl World {
    /// Each node, and each set that is in force.
    fn parts(&self, setup: &Setup) -> Vec<String> {
        let used = (0..NODES).filter(|node| setup.profile(*node) != 0);
        let mut parts: Vec<_> = used.map(|node| self.node(setup, node)).collect();
        let in_force = setup.sets().filter(|set| self.in_force(setup, *set));
        parts.extend(in_force.map(|set| format!("{} IS IN FORCE", setup.list(set))));
        parts
    }

    fn node(&self, setup: &Setup, node: usize) -> String {
        let name = NAMES[node];
        let marker = self.nodes[node].marker;
        match marker {
            Marker::Blank => format!("{name} carries no set"),
            Marker::Restored(set) => {
                format!("{name} has a marker of {} from another run", setup.list(set))
            }
            Marker::Forming { set, age } => {
                format!("{name} carries {}, forming for {age}", setup.list(set))
            }
            Marker::Formed { set, .. } if marker.votes_for(setup).is_some() => {
                format!("{name} votes for {}", setup.list(set))
            }
            Marker::Formed { set, age } => {
                format!("{name} carries {}, in quarantine for {age}", setup.list(set))
            }
            Marker::Closed { from, to } => {
                format!("{name} is closed from {} to {}", setup.list(from), setup.list(to))
            }
        }
    }
}
