//! A PostgreSQL database as a node, `postgres://host/database`: locks beside the tables that they protect.
//!
//! ```text
//!   callers ── submit ──▶ Link: a queue of calls
//!                           │ ▲
//!          one function each│ │ answers, in the order of the calls; grant messages between them
//!                           ▼ │
//!                         session ◀── driver: connects, watches the clock, connects again
//! ```
//!
//! The rules are those of the `strict` dialect of Redis, as functions in the database (`sql/`): a record that ends by the
//! clients' clocks, a marker that says which set of nodes the database belongs to, and by which start of the server. One
//! call is one function, one transaction and one round trip. The functions read the clock once the row of the lock is
//! theirs, so that it is never older than what was written before.
//!
//! # Forgetting
//!
//! The tables are unlogged, if nothing else is asked for: nothing waits for a disk. PostgreSQL empties them after a crash,
//! on a standby that is promoted and in a restored backup, all of them together. Then the marker is gone as well, and the
//! node casts no vote until everything has ended that it can have granted.
//!
//! # Order
//!
//! All calls of a client go over one connection, which PostgreSQL serves in order. A connection holds the advisory lock of
//! its client: the one that follows it ends it on the server, and has its lock before it speaks. So nothing that was sent
//! over the first can run any more.
//!
//! # Waiting
//!
//! A release writes the record of the first waiter whose client holds its advisory lock, and notifies it on a channel of
//! that client's own, over the same connection.
//!
//! Files: `address` reads the URL, `options` is what can be set for these nodes alone, `tls` secures connections, `connect`
//! opens one and checks who answers, `link` is what callers meet, `session` is one connection while it lasts, `driver` keeps
//! it going, `verbs` turns requests into calls of functions, `replies` turns rows into answers, `error` gives remedies,
//! `schema` puts the SQL together, `init` sets a database up and marks it as new, `examine` reports how it is set up, `forget`
//! clears names away, `check_in` has a transaction of the user's refused that comes too late.

mod address;
mod check_in;
mod connect;
mod driver;
mod error;
mod examine;
mod forget;
mod init;
mod link;
mod options;
mod replies;
mod schema;
mod session;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
mod verbs;

use std::sync::{Arc, Weak};

use super::kinds::Kind;
use super::{Call, Capabilities, ClientId, Failure, Inbox, Login, Node, NodeContext};
use crate::Error;
use crate::runtime::BoxFuture;
use address::Address;
use link::Link;
pub use options::PostgresOptions;
pub use schema::setup_sql;

/// PostgreSQL databases.
pub(super) const KIND: Kind = Kind {
    schemes: &[("postgres", Login::BeforeHost), ("postgresql", Login::BeforeHost)],
    bare_scheme: false,
    looks_like: "postgres://HOST/DATABASE",
    forms: "postgres://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/DATABASE",
    has_markers: true,
    is_local: false,
    default_url: None,
    resolve: options::resolve,
    terms: |options| options.postgres.terms(),
    member: |index, url| Address::parse(index, url).map(|address| address.member),
    open: |index, url, context| Ok(Arc::new(PostgresNode::new(index, url, context)?)),
    examine: examine::examine,
    init: init::init,
    forget: forget::forget,
    forget_fence: forget::forget_fence,
};

/// A PostgreSQL database.
#[derive(Debug)]
pub(crate) struct PostgresNode {
    link: Arc<Link>,
    capabilities: Capabilities,
}

impl PostgresNode {
    /// The database behind `url`. Connecting begins at once, in the background.
    pub(crate) fn new(index: usize, url: &str, context: &NodeContext) -> Result<Self, Error> {
        let address = Address::parse(index, url)?;
        let link = Arc::new(Link::new(&address, context));
        context.runtime.spawn(Box::pin(driver::drive(Arc::clone(&link), address, context.clone())));
        Ok(Self { link, capabilities: context.options.postgres.capabilities() })
    }
}

impl Node for PostgresNode {
    fn label(&self) -> &str {
        self.link.label()
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(self.link.ready())
    }

    fn submit(&self, call: Call) {
        self.link.submit(call);
    }

    /// Grant messages come for the client that the node was opened for, and for no other.
    fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        self.link.listen(client, node, inbox);
    }
}

impl Drop for PostgresNode {
    fn drop(&mut self) {
        self.link.close();
    }
}
