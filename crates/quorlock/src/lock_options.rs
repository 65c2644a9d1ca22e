//! What a caller asks for, besides the name.

use std::time::Duration;

use crate::settings::Keep;
use crate::token::OwnerId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockOptions {
    pub(crate) ttl: Duration,
    /// It is of use only with more than this of its validity left.
    pub(crate) least: Duration,
    pub(crate) owner: Option<OwnerId>,
    pub(crate) keep: Keep,
    /// Whether the holder has something to say of itself.
    pub(crate) noted: bool,
}

impl LockOptions {
    /// Whether it may be passed on to others of this process, and be had from them: it is of no
    /// owner, without an end, and nothing is said about its holder.
    pub(crate) fn is_plain(&self) -> bool {
        self.owner.is_none() && self.keep.without_end() && !self.noted
    }

    /// How many of this process may have it one after another.
    pub(crate) fn turns(&self, local_turns: u16) -> u16 {
        if self.is_plain() { local_turns } else { 1 }
    }
}
