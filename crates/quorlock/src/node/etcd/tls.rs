//! TLS to the members of a cluster.

use tonic::transport::Endpoint;

use crate::Error;
use crate::node::tls_files::TlsFiles;

#[cfg(feature = "tls")]
pub(super) fn secure(endpoint: Endpoint, name: &str, files: &TlsFiles) -> Result<Endpoint, Error> {
    use std::path::Path;

    use tonic::transport::{Certificate, ClientTlsConfig, Identity};

    let read = |file: &Path, what: &str| {
        std::fs::read(file).map_err(|error| {
            let problem = format!("the file {} cannot be read: {error}", file.display());
            Error::misuse(problem, format!("name a PEM file in ?{what}="))
        })
    };
    let mut config = match &files.ca {
        Some(ca) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca, "ca")?)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    if let (Some(cert), Some(key)) = (&files.cert, &files.key) {
        config = config.identity(Identity::from_pem(read(cert, "cert")?, read(key, "key")?));
    }
    endpoint.tls_config(config).map_err(|error| {
        let problem = format!("TLS to {name} cannot be set up: {error}");
        Error::misuse(problem, "name PEM files in ?ca=, ?cert= and ?key=")
    })
}

#[cfg(not(feature = "tls"))]
pub(super) fn secure(_: Endpoint, name: &str, _: &TlsFiles) -> Result<Endpoint, Error> {
    let problem = format!("etcds://{name} needs TLS, which this build has not");
    Err(Error::misuse(problem, "build quorlock with the feature tls, or use etcd://"))
}
