//! A MySQL or MariaDB database as a node, `mysql://host/database`: locks beside the tables that they protect.
//!
//! ```text
//!   callers ── submit ──▶ Link: a queue of calls
//!                           │ ▲
//!      one procedure each,  │ │ answers
//!      eight connections    ▼ │
//!                         session ◀── driver: connects, watches the clock, connects again
//!                           ▲
//!                         listener: one more connection, for grant messages
//! ```
//!
//! The rules are those of the `strict` dialect of Redis, as procedures in the database (`sql/`): a record that ends by the
//! clients' clocks, a marker that says which set of nodes the database belongs to, and by which server it votes. One call is one
//! procedure, one transaction and one round trip. The procedures read the clock once the row of the lock is theirs, so that it
//! is never older than what was written before.
//!
//! # Forgetting
//!
//! A server that writes each transaction to its disk before it says that it is done (`innodb_flush_log_at_trx_commit = 1`)
//! keeps locks over a crash, and so is told by its identity alone. One that does not is told by each of its starts, which a table
//! in memory tells apart. A marker of another server or another start means that the node casts no vote until everything has
//! ended that it can have granted.
//!
//! # Order
//!
//! A connection takes one call at a time. All calls of a name go over the same one. The connections of before are ended on the
//! server before others speak in their place, so that nothing that was sent over them can run any more.
//!
//! # Waiting
//!
//! A client has a user lock for as long as its listening connection lasts, and asks over that one for messages, with a call that
//! waits in the server. A release writes the record of the first waiter whose client has its user lock, and a message; once that
//! is committed it ends the listener's call, which finds the message when it is made again.
//!
//! Files: `address` reads the URL, `options` is what can be set for these nodes alone, `tls` secures connections, `connect`
//! opens them and checks who answers, `link` is what callers meet, `session` is the connections while they last, `listener` the
//! one for messages, `driver` keeps them going, `verbs` turns requests into calls of procedures, `replies` turns rows into
//! answers, `error` gives remedies, `schema` puts the SQL together, `init` sets a database up and marks it as new, `examine`
//! reports how it is set up, `forget` clears names away.

mod address;
mod connect;
mod driver;
mod error;
mod examine;
mod forget;
mod init;
mod link;
mod listener;
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
pub use options::MysqlOptions;
pub use schema::setup_sql;

/// MySQL and MariaDB databases.
pub(super) const KIND: Kind = Kind {
    schemes: &[("mysql", Login::BeforeHost), ("mariadb", Login::BeforeHost)],
    bare_scheme: false,
    looks_like: "mysql://HOST/DATABASE",
    forms: "mysql://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE",
    has_markers: true,
    is_local: false,
    default_url: None,
    resolve: options::resolve,
    terms: |options| options.mysql.terms(),
    member: |index, url| Address::parse(index, url).map(|address| address.member),
    open: |index, url, context| Ok(Arc::new(MysqlNode::new(index, url, context)?)),
    examine: examine::examine,
    init: init::init,
    forget: forget::forget,
    forget_fence: forget::forget_fence,
};

/// A MySQL or MariaDB database.
#[derive(Debug)]
pub(crate) struct MysqlNode {
    link: Arc<Link>,
    capabilities: Capabilities,
}

impl MysqlNode {
    /// The database behind `url`. Connecting begins at once, in the background.
    pub(crate) fn new(index: usize, url: &str, context: &NodeContext) -> Result<Self, Error> {
        let address = Address::parse(index, url)?;
        let link = Arc::new(Link::new(&address, context));
        context.runtime.spawn(Box::pin(driver::drive(Arc::clone(&link), address, context.clone())));
        Ok(Self { link, capabilities: context.options.mysql.capabilities() })
    }
}

impl Node for MysqlNode {
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

impl Drop for MysqlNode {
    fn drop(&mut self) {
        self.link.close();
    }
}
