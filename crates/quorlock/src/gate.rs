//! How many new locks are asked for at once.
//!
//! A caller that wants one of ten thousand names at once waits here, and not in the lines of the nodes: a round
//! is stamped when it begins, and what it wins counts from then. Extensions and releases do not pass here, so that
//! locks which are held come before those that are wanted.
//!
//! A round that is decided begins the next one by itself. A waiter here need not be polled for it: a future that
//! is not polled for a while keeps no other out.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use crate::core::Core;
use crate::drive::AcquireRound;
use crate::lock_options::LockOptions;
use crate::locked::locked;
use crate::name::Name;
use crate::waitable::Waitable;

/// So many rounds are undecided at the most. Each is one call to each node: what keeps a node busy, and what it
/// answers within a fraction of the clock window.
const ROUNDS: usize = 512;

/// Lets in so many at once, and the others in the order of their coming.
pub(crate) struct Gate(Mutex<State>);

struct State {
    room: usize,
    waiting: VecDeque<Arc<Admission>>,
    /// A call of `leave` is letting others in, and sees to all who can be.
    busy: bool,
}

impl Default for Gate {
    fn default() -> Self {
        Self(Mutex::new(State { room: ROUNDS, waiting: VecDeque::new(), busy: false }))
    }
}

impl Gate {
    /// Goes in if there is room at once and nobody waits for it: then it has to [`leave`](Self::leave) again. Otherwise
    /// returns a place to wait at, for a round that asks for this.
    pub(crate) fn enter(&self, name: &Name, options: &LockOptions) -> Option<Arc<Admission>> {
        let mut state = locked(&self.0);
        if state.room > 0 && state.waiting.is_empty() {
            state.room -= 1;
            return None;
        }
        let stage = Waitable::new(Stage::Waiting);
        let admission = Arc::new(Admission { name: name.clone(), options: *options, stage });
        state.waiting.push_back(Arc::clone(&admission));
        Some(admission)
    }

    /// Makes room for the next one, and begins its round.
    pub(crate) fn leave(&self, core: &Arc<Core>) {
        let mut state = locked(&self.0);
        state.room += 1;
        // A round may be decided while it begins: that must not go ever deeper.
        if state.waiting.is_empty() || std::mem::replace(&mut state.busy, true) {
            return;
        }
        drop(state);
        let _busy = Busy(self);
        while let Some(next) = self.next() {
            if !next.begin(core) {
                locked(&self.0).room += 1;
            }
        }
    }

    /// The next one that there is room for.
    fn next(&self) -> Option<Arc<Admission>> {
        let mut state = locked(&self.0);
        let next = (state.room > 0).then(|| state.waiting.pop_front()).flatten();
        state.room -= usize::from(next.is_some());
        if next.is_none() {
            // Under the same mutex: the next call of `leave` sees to it.
            state.busy = false;
            if state.waiting.is_empty() {
                state.waiting.shrink_to(ROUNDS);
            }
        }
        next
    }
}

/// If a waker panics, other calls of `leave` see to those who wait.
struct Busy<'a>(&'a Gate);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            locked(&self.0.0).busy = false;
        }
    }
}

/// A place before the gate.
pub(crate) struct Admission {
    name: Name,
    options: LockOptions,
    stage: Waitable<Stage>,
}

enum Stage {
    Waiting,
    Beginning,
    Begun(Arc<AcquireRound>),
    Left,
}

impl Admission {
    /// Ready with its round once that has begun.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Arc<AcquireRound>> {
        self.stage.poll(cx, |stage| match stage {
            Stage::Begun(round) => Some(Arc::clone(round)),
            Stage::Waiting | Stage::Beginning | Stage::Left => None,
        })
    }

    /// Nobody wants it any more: leaves its round, if that has begun. Returns whether it has not, so that the place in
    /// front is still to be passed on.
    pub(crate) fn leave(&self) -> bool {
        let stage = std::mem::replace(&mut *self.stage.lock(), Stage::Left);
        if let Stage::Begun(round) = &stage {
            round.leave();
        }
        matches!(stage, Stage::Waiting)
    }

    /// Begins its round; `false` if nobody wants it any more.
    fn begin(&self, core: &Arc<Core>) -> bool {
        {
            let mut stage = self.stage.lock();
            let Stage::Waiting = *stage else { return false };
            *stage = Stage::Beginning;
        }
        let round = AcquireRound::start(core, self.name.clone(), self.options);
        let mut stage = self.stage.lock();
        let Stage::Beginning = *stage else {
            // It has left this moment.
            drop(stage);
            round.leave();
            return true;
        };
        *stage = Stage::Begun(round);
        stage.unlock_and_wake();
        true
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { room, waiting, .. } = &*locked(&self.0);
        f.debug_struct("Gate").field("room", room).field("waiting", &waiting.len()).finish()
    }
}
