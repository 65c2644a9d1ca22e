//! The times in which a client believes to hold a lock.

use std::collections::{BTreeMap, BTreeSet};

use crate::trace::{Entry, Opened, Trace, What};

/// One guard's belief, from when it was handed out to its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) opened: Opened,
    pub(crate) from: u64,
    /// The end of the belief: it was let go of, or its loss was signalled, or its process ended, or its
    /// validity ran out.
    pub(crate) to: u64,
    /// The latest end of validity that was ever reported.
    pub(crate) longest: u64,
    /// The end of validity that was reported last, before it was found to be over.
    pub(crate) last: u64,
    /// When it was found to be over.
    pub(crate) over: Option<u64>,
    pub(crate) loss_signal: Option<u64>,
    /// When it was let go of, or its process ended.
    pub(crate) closed: Option<u64>,
    /// Whether it was taken away from its holder, who learns of it later.
    forced: bool,
}

impl Window {
    /// Whether it was taken away from its holder.
    pub(crate) fn is_forced(&self) -> bool {
        self.forced
    }
}

/// What was sent to take a lock away may be under way for so long.
const UNDER_WAY: u64 = 3_000_000_000;

/// Which locks are being taken away, and from whom they were.
#[derive(Default)]
pub(crate) struct Forced {
    by: BTreeSet<(u8, u16)>,
    until: BTreeMap<u16, u64>,
    holdings: BTreeSet<u32>,
}

impl Forced {
    /// Takes in what happens next. Returns whether a client begins to hold a lock that is being taken away
    /// from it, or was: it may learn of both long after others hold it.
    pub(crate) fn see(&mut self, entry: &Entry) -> bool {
        match entry.what {
            What::Opened(opened) => return self.hits(&opened, entry.at),
            What::Forcing { process, name } => {
                self.by.insert((process, name));
            }
            What::Forced { process, name } => self.ends(process, name, entry.at),
            What::Killed(process) => {
                let its = self.by.iter().copied().filter(|(by, _)| *by == process);
                for (process, name) in its.collect::<Vec<_>>() {
                    self.ends(process, name, entry.at);
                }
            }
            _ => {}
        }
        false
    }

    fn ends(&mut self, process: u8, name: u16, at: u64) {
        if self.by.remove(&(process, name)) {
            self.until.insert(name, at + UNDER_WAY);
        }
    }

    fn hits(&mut self, opened: &Opened, at: u64) -> bool {
        let now = self.by.iter().any(|(_, name)| *name == opened.name)
            || self.until.get(&opened.name).is_some_and(|until| at <= *until);
        if now {
            self.holdings.insert(opened.holding);
        }
        self.holdings.contains(&opened.holding)
    }
}

/// All windows, in the order in which they were opened.
pub(crate) fn windows(trace: &Trace) -> Vec<Window> {
    let mut windows: Vec<Window> = Vec::new();
    let mut index: BTreeMap<u32, usize> = BTreeMap::new();
    let mut all_forced = Forced::default();
    for entry in trace.entries() {
        let at = entry.at;
        let forced = all_forced.see(entry);
        let mut change = |window: u32, change: &dyn Fn(&mut Window)| {
            if let Some(index) = index.get(&window) {
                change(&mut windows[*index]);
            }
        };
        match entry.what {
            What::Opened(opened) => {
                index.insert(opened.window, windows.len());
                let (to, longest) = (if forced { at } else { opened.until }, opened.until);
                windows.push(Window {
                    opened,
                    from: at,
                    to,
                    longest,
                    last: longest,
                    over: None,
                    loss_signal: None,
                    closed: None,
                    forced,
                });
            }
            What::Until { window, until } => change(window, &|it| {
                if it.closed.is_none() && it.loss_signal.is_none() {
                    it.to = if it.forced { it.to } else { until };
                    it.longest = it.longest.max(until);
                    if until > at {
                        it.last = until;
                    } else {
                        it.over = it.over.or(Some(at));
                    }
                }
            }),
            What::LossSignal { window } => change(window, &|it| {
                it.loss_signal = it.loss_signal.or(Some(at));
                it.to = it.to.min(at);
            }),
            What::Closed { window } => change(window, &|it| {
                it.closed = it.closed.or(Some(at));
                it.to = it.to.min(at);
            }),
            What::Forcing { name, .. } => {
                let open = |it: &&mut Window| it.opened.name == name && it.to > at;
                for window in windows.iter_mut().filter(open) {
                    all_forced.holdings.insert(window.opened.holding);
                    (window.to, window.forced) = (at, true);
                }
            }
            What::Killed(process) => {
                for window in windows.iter_mut().filter(|it| it.opened.process == process) {
                    window.closed = window.closed.or(Some(at));
                    window.to = window.to.min(at);
                }
            }
            _ => {}
        }
    }
    windows
}
