//! Who may do what with the nodes that are created.

use super::wire::Writer;

/// Everything.
const ALL: i32 = 31;

/// Who may do everything with a node that is created. Nobody else may do anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acl {
    Anyone,
    /// Whoever is logged in as the user that creates it.
    Creator,
}

impl Acl {
    pub(super) fn write(self, to: Writer) -> Writer {
        let (scheme, id) = match self {
            Self::Anyone => ("world", "anyone"),
            Self::Creator => ("auth", ""),
        };
        to.int(1).int(ALL).bytes(scheme).bytes(id)
    }
}
