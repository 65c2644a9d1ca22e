//! TLS to a server.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, NoTls, TlsConnect, TlsStream};
use tokio_postgres::{Client, Config, Error as PostgresError};
use tokio_rustls::TlsConnector;

use super::address::{Security, TlsFiles};
use super::connect::{Wire, wire_of};
use crate::Error;

/// Whom to trust; nothing if connections are not secured.
#[derive(Clone)]
pub(super) struct Tls(Option<Arc<ClientConfig>>);

impl Tls {
    /// Whom to trust, in the way that PostgreSQL's own clients do.
    pub(super) fn new(security: Security, files: &TlsFiles) -> Result<Self, Error> {
        if security == Security::Disable {
            return Ok(Self(None));
        }
        let unusable = |what: &Path, error: &dyn std::fmt::Display, key| {
            let problem = format!("the file {} cannot be used: {error}", what.display());
            Error::misuse(problem, format!("name a PEM file in ?{key}="))
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| {
                Error::misuse(format!("TLS cannot be set up: {error}"), "report this")
            })?;
        let checks = match security {
            Security::Require if files.ca.is_some() => Security::VerifyCa,
            security => security,
        };
        let mut roots = RootCertStore::empty();
        if let Some(ca) = &files.ca {
            let bad = |error: &dyn std::fmt::Display| unusable(ca, error, "sslrootcert");
            for certificate in CertificateDer::pem_file_iter(ca).map_err(|e| bad(&e))? {
                roots.add(certificate.map_err(|e| bad(&e))?).map_err(|e| bad(&e))?;
            }
        } else if matches!(checks, Security::VerifyCa | Security::VerifyFull) {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        let builder = if checks == Security::VerifyFull {
            builder.with_root_certificates(roots)
        } else {
            let chain = match checks {
                Security::VerifyCa => {
                    let provider = Arc::clone(&provider);
                    let chain =
                        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
                    Some(chain.build().map_err(|error| {
                        let problem = format!("no authority can vouch for the server: {error}");
                        Error::misuse(
                            problem,
                            "name a PEM file with its certificate in ?sslrootcert=",
                        )
                    })?)
                }
                _ => None,
            };
            let verifier = Arc::new(AnyName { provider, chain });
            builder.dangerous().with_custom_certificate_verifier(verifier)
        };
        let config = match (&files.cert, &files.key) {
            (Some(cert), Some(key)) => {
                let bad = |error: &dyn std::fmt::Display| unusable(cert, error, "sslcert");
                let chain = CertificateDer::pem_file_iter(cert).map_err(|e| bad(&e))?;
                let chain = chain.collect::<Result<Vec<_>, _>>().map_err(|e| bad(&e))?;
                let secret =
                    PrivateKeyDer::from_pem_file(key).map_err(|e| unusable(key, &e, "sslkey"))?;
                builder.with_client_auth_cert(chain, secret).map_err(|e| bad(&e))?
            }
            _ => builder.with_no_client_auth(),
        };
        Ok(Self(Some(Arc::new(config))))
    }

    /// Opens a connection.
    pub(super) async fn connect(&self, config: &Config) -> Result<(Client, Wire), PostgresError> {
        match &self.0 {
            None => {
                let (client, connection) = config.connect(NoTls).await?;
                Ok((client, wire_of(connection)))
            }
            Some(tls) => {
                let (client, connection) = config.connect(Connector(Arc::clone(tls))).await?;
                Ok((client, wire_of(connection)))
            }
        }
    }
}

/// Trusts a server by whatever name: one that an authority vouches for, or any.
#[derive(Debug)]
struct AnyName {
    provider: Arc<CryptoProvider>,
    chain: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            // The name is looked at last.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[derive(Clone)]
struct Connector(Arc<ClientConfig>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Connector {
    type Stream = Secured<S>;
    type TlsConnect = ConnectTo;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<ConnectTo, Self::Error> {
        Ok(ConnectTo {
            config: Arc::clone(&self.0),
            name: ServerName::try_from(domain.to_owned())?,
        })
    }
}

struct ConnectTo {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for ConnectTo {
    type Stream = Secured<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Secured<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let connecting = TlsConnector::from(self.config).connect(self.name, stream);
        Box::pin(async move { connecting.await.map(Secured) })
    }
}

struct Secured<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Secured<S> {
    /// A server that insists on it is refused with its own words.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Secured<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Secured<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
