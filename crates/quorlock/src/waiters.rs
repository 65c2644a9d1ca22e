//! Whom to tell when a node sends word of a grant.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use crate::core::Core;
use crate::drive::Candidacy;
use crate::line::shrink;
use crate::locked::locked;
use crate::node::{Grant, Inbox};

/// The candidates of one locker, by the number that their tickets carry.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    by_number: HashMap<u64, Weak<Candidacy>>,
    last: u64,
}

impl Waiters {
    /// Makes a candidate with a number of its own.
    pub(crate) fn admit(&self, make: impl FnOnce(u64) -> Candidacy) -> Arc<Candidacy> {
        let mut state = locked(&self.0);
        state.last += 1;
        let number = state.last;
        let candidacy = Arc::new(make(number));
        state.by_number.insert(number, Arc::downgrade(&candidacy));
        candidacy
    }

    pub(crate) fn dismiss(&self, number: u64) {
        let mut state = locked(&self.0);
        state.by_number.remove(&number);
        shrink(&mut state.by_number);
    }

    pub(crate) fn len(&self) -> usize {
        locked(&self.0).by_number.len()
    }

    fn find(&self, number: u64) -> Option<Arc<Candidacy>> {
        locked(&self.0).by_number.get(&number)?.upgrade()
    }

    fn all(&self) -> Vec<Arc<Candidacy>> {
        locked(&self.0).by_number.values().filter_map(Weak::upgrade).collect()
    }
}

impl Inbox for Core {
    fn granted(&self, node: usize, grant: Grant) {
        if let Some(candidacy) = self.waiters.find(grant.waiter) {
            candidacy.told(node, grant);
        }
    }

    fn interrupted(&self, node: usize) {
        for candidacy in self.waiters.all() {
            candidacy.interrupted(node);
        }
    }
}
