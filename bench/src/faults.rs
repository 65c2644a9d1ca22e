//! Five nodes with one of them hung, or two of them dead, beside all five up.

use std::time::Duration;

use anyhow::Result;
use quorlock_testkit::{RedisServer, servers};

use crate::Run;
use crate::contest::{Contest, Sample};
use crate::order::Order;
use crate::peers::on_servers;
use crate::report::{Cell, Column, Group, Report, Row};

/// A round ends with the first of both.
const CYCLES: u64 = 200;
const SECONDS: f64 = 1.0;
/// Who takes that long once is not asked again in the same state.
const SLOW_SECONDS: f64 = 3.0;
const STATES: [State; 3] = [State::Up, State::OneHung, State::TwoDead];
/// How many locks at a time.
const AT_A_TIME: [usize; 2] = [1, 64];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Up,
    OneHung,
    TwoDead,
}

pub fn compare(run: &Run) -> Result<Report> {
    let rounds = run.scaled(3, 1);
    // Who needs longer for what was begun by then is not waited for.
    let limit = Duration::from_secs(if run.quick { 4 } else { 12 });
    let servers = servers(5);
    // Who has no servers has no faults of servers.
    let mut contest = Contest::start(&run.tools, &servers, on_servers())?;
    for index in 0..contest.entrants.len() {
        let seconds = contest.entrants[index].system.warm_up_seconds(run.quick);
        run.progress(&format!("faults, {} warms up", contest.entrants[index].system.name));
        let order = Order::cycles("bench/warm", 1, u64::MAX >> 2, seconds);
        contest.cycles(index, &order, limit);
    }
    let mut outcomes: Vec<Vec<Outcome>> =
        vec![vec![Outcome::default(); STATES.len() * AT_A_TIME.len()]; contest.entrants.len()];
    for round in 0..rounds {
        for (number, (state, at_a_time)) in settings().enumerate() {
            run.progress(&format!("faults, {state:?}, round {} of {rounds}", round + 1));
            state.begin(&servers);
            for index in contest.turns(round) {
                if outcomes[index][number].is_known() {
                    continue;
                }
                let name = format!("bench/{number}/{index}/{round}");
                let order = Order::cycles(&name, at_a_time, CYCLES * at_a_time as u64, SECONDS);
                match contest.cycles(index, &order, limit) {
                    Some(sample) => outcomes[index][number].samples.push(sample),
                    None => {
                        let reason = contest.entrants[index].state.as_ref().err();
                        outcomes[index][number].dropped = reason.cloned();
                    }
                }
            }
            state.end(&servers);
            settle(&mut contest, limit);
        }
    }
    let column = |name, charted| Column { name, charted };
    let groups = settings().enumerate().map(|(number, (state, at_a_time))| Group {
        setting: match at_a_time {
            1 => state.title().to_owned(),
            many => format!("{}, {many} at a time", state.title()),
        },
        rows: contest
            .entrants
            .iter()
            .zip(&outcomes)
            .map(|(entrant, outcomes)| outcomes[number].row(entrant.system.name))
            .collect(),
    });
    Ok(Report {
        name: "faults",
        title: "Five nodes with faults: lock + release of a free name",
        notes: vec![
            format!(
                "median of {rounds} rounds in turns (min..max), of up to {CYCLES} cycles of \
                 each task or {SECONDS} s; pinned to one core"
            ),
            "hung: stopped with SIGSTOP, its port still takes bytes; dead: killed, its port is closed"
                .into(),
        ],
        columns: vec![
            column("client CPU µs/cycle", true),
            column("p50 µs", true),
            column("p99 µs", false),
            column("cycles/s", true),
            column("failed", false),
        ],
        groups: groups.collect(),
    })
}

/// What is measured, in this order.
fn settings() -> impl Iterator<Item = (State, usize)> {
    AT_A_TIME.into_iter().flat_map(|at_a_time| STATES.map(|state| (state, at_a_time)))
}

impl State {
    fn title(self) -> &'static str {
        match self {
            Self::Up => "all five up",
            Self::OneHung => "one of five hung",
            Self::TwoDead => "two of five dead",
        }
    }

    fn begin(self, servers: &[RedisServer]) {
        match self {
            Self::Up => {}
            Self::OneHung => servers[4].pause(),
            Self::TwoDead => servers[3..].iter().for_each(RedisServer::kill),
        }
    }

    fn end(self, servers: &[RedisServer]) {
        match self {
            Self::Up => {}
            Self::OneHung => servers[4].resume(),
            Self::TwoDead => servers[3..].iter().for_each(RedisServer::restart),
        }
    }
}

/// Lets everybody find all nodes again, and lets those back in who were thrown out.
fn settle(contest: &mut Contest, limit: Duration) {
    for index in 0..contest.entrants.len() {
        let order = Order::cycles("bench/settle", 1, u64::MAX >> 2, 0.3);
        contest.cycles(index, &order, limit);
    }
    contest.restart();
}

/// How it went for one system in one state.
#[derive(Debug, Clone, Default)]
struct Outcome {
    samples: Vec<Sample>,
    /// Why it dropped out in a round.
    dropped: Option<String>,
}

impl Outcome {
    /// Whether another round would only take long.
    fn is_known(&self) -> bool {
        let slow = |sample: &Sample| sample.client.seconds > SLOW_SECONDS;
        self.dropped.is_some() || self.samples.iter().any(slow)
    }

    fn row(&self, system: &str) -> Row {
        if let (Some(reason), []) = (&self.dropped, &*self.samples) {
            return Row::without(system, reason, 5);
        }
        let cell = |of: &dyn Fn(&Sample) -> f64| {
            // A round in which nothing went well has no latency.
            let some = self.samples.iter().filter(|sample| sample.client.cycles > 0);
            Cell::Figures(some.map(of).collect())
        };
        Row {
            system: system.to_owned(),
            cells: vec![
                cell(&|s| s.client.cpu_seconds * 1e6 / s.client.cycles as f64),
                cell(&|s| s.client.p50_us),
                cell(&|s| s.client.p99_us),
                cell(&|s| s.client.cycles as f64 / s.client.seconds),
                Cell::one(self.samples.iter().map(|s| s.client.failed as f64).sum()),
            ],
        }
    }
}
