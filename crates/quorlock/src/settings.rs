//! Every default, and the rules between them, in one place.

use std::time::Duration;

use crate::Error;
use crate::name::Name;
use crate::node::{Capabilities, RecordEnd, TtlRange};
use quorlock_protocol::{Backoff, Drift, Quorum, Terms, Upkeep};

/// The shortest TTL: below it the grain of clocks and timers eats the whole lease.
pub const MIN_TTL: Duration = Duration::from_millis(10);

/// The longest default time limit of a node. Nobody waits so long for one that hangs while a majority answers; and a
/// majority that is silent for less need not be down, but has much to do, as this machine may have.
const DEFAULT_NODE_LIMIT: Duration = Duration::from_millis(200);
/// By default a node gets this share of the TTL at the most.
const DEFAULT_NODE_SHARE: u32 = 20;
/// By default a holder is notified of its loss this share of the TTL before the end.
const DEFAULT_LEAD_SHARE: u32 = 20;
/// What a caller may set goes up to this share: a round has to end long before its lease does.
const LARGEST_NODE_SHARE: u32 = 5;

/// The most holders of one process in a row. Each has a fence, and a new locker, which knows of none that was
/// given out yet, reserves so many with its first lock. That it takes longer than so many microseconds to be
/// greeted by a server is what keeps fences from getting ahead of the clock.
pub const MAX_LOCAL_TURNS: u16 = 128;

/// What a [`Builder`](crate::Builder) starts from; each field is a method there.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// How long a node keeps a record unless it is extended. Default: 10 s.
    pub ttl: Duration,
    /// The longest TTL that may be asked for. Default: 30 s.
    pub max_ttl: Duration,
    /// How long a node may be silent before nobody waits for it any longer; twice what it has lately taken to
    /// answer, if that is more. Default: 200 ms, or a twentieth of the TTL if that is less.
    pub node_limit: Duration,
    /// How long one attempt to connect to a node may take. Default: 1 s.
    pub connect_limit: Duration,
    /// How far clocks may run apart during one lease. Default: what the nodes ask for. On Redis 2 ms and 1 % of the
    /// TTL, or 10 % in the `redlock` dialect.
    pub drift: Drift,
    /// How long before the end of the validity a holder is notified of its loss. Default: a twentieth
    /// of the TTL.
    pub loss_lead: Duration,
    /// How often a lock may be extended. Default: without limit.
    pub max_extensions: Option<u32>,
    /// How long a lock may be held with all its extensions. Default: without limit.
    pub max_hold: Option<Duration>,
    /// What the nodes take off the end of the validity besides.
    pub margin: Duration,
    /// The widest spread of the random delay between two attempts. Default: 200 ms.
    pub retry: Backoff,
    /// How many holders of one process in a row may have a lock before it is offered to others.
    /// Default: 16, and at most [`MAX_LOCAL_TURNS`].
    pub local_turns: u16,
    /// Whether each holder has a [fence](crate::Guard::fence). Default: yes.
    pub fences: bool,
    /// What TTLs all nodes can keep, and whether some of them end records with the session of their client.
    pub(crate) ttls: TtlRange,
    pub(crate) sessions: bool,
    /// Put before each name on the nodes: names are checked together with it.
    pub(crate) name_prefix: Vec<u8>,
    /// Whether a node without a marker is taken for a new one.
    pub(crate) trust_new_nodes: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let ttl = Duration::from_secs(10);
        Self {
            ttl,
            max_ttl: Duration::from_secs(30),
            node_limit: default_node_limit(ttl),
            connect_limit: Duration::from_secs(1),
            loss_lead: default_loss_lead(ttl),
            max_extensions: None,
            max_hold: None,
            drift: Drift { base: Duration::ZERO, per_mille: 0 },
            margin: Duration::ZERO,
            retry: Backoff { longest: Duration::from_millis(200) },
            local_turns: 16,
            fences: true,
            ttls: TtlRange::ANY,
            sessions: false,
            name_prefix: Vec::new(),
            trust_new_nodes: false,
        }
    }
}

/// How long one lock is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keep {
    /// Whether it is extended without its holder asking for it.
    pub(crate) renew: bool,
    pub(crate) max_extensions: Option<u32>,
    pub(crate) max_hold: Option<Duration>,
}

impl Keep {
    /// Whether it is kept for as long as its holder wants.
    pub(crate) fn without_end(self) -> bool {
        self.renew && self.max_extensions.is_none() && self.max_hold.is_none()
    }
}

pub(crate) fn default_node_limit(ttl: Duration) -> Duration {
    DEFAULT_NODE_LIMIT.min(ttl / DEFAULT_NODE_SHARE)
}

pub(crate) fn default_loss_lead(ttl: Duration) -> Duration {
    ttl / DEFAULT_LEAD_SHARE
}

impl Settings {
    /// All rules that hold between settings.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.ttl.is_zero() {
            // Before what follows from it, such as the time limit of a node.
            return self.check_ttl(self.ttl);
        }
        for (what, value) in
            [("node time limit", self.node_limit), ("connect time limit", self.connect_limit)]
        {
            if value.is_zero() {
                return Err(Error::misuse(
                    format!("the {what} is zero"),
                    "give nodes some time to answer, such as 50 ms",
                ));
            }
        }
        if self.local_turns > MAX_LOCAL_TURNS {
            return Err(Error::misuse(
                format!(
                    "{} turns of one process in a row are more than the {MAX_LOCAL_TURNS} that there may be: \
                     each reserves a fence, and fences must not outrun the clock",
                    self.local_turns
                ),
                format!("use at most {MAX_LOCAL_TURNS} local_turns"),
            ));
        }
        self.check_keep(self.keep())?;
        self.check_ttl(self.ttl)
    }

    /// Makes room for what the nodes ask for. `node_limit` is what the caller has chosen.
    pub(crate) fn fit(&mut self, needs: &[Capabilities], node_limit: Option<Duration>) {
        for needs in needs {
            self.margin = self.margin.max(needs.margin);
            self.drift.base = self.drift.base.max(needs.drift.base);
            self.drift.per_mille = self.drift.per_mille.max(needs.drift.per_mille);
            self.ttls = self.ttls.and(needs.ttls);
            self.sessions |= needs.records_end == RecordEnd::Session;
            if node_limit.is_none()
                && let Some(usual) = needs.usual_limit
            {
                let most = self.ttl / LARGEST_NODE_SHARE;
                self.node_limit = self.node_limit.max(usual.min(most));
            }
        }
    }

    /// Fails where records cannot outlive the client that took them: `what` needs that.
    pub(crate) fn check_outlives(&self, what: &str) -> Result<(), Error> {
        if !self.sessions {
            return Ok(());
        }
        Err(Error::misuse(
            format!("{what}, but the records of this node end with the session of their client"),
            "hold the lock in one process (`quorlock run`), or use a node that keeps records by their TTL",
        ))
    }

    /// Checks a name of a lock with these settings.
    pub(crate) fn name(&self, name: impl AsRef<[u8]>) -> Result<Name, Error> {
        Name::behind(&self.name_prefix, name)
    }

    /// What a lease of `ttl` is worth.
    pub(crate) fn terms(&self, ttl: Duration) -> Terms {
        Terms { ttl, drift: self.drift, margin: self.margin }
    }

    /// How a lease of `ttl` is looked after that is extended without end.
    pub(crate) fn upkeep(&self, ttl: Duration) -> Upkeep {
        Upkeep::renewing(&self.terms(ttl), self.node_limit, self.loss_lead)
    }

    /// How a lock is kept that asks for nothing else.
    pub(crate) fn keep(&self) -> Keep {
        Keep { renew: true, max_extensions: self.max_extensions, max_hold: self.max_hold }
    }

    /// The rules for keeping one lock.
    pub(crate) fn check_keep(&self, keep: Keep) -> Result<(), Error> {
        match keep.max_hold {
            Some(hold) if hold <= self.loss_lead => Err(Error::misuse(
                format!(
                    "a lock that may be held for {hold:?} at the most, and whose end is told {:?} before, is lost \
                     at once",
                    self.loss_lead
                ),
                "allow it to be held for longer, or have its end told later",
            )),
            _ => Ok(()),
        }
    }

    /// The rules for one TTL, be it the default or that of a single lock.
    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<(), Error> {
        if ttl < MIN_TTL {
            return Err(Error::misuse(
                format!("a TTL of {ttl:?} is too short to be of use"),
                format!("use at least {MIN_TTL:?}"),
            ));
        }
        let TtlRange { shortest, longest, .. } = self.ttls;
        if ttl < shortest || ttl > longest {
            return Err(Error::misuse(
                format!("a TTL of {ttl:?} is outside of what the nodes can keep"),
                match longest {
                    Duration::MAX => format!("use one of {shortest:?} or more"),
                    longest => format!("use one from {shortest:?} to {longest:?}"),
                },
            ));
        }
        if ttl > self.max_ttl {
            return Err(Error::misuse(
                format!("a TTL of {ttl:?} is above the maximum of {:?}", self.max_ttl),
                "use a shorter one and extend it, or raise max_ttl",
            ));
        }
        if self.node_limit > ttl / LARGEST_NODE_SHARE {
            return Err(Error::misuse(
                format!(
                    "a node time limit of {:?} is not far below the TTL of {ttl:?}",
                    self.node_limit
                ),
                format!("use at most {:?} for it, or a longer TTL", ttl / LARGEST_NODE_SHARE),
            ));
        }
        let validity = self.terms(ttl).validity();
        if validity <= self.node_limit {
            return Err(Error::misuse(
                format!(
                    "a TTL of {ttl:?} less {:?} for clocks that differ leaves {validity:?}, which the \
                     node time limit of {:?} uses up",
                    self.drift.of(ttl).saturating_add(self.margin),
                    self.node_limit
                ),
                "use a longer TTL, or smaller allowances for clocks",
            ));
        }
        if self.loss_lead >= validity {
            return Err(Error::misuse(
                format!(
                    "to be told of a loss {:?} before it leaves nothing of the {validity:?} for which a TTL of \
                     {ttl:?} is valid",
                    self.loss_lead
                ),
                "have it told later, or use a longer TTL",
            ));
        }
        Ok(())
    }

    /// A warning for a number of nodes that is allowed, but wasteful.
    pub(crate) fn warning_for(quorum: Quorum) -> Option<String> {
        let nodes = quorum.nodes();
        nodes.is_multiple_of(2).then(|| {
            format!(
                "{nodes} nodes survive the loss of {}, no more than {} would: \
                 an odd number of nodes is better",
                quorum.may_fail(),
                nodes - 1
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = Settings::default();
        change(&mut settings);
        settings.check().unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_fit_together() {
        Settings::default().check().unwrap();
    }

    #[test]
    fn refusals_name_both_values_and_a_remedy() {
        let short = refusal(|s| s.ttl = Duration::from_millis(9));
        assert!(short.contains("9ms") && short.contains("at least 10ms"), "{short}");
        let zero = refusal(|s| (s.ttl, s.node_limit) = (Duration::ZERO, Duration::ZERO));
        assert!(zero.contains("a TTL of 0ns") && zero.contains("at least 10ms"), "{zero}");
        let long = refusal(|s| s.ttl = Duration::from_secs(31));
        assert!(long.contains("31s") && long.contains("30s") && long.contains("max_ttl"), "{long}");
        let slow = refusal(|s| s.node_limit = Duration::from_secs(3));
        assert!(slow.contains("3s") && slow.contains("10s") && slow.contains("2s"), "{slow}");
        let drift = refusal(|s| s.drift.per_mille = 999);
        assert!(drift.contains("9.99s") && drift.contains("longer TTL"), "{drift}");
        let lead = refusal(|s| s.loss_lead = Duration::from_secs(11));
        assert!(lead.contains("11s") && lead.contains("told later"), "{lead}");
        let hold = refusal(|s| s.max_hold = Some(Duration::from_millis(300)));
        assert!(hold.contains("300ms") && hold.contains("500ms"), "{hold}");
        let turns = refusal(|s| s.local_turns = 129);
        assert!(turns.contains("129 turns") && turns.contains("at most 128"), "{turns}");
        let zero = refusal(|s| s.connect_limit = Duration::ZERO);
        assert!(zero.contains("connect time limit is zero"), "{zero}");
    }

    #[test]
    fn the_node_limit_follows_a_short_ttl() {
        assert_eq!(default_node_limit(Duration::from_secs(30)), Duration::from_millis(200));
        assert_eq!(default_node_limit(Duration::from_secs(3)), Duration::from_millis(150));
        assert_eq!(default_node_limit(Duration::from_millis(100)), Duration::from_millis(5));
    }

    #[test]
    fn an_even_number_of_nodes_is_warned_about_and_says_why() {
        let warning = |nodes| Settings::warning_for(Quorum::of(nodes).unwrap());
        assert!(warning(3).is_none() && warning(1).is_none());
        let two = warning(2).unwrap();
        assert!(two.contains("survive the loss of 0, no more than 1 would"), "{two}");
    }
}
