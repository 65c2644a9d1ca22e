//! What the way a server is set up means for the locks on it, by their dialect.

use std::time::{Duration, SystemTime};

use super::connect::{evicts, field};
use super::dialect::RestsOn;
use super::options::RedisOptions;
use crate::admin::examine::{Examination, diagnose_clock, diagnose_marker, shown};
use crate::node::{Marker, Members};

const KEEP_EVERYTHING: &str = "set appendonly yes and appendfsync always; or start a server that has \
                               stopped only after the longest TTL, 30s by default, has passed";

/// Some dialects do without what a server forgets; others rest on it.
pub(super) fn persistence(
    examination: &mut Examination,
    info: &str,
    appendfsync: Option<&str>,
    save: Option<&str>,
    rests_on: RestsOn,
) {
    const CHECK: &str = "persistence";
    let appends = field(info, "aof_enabled") == Some("1");
    examination.flag("appendonly", appends);
    for (name, value) in [("appendfsync", appendfsync), ("save", save)] {
        examination.text(name, value.unwrap_or("not known"));
    }
    if field(info, "aof_last_write_status").is_some_and(|status| status != "ok") {
        let text = "it cannot write its file (aof_last_write_status)";
        return examination.error(
            CHECK,
            text,
            "free some space on its disk, and look into its log",
        );
    }
    match (appends, appendfsync, rests_on.quarantine) {
        (true, Some("always"), _) => {
            examination.ok(CHECK, "it forgets no lock, even if its machine crashes");
        }
        (_, _, Some(quarantine)) => {
            let text = format!(
                "it may forget locks when it stops; it casts no vote for {} after that, so that it \
                 does not matter",
                shown(quarantine)
            );
            examination.ok(CHECK, text);
        }
        (true, Some("everysec"), None) => examination.warn(
            CHECK,
            "if its machine crashes, it forgets the locks of the last second or two (appendfsync \
             everysec)",
            "set appendfsync always, or let such a machine come back only after the longest TTL",
        ),
        (true, Some(policy), None) => {
            let text = format!(
                "if its machine crashes, it forgets what the system had not written (appendfsync \
                 {policy})"
            );
            examination.warn(CHECK, text, "set appendfsync always");
        }
        (true, None, None) => examination.warn(
            CHECK,
            "whether it forgets locks if its machine crashes is not known: this user may not ask for \
             appendfsync",
            "let the user +config|get, or look yourself: it should be always",
        ),
        (false, _, None) => examination.warn(
            CHECK,
            "it forgets its locks when it stops (appendonly no), and two may hold one lock then",
            KEEP_EVERYTHING,
        ),
    }
}

/// A server that throws single keys away does not know that it has forgotten something.
pub(super) fn memory(examination: &mut Examination, info: &str, rests_on: RestsOn) {
    const CHECK: &str = "eviction";
    const REMEDY: &str = "set maxmemory-policy noeviction, or keep locks on a server of their own";
    let Some(policy) = evicts(info) else {
        return examination.ok(CHECK, "it throws no keys away");
    };
    let text = format!(
        "it throws keys away when its memory is full, locks among them (maxmemory-policy {policy})"
    );
    if rests_on.quarantine.is_some() {
        let text = format!("{text}, and is not asked for votes");
        examination.refuse(CHECK, text, REMEDY);
    } else {
        let text = format!("{text}, and two may hold one lock then");
        examination.warn(CHECK, text, REMEDY);
    }
}

/// Replicas and clusters promise what they do not keep.
pub(super) fn company(examination: &mut Examination, info: &str, rests_on: RestsOn) {
    let replicas = field(info, "connected_slaves").and_then(|n| n.parse().ok()).unwrap_or(0);
    examination.number("replicas", replicas);
    if let Some(quarantine) = rests_on.quarantine.filter(|_| replicas > 0) {
        let text = format!(
            "it has {replicas} replica(s); one that takes its place casts no vote for {}",
            shown(quarantine)
        );
        examination.ok("replicas", text);
    } else if replicas > 0 {
        examination.warn(
            "replicas",
            format!(
                "it has {replicas} replica(s); one that takes its place lacks the latest locks"
            ),
            "let nothing put a replica in its place by itself, or wait for the longest TTL before",
        );
    }
    let cluster = field(info, "cluster_enabled") == Some("1");
    examination.flag("cluster", cluster);
    if cluster {
        examination.warn(
            "cluster",
            "it belongs to a cluster, which moves keys and replaces servers by replicas",
            "name independent servers instead",
        );
    }
}

/// Whether the server votes, by its marker. One that has just been found to have forgotten something casts no vote
/// for `quarantine`.
pub(super) fn marker(
    examination: &mut Examination,
    marker: &Marker,
    ours: &Members,
    options: &RedisOptions,
    quarantine: Duration,
) {
    let how = (options.trust_new_nodes, options.prefix.as_slice());
    diagnose_marker(examination, marker, ours, how, quarantine);
}

/// The server's clock, and ours at the same moment, as far as a round trip lets that be known.
pub(super) fn clock(
    examination: &mut Examination,
    clocks: (SystemTime, SystemTime),
    round_trip: Duration,
    rests_on: RestsOn,
) {
    diagnose_clock(examination, clocks, round_trip, rests_on.clock_window);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;
    use crate::admin::examine::{Fact, Finding, Severity};
    use crate::node::{ClosedFor, MarkerState};

    const QUARANTINE: Duration = Duration::from_millis(30_500);

    fn rests_on(dialect: Dialect) -> RestsOn {
        dialect.rests_on(&RedisOptions::default(), Duration::from_secs(30))
    }

    fn diagnosed(diagnose: impl FnOnce(&mut Examination)) -> (Finding, bool, Examination) {
        let mut examination = Examination::new("x");
        diagnose(&mut examination);
        assert_eq!(examination.findings.len(), 1, "{examination:?}");
        let finding = examination.findings[0].clone();
        assert_eq!(finding.remedy.is_some(), finding.severity > Severity::Ok, "{finding:?}");
        (finding, examination.usable, examination)
    }

    fn clock_of(offset_ms: i64, round_trip_ms: u64, dialect: Dialect) -> (Severity, String, bool) {
        let ours = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let offset = Duration::from_millis(offset_ms.unsigned_abs());
        let server = if offset_ms < 0 { ours - offset } else { ours + offset };
        let (finding, usable, examination) = diagnosed(|examination| {
            let round_trip = Duration::from_millis(round_trip_ms);
            clock(examination, (server, ours), round_trip, rests_on(dialect));
        });
        assert_eq!(examination.fact("clock_offset_us"), Some(&Fact::Number(offset_ms * 1_000)));
        (finding.severity, finding.text, usable)
    }

    #[test]
    fn a_clock_is_off_only_beyond_what_the_round_trip_leaves_open() {
        let clock = |offset, round_trip| clock_of(offset, round_trip, Dialect::Redlock);
        assert_eq!(clock(100, 0).0, Severity::Ok);
        assert_eq!(clock(-150, 100).0, Severity::Ok);
        let (severity, text, usable) = clock(-151, 100);
        assert_eq!((severity, usable), (Severity::Warn, true));
        assert!(text.contains("151 ms behind"), "{text}");
        assert!(clock(5_000, 0).1.contains("5000 ms ahead"), "{}", clock(5_000, 0).1);
    }

    #[test]
    fn in_the_strict_dialect_the_window_decides() {
        for (offset, round_trip, severity, usable) in [
            (150, 0, Severity::Ok, true),
            (151, 0, Severity::Warn, true),
            (300, 0, Severity::Warn, true),
            (301, 0, Severity::Error, false),
            (310, 20, Severity::Warn, true),
            (-50, 0, Severity::Ok, true),
            (-51, 0, Severity::Warn, true),
            (-101, 0, Severity::Error, false),
        ] {
            let (found, text, votes) = clock_of(offset, round_trip, Dialect::Strict);
            assert_eq!((found, votes), (severity, usable), "{offset}: {text}");
            assert_eq!(text.contains("it casts no vote"), found > Severity::Ok, "{text}");
        }
    }

    #[test]
    fn persistence_is_diagnosed_by_what_a_crash_takes() {
        const ERROR: &str = "aof_enabled:1\naof_last_write_status:err";
        for (info, appendfsync, redlock, says, strict) in [
            ("aof_enabled:1", Some("always"), Severity::Ok, "forgets no lock", Severity::Ok),
            ("aof_enabled:1", Some("everysec"), Severity::Warn, "last second", Severity::Ok),
            ("aof_enabled:1", Some("no"), Severity::Warn, "appendfsync no", Severity::Ok),
            ("aof_enabled:1", None, Severity::Warn, "may not ask", Severity::Ok),
            ("aof_enabled:0", Some("always"), Severity::Warn, "appendonly no", Severity::Ok),
            (ERROR, Some("always"), Severity::Error, "cannot write", Severity::Error),
        ] {
            let of = |dialect| {
                diagnosed(|it| persistence(it, info, appendfsync, Some(""), rests_on(dialect))).0
            };
            let finding = of(Dialect::Redlock);
            assert_eq!(finding.severity, redlock, "{finding:?}");
            assert!(finding.text.contains(says), "{finding:?}");
            assert_eq!(of(Dialect::Strict).severity, strict, "{info}");
        }
    }

    #[test]
    fn eviction_keeps_a_server_from_voting_in_the_strict_dialect() {
        let info = "maxmemory:100\nmaxmemory_policy:allkeys-lru";
        let of = |dialect| diagnosed(|it| memory(it, info, rests_on(dialect)));
        let (finding, usable, _) = of(Dialect::Strict);
        assert_eq!((finding.severity, usable), (Severity::Error, false));
        let (finding, usable, _) = of(Dialect::Redlock);
        assert_eq!((finding.severity, usable), (Severity::Warn, true));
    }

    #[test]
    fn a_server_votes_by_its_marker() {
        let members = |names: &[&str], max_ttl| {
            let names = names.iter().map(|name| (*name).to_owned());
            Members::new(names, Duration::from_secs(max_ttl), Duration::from_millis(300))
        };
        let ours = members(&["a:1", "b:1"], 30);
        let with = |state, of: &Members| Marker {
            members: Some(of.clone()),
            ..Marker::without_set(b"x".to_vec(), state)
        };
        let formed = with(MarkerState::Formed, &ours);
        let early = Marker { left: Duration::from_secs(2), ..formed.clone() };
        let forming = Marker { state: MarkerState::Forming, ..early.clone() };
        let restarted = Marker { restarted: true, ..formed.clone() };
        let closed_for = Some(ClosedFor { digest: ours.digest().to_owned(), members: 2 });
        let others = members(&["a:1", "c:1"], 30);
        let closed = Marker { closed_for, ..with(MarkerState::Closed, &others) };
        for (marked, severity, usable, quarantine_ms, says) in [
            (formed, Severity::Ok, true, 0, "votes"),
            (
                Marker::without_set(Vec::new(), MarkerState::Absent),
                Severity::Error,
                false,
                30_500,
                "it has no mark",
            ),
            (restarted, Severity::Error, false, 30_500, "was restarted"),
            (early, Severity::Error, false, 2_000, "for another 2000 ms"),
            (forming, Severity::Error, false, 2_000, "its set of nodes is new"),
            (
                with(MarkerState::Formed, &members(&["a:1", "b:1"], 20)),
                Severity::Error,
                false,
                0,
                "a max_ttl of 20s",
            ),
            (
                with(MarkerState::Formed, &others),
                Severity::Error,
                false,
                0,
                "belongs to the set of nodes a:1, c:1, and this client was given a:1, b:1",
            ),
            (closed, Severity::Error, false, 0, "a:1, b:1 was replaced by a:1, c:1"),
        ] {
            let (finding, votes, examination) = diagnosed(|it| {
                marker(it, &marked, &ours, &RedisOptions::default(), QUARANTINE);
            });
            assert_eq!((finding.severity, votes), (severity, usable), "{finding:?}");
            assert!(finding.text.contains(says), "{finding:?}");
            assert_eq!(examination.fact("quarantine_ms"), Some(&Fact::Number(quarantine_ms)));
        }
        let trusting = RedisOptions::default().trust_new_nodes(true);
        let absent = Marker::without_set(Vec::new(), MarkerState::Absent);
        let (finding, usable, _) =
            diagnosed(|it| marker(it, &absent, &ours, &trusting, QUARANTINE));
        assert_eq!((finding.severity, usable), (Severity::Warn, true));
    }
}
