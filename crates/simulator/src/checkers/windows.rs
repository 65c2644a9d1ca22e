//! The times in which somebody believes to hold a lock.

use std::collections::BTreeMap;

use crate::trace::{Opened, Trace, What};

/// One guard's belief, from when it was handed out to its end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) opened: Opened,
    pub(crate) from: u64,
    /// The end of the belief: it was let go of, or its loss was told, or its process ended, or its
    /// validity ran out.
    pub(crate) to: u64,
    /// The latest end of validity that was ever reported.
    pub(crate) longest: u64,
    pub(crate) told: Option<u64>,
    /// When it was let go of, or its process ended.
    pub(crate) closed: Option<u64>,
}

/// All windows, in the order in which they were opened.
pub(crate) fn windows(trace: &Trace) -> Vec<Window> {
    let mut windows: Vec<Window> = Vec::new();
    let mut index: BTreeMap<u32, usize> = BTreeMap::new();
    for entry in trace.entries() {
        let at = entry.at;
        let mut change = |window: u32, change: &dyn Fn(&mut Window)| {
            if let Some(index) = index.get(&window) {
                change(&mut windows[*index]);
            }
        };
        match entry.what {
            What::Opened(opened) => {
                index.insert(opened.window, windows.len());
                let (to, longest) = (opened.until, opened.until);
                windows.push(Window { opened, from: at, to, longest, told: None, closed: None });
            }
            What::Until { window, until } => change(window, &|it| {
                if it.closed.is_none() && it.told.is_none() {
                    it.to = until;
                    it.longest = it.longest.max(until);
                }
            }),
            What::Told { window } => change(window, &|it| {
                it.told = it.told.or(Some(at));
                it.to = it.to.min(at);
            }),
            What::Closed { window } => change(window, &|it| {
                it.closed = it.closed.or(Some(at));
                it.to = it.to.min(at);
            }),
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
