//! The files that TLS is set up from.

use std::path::PathBuf;

/// Files for TLS. Whom to trust, and how to prove who we are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::node) struct TlsFiles {
    /// The authorities to trust. Without it, those of the system.
    pub(in crate::node) ca: Option<PathBuf>,
    pub(in crate::node) cert: Option<PathBuf>,
    pub(in crate::node) key: Option<PathBuf>,
}
