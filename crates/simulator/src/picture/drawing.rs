//! What happened in one run, along the time.
//!
//! ```text
//!   processes  ▇▇▇▇▇▇▇▇▇▇░░░░░ stopped ░░░░      what each believes to hold, and until when
//!              \    /                            requests and replies
//!   nodes      ──▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇────▇▇▇▇▇        whose record each node has
//!   resource       │     │             ✗         what was written
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::escaped;
use crate::Outcome;
use crate::checkers::{Time, windows};
use crate::trace::{Executed, Reply, VerbKind, What, Written};

const LEFT: f64 = 96.0;
const WIDTH: f64 = 1_400.0;
const LANE: f64 = 46.0;
const TOP: f64 = 60.0;
/// So much of a long run is drawn around what matters, in nanoseconds.
const MOST: u64 = 8_000_000_000;
const COLORS: [&str; 6] = ["#2f7ed8", "#e08a1e", "#3f9b4f", "#9b4fb5", "#c2527a", "#4aa3a3"];

pub(super) struct Drawing<'a> {
    outcome: &'a Outcome,
    from: u64,
    to: u64,
    out: String,
}

impl<'a> Drawing<'a> {
    pub(super) fn of(outcome: &'a Outcome) -> Self {
        let end = outcome.setup.horizon;
        let middle = outcome.violations.first().map_or(end / 2, |violation| violation.at);
        let (from, to) = if end <= MOST {
            (0, end)
        } else {
            let from = middle.saturating_sub(MOST * 3 / 4);
            (from, from + MOST)
        };
        Self { outcome, from, to, out: String::new() }
    }

    fn x(&self, at: u64) -> f64 {
        let at = at.clamp(self.from, self.to) - self.from;
        LEFT + at as f64 / (self.to - self.from) as f64 * WIDTH
    }

    fn process_y(process: u8) -> f64 {
        TOP + f64::from(process) * LANE
    }

    fn node_y(&self, node: u8) -> f64 {
        TOP + (self.outcome.setup.clients as f64 + 0.8 + f64::from(node)) * LANE
    }

    fn store_y(&self) -> f64 {
        self.node_y(self.outcome.setup.nodes as u8) + LANE * 0.4
    }

    pub(super) fn is_seen(&self, at: u64) -> bool {
        (self.from..=self.to).contains(&at)
    }

    /// How much room it takes.
    pub(super) fn size(&self) -> (f64, f64) {
        (LEFT + WIDTH + 20.0, self.store_y() + LANE)
    }

    /// All of it, as an SVG element that begins with `attributes`.
    pub(super) fn svg(mut self, attributes: &str) -> String {
        let (width, height) = self.size();
        let _ = writeln!(
            self.out,
            "<svg {attributes} viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\">"
        );
        self.axis(height);
        self.faults();
        self.messages();
        self.records();
        self.stops();
        self.windows();
        self.writes();
        self.marks(height);
        self.out.push_str("</svg>\n");
        self.out
    }

    fn axis(&mut self, height: f64) {
        let step = (self.to - self.from).div_ceil(10_000_000_000).max(1) * 500_000_000;
        let mut at = self.from.next_multiple_of(step);
        while at <= self.to {
            let x = self.x(at);
            let _ = writeln!(
                self.out,
                "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{:.0}\" x2=\"{x:.1}\" y2=\"{:.0}\"/>\
                 <text class=\"tick\" x=\"{x:.1}\" y=\"{:.0}\">{:.1} s</text>",
                TOP - 12.0,
                height - 20.0,
                height - 6.0,
                at as f64 / 1e9
            );
            at += step;
        }
        let setup = &self.outcome.setup;
        let process = |it| (Self::process_y(it), format!("process {it}"));
        let processes = (0..setup.clients as u8).map(process);
        let nodes = (0..setup.nodes as u8).map(|it| (self.node_y(it), format!("node {it}")));
        let store = [(self.store_y(), "resource".to_owned())];
        let lanes: Vec<_> = processes.chain(nodes).chain(store).collect();
        for (y, name) in lanes {
            let _ = writeln!(
                self.out,
                "<text class=\"name\" x=\"6\" y=\"{:.0}\">{name}</text>\
                 <line class=\"lane\" x1=\"{LEFT}\" y1=\"{:.0}\" x2=\"{:.0}\" y2=\"{:.0}\"/>",
                y + 15.0,
                y + 20.0,
                LEFT + WIDTH,
                y + 20.0
            );
        }
    }

    fn bar(&mut self, class: &str, fill: &str, (from, to): (u64, u64), y: f64, h: f64, tip: &str) {
        let (x1, x2) = (self.x(from), self.x(to));
        if to <= self.from || from >= self.to || x2 <= x1 {
            return;
        }
        let _ = writeln!(
            self.out,
            "<rect class=\"{class}\" x=\"{x1:.1}\" y=\"{y:.0}\" width=\"{:.1}\" height=\"{h:.0}\" \
             fill=\"{fill}\"><title>{}</title></rect>",
            (x2 - x1).max(1.0),
            escaped(tip)
        );
    }

    fn faults(&mut self) {
        let outcome = self.outcome;
        let mut shown = 0;
        for fault in &outcome.plan.faults {
            if !self.is_seen(fault.at) {
                continue;
            }
            let y = TOP - 46.0 + f64::from(shown % 3) * 11.0;
            shown += 1;
            let span = (fault.at, fault.at + fault.lasts.max(8_000_000));
            self.bar("fault", "#d33", span, y, 8.0, &fault.to_string());
            let x = self.x(fault.at) - 3.0;
            let _ = writeln!(
                self.out,
                "<text class=\"number\" x=\"{x:.1}\" y=\"{:.0}\">{shown}</text>",
                y + 8.0
            );
        }
    }

    fn messages(&mut self) {
        let mut asked: BTreeMap<u32, (Executed, u64)> = BTreeMap::new();
        for entry in self.outcome.trace.entries() {
            match entry.what {
                What::Executed(it) if it.verb != VerbKind::Look => {
                    asked.insert(it.request, (it, entry.at));
                    let class = match it.reply {
                        Reply::Done => "yes",
                        Reply::NoVote => "mute",
                        _ => "no",
                    };
                    let process = (it.sent, Self::process_y(it.process) + 20.0);
                    self.arrow(class, process, (entry.at, self.node_y(it.node) + 20.0));
                }
                What::Answered { request } => {
                    if let Some((it, executed)) = asked.get(&request).copied() {
                        let node = (executed, self.node_y(it.node) + 20.0);
                        self.arrow("back", node, (entry.at, Self::process_y(it.process) + 20.0));
                    }
                }
                _ => {}
            }
        }
    }

    fn arrow(&mut self, class: &str, (t1, y1): (u64, f64), (t2, y2): (u64, f64)) {
        if self.is_seen(t1) || self.is_seen(t2) {
            let (x1, x2) = (self.x(t1), self.x(t2));
            let _ = writeln!(
                self.out,
                "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.0}\" x2=\"{x2:.1}\" y2=\"{y2:.0}\"/>"
            );
        }
    }

    /// Whose record each node has, of the first lock.
    fn records(&mut self) {
        let trace = &self.outcome.trace;
        let mut owners: BTreeMap<u64, u8> = BTreeMap::new();
        for entry in trace.entries() {
            if let What::Executed(Executed { verb, token, process, .. }) = entry.what
                && matches!(verb, VerbKind::Acquire | VerbKind::Wait)
            {
                owners.insert(token, process);
            }
        }
        let mut bars = Vec::new();
        let mut since: BTreeMap<u8, (u64, u64, u64)> = BTreeMap::new();
        let mut quiet: Vec<(u8, u64, u64)> = Vec::new();
        for entry in trace.entries() {
            match entry.what {
                What::Executed(Executed { node, name: 0, after, clock, .. }) => {
                    let ends = entry.at + after.until.saturating_sub(clock);
                    let before = since.get(&node).copied();
                    if let Some((token, from, until)) = before
                        && token != after.token
                        && token != 0
                    {
                        bars.push((node, token, from, entry.at.min(until)));
                    }
                    let from = match before {
                        Some((token, from, _)) if token == after.token => from,
                        _ => entry.at,
                    };
                    since.insert(node, (after.token, from, ends));
                }
                What::Server { node, up: false } | What::Forgot { node } => {
                    if let Some((token, from, until)) = since.remove(&node)
                        && token != 0
                    {
                        bars.push((node, token, from, entry.at.min(until)));
                    }
                }
                What::Quarantined { node, until } => {
                    let (now, clock) = (entry.at, crate::world::WALL_START + entry.at);
                    quiet.push((node, now, now + until.saturating_sub(clock)));
                }
                _ => {}
            }
        }
        bars.extend(
            since
                .into_iter()
                .filter(|(_, (token, ..))| *token != 0)
                .map(|(node, (token, from, until))| (node, token, from, until)),
        );
        for (node, token, from, to) in bars {
            let process = owners.get(&token).copied().unwrap_or_default();
            let tip =
                format!("node {node} has the record of process {process} from {}", Time(from));
            let (y, color) =
                (self.node_y(node) + 10.0, COLORS[usize::from(process) % COLORS.len()]);
            self.bar("record", color, (from, to), y, 20.0, &tip);
        }
        for (node, from, to) in quiet {
            let tip = format!("node {node} casts no vote until {}", Time(to));
            let y = self.node_y(node) + 14.0;
            self.bar("quiet", "#888", (from, to), y, 12.0, &tip);
        }
        let mut down: BTreeMap<u8, u64> = BTreeMap::new();
        for entry in self.outcome.trace.entries() {
            match entry.what {
                What::Server { node, up: false } => {
                    down.entry(node).or_insert(entry.at);
                }
                What::Server { node, up: true } => {
                    let from = down.remove(&node).unwrap_or(entry.at);
                    let span = (from, entry.at.max(from + 10_000_000));
                    let y = self.node_y(node) + 6.0;
                    self.bar("down", "#222", span, y, 28.0, &format!("node {node} is gone"));
                }
                _ => {}
            }
        }
    }

    fn stops(&mut self) {
        for entry in self.outcome.trace.entries() {
            if let What::Stopped { process, until, asleep } = entry.what {
                let how = if asleep { "sleeps" } else { "stands still" };
                let tip = format!("process {process} {how} until {}", Time(until));
                let y = Self::process_y(process) + 2.0;
                self.bar("still", "#888", (entry.at, until), y, 36.0, &tip);
            }
        }
    }

    fn windows(&mut self) {
        let all = windows::windows(&self.outcome.trace);
        for window in all.iter().filter(|window| window.opened.name == 0) {
            let process = window.opened.process;
            let fence = window.opened.fence.unwrap_or_default();
            let tip = format!(
                "process {process} believes to hold the lock from {} to {}, with fence {fence}",
                Time(window.from),
                Time(window.to)
            );
            let overlaps = all.iter().any(|other| {
                other.opened.name == 0
                    && other.opened.holding != window.opened.holding
                    && other.from < window.to
                    && window.from < other.to
            });
            let class = if overlaps { "held double" } else { "held" };
            let (y, color) =
                (Self::process_y(process) + 8.0, COLORS[usize::from(process) % COLORS.len()]);
            self.bar(class, color, (window.from, window.to), y, 24.0, &tip);
            if let Some(at) = window.loss_signal.filter(|at| self.is_seen(*at)) {
                let x = self.x(at);
                let _ = writeln!(
                    self.out,
                    "<text class=\"told\" x=\"{x:.1}\" y=\"{:.0}\">lost<title>told at {}</title></text>",
                    y - 2.0,
                    Time(at)
                );
            }
        }
    }

    fn writes(&mut self) {
        for entry in self.outcome.trace.entries() {
            let What::Written(Written { window, accepted, stale, name: 0, fence, .. }) = entry.what
            else {
                continue;
            };
            if !self.is_seen(entry.at) {
                continue;
            }
            let (x, y) = (self.x(entry.at), self.store_y() + 20.0);
            let (class, mark) = match (stale, accepted) {
                (false, _) => ("fine", "●"),
                (true, false) => ("stale", "✗"),
                (true, true) => ("stale", "!"),
            };
            let tip = format!(
                "window {window} writes with fence {}{}",
                fence.unwrap_or_default(),
                if stale {
                    ": too late. Refused where fences are checked, taken in where not"
                } else {
                    ""
                }
            );
            let _ = writeln!(
                self.out,
                "<text class=\"{class}\" x=\"{x:.1}\" y=\"{:.0}\">{mark}<title>{}</title></text>",
                y + 5.0,
                escaped(&tip)
            );
        }
    }

    fn marks(&mut self, height: f64) {
        let first = self.outcome.violations.first();
        if let Some(violation) = first.filter(|it| self.is_seen(it.at)) {
            let x = self.x(violation.at);
            let _ = writeln!(
                self.out,
                "<line class=\"broken\" x1=\"{x:.1}\" y1=\"{:.0}\" x2=\"{x:.1}\" y2=\"{:.0}\">\
                 <title>{}</title></line>",
                TOP - 14.0,
                height - 20.0,
                escaped(&violation.to_string())
            );
        }
    }
}
