//! What a node takes from its locker.

use std::sync::Arc;

use super::servers::Servers;
use super::url::member;
use super::{ClientId, Members, Node, NodeOptions};
use crate::Error;
use crate::drive::Set;
use crate::runtime::Runtime;
use crate::settings::Settings;

/// What a node takes from its locker.
#[derive(Debug, Clone)]
pub(crate) struct NodeContext {
    pub(crate) settings: Settings,
    /// What was set for the nodes of one kind alone, and what their URLs say of it.
    pub(crate) options: NodeOptions,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) servers: Arc<Servers>,
    /// The client that grant messages go to.
    pub(crate) client: ClientId,
    /// The set of nodes that all clients have to agree on.
    pub(crate) members: Members,
    /// Whether a node without a marker is taken for a new one.
    pub(crate) trusting: bool,
}

impl NodeContext {
    /// For the nodes behind these URLs, and others of the user's own making.
    pub(crate) fn new(
        urls: &[impl AsRef<str>],
        own: &[Arc<dyn Node>],
        settings: &Settings,
        options: &NodeOptions,
        runtime: &Arc<dyn Runtime>,
        client: ClientId,
    ) -> Result<Self, Error> {
        let mut options = options.clone();
        let terms = options.resolve(urls, !own.is_empty(), settings)?;
        let named = urls.iter().enumerate().map(|(index, url)| member(index, url.as_ref()));
        let own = own.iter().map(|node| Ok(node.label().to_owned()));
        let names = named.chain(own).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            settings: settings.clone(),
            options,
            trusting: terms.trusts_new_nodes,
            runtime: Arc::clone(runtime),
            servers: Arc::default(),
            client,
            members: Members::new(names, settings.max_ttl, terms.clock_ahead),
        })
    }

    /// The set of nodes of which these are some or all.
    pub(crate) fn set<'a>(&'a self, nodes: &'a [Arc<dyn Node>]) -> Set<'a> {
        Set {
            nodes,
            members: &self.members,
            quorum: self.members.quorum(),
            runtime: &*self.runtime,
            trusting: self.trusting,
            former: &[],
        }
    }
}
