//! How connections are secured.

use std::path::PathBuf;

use mysql_async::{ClientIdentity, SslOpts};
use rustls::crypto::{CryptoProvider, ring};

use super::address::{Security, TlsFiles};
use crate::Error;

/// What the client library needs; `None` for no TLS.
///
/// Without `ssl-ca` the authorities are those that the library brings along, which browsers trust.
pub(super) fn options(security: Security, files: &TlsFiles) -> Result<Option<SslOpts>, Error> {
    if security == Security::Disabled {
        return Ok(None);
    }
    if CryptoProvider::get_default().is_none() {
        // Another thread may be as fast: then it is there as well.
        let _ = ring::default_provider().install_default();
    }
    let trusts_any = matches!(security, Security::Preferred | Security::Required);
    let mut options = SslOpts::default()
        .with_danger_accept_invalid_certs(trusts_any)
        .with_danger_skip_domain_validation(trusts_any);
    if let Some(ca) = &files.ca {
        readable(ca)?;
        options = options
            .with_root_certs(vec![PathBuf::from(ca).into()])
            .with_disable_built_in_roots(true);
    }
    if let (Some(cert), Some(key)) = (&files.cert, &files.key) {
        readable(cert)?;
        readable(key)?;
        let identity = ClientIdentity::new(PathBuf::from(cert).into(), PathBuf::from(key).into());
        options = options.with_client_identity(Some(identity));
    }
    Ok(Some(options))
}

/// Refuses a file that is not there before anything is connected to.
fn readable(file: &str) -> Result<(), Error> {
    std::fs::File::open(file).map(drop).map_err(|error| {
        Error::misuse(
            format!("the file {file} for TLS to a MySQL node cannot be read: {error}"),
            "name a PEM file that this user may read",
        )
    })
}
