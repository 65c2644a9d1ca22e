//! Taking a mutex.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose holders never panic half-way through a change, so that what a panic elsewhere
/// left behind can be used.
pub(crate) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
