//! Looking nodes over: what they are, and what is wrong with them.
//!
//! ```text
//!   Admin::examine ────▶ each node ──┬── what it says of itself    node/KIND/examine      
//!                                    └── a lock is tried out       trial
//!                    ──▶ all of them together                      quorum
//! ```
//!
//! All of it goes over connections of its own, which are closed when it is done. The lock that is
//! tried out has a random name, is released, and is forgotten. Nodes that may have forgotten locks, and that
//! nobody has met since, are left as every client leaves them: the time begins after which they vote.

#![cfg_attr(
    not(feature = "redis"),
    allow(dead_code, unused_imports, reason = "other kinds of nodes have less to tell")
)]

mod quorum;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
mod server;
mod trial;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::Error;
use crate::admin::members;
use crate::name::Name;
use crate::node::{self, Capabilities, Failure, FailureKind, Node, NodeContext};
use crate::runtime::BoxFuture;
use crate::settings::Settings;
use quorlock_protocol::{Carries, Quorum};
pub(crate) use quorum::diagnose_round_trips;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
pub(crate) use server::{diagnose_clock, diagnose_marker};
pub(crate) use trial::Unnotified;

/// What was found, from [`Admin::examine`](crate::admin::Admin::examine).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Checkup {
    /// Each node, in the order in which they were named.
    pub nodes: Vec<Examination>,
    /// What concerns all of them.
    pub findings: Vec<Finding>,
    /// How many nodes a lock needs.
    pub needed: usize,
    /// How many can be used. One server behind two URLs counts once.
    pub usable: usize,
    /// The settings that they were looked at with, as they fit these nodes.
    pub settings: Settings,
}

/// One node, looked over.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Examination {
    /// Its address without secrets.
    pub node: String,
    /// Whether a lock can be taken, kept and released there.
    pub usable: bool,
    /// What it is, by name. Units stand last in the names.
    pub facts: Vec<(&'static str, Fact)>,
    /// What is right and wrong with it.
    pub findings: Vec<Finding>,
    /// It may have forgotten something, and no client has met it since.
    pub(crate) waits_for_contact: bool,
    /// It is seen by this machine alone.
    pub(crate) is_local: bool,
    /// What it can do, once it has been ready.
    pub(crate) capabilities: Option<Capabilities>,
}

/// What is said of whether a node votes.
pub(crate) const MARKER: &str = "marker";

/// Something that is known of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fact {
    /// A word or a sentence.
    Text(String),
    /// A count, or so many units.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

/// Something that was looked at, and how it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What was looked at: a name for programs, which stays the same.
    pub check: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// How it stands.
    pub text: String,
    /// What to do about it, unless the text says so.
    pub remedy: Option<String>,
}

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// As it should be.
    Ok,
    /// It works, but not always, or not well.
    Warn,
    /// It does not work, or two may hold one lock.
    Error,
}

impl Checkup {
    /// The worst of all findings.
    #[must_use]
    pub fn severity(&self) -> Severity {
        let all = self.nodes.iter().flat_map(|node| &node.findings).chain(&self.findings);
        all.map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
    }

    /// Whether something was found that no node can help with: the list of nodes itself is wrong.
    #[must_use]
    pub fn is_misuse(&self) -> bool {
        self.findings.iter().any(|finding| finding.check == quorum::DUPLICATE)
    }
}

impl Examination {
    pub(crate) fn new(node: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            usable: true,
            facts: Vec::new(),
            findings: Vec::new(),
            waits_for_contact: false,
            is_local: false,
            capabilities: None,
        }
    }

    /// What is known by that name.
    #[must_use]
    pub fn fact(&self, name: &str) -> Option<&Fact> {
        self.facts.iter().find(|(other, _)| *other == name).map(|(_, fact)| fact)
    }

    pub(crate) fn text(&mut self, name: &'static str, text: impl Into<String>) {
        self.facts.push((name, Fact::Text(text.into())));
    }

    pub(crate) fn flag(&mut self, name: &'static str, flag: bool) {
        self.facts.push((name, Fact::Flag(flag)));
    }

    pub(crate) fn number(&mut self, name: &'static str, number: impl TryInto<i64>) {
        self.facts.push((name, Fact::Number(number.try_into().unwrap_or(i64::MAX))));
    }

    pub(crate) fn ok(&mut self, check: &'static str, text: impl Into<String>) {
        self.findings.push(Finding::new(check, Severity::Ok, text));
    }

    pub(crate) fn warn(&mut self, check: &'static str, text: impl Into<String>, remedy: &str) {
        self.findings.push(Finding::new(check, Severity::Warn, text).remedy(remedy));
    }

    pub(crate) fn error(&mut self, check: &'static str, text: impl Into<String>, remedy: &str) {
        self.findings.push(Finding::new(check, Severity::Error, text).remedy(remedy));
    }

    /// The node cannot be used for that reason.
    pub(crate) fn refuse(&mut self, check: &'static str, text: impl Into<String>, remedy: &str) {
        self.usable = false;
        self.error(check, text, remedy);
    }

    /// The node cannot be used.
    pub(crate) fn fail(&mut self, why: &Failure) {
        self.usable = false;
        let remedy = match why.kind() {
            FailureKind::Unreachable | FailureKind::Silent => {
                "start it, or mend the network between; if it is gone for good, put another in its \
                 place, on all machines at once"
            }
            // Such a failure says itself what to do.
            _ => "",
        };
        self.error("usable", why.to_string(), remedy);
    }
}

impl Finding {
    pub(crate) fn new(check: &'static str, severity: Severity, text: impl Into<String>) -> Self {
        Self { check, severity, text: text.into(), remedy: None }
    }

    pub(crate) fn remedy(mut self, remedy: &str) -> Self {
        self.remedy = (!remedy.is_empty()).then(|| remedy.to_owned());
        self
    }
}

/// Looks at the nodes behind the URLs, and at those of the caller's own making.
pub(crate) async fn examine(
    urls: &[String],
    nodes: &[Arc<dyn Node>],
    quorum: Quorum,
    context: &NodeContext,
    name: &[u8],
) -> Result<Checkup, Error> {
    let mut under_way: Vec<BoxFuture<'_, Examination>> = Vec::new();
    for (index, url) in urls.iter().enumerate() {
        // Each for itself: that two URLs lead to one server is reported in the end.
        let context = NodeContext { servers: Arc::default(), ..context.clone() };
        under_way.push(node::examine(index, url, &context, name)?);
    }
    for node in nodes {
        let (node, context) = (Arc::clone(node), context.clone());
        let examination = Examination::new(node.label());
        let name = name.to_vec();
        under_way.push(Box::pin(async move {
            let mut examination = examination;
            trial::run(&mut examination, &node, &context, &name, Unnotified::Expected).await;
            examination
        }));
    }
    let mut examined = all(under_way).await;
    for (node, url) in examined.iter_mut().zip(urls) {
        node.is_local = node::is_local(url);
    }
    if examined.iter().any(|node| node.waits_for_contact) {
        begin(&mut examined, urls, nodes, context).await?;
    }
    Ok(quorum::diagnose(examined, quorum, context.settings.clone()))
}

/// Begins the time without votes of nodes that nobody has found yet as they are, and says when it ends, or why it
/// cannot begin.
async fn begin(
    examined: &mut [Examination],
    urls: &[String],
    nodes: &[Arc<dyn Node>],
    context: &NodeContext,
) -> Result<(), Error> {
    let context = NodeContext { servers: Arc::default(), ..context.clone() };
    let known = members::begin(urls, nodes, &context).await?;
    let waiting = examined.iter_mut().zip(&known).filter(|(node, _)| node.waits_for_contact);
    for (node, known) in waiting {
        let counts = match known {
            Ok(Some(marker)) => match marker.carries(&context.members) {
                Carries::Formed { .. } => {
                    format!("it votes in {}, which begin with this look", shown(marker.left))
                }
                Carries::Forming { .. } => format!(
                    "it votes in {}, which begin with this look, if all nodes are there then",
                    shown(marker.left)
                ),
                _ => "nothing counts yet: all nodes have to be there, so that the time until it votes begins"
                    .to_owned(),
            },
            Ok(None) => continue,
            Err(why) => format!("nothing counts yet: the time until it votes cannot begin: {why}"),
        };
        if let Some(finding) = node.findings.iter_mut().find(|finding| finding.check == MARKER) {
            finding.text = format!("{}; {counts}", finding.text);
        }
    }
    Ok(())
}

/// Tries a lock out on a node that was opened for it. Returns its name, if it got so far.
pub(crate) async fn try_out(
    examination: &mut Examination,
    opened: Result<Arc<dyn Node>, Error>,
    context: &NodeContext,
    name: &[u8],
    unnotified: Unnotified,
) -> Option<Name> {
    match opened {
        Ok(node) => trial::run(examination, &node, context, name, unnotified).await,
        Err(error) => {
            examination.fail(&Failure::new(FailureKind::Unfit, error.to_string()));
            None
        }
    }
}

pub(crate) async fn all<T>(mut futures: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (slot, future) in done.iter_mut().zip(&mut futures) {
            if slot.is_none()
                && let Poll::Ready(value) = future.as_mut().poll(cx)
            {
                *slot = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// A duration as people read it, to three digits or so.
pub(crate) fn shown(duration: Duration) -> String {
    match duration.as_micros() {
        micros @ 0..1_000 => format!("{micros} µs"),
        micros @ 1_000..100_000 => format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100),
        micros @ 100_000..10_000_000 => format!("{} ms", micros / 1_000),
        micros => format!("{} s", micros / 1_000_000),
    }
}
