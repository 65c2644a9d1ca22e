//! A Redis or Valkey server as a node.
//!
//! ```text
//!   callers ── submit ──▶ Link: one buffer out, one queue of calls that wait for their replies
//!                           │ ▲
//!                    write  │ │  replies, in the order of the requests
//!                           ▼ │
//!                         session ◀── driver: connects, watches the clock, connects again
//! ```
//!
//! How locks lie on the server is a matter of the *dialect*. In the `strict` one, the default, owner, end and
//! fence are one record, which scripts compare by the clients' clocks. In the `redlock` one the record is `SET name
//! token NX PX ttl`, which every Redlock library in any language shares. Queues lie in keys beside the records. A
//! message of a grant to a ticket comes on a channel of the client's own, over the connection that carries the
//! commands, between their replies.
//!
//! Files:
//! - `address` reads the URL, `options` is what can be set for these nodes alone
//! - `dial` finds the way to a server, `connect` opens a connection and checks who answers
//! - `link` is what callers meet, `sending` what goes out when, `driver` and `session` keep it going, `tending`
//!   looks after a server meanwhile
//! - `dialect/` is how locks lie on a server, with the scripts in `dialect/lua`; `scripts` puts these together
//! - `verbs` and `extending` turn requests into commands, `replies` turns replies into answers, `inbox` takes grant
//!   messages in, `marker` reads and writes which start of a server votes
//! - `resp` is the wire format and `framing` bounds it, `error` gives remedies
//! - `examine` finds out how the server is set up and `diagnose` what that means, `init` marks it as new, `forget`
//!   clears names away

mod address;
mod connect;
mod diagnose;
mod dialect;
mod driver;
mod error;
mod examine;
mod extending;
mod forget;
mod framing;
#[cfg(test)]
mod framing_tests;
mod inbox;
mod init;
mod link;
mod marker;
#[cfg(all(feature = "mutation", debug_assertions))]
mod mutation;
mod options;
mod replies;
mod resp;
#[cfg(test)]
mod resp_tests;
mod scripts;
mod sending;
mod session;
mod stream;
mod tending;
mod verbs;

use std::sync::{Arc, Weak};

use super::kinds::Kind;
use super::{Call, Capabilities, ClientId, Failure, Inbox, Login, Node, NodeContext};
use crate::Error;
use crate::runtime::BoxFuture;
use address::Address;
pub use dialect::Dialect;
use link::Link;
pub use options::RedisOptions;

/// Redis and Valkey.
pub(super) const KIND: Kind = Kind {
    schemes: &[
        ("redis", Login::BeforeHost),
        ("rediss", Login::BeforeHost),
        ("valkey", Login::BeforeHost),
        ("valkeys", Login::BeforeHost),
        ("redis+unix", Login::Parameters),
        ("valkey+unix", Login::Parameters),
        ("unix", Login::Parameters),
    ],
    bare_scheme: false,
    looks_like: "redis://HOST, rediss://HOST or redis+unix:///PATH",
    forms: "redis://[USER:PASSWORD@]HOST[:PORT][/DB], rediss://… with TLS, redis+unix:///PATH",
    has_markers: true,
    is_local: false,
    default_url: None,
    resolve: options::resolve,
    terms: |options| options.redis.terms(),
    member: |index, url| Address::parse(index, url).map(|address| address.member),
    open: |index, url, context| Ok(Arc::new(RedisNode::new(index, url, context)?)),
    examine: examine::examine,
    init: init::init,
    forget: forget::forget,
    forget_fence: forget::forget_fence,
};

/// A Redis or Valkey server.
#[derive(Debug)]
pub(crate) struct RedisNode {
    link: Arc<Link>,
    capabilities: Capabilities,
}

impl RedisNode {
    /// The server behind `url`. Connecting begins at once, in the background.
    pub(crate) fn new(index: usize, url: &str, context: &NodeContext) -> Result<Self, Error> {
        let address = Address::parse(index, url)?;
        let link = Arc::new(Link::new(&address, context));
        context.runtime.spawn(Box::pin(driver::drive(Arc::clone(&link), address, context.clone())));
        let options = &context.options.redis;
        Ok(Self { link, capabilities: options.dialect.capabilities(options) })
    }
}

impl Node for RedisNode {
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

impl Drop for RedisNode {
    fn drop(&mut self) {
        self.link.close();
    }
}
