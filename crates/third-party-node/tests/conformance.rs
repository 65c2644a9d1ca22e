//! The suite that every kind of node has to pass. What this one lacks by its own word is skipped aloud.

use std::sync::Arc;

use quorlock::node::{ClientId, Node};
use quorlock_testkit::conformance;
use quorlock_testkit::conformance::Backend;
use third_party_node::Registry;

struct Sessions(Arc<Registry>);

impl Backend for Sessions {
    async fn open(&self, _client: ClientId) -> Arc<dyn Node> {
        self.0.connect()
    }

    /// A session ends with its handle.
    async fn gone(&self, _client: ClientId) {}

    fn kept(&self) -> usize {
        self.0.kept()
    }
}

fn registry() -> Sessions {
    Sessions(Registry::new())
}

conformance!(registry, super::registry());
