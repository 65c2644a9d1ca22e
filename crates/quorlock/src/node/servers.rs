//! Which server stands behind which node.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::locked::locked;

/// The identities of the servers that the nodes of one locker are connected to.
///
/// Two URLs of one server would give it two votes: its loss alone could then cost a majority, and
/// two clients could each win with it and one other. The first node to name a server keeps it.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    by_identity: Mutex<BTreeMap<String, (usize, String)>>,
}

impl Servers {
    /// Says that a node is connected to the server with that identity. If another one already is,
    /// that one's label is the error.
    pub(crate) fn claim(&self, identity: &str, node: usize, label: &str) -> Result<(), String> {
        let mut by_identity = locked(&self.by_identity);
        let holder =
            by_identity.entry(identity.to_owned()).or_insert_with(|| (node, label.to_owned()));
        if holder.0 == node { Ok(()) } else { Err(holder.1.clone()) }
    }

    /// `node` has lost its connection: another may be led to that server now.
    pub(crate) fn give_up(&self, identity: &str, node: usize) {
        let mut by_identity = locked(&self.by_identity);
        if by_identity.get(identity).is_some_and(|holder| holder.0 == node) {
            by_identity.remove(identity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_one_node_until_that_one_gives_it_up() {
        let servers = Servers::default();
        servers.claim("run-1", 0, "a").unwrap();
        servers.claim("run-1", 0, "a").unwrap();
        // The very same URL twice is still two nodes.
        assert_eq!(servers.claim("run-1", 1, "a").unwrap_err(), "a");
        servers.give_up("run-1", 1);
        assert_eq!(servers.claim("run-1", 1, "a").unwrap_err(), "a");
        servers.give_up("run-1", 0);
        servers.claim("run-1", 1, "a").unwrap();
    }
}
