//! What can only be seen with all nodes side by side.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Checkup, Examination, Fact, Finding, Severity, shown};
use crate::clocks;
use crate::settings::Settings;
use quorlock_protocol::Quorum;

/// One server stands behind two URLs.
pub(super) const DUPLICATE: &str = "duplicate";

pub(super) fn diagnose(
    mut nodes: Vec<Examination>,
    quorum: Quorum,
    mut settings: Settings,
) -> Checkup {
    let needs: Vec<_> = nodes.iter().filter_map(|node| node.capabilities).collect();
    settings.fit(&needs, None);
    let mut findings = Vec::new();
    duplicates(&mut nodes, &mut findings);
    let usable = nodes.iter().filter(|node| node.usable).count();
    findings.push(quorum_of(usable, quorum, is_cluster(&nodes)));
    findings.extend(class_of(&nodes, quorum));
    if let Some(warning) = Settings::warning_for(quorum) {
        let remedy = "add a node, or take one away, on all machines at once";
        findings.push(Finding::new("even", Severity::Warn, warning).remedy(remedy));
    }
    findings.extend(settings_of(&nodes));
    findings.extend(clock_of_this_machine(&nodes));
    if nodes.len() > 1 && nodes.iter().any(|node| node.is_local) {
        let text = "a file is seen by this machine alone, so that other machines count other votes";
        let finding = Finding::new("mixed", Severity::Warn, text);
        findings.push(finding.remedy("name the file alone, or servers only"));
    }
    Checkup { nodes, findings, needed: quorum.enough(), usable, settings }
}

fn text<'a>(node: &'a Examination, name: &str) -> Option<&'a str> {
    match node.fact(name) {
        Some(Fact::Text(text)) => Some(text),
        _ => None,
    }
}

/// Two votes of one server are one: the later node loses its own.
fn duplicates(nodes: &mut [Examination], findings: &mut Vec<Finding>) {
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for node in nodes {
        let Some(identity) = text(node, "identity") else { continue };
        if let Some(first) = seen.get(identity) {
            let text = format!("{} is the same server as {first}", node.node);
            let remedy = "name every server once: two votes of one server are no majority";
            findings.push(Finding::new(DUPLICATE, Severity::Error, text).remedy(remedy));
            node.usable = false;
        } else {
            seen.insert(identity.to_owned(), node.node.clone());
        }
    }
}

/// Nodes that serve clients with different settings never vote for the same one.
fn settings_of(nodes: &[Examination]) -> Option<Finding> {
    let mut served: BTreeMap<(i64, i64), Vec<&str>> = BTreeMap::new();
    for node in nodes {
        if let (Some(max_ttl), Some(ahead)) =
            (number(node, "max_ttl_ms"), number(node, "clock_ahead_ms"))
        {
            served.entry((max_ttl, ahead)).or_default().push(&node.node);
        }
    }
    if served.len() < 2 {
        return None;
    }
    let served = served.iter().map(|((max_ttl, ahead), nodes)| {
        let nodes = nodes.join(", ");
        format!("a max_ttl of {max_ttl} ms and a clock_ahead of {ahead} ms on {nodes}")
    });
    let text = format!(
        "the nodes serve clients with different settings: {}",
        served.collect::<Vec<_>>().join("; ")
    );
    let remedy = "use the same everywhere, stop all clients and run quorlock init --force";
    Some(Finding::new("settings", Severity::Error, text).remedy(remedy))
}

/// Nodes whose clocks are wrong by the same time are right.
fn clock_of_this_machine(nodes: &[Examination]) -> Option<Finding> {
    const CHECK: &str = "clock";
    let found = nodes.iter().flat_map(|node| &node.findings).filter(|found| found.check == CHECK);
    let severity = found.map(|found| found.severity).max().filter(|found| *found > Severity::Ok)?;
    let offsets: Vec<_> = nodes.iter().filter_map(|node| number(node, "clock_offset_us")).collect();
    let ahead_us = clocks::in_common(&offsets)?;
    let side = clocks::of_this_machine(ahead_us);
    let off = shown(Duration::from_micros(ahead_us.unsigned_abs()));
    let text = format!(
        "the clocks of all {} nodes that tell their time agree: it is the clock of this machine that is {off} {side}",
        offsets.len()
    );
    let remedy = "set the clock of this machine right, and let a daemon such as chrony keep it; leave those of the nodes";
    Some(Finding::new(CHECK, severity, text).remedy(remedy))
}

fn number(node: &Examination, name: &str) -> Option<i64> {
    match node.fact(name) {
        Some(Fact::Number(number)) => Some(*number),
        _ => None,
    }
}

/// What the nodes are together, and what that means for a lock. A cluster says so by itself.
fn class_of(nodes: &[Examination], quorum: Quorum) -> Option<Finding> {
    let is = |name, value| nodes.iter().all(|node| text(node, name) == Some(value));
    let text = if is("kind", "sqlite") && nodes.len() == 1 {
        "one machine: a file, whose locks no other machine sees".to_owned()
    } else if is("kind", "redis") {
        let count = quorum.nodes();
        let what = match count {
            1 => "one Redis server, and no lock without it".to_owned(),
            _ => format!(
                "{count} independent Redis servers; survives the loss of {}",
                quorum.may_fail()
            ),
        };
        let forgets = if is("dialect", "strict") {
            "one that may have forgotten locks casts no vote for a while"
        } else {
            "one that forgets locks can let a second holder in"
        };
        format!("AP: {what}; {forgets}")
    } else if is("kind", "postgres") {
        let count = quorum.nodes();
        let what = match count {
            1 => "one PostgreSQL database, and no lock without its primary".to_owned(),
            _ => format!(
                "{count} independent PostgreSQL databases; survives the loss of {}",
                quorum.may_fail()
            ),
        };
        format!("AP: {what}; one that may have forgotten locks casts no vote for a while")
    } else {
        return None;
    };
    Some(Finding::new("class", Severity::Ok, text))
}

/// Whether the only node is a cluster, which counts its own majorities.
fn is_cluster(nodes: &[Examination]) -> bool {
    matches!(nodes, [node] if number(node, "cluster_members").is_some())
}

fn quorum_of(usable: usize, quorum: Quorum, is_cluster: bool) -> Finding {
    let (nodes, enough) = (quorum.nodes(), quorum.enough());
    let Some(spare) = usable.checked_sub(enough) else {
        let text = format!("{usable} of {nodes} nodes can be used, and {enough} are needed");
        let remedy = "mend the nodes below; until then nobody gets a lock";
        return Finding::new("quorum", Severity::Error, text).remedy(remedy);
    };
    let text = match (nodes, spare) {
        (1, _) if is_cluster => "the cluster can be used".to_owned(),
        (1, _) => "the only node can be used; while it is down, nobody gets a lock".to_owned(),
        (_, 0) => format!("{usable} of {nodes} nodes can be used, all of which are needed"),
        _ => format!("{usable} of {nodes} nodes can be used, and {spare} of them may fail"),
    };
    if spare < quorum.may_fail() {
        let remedy = "mend the nodes below";
        return Finding::new("quorum", Severity::Warn, text).remedy(remedy);
    }
    Finding::new("quorum", Severity::Ok, text)
}

/// Keeps the shortest round trip and the one in the middle, and says how that compares with the time limits.
pub(crate) fn diagnose_round_trips(
    examination: &mut Examination,
    mut samples: Vec<Duration>,
    settings: &Settings,
) {
    samples.sort_unstable();
    let [shortest, ..] = samples[..] else { return };
    let median = samples[samples.len() / 2];
    examination.number("round_trip_min_us", shortest.as_micros());
    examination.number("round_trip_median_us", median.as_micros());
    diagnose_round_trip(examination, median, settings);
}

fn diagnose_round_trip(examination: &mut Examination, median: Duration, settings: &Settings) {
    let (limit, ttl) = (settings.node_limit, settings.ttl);
    if 2 * median > limit {
        let text = format!(
            "a round trip takes {}, and a node gets {} to answer",
            shown(median),
            shown(limit)
        );
        let remedy = format!(
            "allow at least {} (--node-limit, node_limit), with a TTL of at least {}",
            shown(4 * median),
            shown(20 * median)
        );
        examination.warn("time-limit", text, &remedy);
    } else {
        let text = format!(
            "a round trip takes {}; it may take {} of a TTL of {}",
            shown(median),
            shown(limit),
            shown(ttl)
        );
        examination.ok("time-limit", text);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn node(name: &str, identity: &str) -> Examination {
        let mut node = Examination::new(name);
        node.text("identity", identity);
        node
    }

    fn checkup(nodes: Vec<Examination>) -> Checkup {
        let quorum = Quorum::of(nodes.len()).unwrap();
        diagnose(nodes, quorum, Settings::default())
    }

    fn of<'a>(checkup: &'a Checkup, check: &str) -> Option<&'a Finding> {
        checkup.findings.iter().find(|finding| finding.check == check)
    }

    #[test]
    fn the_quorum_counts_what_is_usable() {
        for (down, severity, says) in [
            (0, Severity::Ok, "3 of 3 nodes can be used, and 1 of them may fail"),
            (1, Severity::Warn, "2 of 3 nodes can be used, all of which are needed"),
            (2, Severity::Error, "1 of 3 nodes can be used, and 2 are needed"),
        ] {
            let mut nodes = vec![node("a", "1"), node("b", "2"), node("c", "3")];
            nodes.iter_mut().take(down).for_each(|node| node.usable = false);
            let checkup = checkup(nodes);
            let quorum = of(&checkup, "quorum").unwrap();
            assert_eq!((quorum.severity, quorum.text.as_str()), (severity, says));
            assert_eq!((checkup.usable, checkup.needed), (3 - down, 2));
            assert_eq!(checkup.severity(), severity);
        }
    }

    #[test]
    fn one_server_twice_counts_once_and_is_an_error() {
        let checkup = checkup(vec![node("a", "1"), node("b", "1"), node("c", "2")]);
        let duplicate = of(&checkup, DUPLICATE).unwrap();
        assert_eq!(duplicate.text, "b is the same server as a");
        assert!(checkup.is_misuse() && checkup.usable == 2);
    }

    #[test]
    fn an_even_number_and_a_file_among_servers_are_warned_about() {
        let mut file = node("f", "2");
        file.is_local = true;
        let two = checkup(vec![node("a", "1"), file.clone()]);
        assert_eq!(of(&two, "even").unwrap().severity, Severity::Warn);
        assert_eq!(of(&two, "mixed").unwrap().severity, Severity::Warn);
        let one = checkup(vec![file]);
        assert_eq!(one.severity(), Severity::Ok, "{one:?}");
    }

    #[test]
    fn nodes_for_different_clients_are_an_error() {
        let of = |max_ttls: [i64; 3]| {
            let nodes = ["a", "b", "c"].iter().zip(max_ttls).map(|(name, max_ttl)| {
                let mut node = node(name, name);
                node.number("max_ttl_ms", max_ttl);
                node.number("clock_ahead_ms", 300);
                node
            });
            let checkup = checkup(nodes.collect());
            of(&checkup, "settings").cloned()
        };
        assert_eq!(of([7, 7, 7]), None);
        let found = of([7, 8, 7]).unwrap();
        assert_eq!(found.severity, Severity::Error);
        assert!(found.text.contains("a max_ttl of 7 ms and a clock_ahead of 300 ms on a, c; "));
        assert!(found.remedy.unwrap().contains("quorlock init --force"));
    }

    #[test]
    fn a_round_trip_near_the_limit_is_warned_about() {
        let settings = Settings { node_limit: Duration::from_millis(50), ..Settings::default() };
        let diagnosed = |millis| {
            let mut node = node("a", "1");
            diagnose_round_trip(&mut node, Duration::from_millis(millis), &settings);
            node.findings.remove(0)
        };
        assert_eq!(diagnosed(25).severity, Severity::Ok);
        let slow = diagnosed(26);
        assert_eq!(slow.severity, Severity::Warn);
        assert!(slow.remedy.unwrap().contains("104 ms"), "{}", slow.text);
    }
}
