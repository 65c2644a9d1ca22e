//! I6: once faults stop, some client acquires within `max_ttl` + 3 s, every one in its turn, and a lock
//! that is let go of in the calm goes to the next waiter, without waiting for its end.

use std::collections::{BTreeMap, BTreeSet};

use super::{Invariant, Time, Violation};
use crate::Setup;
use crate::trace::{Opened, Trace, What};

const SECOND: u64 = 1_000_000_000;
/// How long connections take to be there again.
const RECONNECTED: u64 = 3 * SECOND;

pub(super) fn check(setup: &Setup, trace: &Trace) -> Vec<Violation> {
    let calm = trace.entries().iter().find(|entry| entry.what == What::Calm);
    let Some(calm) = calm.map(|entry| entry.at) else { return Vec::new() };
    let longest = setup.max_ttl.as_nanos() as u64 + 3 * SECOND;
    let handing = setup.ttl.as_nanos() as u64 / 4;
    let mut found = Vec::new();
    let mut violated = |at, text| {
        found.push(Violation { invariant: Invariant::Liveness, at, text });
    };
    let mut later = trace.entries().iter().filter(|entry| entry.at > calm);
    // A node that is not asked does not know that it has to wait before it votes. A client that wants a
    // lock for a moment only may have gone before all of them were there again.
    let asks = later.clone().find(|entry| matches!(entry.what, What::Asks(_)));
    if let Some(by) = asks.map(|entry| entry.at + longest) {
        let first = later.find(|entry| matches!(entry.what, What::Opened(_)));
        if first.is_none_or(|entry| entry.at > by) {
            violated(by, "nobody has got a lock by now".to_owned());
        }
    }
    let mut asking: BTreeMap<u8, u64> = BTreeMap::new();
    // When no client held the lock any more, and whether it is the one that is asked for.
    let mut names: BTreeMap<u32, u16> = BTreeMap::new();
    // The windows that are open, each with what it shares with others.
    let mut open: BTreeSet<(u32, u32)> = BTreeSet::new();
    let mut free_since: Option<u64> = None;
    // From when on each node casts votes.
    let mut votes_from = vec![0; setup.servers()];
    for entry in trace.entries() {
        match entry.what {
            What::Opened(Opened { window, name, holding, .. }) => {
                names.insert(window, name);
                open.insert((holding, window));
                let since = free_since.take_if(|_| name == 0);
                if let Some(since) = since
                    && entry.at > since + handing
                {
                    let since = Time(since);
                    let text = format!("a waiter gets a lock that is free since {since}");
                    violated(entry.at, text);
                }
            }
            What::Closed { window } if names.get(&window) == Some(&0) => {
                let holding = open.iter().find(|(_, other)| *other == window).map(|(it, _)| *it);
                open.retain(|(_, other)| *other != window);
                if open.iter().any(|(other, _)| Some(*other) == holding) {
                    // Others hold it still.
                    continue;
                }
                let waited = asking.values().any(|since| *since + SECOND / 10 < entry.at);
                let quiet = entry.at > calm + RECONNECTED && asking.len() + 1 >= setup.clients;
                let mut from = votes_from.clone();
                from.sort_unstable();
                let majority_from = from[setup.nodes / 2];
                free_since = (waited && quiet).then_some(entry.at.max(majority_from));
            }
            What::Quarantined { node, .. } => {
                votes_from[usize::from(node)] = entry.at + setup.quarantine().as_nanos() as u64;
            }
            What::Asks(process) => {
                asking.insert(process, entry.at);
            }
            What::Got(process) => {
                if let Some(since) = asking.remove(&process)
                    && entry.at > since + 2 * longest
                {
                    violated(
                        entry.at,
                        format!("process {process} had to wait since {}", Time(since)),
                    );
                }
            }
            _ => {}
        }
    }
    for (process, since) in asking {
        violated(since, format!("process {process} waits without end"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;
    use crate::trace::Entry;

    const MS: u64 = SECOND / 1_000;

    fn opened(window: u32) -> What {
        let (process, name, holding) = (0, 0, window);
        let (until, fence, heeds, renewed) = (0, None, false, false);
        What::Opened(Opened { window, process, name, holding, until, fence, heeds, renewed })
    }

    fn found(entries: &[(u64, What)]) -> Vec<String> {
        let setup = Setup { clients: 2, ..Setup::new(1, Dialect::Redlock) };
        let entries = entries.iter().map(|(at, what)| Entry { at: at * MS, what: *what });
        check(&setup, &Trace::of(entries.collect())).into_iter().map(|it| it.text).collect()
    }

    #[test]
    fn a_calm_without_a_lock_is_found() {
        let (calm, asks) = ((0, What::Calm), (100, What::Asks(0)));
        let got_at = |at| found(&[calm, asks, (at, opened(1)), (at, What::Got(0))]);
        assert!(got_at(5_099).is_empty());
        assert_eq!(got_at(5_101), ["nobody has got a lock by now"]);
        assert_eq!(found(&[calm, asks]).len(), 2, "never, and it waits without end");
        assert!(found(&[calm]).is_empty(), "nobody asks for one");
        let wanted = (100, What::Wanted { process: 0, name: 0 });
        assert!(found(&[calm, wanted]).is_empty(), "it was not wanted for long");
    }

    #[test]
    fn a_waiter_in_vain_is_found() {
        let calm = (0, What::Calm);
        let got = [calm, (1, What::Asks(0)), (2, opened(1)), (2, What::Got(0))];
        assert!(found(&got).is_empty());
        assert_eq!(found(&got[..3]).len(), 1, "never");
        let late = [calm, (1, What::Asks(0)), (2, opened(1)), (10_002, What::Got(0))];
        assert_eq!(found(&late).len(), 1, "too late");
    }

    #[test]
    fn a_lock_that_is_free_and_not_handed_over_is_found() {
        let handed = |at| {
            found(&[
                (0, What::Calm),
                (1, opened(1)),
                (5_000, What::Asks(0)),
                (6_000, What::Closed { window: 1 }),
                (at, opened(2)),
                (at, What::Got(0)),
            ])
        };
        assert!(handed(6_250).is_empty());
        assert_eq!(handed(6_251).len(), 1);
    }

    #[test]
    fn nobody_is_late_while_the_nodes_cast_no_votes() {
        let handed = |quiet: u8| {
            let quarantined = |node| (5_500, What::Quarantined { node, until: 0 });
            let mut entries = vec![(0, What::Calm), (1, opened(1)), (5_000, What::Asks(0))];
            entries.extend((0..quiet).map(quarantined));
            entries.push((6_000, What::Closed { window: 1 }));
            entries.extend([(7_600, opened(2)), (7_600, What::Got(0))]);
            found(&entries).len()
        };
        let setup = Setup::new(1, Dialect::Redlock);
        let minority = u8::try_from((setup.nodes - 1) / 2).expect("a few");
        assert_eq!(handed(minority), 1, "a majority casts votes");
        assert_eq!(handed(minority + 1), 0);
    }
}
