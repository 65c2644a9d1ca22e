//! A Redis or Valkey server as a node, in the `redlock` dialect.
//!
//! ```text
//!   callers ── submit ──▶ Link: one buffer out, one queue of calls that wait for their replies
//!                           │ ▲
//!                    write  │ │  replies, in the order of the requests
//!                           ▼ │
//!                         session ◀── driver: connects, watches the clock, connects again
//! ```
//!
//! The record is `SET name token NX PX ttl`, as the Redis documentation describes it, so that every
//! Redlock library in any language shares the lock. Its queue lies in keys beside it, of which such
//! libraries know nothing. Word of a grant to a ticket comes on a channel of the client's own, over
//! the connection that carries the commands, between their replies.
//!
//! Files: `address` reads the URL, `dial` finds the way there, `connect` opens a connection and checks who answers, `link` is
//! what callers meet, `sending` what goes out when, `driver` and `session` keep it going, `verbs` turns requests into commands and
//! replies into answers, `inbox` takes word of grants in, `resp` is the wire format and `framing`
//! bounds it, `error` gives
//! remedies, `examine` finds out how the server is set up and `judge` what that means, `marker` reads which start of it votes, `init`
//! marks it as new, `forget` clears names away, `tending` looks after a server while it is connected to, `lua/` holds the scripts.

mod address;
mod connect;
mod dial;
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
mod judge;
mod link;
mod marker;
#[cfg(all(feature = "mutation", debug_assertions))]
mod mutation;
mod replies;
mod resp;
#[cfg(test)]
mod resp_tests;
mod sending;
mod session;
mod shortcut;
mod stream;
mod tending;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
mod verbs;

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::kinds::Kind;
use super::{Call, Capabilities, ClientId, Failure, Inbox, Login, Node, Setting};
use crate::runtime::BoxFuture;
use crate::settings::Settings;
use crate::{Dialect, Error};
use address::Address;
use link::Link;
use quorlock_protocol::Drift;

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
    looks_like: "redis://HOST, rediss://HOST or redis+unix:///PATH",
    has_markers: true,
    member: |index, url| Address::parse(index, url).map(|address| address.member),
    open: |index, url, setting| Ok(Arc::new(RedisNode::new(index, url, setting)?)),
    examine: examine::examine,
    init: init::init,
    forget: forget::forget,
    forget_number: forget::forget_number,
};

/// A Redis or Valkey server.
#[derive(Debug)]
pub(crate) struct RedisNode {
    link: Arc<Link>,
    capabilities: Capabilities,
}

impl RedisNode {
    /// The server behind `url`. Connecting begins at once, in the background.
    pub(crate) fn new(index: usize, url: &str, setting: &Setting) -> Result<Self, Error> {
        let address = Address::parse(index, url)?;
        let link = Arc::new(Link::new(&address, setting));
        setting.runtime.spawn(Box::pin(driver::drive(Arc::clone(&link), address, setting.clone())));
        Ok(Self { link, capabilities: capabilities(&setting.settings) })
    }
}

fn capabilities(settings: &Settings) -> Capabilities {
    let base = Duration::from_millis(2);
    match settings.dialect {
        // The clocks of the nodes do not matter, and those of the clients are compared.
        Dialect::Strict => Capabilities::new()
            .drift(Drift { base, per_mille: 10 })
            .margin(marker::clock_margin(settings))
            .by_wall_clock()
            .queues(),
        // A daemon that slews a clock to the right time may run it 8 % off for a while.
        Dialect::Redlock => {
            Capabilities::new().drift(Drift { base, per_mille: 100 }).fences_by_clock().queues()
        }
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

    /// Word comes for the client that the node was opened for, and for no other.
    fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        self.link.listen(client, node, inbox);
    }
}

impl Drop for RedisNode {
    fn drop(&mut self) {
        self.link.close();
    }
}
