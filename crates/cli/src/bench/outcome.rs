//! What was measured, for people and for programs.

use std::fmt::Write as _;
use std::time::Duration;

use quorlock::admin::examine::{Checkup, Examination, Fact, Severity};
use serde_json::{Value, json};

use super::load::Loaded;
use super::verdict::{self, Limit};
use crate::exit;

/// All that was measured.
pub(super) struct Outcome {
    nodes: Vec<Node>,
    needed: usize,
    usable: usize,
    is_misuse: bool,
    concurrency: u16,
    pub(super) many: Loaded,
    pub(super) one: Loaded,
    /// Where names could not be cleared away, and why.
    pub(super) not_forgotten: Option<String>,
}

struct Node {
    name: String,
    usable: bool,
    /// Why it cannot be used.
    trouble: Option<String>,
    round_trip: Option<Duration>,
    is_file: bool,
    /// The processor time of the server so far, where it tells.
    cpu: Option<Duration>,
    /// How much of a core it needed while many locks were taken at a time.
    cpu_share: Option<f64>,
}

impl Node {
    fn new(examination: &Examination) -> Self {
        Self {
            name: examination.node.clone(),
            usable: examination.usable,
            trouble: trouble(examination),
            round_trip: micros(examination, "round_trip_median_us"),
            is_file: examination.fact("kind") == Some(&Fact::Text("sqlite".to_owned())),
            cpu: micros(examination, "cpu_used_us"),
            cpu_share: None,
        }
    }
}

/// Why a node cannot be used, and what to do about it.
fn trouble(examination: &Examination) -> Option<String> {
    let mut errors = examination.findings.iter().filter(|it| it.severity == Severity::Error);
    let why = errors.next().filter(|_| !examination.usable)?;
    Some(match &why.remedy {
        // What cannot be reached says itself what to look at.
        Some(remedy) if why.check != "usable" => format!("{}; {remedy}", why.text),
        _ => why.text.clone(),
    })
}

fn micros(examination: &Examination, name: &str) -> Option<Duration> {
    match examination.fact(name)? {
        Fact::Number(number) => u64::try_from(*number).ok().map(Duration::from_micros),
        _ => None,
    }
}

impl Outcome {
    pub(super) fn new(checkup: &Checkup, concurrency: u16) -> Self {
        Self {
            nodes: checkup.nodes.iter().map(Node::new).collect(),
            needed: checkup.needed,
            usable: checkup.usable,
            is_misuse: checkup.is_misuse(),
            concurrency,
            many: Loaded::default(),
            one: Loaded::default(),
            not_forgotten: None,
        }
    }

    /// Notes down how the nodes are after many locks: which of them cannot be used any more, and how
    /// busy they were since the look before, between which there was hardly anything but these locks.
    pub(super) fn look_again(&mut self, after: &Checkup) {
        let took = self.many.took.as_secs_f64();
        for (node, after) in self.nodes.iter_mut().zip(&after.nodes) {
            if node.usable && !after.usable {
                (node.usable, node.trouble) = (false, trouble(after));
            }
            // A machine that is busy for a moment makes one look slow, and hardly both.
            node.round_trip = match (node.round_trip, micros(after, "round_trip_median_us")) {
                (Some(before), Some(after)) => Some(before.min(after)),
                (before, after) => before.or(after),
            };
            if !self.many.is_long_enough() {
                continue;
            }
            let used = micros(after, "cpu_used_us").zip(node.cpu);
            // A server that was started anew has used less than before.
            let used = used.and_then(|(after, before)| after.checked_sub(before));
            node.cpu_share = used.map(|used| used.as_secs_f64() / took);
        }
    }

    /// The code to exit with.
    pub(super) fn code(&self) -> u8 {
        match () {
            () if self.is_misuse => exit::MISUSE,
            () if self.usable < self.needed => exit::UNAVAILABLE,
            () if self.many.is_in_vain() || self.one.is_in_vain() => exit::UNAVAILABLE,
            () => 0,
        }
    }

    fn round_trips(&self) -> Vec<Option<Duration>> {
        self.nodes.iter().map(|node| node.round_trip).collect()
    }

    fn client_cpu_share(&self) -> f64 {
        self.many.cpu.as_secs_f64() / self.many.took.as_secs_f64()
    }

    /// What stands in the way of more, if it can be told.
    fn limit(&self) -> Option<Limit> {
        if !self.many.is_long_enough() || self.many.is_full_of_failures() {
            return None;
        }
        let shares: Vec<_> = self.nodes.iter().map(|node| node.cpu_share).collect();
        let far = self.nodes.iter().any(|node| !node.is_file);
        Some(verdict::limit(self.client_cpu_share(), &shares, far))
    }

    /// What is left on the nodes, in words.
    pub(super) fn left(&self) -> Option<String> {
        let left = self.not_forgotten.as_ref()?;
        Some(format!(
            "Its names could not be cleared away everywhere, and go by themselves after a day: {left}"
        ))
    }

    /// How long the middle lock took, in round trips of the majority.
    fn lock_round_trips(&self) -> Option<f64> {
        let unit = verdict::of_majority(&self.round_trips(), self.needed)?;
        let lock = quantile(&self.one.locks, 0.5)?;
        Some(lock.as_secs_f64() / unit.as_secs_f64())
    }

    fn failed(&self) -> (u64, Option<&str>) {
        let error = self.many.error.as_ref().or(self.one.error.as_ref());
        (self.many.failed + self.one.failed, error.map(String::as_str))
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let count = self.nodes.len();
        let plural = if count == 1 { "" } else { "s" };
        let _ = writeln!(text, "{count} node{plural}, of which a lock needs {}", self.needed);
        let width = self.nodes.iter().map(|node| node.name.chars().count()).max().unwrap_or(0);
        for node in &self.nodes {
            let trip = node.round_trip.map(|trip| format!("round trip {}", shown(trip)));
            let share =
                node.cpu_share.map(|share| format!("processor {:.0} % busy", share * 100.0));
            let figures = || [trip, share].into_iter().flatten().collect::<Vec<_>>().join(", ");
            let about = node.trouble.clone().unwrap_or_else(figures);
            let _ = writeln!(text, "{}", format!("  {:width$}  {about}", node.name).trim_end());
        }
        if let (Some(p50), Some(p99)) =
            (quantile(&self.one.locks, 0.5), quantile(&self.one.locks, 0.99))
        {
            let trips = self.lock_round_trips();
            let trips =
                trips.map(|trips| format!(", or {trips:.1} round trips")).unwrap_or_default();
            let release = quantile(&self.one.releases, 0.5).unwrap_or_default();
            let _ = writeln!(
                text,
                "\none at a time: a lock takes {}{trips} (p99 {}), a release {}",
                shown(p50),
                shown(p99),
                shown(release)
            );
        }
        if !self.many.locks.is_empty() {
            let locks = self.many.locks.len() as f64;
            let _ = writeln!(
                text,
                "{} at a time: {:.0} locks a second, each of which costs {} of processor time here",
                self.concurrency,
                locks / self.many.took.as_secs_f64(),
                shown(self.many.cpu.div_f64(locks))
            );
        }
        let _ = writeln!(text, "\n{}", self.verdict());
        text
    }

    /// What all of it means.
    fn verdict(&self) -> String {
        let mut sentences = Vec::new();
        if self.code() == exit::MISUSE {
            return "One server stands behind two URLs: see quorlock doctor.".into();
        }
        if self.usable < self.needed {
            return format!(
                "{} of {} nodes can be used, and {} are needed: see quorlock doctor.",
                self.usable,
                self.nodes.len(),
                self.needed
            );
        }
        if let (failed @ 1.., Some(error)) = self.failed() {
            sentences.push(format!("{failed} locks failed, the first one thus: {error}"));
        }
        if self.many.locks.is_empty() {
            sentences.push("No lock could be taken.".to_owned());
        } else if !self.many.is_full_of_failures() {
            sentences.push(match self.limit() {
                None => "This was too short to tell what is the limit: allow more locks, or more \
                         time."
                    .to_owned(),
                Some(Limit::Client) => {
                    "The processor here is the limit: several clients together get more \
                                  out of these nodes."
                        .to_owned()
                }
                Some(Limit::Server(index)) => format!(
                    "The processor of {} is the limit: give it a faster one, or spread names over \
                     several groups of nodes.",
                    self.nodes[index].name
                ),
                Some(Limit::File) => {
                    "The file is the limit: it takes one change at a time, so that neither \
                     more clients nor more at a time give more."
                        .to_owned()
                }
                Some(Limit::Network) => {
                    "The way to the nodes is the limit: no processor is used up, and \
                                   more at a time give more."
                        .to_owned()
                }
            });
        }
        for index in verdict::slow(&self.round_trips()) {
            sentences.push(format!(
                "{} is slow, with a round trip of {}: as long as a majority is faster it costs \
                 nothing, but if another one fails, every lock waits for it.",
                self.nodes[index].name,
                shown(self.nodes[index].round_trip.unwrap_or_default())
            ));
        }
        for node in self.nodes.iter().filter(|node| !node.usable) {
            sentences.push(format!("{} cannot be used: see quorlock doctor.", node.name));
        }
        sentences.extend(self.left());
        sentences.join("\n")
    }

    /// For programs.
    pub(super) fn json(&self) -> String {
        let slow = verdict::slow(&self.round_trips());
        let nodes = self.nodes.iter().enumerate().map(|(index, node)| {
            json!({
                "node": node.name,
                "usable": node.usable,
                "round_trip_us": node.round_trip.map(us),
                "cpu_share": node.cpu_share,
                "slow": slow.contains(&index),
            })
        });
        let rate = |loaded: &Loaded| match loaded.took {
            Duration::ZERO => None,
            took => Some(loaded.locks.len() as f64 / took.as_secs_f64()),
        };
        let each = self.many.locks.len() as f64;
        let (failed, error) = self.failed();
        let limit = self.limit().map(|limit| match limit {
            Limit::Client => "client",
            Limit::Server(_) => "server",
            Limit::File => "file",
            Limit::Network => "network",
        });
        let any = !self.many.locks.is_empty();
        let value: Value = json!({
            "nodes": nodes.collect::<Vec<_>>(),
            "needed": self.needed,
            "round_trip_us": verdict::of_majority(&self.round_trips(), self.needed).map(us),
            "one_at_a_time": {
                "locks": self.one.locks.len(),
                "seconds": self.one.took.as_secs_f64(),
                "lock_p50_us": quantile(&self.one.locks, 0.5).map(us),
                "lock_p99_us": quantile(&self.one.locks, 0.99).map(us),
                "release_p50_us": quantile(&self.one.releases, 0.5).map(us),
                "lock_round_trips": self.lock_round_trips(),
            },
            "many_at_a_time": {
                "concurrency": self.concurrency,
                "locks": self.many.locks.len(),
                "seconds": self.many.took.as_secs_f64(),
                "locks_per_s": rate(&self.many),
                "client_cpu_us": any.then(|| self.many.cpu.as_secs_f64() * 1e6 / each),
                "client_cpu_share": any.then(|| self.client_cpu_share()),
            },
            "failed": failed,
            "error": error,
            "limit": limit,
            "left": self.not_forgotten,
            "verdict": self.verdict(),
        });
        format!("{value:#}\n")
    }
}

fn quantile(sorted: &[Duration], quantile: f64) -> Option<Duration> {
    let index = sorted.len().checked_sub(1)? as f64 * quantile;
    sorted.get(index.round() as usize).copied()
}

fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// µs or ms, with the digits that matter.
fn shown(duration: Duration) -> String {
    match us(duration) {
        us if us < 1_000.0 => format!("{us:.0} µs"),
        us if us < 100_000.0 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.0} ms", us / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_with_few_digits() {
        for (micros, text) in [(7, "7 µs"), (999, "999 µs"), (1_250, "1.2 ms"), (250_000, "250 ms")]
        {
            assert_eq!(shown(Duration::from_micros(micros)), text);
        }
    }

    #[test]
    fn quantiles_of_nothing_are_nothing() {
        assert_eq!(quantile(&[], 0.5), None);
        let some: Vec<_> = (1..=101).map(Duration::from_micros).collect();
        assert_eq!(quantile(&some, 0.5), Some(Duration::from_micros(51)));
        assert_eq!(quantile(&some, 0.99), Some(Duration::from_micros(100)));
    }
}
