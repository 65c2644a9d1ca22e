//! A certificate authority of its own for each server with TLS.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// PEM files for a server that is called `localhost` or `127.0.0.1`.
#[derive(Debug)]
pub(crate) struct Certificates {
    /// The authority a client has to trust.
    pub(crate) ca: PathBuf,
    /// The server's certificate, signed by the authority.
    pub(crate) server: PathBuf,
    /// The server's private key.
    pub(crate) key: PathBuf,
}

impl Certificates {
    /// Makes a new authority and a certificate from it, and writes them to `dir`.
    pub(crate) fn write_to(dir: &Path) -> Self {
        let files = Self {
            ca: dir.join("ca.pem"),
            server: dir.join("server.pem"),
            key: dir.join("server.key"),
        };
        let [ca, server, key] = make().expect("certificates can be made");
        for (path, pem) in [(&files.ca, ca), (&files.server, server), (&files.key, key)] {
            fs::write(path, pem).expect("the server's directory can be written to");
        }
        files
    }
}

/// The authority, the server's certificate and its key, as PEM.
fn make() -> Result<[String; 3], rcgen::Error> {
    let mut ca = CertificateParams::new([])?;
    // Names must differ: a certificate whose issuer has its own name passes for self-signed.
    ca.distinguished_name.push(DnType::CommonName, "Quorlock test authority");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ca_key = KeyPair::generate()?;
    let ca_pem = ca.self_signed(&ca_key)?.pem();

    let mut server = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    server.distinguished_name.push(DnType::CommonName, "Quorlock test server");
    server.use_authority_key_identifier_extension = true;
    // Servers that ask their clients for a certificate take the same one.
    server.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let server_key = KeyPair::generate()?;
    let server_pem = server.signed_by(&server_key, &Issuer::new(ca, ca_key))?.pem();

    Ok([ca_pem, server_pem, server_key.serialize_pem()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_servers_share_an_authority() {
        let (one, other) = (make().unwrap(), make().unwrap());
        assert_ne!(one[0], other[0]);
    }
}
