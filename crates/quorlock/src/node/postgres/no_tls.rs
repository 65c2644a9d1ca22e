//! What stands in the place of TLS in a build without it.

use tokio_postgres::{Client, Config, Error as PostgresError, NoTls};

use super::address::{Security, TlsFiles};
use super::connect::{Wire, wire_of};
use crate::Error;

#[derive(Clone)]
pub(super) struct Tls;

impl Tls {
    pub(super) fn new(security: Security, files: &TlsFiles) -> Result<Self, Error> {
        if matches!(security, Security::Disable | Security::Prefer) && *files == TlsFiles::default()
        {
            return Ok(Self);
        }
        Err(Error::misuse(
            "a PostgreSQL node asks for TLS, which this build has not",
            "build quorlock with the feature tls, or leave sslmode out",
        ))
    }

    pub(super) async fn connect(&self, config: &Config) -> Result<(Client, Wire), PostgresError> {
        let (client, connection) = config.connect(NoTls).await?;
        Ok((client, wire_of(connection)))
    }
}
