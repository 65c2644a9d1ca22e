//! What a caller asks for, besides the name.

use std::time::Duration;

use crate::settings::Keep;
use crate::token::OwnerId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) ttl: Duration,
    /// It is of use only with more than this of its validity left.
    pub(crate) least: Duration,
    pub(crate) owner: Option<OwnerId>,
    pub(crate) keep: Keep,
    /// Whether the holder has something to say of itself.
    pub(crate) noted: bool,
}
