//! State that one task waits for.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use crate::locked::locked;

/// Some state behind a mutex, and the waker of the one task that waits for it to change.
///
/// A waker runs code of others, which may come back to this very state: none is woken while the mutex is held.
#[derive(Debug, Default)]
pub(crate) struct Waitable<S>(Mutex<Inner<S>>);

#[derive(Debug, Default)]
struct Inner<S> {
    state: S,
    waker: Option<Waker>,
}

impl<S> Waitable<S> {
    pub(crate) const fn new(state: S) -> Self {
        Self(Mutex::new(Inner { state, waker: None }))
    }

    pub(crate) fn lock(&self) -> WaitableGuard<'_, S> {
        WaitableGuard(locked(&self.0))
    }

    /// Ready with what `ready` returns. If that is `None`, the task of `cx` is woken by a later change.
    pub(crate) fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        ready: impl FnOnce(&mut S) -> Option<T>,
    ) -> Poll<T> {
        let mut state = self.lock();
        match ready(&mut state) {
            Some(value) => Poll::Ready(value),
            None => state.pending(cx),
        }
    }

    /// Changes the state, and wakes the task that waits for it if `change` returns `true`.
    pub(crate) fn update_and_wake(&self, change: impl FnOnce(&mut S) -> bool) {
        let mut state = self.lock();
        if change(&mut state) {
            state.unlock_and_wake();
        }
    }
}

/// The state while its mutex is held.
pub(crate) struct WaitableGuard<'a, S>(MutexGuard<'a, Inner<S>>);

impl<S> WaitableGuard<'_, S> {
    /// Stores the waker of the task, in place of one that was stored before.
    pub(crate) fn pending<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        self.0.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Takes the stored waker out, to be woken once the mutex is released.
    pub(crate) fn take_waker(&mut self) -> StoredWaker {
        StoredWaker(self.0.waker.take())
    }

    /// Releases the mutex, and wakes the task.
    pub(crate) fn unlock_and_wake(mut self) {
        let waker = self.take_waker();
        drop(self);
        waker.wake();
    }
}

impl<S> Deref for WaitableGuard<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0.state
    }
}

impl<S> DerefMut for WaitableGuard<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.0.state
    }
}

/// The waker of the task that waits, if one does.
#[derive(Default)]
#[must_use = "the task has to be woken"]
pub(crate) struct StoredWaker(Option<Waker>);

impl StoredWaker {
    /// Wakes the task. The mutex of the state must not be held.
    pub(crate) fn wake(self) {
        if let Some(waker) = self.0 {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::Wake;

    use super::*;

    /// Counts how often it is woken, and looks at the state meanwhile.
    #[derive(Default)]
    struct Task {
        state: Waitable<u32>,
        woken: AtomicUsize,
    }

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.woken.fetch_add(1, SeqCst);
            assert!(*self.state.lock() > 0);
        }
    }

    #[test]
    fn a_task_is_woken_once_for_each_poll_and_without_the_mutex() {
        let task = Arc::new(Task::default());
        let waker = Waker::from(Arc::clone(&task));
        let cx = &mut Context::from_waker(&waker);
        let poll =
            |cx: &mut Context<'_>| task.state.poll(cx, |state| (*state > 1).then_some(*state));
        task.state.update_and_wake(|state| {
            *state = 1;
            true
        });
        assert_eq!(task.woken.load(SeqCst), 0, "nobody waits");
        assert!(poll(cx).is_pending() && poll(cx).is_pending());
        task.state.update_and_wake(|_| false);
        assert_eq!(task.woken.load(SeqCst), 0);
        for value in [2, 3] {
            task.state.update_and_wake(|state| {
                *state = value;
                true
            });
        }
        assert_eq!(task.woken.load(SeqCst), 1);
        assert_eq!(poll(cx), Poll::Ready(3));
    }
}
