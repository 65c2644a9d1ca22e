//! `quorlock extend`: make a lock last longer that another process has taken.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use crate::args::ExtendArgs;
use crate::exit::Failed;
use crate::plan::Cluster;
use crate::token::{self, Secret};

/// A lock to be extended.
pub(crate) struct Extend {
    cluster: Cluster,
    pub(crate) name: OsString,
    token: Secret,
}

impl Extend {
    pub(crate) fn new(args: ExtendArgs) -> Result<Self, Failed> {
        let cluster = Cluster::for_scripts(args.cluster, args.ttl)?;
        Ok(Self { cluster, name: args.name, token: token::read(args.token)? })
    }
}

/// Does it, and returns the code to exit with.
pub(crate) async fn extend(plan: &Extend) -> Result<u8, Failed> {
    let locker = plan.cluster.connect().await?;
    // To go on with it is to extend it.
    let extended = match locker.resume(plan.name.as_bytes(), &plan.token.0).await {
        Ok(guard) => guard.into_token().map(|_| 0),
        Err(error) => Err(error),
    };
    locker.shutdown().await;
    Ok(extended?)
}
