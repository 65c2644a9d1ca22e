//! What kinds of nodes share in which each who wants a lock makes an entry of its own, as other libraries lay locks: the
//! engine orders the entries, and the first holds the lock.
//!
//! `value` is what we write into an entry, `turns` tells whose turn has come.

mod turns;
mod value;

pub(super) use turns::{Turn, Turns, Waiter};
pub(super) use value::Value;
