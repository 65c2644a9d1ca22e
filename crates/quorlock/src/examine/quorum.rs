//! What can only be seen with all nodes side by side.

use std::collections::BTreeMap;

use super::{Checkup, Examination, Fact, Finding, Severity, shown};
use crate::settings::Settings;
use quorlock_protocol::Quorum;

/// One server stands behind two URLs.
pub(super) const DUPLICATE: &str = "duplicate";

pub(super) fn judge(mut nodes: Vec<Examination>, quorum: Quorum, settings: Settings) -> Checkup {
    let mut findings = Vec::new();
    duplicates(&mut nodes, &mut findings);
    let usable = nodes.iter().filter(|node| node.usable).count();
    findings.push(quorum_of(usable, quorum));
    if let Some(warning) = Settings::warning_for(quorum) {
        let remedy = "add a node, or take one away, on all machines at once";
        findings.push(Finding::new("even", Severity::Warn, warning).remedy(remedy));
    }
    if nodes.len() > 1 && nodes.iter().any(|node| kind(node) == Some("sqlite")) {
        let text = "a file is seen by this machine alone, so that other machines count other votes";
        let finding = Finding::new("mixed", Severity::Warn, text);
        findings.push(finding.remedy("name the file alone, or servers only"));
    }
    Checkup { nodes, findings, needed: quorum.enough(), usable, settings }
}

fn kind(node: &Examination) -> Option<&str> {
    text(node, "kind")
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

fn quorum_of(usable: usize, quorum: Quorum) -> Finding {
    let (nodes, enough) = (quorum.nodes(), quorum.enough());
    let Some(spare) = usable.checked_sub(enough) else {
        let text = format!("{usable} of {nodes} nodes can be used, and {enough} are needed");
        let remedy = "mend the nodes below; until then nobody gets a lock";
        return Finding::new("quorum", Severity::Error, text).remedy(remedy);
    };
    let text = match (nodes, spare) {
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

/// How round trips compare with the time limits.
pub(crate) fn judge_round_trip(
    examination: &mut Examination,
    median: std::time::Duration,
    settings: &Settings,
) {
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
        judge(nodes, quorum, Settings::default())
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
        file.text("kind", "sqlite");
        let two = checkup(vec![node("a", "1"), file.clone()]);
        assert_eq!(of(&two, "even").unwrap().severity, Severity::Warn);
        assert_eq!(of(&two, "mixed").unwrap().severity, Severity::Warn);
        let one = checkup(vec![file]);
        assert_eq!(one.severity(), Severity::Ok, "{one:?}");
    }

    #[test]
    fn a_round_trip_near_the_limit_is_warned_about() {
        let settings = Settings::default();
        let judged = |millis| {
            let mut node = node("a", "1");
            judge_round_trip(&mut node, Duration::from_millis(millis), &settings);
            node.findings.remove(0)
        };
        assert_eq!(judged(25).severity, Severity::Ok);
        let slow = judged(26);
        assert_eq!(slow.severity, Severity::Warn);
        assert!(slow.remedy.unwrap().contains("104 ms"), "{}", slow.text);
    }
}
