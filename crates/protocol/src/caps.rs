//! How much of a lock one holder may have.

use core::time::Duration;

use crate::Moment;

/// What ends a lease though the nodes would go on keeping it. Off unless somebody sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    extensions: u32,
    until: Moment,
}

/// A cap that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cap {
    /// It was extended as often as it may be.
    Extensions(u32),
    /// It is valid for as long as it may be held.
    Hold,
}

/// So late, or so many, that it is as good as none.
const NO_LIMIT: u32 = u32::MAX;
const NEVER: Moment = Moment::from_nanos(u64::MAX);

impl Caps {
    /// No caps at all.
    pub const NONE: Self = Self { extensions: NO_LIMIT, until: NEVER };

    /// At most so many extensions, and held for so long at the most, counted from `since`.
    #[must_use]
    pub fn new(extensions: Option<u32>, hold: Option<Duration>, since: Moment) -> Self {
        Self {
            extensions: extensions.unwrap_or(NO_LIMIT),
            until: hold.map_or(NEVER, |hold| since.after(hold)),
        }
    }

    /// When a lease that the nodes keep until `valid_until` ends under these caps.
    pub(crate) fn cut(&self, valid_until: Moment) -> Moment {
        valid_until.min(self.until)
    }

    /// Which cap a lease has reached that is valid until then, after so many extensions.
    pub(crate) fn reached(&self, valid_until: Moment, extensions: u32) -> Option<Cap> {
        if self.extensions != NO_LIMIT && extensions >= self.extensions {
            Some(Cap::Extensions(extensions))
        } else if self.until != NEVER && valid_until >= self.until {
            Some(Cap::Hold)
        } else {
            None
        }
    }
}
