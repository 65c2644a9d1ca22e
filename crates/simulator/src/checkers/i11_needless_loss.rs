//! I11: no loss without a cause. A holder whose lock is extended without end loses it only if no majority that
//! votes has answered it within its lease.
//!
//! Seen by what the nodes have answered to its extensions. It is a broken promise
//! - if a majority has answered one in time, and each of them had its record or none: what a node has not
//!   it could have taken anew, once all those were heard that had it, and none of them has lost it;
//! - if it gives the lock up before its time though no node has refused it its record, and no clock was off: a
//!   request that was late says nothing of the lock.

use std::collections::{BTreeMap, BTreeSet};

use super::windows::{Window, windows};
use super::{Invariant, Time, Violation};
use crate::trace::{Executed, Opened, Reply, Trace, VerbKind, What};
use crate::world::WALL_START;
use crate::{Dialect, Setup};

/// What the clocks of the simulation round, and what a holder's time of day may be set by.
const SLACK: u64 = 150_000_000;
/// The requests of one round leave within this time.
const ONE_ROUND: u64 = 1_000_000;
/// A server whose clock is further off may be refused by a client whose clock is as far off as it may be.
const OFF: u64 = 50_000_000;

/// Fences follow the clock, in microseconds.
const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;

/// A request to extend a lock, and what came of it.
#[derive(Debug, Clone, Copy)]
struct Extension {
    executed: Executed,
    at: u64,
    /// When the answer was heard.
    heard: u64,
    /// Whether the node cast votes then.
    votes: bool,
    /// How far its clock was off.
    off: u64,
}

pub(super) fn check(setup: &Setup, trace: &Trace) -> Vec<Violation> {
    let extensions = extensions(setup, trace);
    let lost = windows(trace).into_iter().filter_map(|window| {
        let Window { opened, from, loss_signal, closed, last, over, .. } = window;
        if !opened.renewed || window.is_forced() {
            return None;
        }
        let ended = [loss_signal, over].into_iter().flatten().min().unwrap_or(last);
        let released = closed.is_some_and(|closed| closed <= ended);
        (!released && !is_disturbed(trace, opened.process, from, ended)).then_some((window, ended))
    });
    let needless = lost.filter_map(|(window, ended)| {
        let Opened { process, name, .. } = window.opened;
        let of_it = |it: &&Extension| (it.executed.process, it.executed.name) == (process, name);
        let its: Vec<_> = extensions.iter().filter(of_it).copied().collect();
        let (before, its): (Vec<_>, Vec<_>) = its
            .into_iter()
            .filter(|it| it.executed.sent < ended)
            .partition(|it| it.executed.sent < window.from);
        let lead = setup.loss_lead().as_nanos() as u64;
        let text = if ended + lead + SLACK < window.last {
            let inherited = before.into_iter().filter(|it| {
                (window.from..=ended).contains(&it.heard)
                    && !is_released(trace, it.executed.token, window.from)
            });
            let its: Vec<_> = inherited.chain(its).collect();
            too_early(setup, &its, process, ended)
        } else {
            could_be_kept(setup, &its, &window, ended)
        };
        text.map(|text| Violation { invariant: Invariant::NeedlessLoss, at: ended, text })
    });
    needless.collect()
}

/// A majority has answered in time, and had nothing against it.
fn could_be_kept(setup: &Setup, its: &[Extension], window: &Window, ended: u64) -> Option<String> {
    let (validity, enough) = (validity(setup), setup.nodes / 2 + 1);
    its.iter().find_map(|first| {
        let Executed { token, sent, process, .. } = first.executed;
        let round = its.iter().filter(|it| {
            let executed = it.executed;
            executed.token == token && (sent..=sent + ONE_ROUND).contains(&executed.sent)
        });
        let stands_there = |it: &&Extension| it.executed.verb == VerbKind::Heal;
        let kept = |it: &Extension| it.heard < ended && it.executed.reply != Reply::Refused;
        let sure = round.clone().filter(stands_there).all(kept);
        let mut holds = false;
        let mut willing = BTreeSet::new();
        for it in round.filter(|it| sure || it.executed.verb != VerbKind::WinBack) {
            let Executed { verb, reply, before, after, node, .. } = it.executed;
            // A client that does not know yet that the lock is held may store it nowhere.
            holds |= verb == VerbKind::Heal;
            let nobodys = reply == Reply::Refused && before.token == 0 && after.token == 0;
            // A fence that no holder can have got is a failure of the node.
            let sound = after.fence < (WALL_START + it.at) / 1_000 + DAY_US;
            if it.heard < ended && sound && (reply == Reply::Done || nobodys && it.votes) {
                willing.insert(node);
            }
        }
        let longer = sent + validity > window.last + SLACK;
        let counts = longer && holds && willing.len() >= enough;
        counts.then(|| {
            let sent = Time(sent);
            format!(
                "process {process} loses its lock though {willing:?} answered its request of {sent}"
            )
        })
    })
}

/// No node refused it, and its time was not over.
fn too_early(setup: &Setup, its: &[Extension], process: u8, ended: u64) -> Option<String> {
    let lately = its.iter().filter(|it| it.at + validity(setup) > ended);
    let cause = |it: &Extension| it.executed.reply == Reply::Refused || it.off > OFF;
    (!lately.clone().any(cause)).then(|| {
        format!("process {process} gives its lock up before its time, and nobody has taken it away")
    })
}

/// Whether a holder has given a lock back before that. Otherwise it was passed on inside its process, and what it
/// has asked for is answered to the next.
fn is_released(trace: &Trace, token: u64, before: u64) -> bool {
    trace.entries().iter().any(|entry| match entry.what {
        What::Executed(Executed { verb: VerbKind::Release, token: of, sent, .. }) => {
            of == token && sent <= before
        }
        _ => false,
    })
}

/// How long a lease is believed.
fn validity(setup: &Setup) -> u64 {
    let ttl = setup.ttl.as_nanos() as u64;
    let drift = 2_000_000 + ttl * u64::from(setup.dialect.drift_per_mille()) / 1_000;
    ttl.saturating_sub(drift + setup.dialect.margin().as_nanos() as u64)
}

/// Whether the time of day was set everywhere meanwhile, or the holder stood still: it hears nothing then.
fn is_disturbed(trace: &Trace, holder: u8, from: u64, ended: u64) -> bool {
    trace.entries().iter().any(|entry| match entry.what {
        What::Stepped { .. } => (from..=ended).contains(&entry.at),
        What::Stopped { process, until, .. } => {
            process == holder && entry.at <= ended && until >= from
        }
        _ => false,
    })
}

fn extensions(setup: &Setup, trace: &Trace) -> Vec<Extension> {
    let mut heard: BTreeMap<u32, u64> = BTreeMap::new();
    for entry in trace.entries() {
        if let What::Answered { request } = entry.what {
            heard.insert(request, entry.at);
        }
    }
    let quarantine = setup.quarantine().as_nanos() as u64;
    let mut votes_from: BTreeMap<u8, u64> = BTreeMap::new();
    let mut stepped = 0;
    let mut found = Vec::new();
    for entry in trace.entries() {
        match entry.what {
            What::Forgot { node } if setup.dialect == Dialect::Strict => {
                votes_from.insert(node, u64::MAX);
            }
            What::Quarantined { node, .. } => {
                votes_from.insert(node, entry.at + quarantine);
            }
            What::Stepped { by } => stepped += by,
            What::Executed(executed) => {
                let extends = [VerbKind::Extend, VerbKind::Heal, VerbKind::WinBack];
                if !extends.contains(&executed.verb) {
                    continue;
                }
                let true_time = (WALL_START + entry.at).saturating_add_signed(stepped);
                // Without a clock that is compared it does not matter.
                let off = match setup.dialect {
                    Dialect::Strict => executed.clock.abs_diff(true_time),
                    Dialect::Redlock => 0,
                };
                let from = votes_from.get(&executed.node).copied().unwrap_or_default();
                found.push(Extension {
                    executed,
                    at: entry.at,
                    heard: heard.get(&executed.request).copied().unwrap_or(u64::MAX),
                    votes: entry.at >= from,
                    off,
                });
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Entry, Kept};

    const MS: u64 = 1_000_000;

    fn at(ms: u64, what: What) -> Entry {
        Entry { at: ms * MS, what }
    }

    /// A holder from 0 to 1,000 ms that is notified of the loss at `told`.
    fn holder(loss_signal: u64) -> Vec<Entry> {
        let (window, process, name, holding, fence) = (1, 0, 0, 1, None);
        let (until, heeds, renewed) = (1_000 * MS, true, true);
        let opened = Opened { window, process, name, holding, until, fence, heeds, renewed };
        vec![at(0, What::Opened(opened)), at(loss_signal, What::LossSignal { window })]
    }

    fn extension(ms: u64, node: u8, verb: VerbKind, reply: Reply) -> Entry {
        let kept = |token| Kept { token, until: 0, fence: 1 };
        let mine = kept(if reply == Reply::Done { 7 } else { 0 });
        let executed = Executed {
            request: u32::from(node),
            node,
            process: 0,
            sent: ms * MS,
            verb,
            name: 0,
            token: 7,
            reply,
            clock: WALL_START + (ms + 1) * MS,
            before: mine,
            after: mine,
        };
        at(ms + 1, What::Executed(executed))
    }

    fn found(loss_signal: u64, more: Vec<Entry>) -> usize {
        let setup = Setup { nodes: 3, ..Setup::new(1, Dialect::Strict) };
        let mut entries = holder(loss_signal);
        for entry in &more {
            if let What::Executed(Executed { request, .. }) = entry.what {
                entries.push(Entry { at: entry.at + MS, what: What::Answered { request } });
            }
        }
        entries.extend(more);
        check(&setup, &Trace::of(entries)).len()
    }

    #[test]
    fn a_lock_that_a_majority_could_have_kept_is_found() {
        let round = |second| {
            vec![
                extension(600, 0, VerbKind::Heal, Reply::Done),
                extension(600, 1, VerbKind::Extend, second),
            ]
        };
        assert_eq!(found(960, round(Reply::Refused)), 1, "nobody had it there");
        assert_eq!(found(960, round(Reply::NoVote)), 0, "that is no majority that votes");
        assert_eq!(found(960, round(Reply::Refused)[..1].to_vec()), 0, "nor is that");
        let mut quiet = round(Reply::Refused);
        quiet.push(at(500, What::Forgot { node: 1 }));
        assert_eq!(found(960, quiet), 0, "it had to wait before it votes");
        let mut another = round(Reply::Refused);
        if let What::Executed(executed) = &mut another[1].what {
            executed.before.token = 8;
        }
        assert_eq!(found(960, another), 0, "another has it there");
    }

    #[test]
    fn a_lock_that_is_given_up_before_its_time_is_found() {
        let late = |clock_ms| {
            let mut late = extension(300, 0, VerbKind::Heal, Reply::NoVote);
            late.at = 700 * MS;
            if let What::Executed(executed) = &mut late.what {
                executed.clock = WALL_START + clock_ms * MS;
            }
            vec![late]
        };
        assert_eq!(found(701, late(705)), 1, "5 ms ahead");
        assert_eq!(found(701, late(1_500)), 0, "a clock that is off");
        assert_eq!(found(960, late(705)), 0, "its time was over");
        let gone = vec![extension(600, 0, VerbKind::Heal, Reply::Refused)];
        assert_eq!(found(701, gone), 0, "it was taken away");
    }

    /// What the previous holder of the same process has asked for is answered to this one.
    #[test]
    fn a_lock_that_was_passed_on_ends_by_the_extension_of_the_holder_before() {
        let asked_before = |heard_after: u64, released: bool| {
            let mut entries = vec![extension(600, 0, VerbKind::Heal, Reply::Refused)];
            if released {
                let mut release = extension(605, 1, VerbKind::Release, Reply::Done);
                release.at = 606 * MS;
                entries.push(release);
            }
            let (window, process, name, holding, fence) = (2, 0, 0, 2, None);
            let (until, heeds, renewed) = (1_500 * MS, true, true);
            let opened = Opened { window, process, name, holding, until, fence, heeds, renewed };
            entries.push(at(610, What::Opened(opened)));
            entries.push(at(600 + heard_after, What::Answered { request: 0 }));
            entries.push(at(701, What::LossSignal { window }));
            entries.sort_by_key(|entry| entry.at);
            let setup = Setup { nodes: 3, ..Setup::new(1, Dialect::Strict) };
            check(&setup, &Trace::of(entries)).len()
        };
        assert_eq!(asked_before(100, false), 0, "it was taken away meanwhile");
        assert_eq!(asked_before(5, false), 1, "that was heard before it was passed on");
        assert_eq!(asked_before(100, true), 1, "that was another claim");
    }
}
