//! TLS as a filter on bytes: what is to be sent is sealed, what came in is opened.

use std::fmt;
use std::io::{BufReader, Read, Write};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::tls_files::TlsFiles;
use super::{Failure, FailureKind};
use crate::Error;

/// Whom to trust, and which name the server must prove.
#[derive(Clone)]
pub(in crate::node) struct TlsSetting {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsSetting {
    /// Trusts the authorities of the system, or only those in the file that is named. `scheme` is that of URLs.
    pub(in crate::node) fn new(scheme: &str, host: &str, files: &TlsFiles) -> Result<Self, Error> {
        let refuse = |what: String, remedy: &str| Error::misuse(what, remedy);
        let name = ServerName::try_from(host.to_owned()).map_err(|error| {
            refuse(
                format!("{host:?} cannot be the name of a TLS server: {error}"),
                "use its DNS name",
            )
        })?;
        let mut roots = RootCertStore::empty();
        match &files.ca {
            Some(file) => {
                let bad = |error: &dyn fmt::Display| {
                    let what =
                        format!("the certificate file {} cannot be used: {error}", file.display());
                    refuse(what, "name a PEM file with the authority's certificate in ?ca=")
                };
                for certificate in CertificateDer::pem_file_iter(file).map_err(|e| bad(&e))? {
                    roots.add(certificate.map_err(|e| bad(&e))?).map_err(|e| bad(&e))?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() {
            return Err(refuse(
                format!("no authority is known that could vouch for {scheme}://{host}"),
                "install the system's CA certificates, or name a PEM file in ?ca=",
            ));
        }
        // The provider is named here, because the default one is a process-wide setting that makes
        // rustls panic where nobody has chosen one.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| refuse(format!("TLS cannot be set up: {error}"), "report this"))?
            .with_root_certificates(roots);
        let config = match (&files.cert, &files.key) {
            (Some(cert), Some(key)) => {
                let bad = |error: &dyn fmt::Display| {
                    let what = format!(
                        "the certificate {} with the key {} cannot be used: {error}",
                        cert.display(),
                        key.display()
                    );
                    refuse(what, "name PEM files in ?cert= and ?key=")
                };
                let chain = CertificateDer::pem_file_iter(cert)
                    .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                    .map_err(|error| bad(&error))?;
                let key = PrivateKeyDer::from_pem_file(key).map_err(|error| bad(&error))?;
                config.with_client_auth_cert(chain, key).map_err(|error| bad(&error))?
            }
            _ => config.with_no_client_auth(),
        };
        Ok(Self { config: Arc::new(config), name })
    }

    pub(in crate::node) fn start(&self) -> Result<Tls, Failure> {
        let mut connection =
            ClientConnection::new(Arc::clone(&self.config), self.name.clone()).map_err(failure)?;
        // What is sealed is moved out at once: nothing piles up in the connection.
        connection.set_buffer_limit(None);
        Ok(Tls(Box::new(connection)))
    }
}

impl fmt::Debug for TlsSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TlsSetting({:?})", self.name)
    }
}

#[derive(Debug)]
pub(in crate::node) struct Tls(Box<ClientConnection>);

impl Tls {
    pub(in crate::node) fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Appends the sealed form of `plain`, and whatever the handshake has to say, to `out`.
    pub(in crate::node) fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
        self.0.writer().write_all(plain).map_err(failure)?;
        while self.0.wants_write() {
            self.0.write_tls(out).map_err(failure)?;
        }
        Ok(())
    }

    /// Appends what `raw` holds to `plain`, and what has to be answered to it to `out`.
    pub(in crate::node) fn open(
        &mut self,
        raw: &[u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let mut raw = BufReader::new(raw);
        loop {
            let taken = self.0.read_tls(&mut raw).map_err(failure)?;
            let state = self.0.process_new_packets().map_err(failure)?;
            let start = plain.len();
            plain.resize(start + state.plaintext_bytes_to_read(), 0);
            self.0.reader().read_exact(&mut plain[start..]).map_err(failure)?;
            if taken == 0 {
                return self.seal(b"", out);
            }
        }
    }
}

fn failure(error: impl fmt::Display) -> Failure {
    Failure::new(FailureKind::Unfit, format!("TLS failed: {error}; check the certificate and ?ca="))
}
