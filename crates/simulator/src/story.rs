//! A trace in words.

use std::fmt;

use crate::Outcome;
use crate::checkers::Time;
use crate::nemesis::{Fault, FaultKind};
use crate::trace::{Entry, Executed, Opened, What, Written};

/// So much is told of the time before a broken promise, in nanoseconds.
const BEFORE: u64 = 1_500_000_000;
/// And so many lines of it at the most.
const MOST_LINES: usize = 60;

impl Outcome {
    /// What led to the first broken promise, line by line; empty if none was.
    #[must_use]
    pub fn story(&self) -> Vec<String> {
        let Some(first) = self.violations.first() else { return Vec::new() };
        let mut lines: Vec<_> =
            self.plan.faults.iter().map(|fault| format!("fault  {fault}")).collect();
        let end = first.at + 1_000_000;
        let shown = |entry: &&Entry| entry.at + BEFORE > first.at && entry.at <= end;
        let tail: Vec<_> = self.trace.entries().iter().filter(shown).collect();
        let worth = tail.iter().filter_map(|entry| {
            let text = said(&entry.what)?;
            Some(format!("{}  {text}", Time(entry.at)))
        });
        let worth: Vec<_> = worth.collect();
        lines.extend_from_slice(&worth[worth.len().saturating_sub(MOST_LINES)..]);
        lines.push(format!("→ {first}"));
        lines
    }
}

/// What is worth telling of it.
fn said(what: &What) -> Option<String> {
    Some(match what {
        What::Fault(_) | What::Mended(_) | What::Answered { .. } | What::Leftover { .. } => {
            return None;
        }
        What::Stepped { by } => {
            format!("the time of day is set {} ms ahead everywhere", by / 1_000_000)
        }
        What::Started(process) => format!("process {process} starts"),
        What::Stopped { process, until, .. } => {
            format!("process {process} stands still until {}", Time(*until))
        }
        What::Killed(process) => format!("process {process} ends without a word"),
        What::Server { node, up } => {
            format!("node {node} is {}", if *up { "there again" } else { "gone" })
        }
        What::Forgot { node } => format!("node {node} may have forgotten votes"),
        What::Quarantined { node, .. } => format!("node {node} casts no votes for a while"),
        What::Executed(Executed { node, process, verb, reply, name, sent, .. }) => format!(
            "node {node}: {verb:?} of process {process} for lock {name}, sent {}: {reply:?}",
            Time(*sent)
        ),
        What::GrantMessage { node, process } => {
            format!("node {node} tells process {process} of a grant")
        }
        What::Wanted { process, name } => format!("process {process} wants lock {name}"),
        What::Taken { process, name, .. } => {
            format!("process {process} is told that lock {name} is taken")
        }
        What::Failed { process, name, .. } => {
            format!("process {process} is told that too few nodes have voted, for lock {name}")
        }
        What::Opened(Opened { window, process, name, until, fence, .. }) => {
            let fence = fence.map(|fence| format!(", with fence {fence}")).unwrap_or_default();
            format!(
                "process {process} HOLDS lock {name} until {}{fence} (window {window})",
                Time(*until)
            )
        }
        What::Until { window, until } => format!("window {window} lasts until {}", Time(*until)),
        What::LossSignal { window } => format!("window {window}: its holder is told of the loss"),
        What::Closed { window } => format!("window {window}: its holder lets go"),
        What::Written(Written { window, accepted, stale, .. }) => {
            let stale = if *stale { ", too late" } else { "" };
            let fenced = if *accepted { "" } else { ", refused where fences are checked" };
            format!("a write of window {window} arrives{stale}{fenced}")
        }
        What::Forcing { process, name } => format!("process {process} breaks lock {name}"),
        What::Forced { process, name } => format!("process {process} has broken lock {name}"),
        What::Calm => "the faults are over".to_owned(),
        What::Asks(process) => format!("process {process} asks in the calm"),
        What::Got(process) => format!("process {process} has got it"),
    })
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = |bits: u8| {
            let set = (0..8).filter(|bit| bits >> bit & 1 == 1).map(|bit| bit.to_string());
            set.collect::<Vec<_>>().join(",")
        };
        write!(f, "{}  ", Time(self.at))?;
        match self.kind {
            FaultKind::Pause { process } => write!(f, "process {process} is stopped"),
            FaultKind::Preempt { process, instructions } => {
                write!(f, "process {process} is stopped in the middle, after {instructions} steps")
            }
            FaultKind::Suspend { process } => write!(f, "the machine of process {process} sleeps"),
            FaultKind::Kill { process } => write!(f, "process {process} is killed"),
            FaultKind::WallJump { process, by } => {
                write!(f, "the time of day of process {process} is set {} ms ahead", by / 1_000_000)
            }
            FaultKind::Cut { processes, nodes, up, down } => {
                let what = match (up, down) {
                    (true, true) => "everything",
                    (true, false) => "requests",
                    _ => "replies",
                };
                let (processes, nodes) = (bits(processes), bits(nodes));
                write!(f, "{what} held back between processes {processes} and nodes {nodes}")
            }
            FaultKind::Break { process, node } => {
                write!(f, "the connection of process {process} to node {node} breaks")
            }
            FaultKind::Delay { process, node, by } => {
                let by = by / 1_000_000;
                write!(f, "the way from process {process} to node {node} takes {by} ms longer")
            }
            FaultKind::Slow { node, by } => {
                write!(f, "node {node} takes {} ms longer", by / 1_000_000)
            }
            FaultKind::Stop { node } => write!(f, "node {node} is stopped"),
            FaultKind::Crash { node, loses: 0 } => write!(f, "node {node} crashes"),
            FaultKind::Crash { node, loses: u64::MAX } => {
                write!(f, "node {node} crashes, and restarts empty")
            }
            FaultKind::Crash { node, loses } => {
                write!(f, "node {node} crashes, and loses its last {} ms", loses / 1_000_000)
            }
            FaultKind::Flush { node } => write!(f, "node {node} is emptied"),
            FaultKind::Jump { node, by } => {
                write!(f, "the clock of node {node} is set {} ms ahead", by / 1_000_000)
            }
            FaultKind::Excursion { node, by } => {
                let by = by / 1_000_000;
                write!(f, "the clock of node {node} is {by} ms off for a while")
            }
            FaultKind::Step { by } => {
                write!(f, "the time of day is set {} ms ahead everywhere", by / 1_000_000)
            }
            FaultKind::Forge { process } => {
                write!(f, "process {process} is sent messages of grants that no node has sent")
            }
            FaultKind::Crowd { process, locks, .. } => {
                write!(f, "process {process} wants {locks} locks at once")
            }
            FaultKind::Poison { node, fence } => {
                write!(f, "the fences of node {node} become {fence}")
            }
        }?;
        if self.lasts > 0 { write!(f, ", for {} ms", self.lasts / 1_000_000) } else { Ok(()) }
    }
}
