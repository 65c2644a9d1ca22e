//! I12: an error tells the truth about who holds. A client that learns that a lock is taken wanted it at a moment at
//! which another believed to hold it, or had a record of it on some node, or a place in its queue. A client in line
//! behind another of its process may learn the same of a lock that is free: it has only looked at the nodes.

use std::collections::BTreeSet;

use super::windows::windows;
use super::{Invariant, Time, Violation};
use crate::trace::{Entry, Executed, Reply, Trace, VerbKind, What};
use crate::world::WALL_START;

pub(super) fn check(trace: &Trace) -> Vec<Violation> {
    let windows = windows(trace);
    let entries = trace.entries();
    let taken = entries.iter().filter_map(|entry| match entry.what {
        What::Taken { process, name, since } => Some((entry.at, process, name, since)),
        _ => None,
    });
    let lies = taken.filter(|(at, process, name, since)| {
        let believed = windows.iter().any(|window| {
            let end = window.closed.unwrap_or(window.longest).max(window.to);
            window.opened.name == *name && window.from <= *at && end >= *since
        });
        let from = entries.partition_point(|entry| entry.at < *since);
        let to = entries.partition_point(|entry| entry.at <= *at);
        let had = || had_something(&entries[..from], *name, *since);
        let has = || entries[from..to].iter().any(|entry| has_something(entry, *name));
        let in_line = || is_in_line(&entries[from..to], *process, *name);
        !believed && !has() && !had() && !in_line() && !clocks_are_off(entries, (from, to))
    });
    lies.map(|(at, process, name, since)| Violation {
        invariant: Invariant::Truth,
        at,
        text: format!(
            "process {process} is told that the lock {name} is taken, which nobody had since {}",
            Time(since)
        ),
    })
    .collect()
}

/// Whether a client has not asked the nodes for the lock itself.
fn is_in_line(attempt: &[Entry], asker: u8, name: u16) -> bool {
    !attempt.iter().any(|entry| match entry.what {
        What::Executed(Executed { name: of, process, verb, .. }) => {
            let asks = matches!(verb, VerbKind::Acquire | VerbKind::Wait);
            asks && of == name && process == asker
        }
        _ => false,
    })
}

/// Whether clocks of nodes were off while a client waited, or were all set in the middle of it, so that what was asked
/// before is refused for its time. A client in line behind another of its process only looks at the nodes, and a look
/// does not compare clocks: it does not learn of them.
fn clocks_are_off(entries: &[Entry], (from, to): (usize, usize)) -> bool {
    let mut stepped = 0;
    entries[..to].iter().enumerate().any(|(index, entry)| match entry.what {
        What::Stepped { by } => {
            stepped += by;
            index >= from
        }
        What::Executed(Executed { clock, .. }) if index >= from => {
            clock.abs_diff((WALL_START + entry.at).saturating_add_signed(stepped)) > MOST_OFF
        }
        _ => false,
    })
}

/// A clock that differs by more than this is off.
const MOST_OFF: u64 = 1_000_000_000;

/// Whether a client has a record of the lock on a node by what has happened until then: one that takes several locks
/// holds the first before it believes in it.
fn had_something(before: &[Entry], name: u16, since: u64) -> bool {
    let mut nodes = BTreeSet::new();
    before.iter().rev().any(|entry| match entry.what {
        What::Executed(Executed { name: of, node, clock, after, .. }) if of == name => {
            let latest = nodes.insert(node);
            latest && after.token != 0 && entry.at + after.until.saturating_sub(clock) >= since
        }
        _ => false,
    })
}

/// Whether it shows that a client has a record of the lock on a node, or gets one, or is in its queue.
fn has_something(entry: &Entry, name: u16) -> bool {
    let What::Executed(Executed { name: of, verb, reply, token, before, after, .. }) = entry.what
    else {
        return false;
    };
    let anothers = before.token != 0 && before.token != token;
    let gets = after.token != 0 && after.token != before.token;
    let queued = verb == VerbKind::Wait && reply == Reply::Refused;
    of == name && (anothers || gets || queued)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Kept, Opened};

    const MS: u64 = 1_000_000;

    /// The client that learns so has asked a node itself.
    fn found(others: Vec<Entry>) -> usize {
        found_in([others, vec![executed(101, 0, 0, Reply::NoVote)]].concat())
    }

    fn found_in(mut entries: Vec<Entry>) -> usize {
        let (process, name, since) = (1, 0, 100 * MS);
        entries.sort_by_key(|entry| entry.at);
        entries.push(Entry { at: 200 * MS, what: What::Taken { process, name, since } });
        check(&Trace::of(entries)).len()
    }

    fn executed(at_ms: u64, name: u16, before: u64, reply: Reply) -> Entry {
        let kept = |token| Kept { token, ..Kept::default() };
        let what = What::Executed(Executed {
            request: 1,
            node: 0,
            process: 1,
            sent: at_ms * MS,
            verb: VerbKind::Acquire,
            name,
            token: 7,
            reply,
            clock: WALL_START + at_ms * MS,
            before: kept(before),
            after: kept(before),
        });
        Entry { at: at_ms * MS, what }
    }

    #[test]
    fn a_lock_that_nobody_has_is_not_taken() {
        assert_eq!(found(vec![]), 1);
        assert_eq!(found_in(vec![]), 0, "another of its process is in line");
        assert_eq!(found(vec![executed(150, 0, 0, Reply::NoVote)]), 1, "a node casts no vote");
        assert_eq!(found(vec![executed(150, 0, 9, Reply::Refused)]), 0, "another has it there");
        assert_eq!(found(vec![executed(150, 1, 9, Reply::Refused)]), 1, "that is another lock");
        assert_eq!(found(vec![executed(250, 0, 9, Reply::Refused)]), 1, "that was later");
        let kept = |until: u64| {
            let mut entry = executed(50, 0, 9, Reply::Done);
            if let What::Executed(executed) = &mut entry.what {
                executed.after.until = WALL_START + until * MS;
            }
            vec![entry]
        };
        assert_eq!(found(kept(110)), 0, "it has it since before");
        assert_eq!(found(kept(90)), 1, "that was over");
        let released = [kept(110), vec![executed(90, 0, 0, Reply::Done)]].concat();
        assert_eq!(found(released), 1, "that was given back");
        assert_eq!(found(vec![executed(150, 0, 7, Reply::Done)]), 1, "it is its own");
        let stepped = |at| vec![Entry { at: at * MS, what: What::Stepped { by: 0 } }];
        assert_eq!(found(stepped(150)), 0, "the clocks were set meanwhile");
        assert_eq!(found(stepped(50)), 1, "that was before");
    }

    #[test]
    fn a_lock_that_somebody_believes_to_hold_is_taken() {
        let window = |from: u64, until: u64| {
            let (window, process, name, holding, fence) = (1, 0, 0, 1, None);
            let until = until * MS;
            let (heeds, renewed) = (true, false);
            let opened = Opened { window, process, name, holding, until, fence, heeds, renewed };
            vec![Entry { at: from * MS, what: What::Opened(opened) }]
        };
        assert_eq!(found(window(50, 150)), 0);
        assert_eq!(found(window(50, 90)), 1, "it was over");
        assert_eq!(found(window(210, 400)), 1, "that was later");
    }
}
