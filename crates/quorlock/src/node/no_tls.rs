//! Stands in for TLS in builds without the feature `tls`.

use super::Failure;
use super::tls_files::TlsFiles;
use crate::Error;
use std::convert::Infallible;

/// Cannot be made, so that nothing below is ever called.
#[derive(Debug, Clone)]
pub(in crate::node) struct TlsSetting(Infallible);

#[derive(Debug)]
pub(in crate::node) struct Tls(Infallible);

impl TlsSetting {
    pub(in crate::node) fn new(scheme: &str, host: &str, _: &TlsFiles) -> Result<Self, Error> {
        Err(Error::misuse(
            format!("{scheme}://{host} asks for TLS, which this build does not have"),
            "build quorlock with the feature \"tls\"",
        ))
    }

    pub(in crate::node) fn start(&self) -> Result<Tls, Failure> {
        match self.0 {}
    }
}

impl Tls {
    pub(in crate::node) fn is_handshaking(&self) -> bool {
        match self.0 {}
    }

    pub(in crate::node) fn seal(
        &mut self,
        _plain: &[u8],
        _out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        match self.0 {}
    }

    pub(in crate::node) fn open(
        &mut self,
        _raw: &[u8],
        _plain: &mut Vec<u8>,
        _out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        match self.0 {}
    }
}
