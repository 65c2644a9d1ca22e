//! What stands in the place of TLS in a build without it.

use mysql_async::SslOpts;

use super::address::{Security, TlsFiles};
use crate::Error;

pub(super) fn options(security: Security, _files: &TlsFiles) -> Result<Option<SslOpts>, Error> {
    if matches!(security, Security::Disabled | Security::Preferred) {
        return Ok(None);
    }
    Err(Error::misuse(
        "a MySQL node asks for TLS, which this build has not",
        "build quorlock with the feature tls, or leave ssl-mode out",
    ))
}
