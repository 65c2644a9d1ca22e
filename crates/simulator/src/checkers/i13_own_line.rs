//! I13: no client fails for its own line. While a majority of the nodes answers one steadily, it gets every lock that
//! is free, and keeps those that it holds, however many it wants or holds at once; and a request that is soon there
//! is not refused for the time that it names, however long it has waited to be sent.
//!
//! A node answers steadily if it is never silent for longer than it may be: since its last answer, or since the oldest
//! request that it owes one to was sent. What a client has not sent yet is not the node's silence. Looked at only where
//! nothing goes wrong besides with nodes and clocks.

use std::collections::BTreeMap;

use super::windows::windows;
use super::{Invariant, Time, Violation};
use crate::trace::{Executed, Reply, Trace, What};
use crate::world::WALL_START;
use crate::{Dialect, Setup};

/// A clock that is further off may be refused.
const OFF: u64 = 100_000_000;

/// The same of one that is behind.
const BEHIND: u64 = 45_000_000;
/// A request that takes so long is not late, by clocks that are no further off.
const SOON: u64 = 100_000_000;
/// Fences follow the clock, in microseconds.
const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;

/// When one node was asked by one process, and when it was silent.
#[derive(Default)]
struct Talk {
    answers: Vec<u64>,
    silences: Vec<(u64, u64)>,
}

pub(super) fn check(setup: &Setup, trace: &Trace) -> Vec<Violation> {
    let failed = trace.entries().iter().filter_map(|entry| match entry.what {
        What::Failed { process, name, since } => Some((process, name, since, entry.at)),
        _ => None,
    });
    let failed: Vec<_> = failed.collect();
    let late: Vec<_> = late(setup, trace).collect();
    let windows = windows(trace);
    let lost = windows.iter().filter(|it| it.opened.renewed && crowded(it.opened.name));
    let lost = lost.filter_map(|window| {
        let ended = [window.loss_signal, window.over].into_iter().flatten().min()?;
        let released = window.closed.is_some_and(|closed| closed <= ended);
        (!released).then_some((window.opened.process, window.opened.name, ended))
    });
    let lost: Vec<_> = lost.collect();
    if failed.is_empty() && lost.is_empty() && late.is_empty() || goes_wrong(setup, trace) {
        return Vec::new();
    }
    let talks = talks(setup, trace);
    let enough = setup.nodes / 2 + 1;
    let steady = |process: u8, from: u64, to: u64| {
        let nodes = (0..setup.nodes).filter(|node| {
            talks.get(&(process, *node as u8)).is_some_and(|talk| talk.is_steady(from, to))
        });
        nodes.count() >= enough
    };
    let violation = |at, text| Violation { invariant: Invariant::OwnLine, at, text };
    let half = setup.ttl.as_nanos() as u64 / 2;
    let unasked =
        failed.into_iter().filter(|(process, _, since, at)| steady(*process, *since, *at));
    let unasked = unasked.map(|(process, name, since, at)| {
        let since = Time(since);
        let text =
            format!("process {process} fails to get lock {name}, which it wanted at {since}");
        violation(at, text)
    });
    let lost =
        lost.into_iter().filter(|(process, _, at)| steady(*process, at.saturating_sub(half), *at));
    let lost = lost.map(|(process, name, at)| {
        violation(at, format!("process {process} loses lock {name} though a majority answers it"))
    });
    unasked.chain(lost).chain(late).collect()
}

impl Talk {
    fn is_steady(&self, from: u64, to: u64) -> bool {
        self.answers.iter().any(|at| (from..=to).contains(at))
            && !self.silences.iter().any(|(begin, end)| *begin <= to && *end >= from)
    }
}

/// Whether it is one of many that are wanted at once.
fn crowded(name: u16) -> bool {
    name >= u16::from(u8::MAX)
}

/// Requests that were soon there, by a clock that is right, and were not heeded.
fn late<'a>(setup: &Setup, trace: &'a Trace) -> impl Iterator<Item = Violation> + use<'a> {
    let compared = setup.dialect == Dialect::Strict;
    let executed = trace.entries().iter().filter_map(|entry| match entry.what {
        What::Executed(it) if it.reply == Reply::NoVote && crowded(it.name) => Some((entry.at, it)),
        _ => None,
    });
    let late = executed.filter(move |(at, it)| {
        let true_time = WALL_START + at;
        let right = (true_time - BEHIND..true_time + OFF).contains(&it.clock);
        let sound = it.after.fence < true_time / 1_000 + DAY_US;
        compared && right && sound && at - it.sent < SOON
    });
    late.map(|(at, Executed { process, name, node, sent, .. })| {
        let sent = Time(sent);
        let text = format!(
            "process {process} is refused lock {name} by node {node} for the time that its request of {sent} names"
        );
        Violation { invariant: Invariant::OwnLine, at, text }
    })
}

/// Whether anything goes wrong besides.
fn goes_wrong(setup: &Setup, trace: &Trace) -> bool {
    let compared = setup.dialect == Dialect::Strict;
    trace.entries().iter().any(|entry| match entry.what {
        What::Stepped { .. }
        | What::Stopped { .. }
        | What::Forgot { .. }
        | What::Quarantined { .. } => true,
        What::Executed(Executed { clock, .. }) => {
            compared && clock.abs_diff(WALL_START + entry.at) > OFF
        }
        _ => false,
    })
}

fn talks(setup: &Setup, trace: &Trace) -> BTreeMap<(u8, u8), Talk> {
    let mut sent: BTreeMap<u32, (u8, u8, u64)> = BTreeMap::new();
    for entry in trace.entries() {
        if let What::Executed(Executed { request, process, node, sent: at, .. }) = entry.what {
            sent.insert(request, (process, node, at));
        }
    }
    let limit = setup.node_limit().as_nanos() as u64;
    let mut talks: BTreeMap<(u8, u8), Talk> = BTreeMap::new();
    for entry in trace.entries() {
        let What::Answered { request } = entry.what else { continue };
        let Some((process, node, at)) = sent.remove(&request) else { continue };
        let talk = talks.entry((process, node)).or_default();
        let since = talk.answers.last().map_or(at, |last| at.max(*last));
        if entry.at > since + limit {
            talk.silences.push((since, entry.at));
        }
        talk.answers.push(entry.at);
    }
    // Those were never answered.
    for (process, node, at) in sent.into_values() {
        talks.entry((process, node)).or_default().silences.push((at, u64::MAX));
    }
    talks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Entry, Kept, Opened, VerbKind};

    const MS: u64 = 1_000_000;

    /// A request to each of three nodes every 10 ms. Some do not answer from 500 ms on, until then.
    fn asked(silent: u8, until: u64) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (index, ms) in (0..2_000).step_by(10).enumerate() {
            for node in 0..3 {
                let request = (index * 3) as u32 + u32::from(node);
                let answered = if node < silent && ms > 500 { (ms + 2).max(until) } else { ms + 2 };
                let kept = Kept { token: 0, until: 0, fence: 1 };
                let executed = Executed {
                    request,
                    node,
                    process: 0,
                    sent: ms * MS,
                    verb: VerbKind::Acquire,
                    name: 1_000,
                    token: 7,
                    reply: Reply::Shown,
                    clock: WALL_START + (ms + 1) * MS,
                    before: kept,
                    after: kept,
                };
                entries.push(Entry { at: (ms + 1) * MS, what: What::Executed(executed) });
                entries.push(Entry { at: answered * MS, what: What::Answered { request } });
            }
        }
        entries
    }

    fn found(entries: Vec<Entry>, more: &[Entry]) -> usize {
        let mut entries = [entries, more.to_vec()].concat();
        entries.sort_by_key(|entry| entry.at);
        let setup = Setup { nodes: 3, ..Setup::new(1, Dialect::Strict) };
        check(&setup, &Trace::of(entries)).len()
    }

    #[test]
    fn a_caller_that_fails_though_a_majority_answers_is_found() {
        let failed = What::Failed { process: 0, name: 1_000, since: 600 * MS };
        let failed = [Entry { at: 900 * MS, what: failed }];
        assert_eq!(found(asked(0, 0), &failed), 1);
        assert_eq!(found(asked(1, 800), &failed), 1, "two of three answer");
        assert_eq!(found(asked(2, 800), &failed), 0, "those were silent");
        assert_eq!(found(asked(2, 540), &failed), 1, "not for long, and before");
        let forgot = Entry { at: 100 * MS, what: What::Forgot { node: 0 } };
        assert_eq!(found(asked(0, 0), &[failed[0], forgot]), 0, "other things go wrong");
    }

    #[test]
    fn a_request_that_is_refused_though_it_was_soon_there_is_found() {
        let refused = |name, sent: u64, off: u64| {
            let mut entries = asked(0, 0);
            let Some(Entry { at, what: What::Executed(it) }) = entries.get_mut(150) else {
                return 9;
            };
            (it.reply, it.name, it.sent, it.clock) =
                (Reply::NoVote, name, *at - sent * MS, WALL_START + *at + off * MS);
            found(entries, &[])
        };
        assert_eq!(refused(1_000, 1, 50), 1);
        assert_eq!(refused(1_000, 150, 50), 0, "that was long on its way");
        assert_eq!(refused(1_000, 1, 150), 0, "a clock that is off");
        assert_eq!(refused(0, 1, 50), 0, "not one of many");
    }

    #[test]
    fn a_holder_that_loses_a_lock_though_a_majority_answers_is_found() {
        let (window, process, name, holding, fence) = (1, 0, 1_000, 1, None);
        let (until, heeds, renewed) = (1_800 * MS, true, true);
        let opened = Opened { window, process, name, holding, until, fence, heeds, renewed };
        let opened = Entry { at: 300 * MS, what: What::Opened(opened) };
        let loss_signal = Entry { at: 1_700 * MS, what: What::LossSignal { window } };
        let closed = Entry { at: 1_600 * MS, what: What::Closed { window } };
        assert_eq!(found(asked(0, 0), &[opened, loss_signal]), 1);
        assert_eq!(
            found(asked(2, 650), &[opened, loss_signal]),
            1,
            "they answer again for long enough"
        );
        assert_eq!(found(asked(2, 750), &[opened, loss_signal]), 0, "they were silent for long");
        assert_eq!(found(asked(0, 0), &[opened, closed, loss_signal]), 0, "it was given back");
    }
}
