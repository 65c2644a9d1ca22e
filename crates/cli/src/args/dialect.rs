//! What is promised of the locks on Redis and Valkey nodes, as it is written.

use std::time::Duration;

use quorlock::Dialect;

use super::NODES;
use crate::duration;

const DIALECT_HELP: &str = "\
How locks lie on Redis and Valkey nodes. strict: they stay exclusive though nodes crash, forget or have \
their clocks moved, while the clocks of the clients agree, as with NTP. redlock: as in the Redis \
documentation, shared with every Redlock library; no clock may jump and no node may forget. All clients \
of a lock need the same [env: QUORLOCK_DIALECT] [default: strict]";

const MAX_TTL_HELP: &str = "\
The longest TTL of any lock on these nodes, the same for all clients. In the strict dialect a node that \
may have forgotten locks casts no vote for so long [env: QUORLOCK_MAX_TTL] [default: 30s]";

#[derive(clap::Args)]
pub(crate) struct DialectArgs {
    #[arg(help_heading = NODES, help = DIALECT_HELP)]
    #[arg(long, value_name = "DIALECT", value_parser = parse)]
    pub(crate) dialect: Option<Dialect>,

    #[arg(help_heading = NODES, help = MAX_TTL_HELP)]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) max_ttl: Option<Duration>,
}

fn parse(text: &str) -> Result<Dialect, String> {
    text.parse()
}
