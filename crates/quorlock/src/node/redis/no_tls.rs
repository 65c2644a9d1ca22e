//! Stands in for TLS in builds without the feature `tls`.

use std::convert::Infallible;
use std::path::PathBuf;

use crate::Error;
use crate::node::Failure;

/// Cannot be made, so that nothing below is ever called.
#[derive(Debug, Clone)]
pub(super) struct TlsSetting(Infallible);

#[derive(Debug)]
pub(super) struct Tls(Infallible);

impl TlsSetting {
    pub(super) fn new(host: &str, _ca: Option<PathBuf>) -> Result<Self, Error> {
        Err(Error::misuse(
            format!("rediss://{host} asks for TLS, which this build does not have"),
            "build quorlock with the feature \"tls\"",
        ))
    }

    pub(super) fn start(&self) -> Result<Tls, Failure> {
        match self.0 {}
    }
}

impl Tls {
    pub(super) fn is_handshaking(&self) -> bool {
        match self.0 {}
    }

    pub(super) fn seal(&mut self, _plain: &[u8], _out: &mut Vec<u8>) -> Result<(), Failure> {
        match self.0 {}
    }

    pub(super) fn open(
        &mut self,
        _raw: &[u8],
        _plain: &mut Vec<u8>,
        _out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        match self.0 {}
    }
}
