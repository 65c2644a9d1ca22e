//! What goes wrong, and when.
//!
//! A plan is made before the run, from the seed alone, so that leaving one fault out of it changes
//! nothing about the others.

use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::nodes::Loses;
use crate::random::Random;
use crate::trace::What;
use crate::world::{Event, State, WALL_START, World};
use crate::{Dialect, Setup};

/// The kinds of faults, as they are named and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "their names say it")]
pub enum FaultClass {
    Pause,
    Preempt,
    Suspend,
    Kill,
    WallJump,
    Cut,
    LostReply,
    Split,
    Break,
    Delay,
    SlowNode,
    StopNode,
    Crash,
    RestartEmpty,
    LoseLastSecond,
    Flush,
    StaleReplica,
    ClockJump,
    ClockExcursion,
    AllClocks,
    Forge,
    Poison,
    StopAll,
    RollingRestart,
    Burst,
    MassRenewal,
}

impl FaultClass {
    /// All of them.
    pub const ALL: [Self; 26] = [
        Self::Pause,
        Self::Preempt,
        Self::Suspend,
        Self::Kill,
        Self::WallJump,
        Self::Cut,
        Self::LostReply,
        Self::Split,
        Self::Break,
        Self::Delay,
        Self::SlowNode,
        Self::StopNode,
        Self::Crash,
        Self::RestartEmpty,
        Self::LoseLastSecond,
        Self::Flush,
        Self::StaleReplica,
        Self::ClockJump,
        Self::ClockExcursion,
        Self::AllClocks,
        Self::Forge,
        Self::Poison,
        Self::StopAll,
        Self::RollingRestart,
        Self::Burst,
        Self::MassRenewal,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Preempt => "preempt",
            Self::Suspend => "suspend",
            Self::Kill => "kill",
            Self::WallJump => "wall-jump",
            Self::Cut => "cut",
            Self::LostReply => "lost-reply",
            Self::Split => "split",
            Self::Break => "break",
            Self::Delay => "delay",
            Self::SlowNode => "slow-node",
            Self::StopNode => "stop-node",
            Self::Crash => "crash",
            Self::RestartEmpty => "restart-empty",
            Self::LoseLastSecond => "lose-last-second",
            Self::Flush => "flush",
            Self::StaleReplica => "stale-replica",
            Self::ClockJump => "clock-jump",
            Self::ClockExcursion => "clock-excursion",
            Self::AllClocks => "all-clocks",
            Self::Forge => "forge",
            Self::Poison => "poison",
            Self::StopAll => "stop-all",
            Self::RollingRestart => "rolling-restart",
            Self::Burst => "burst",
            Self::MassRenewal => "mass-renewal",
        }
    }
}

impl fmt::Display for FaultClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fault {
    /// When it begins, in nanoseconds from the start.
    pub at: u64,
    /// How long it lasts.
    pub lasts: u64,
    /// What happens.
    pub kind: FaultKind,
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// A process is stopped, and goes on later. Its clocks go on meanwhile.
    Pause {
        /// Which.
        process: u8,
    },
    /// The same in the middle of a step.
    Preempt {
        /// Which.
        process: u8,
        /// After so many readings of the clock or sendings.
        instructions: u8,
    },
    /// Its machine is suspended: its timers do not run either.
    Suspend {
        /// Which.
        process: u8,
    },
    /// It is killed, and is started again later.
    Kill {
        /// Which.
        process: u8,
    },
    /// Its time of day is set.
    WallJump {
        /// Which.
        process: u8,
        /// So much ahead of the true time, in nanoseconds.
        by: i64,
    },
    /// Ways are cut.
    Cut {
        /// From these processes, as bits.
        processes: u8,
        /// To these nodes, as bits.
        nodes: u8,
        /// Whether requests are held back.
        up: bool,
        /// Whether replies are.
        down: bool,
    },
    /// A connection breaks.
    Break {
        /// Of which process.
        process: u8,
        /// To which node.
        node: u8,
    },
    /// A way gets longer.
    Delay {
        /// Of which process.
        process: u8,
        /// To which node.
        node: u8,
        /// By how much.
        by: u64,
    },
    /// A server gets slower.
    Slow {
        /// Which node.
        node: u8,
        /// By how much for each request.
        by: u64,
    },
    /// A server is stopped, and serves what has gathered when it goes on.
    Stop {
        /// Which node.
        node: u8,
    },
    /// A server ends, and is started again.
    Crash {
        /// Which node.
        node: u8,
        /// What it has forgotten then: nothing, all (`u64::MAX`), or the last so many nanoseconds.
        loses: u64,
    },
    /// A server that goes on running is emptied.
    Flush {
        /// Which node.
        node: u8,
    },
    /// Its clock is set.
    Jump {
        /// Which node.
        node: u8,
        /// So much ahead of the true time.
        by: i64,
    },
    /// Its clock is moved, and moved back at the end.
    Excursion {
        /// Which node.
        node: u8,
        /// By how much.
        by: i64,
    },
    /// The time of day is set everywhere, on processes and nodes, at the same moment.
    Step {
        /// By how much.
        by: i64,
    },
    /// An attacker that may publish on all servers, and hears what they publish, sends a process grant
    /// messages: of its own making, and some that were sent before.
    Forge {
        /// To which process.
        process: u8,
    },
    /// A process wants many locks at the same moment, more than may be asked for at once, and gives them back when it
    /// is over. Wherever this is planned, servers take their time for each request.
    Crowd {
        /// Which.
        process: u8,
        /// The index of the first.
        first: u16,
        /// How many.
        locks: u16,
    },
    /// The last fence of every lock there becomes one that no holder can have got, and is put right at the
    /// end.
    Poison {
        /// Which node.
        node: u8,
        /// The fence.
        fence: u64,
    },
}

impl FaultKind {
    /// Whether a server may lose by it what it has kept.
    pub(crate) fn forgets(self) -> bool {
        matches!(self, Self::Crash { loses, .. } if loses > 0 && loses < u64::MAX)
    }
}

/// All faults of a run, in the order of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Them.
    pub faults: Vec<Fault>,
    /// How many of each class were planned, in the order of [`FaultClass::ALL`].
    pub(crate) classes: Vec<(FaultClass, u32)>,
}

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// From one fault to the next, on the average.
const SPACING: u64 = 435 * MS;

impl Plan {
    /// A plan by hand.
    #[must_use]
    pub fn of(faults: Vec<Fault>) -> Self {
        Self { faults, classes: Vec::new() }
    }

    /// The plan of a seed.
    pub(crate) fn random(setup: &Setup) -> Self {
        let mut random = Random::new(setup.seed, 6);
        let mut faults = Vec::new();
        let mut classes: Vec<_> = setup.faults.iter().map(|class| (*class, 0)).collect();
        let count = if setup.faults.is_empty() { 0 } else { setup.horizon / SPACING };
        for _ in 0..count {
            let index = random.below(setup.faults.len() as u64) as usize;
            let at = random.below(setup.horizon);
            let fault = fault(setup, setup.faults[index], at, &mut random);
            // One crowd is enough.
            if matches!(fault.kind, FaultKind::Crowd { .. }) && classes[index].1 > 0 {
                continue;
            }
            // All of it is over when the calm begins.
            let others = on_other_nodes(setup, setup.faults[index], fault);
            for mut fault in [fault].into_iter().chain(others).filter(|it| it.at < setup.horizon) {
                fault.lasts = fault.lasts.min(setup.horizon - fault.at);
                faults.push(fault);
            }
            classes[index].1 += 1;
        }
        faults.sort_by_key(|fault| fault.at);
        Self { faults, classes }
    }
}

fn fault(setup: &Setup, class: FaultClass, at: u64, random: &mut Random) -> Fault {
    let ttl = setup.ttl.as_nanos() as u64;
    let process = random.below(setup.clients as u64) as u8;
    let node = random.below(setup.servers() as u64) as u8;
    let sign = if random.percent(50) { 1 } else { -1 };
    let some = random.next() as u8;
    let one_node = Cutting { processes: u8::MAX, nodes: 1 << node };
    let (kind, lasts) = match class {
        FaultClass::Pause => (FaultKind::Pause { process }, random.between(5 * MS, 5 * ttl / 2)),
        FaultClass::Preempt => {
            let instructions = random.below(40) as u8;
            (FaultKind::Preempt { process, instructions }, random.between(5 * MS, 2 * ttl))
        }
        FaultClass::Suspend => (FaultKind::Suspend { process }, random.between(ttl / 10, 4 * ttl)),
        FaultClass::Kill => (FaultKind::Kill { process }, random.between(50 * MS, 3 * SECOND)),
        FaultClass::WallJump => {
            let by = random.around_zero(setup.dialect.wall_offset_ns());
            (FaultKind::WallJump { process, by }, 0)
        }
        FaultClass::Cut => {
            let (up, down) = random.pick(&[(true, true), (true, false)]).unwrap_or_default();
            let cutting = Cutting { processes: 1 << process, nodes: some | 1 << node };
            (cutting.kind(up, down), random.between(20 * MS, 2 * ttl))
        }
        FaultClass::LostReply => (one_node.kind(false, true), random.between(20 * MS, ttl)),
        FaultClass::Split => {
            let cutting = Cutting { processes: some, nodes: (random.next() as u8) | 1 << node };
            (cutting.kind(true, true), random.between(100 * MS, 3 * ttl))
        }
        FaultClass::Break => (FaultKind::Break { process, node }, 0),
        FaultClass::Delay => {
            let by = random.between(MS, 400 * MS);
            (FaultKind::Delay { process, node, by }, random.between(100 * MS, 2 * SECOND))
        }
        FaultClass::SlowNode => {
            let by = random.between(MS, 200 * MS);
            (FaultKind::Slow { node, by }, random.between(100 * MS, 3 * SECOND))
        }
        FaultClass::StopNode => (FaultKind::Stop { node }, random.between(20 * MS, 2 * ttl)),
        FaultClass::Crash => (FaultKind::Crash { node, loses: 0 }, down_for(random)),
        FaultClass::RestartEmpty => (FaultKind::Crash { node, loses: u64::MAX }, down_for(random)),
        FaultClass::LoseLastSecond => (FaultKind::Crash { node, loses: SECOND }, down_for(random)),
        FaultClass::StaleReplica => {
            let loses = random.between(100 * MS, 3 * SECOND);
            (FaultKind::Crash { node, loses }, random.between(5 * MS, 100 * MS))
        }
        FaultClass::Flush => (FaultKind::Flush { node }, 0),
        FaultClass::ClockJump => {
            // As often as not it is set to where a strict node just votes.
            let (behind, ahead) = Dialect::WINDOW_US;
            let by = if random.percent(50) {
                (random.below((behind + ahead) * 1_000) as i64) - (behind * 1_000) as i64
            } else {
                sign * random.below(5 * SECOND) as i64
            };
            (FaultKind::Jump { node, by }, 0)
        }
        FaultClass::ClockExcursion => {
            let by = sign * random.between(20 * MS, 5 * SECOND) as i64;
            (FaultKind::Excursion { node, by }, random.between(5 * MS, 2 * ttl))
        }
        FaultClass::AllClocks => {
            // Ahead by more than any lease lasts, but not back by more than a node that has forgotten waits:
            // fences follow the time of day.
            let by = match sign {
                1 => random.between(20 * MS, 3 * ttl) as i64,
                _ => -(random.between(20 * MS, ttl) as i64),
            };
            (FaultKind::Step { by }, 0)
        }
        FaultClass::Forge => (FaultKind::Forge { process }, 0),
        FaultClass::Poison => {
            let ten_years = WALL_START / 1_000 + 3_650 * 24 * 3_600 * 1_000_000;
            let fences = [1 << 53, i64::MAX.unsigned_abs(), ten_years];
            let fence = random.pick(&fences).unwrap_or(ten_years);
            (FaultKind::Poison { node, fence }, random.between(100 * MS, 3 * ttl))
        }
        FaultClass::StopAll => (FaultKind::Stop { node }, random.between(20 * MS, ttl)),
        FaultClass::RollingRestart => {
            let loses = if setup.dialect == Dialect::Strict { u64::MAX } else { 0 };
            (FaultKind::Crash { node, loses }, random.between(ttl / 2, 2 * ttl))
        }
        FaultClass::Burst => {
            let locks = random.between(900, 1_000) as u16;
            (FaultKind::Crowd { process, first: 0, locks }, ttl)
        }
        FaultClass::MassRenewal => {
            let locks = random.between(900, 1_000) as u16;
            (FaultKind::Crowd { process, first: 0, locks }, random.between(3 * ttl, 5 * ttl))
        }
    };
    let at = match kind {
        // All of it comes before the calm.
        FaultKind::Crowd { .. } => at.min(setup.horizon.saturating_sub(2 * lasts)),
        _ => at,
    };
    Fault { at, lasts, kind }
}

/// From one moment at which all nodes stand still, while many locks are held, to the next; and how long that lasts.
const STALLS: (u64, u64) = (2_010 * MS, 350 * MS);

/// What the same class does to the other nodes: at the same moment, or to one after the other when the one before
/// votes again.
fn on_other_nodes(setup: &Setup, class: FaultClass, fault: Fault) -> Vec<Fault> {
    let servers = setup.servers() as u8;
    let others = |first: u8| (1..servers).map(move |node| (first + node) % servers);
    let ttl = setup.ttl.as_nanos() as u64;
    match (class, fault.kind) {
        (FaultClass::StopAll, FaultKind::Stop { node }) => {
            others(node).map(|node| Fault { kind: FaultKind::Stop { node }, ..fault }).collect()
        }
        (FaultClass::RollingRestart, FaultKind::Crash { node, loses }) => {
            let spacing = fault.lasts + setup.quarantine().as_nanos() as u64 + ttl;
            let one = |(turn, node): (usize, u8)| {
                let at = fault.at + (turn as u64 + 1) * spacing;
                Fault { at, kind: FaultKind::Crash { node, loses }, ..fault }
            };
            others(node).enumerate().map(one).collect()
        }
        // As many others are wanted when the first are given back.
        (FaultClass::Burst, FaultKind::Crowd { process, locks, .. }) => {
            let kind = FaultKind::Crowd { process, first: locks, locks };
            vec![Fault { at: fault.at + fault.lasts, kind, ..fault }]
        }
        (FaultClass::MassRenewal, FaultKind::Crowd { .. }) => {
            let (spacing, longest) = STALLS;
            // The first when all of them are held.
            let stalls = (1..).map(move |turn| turn * spacing).take_while(|at| *at < fault.lasts);
            let one = |(at, node)| {
                let lasts = (at ^ fault.at) % longest;
                Fault { at: fault.at + at, lasts, kind: FaultKind::Stop { node } }
            };
            stalls.flat_map(|at| (0..servers).map(move |node| (at, node))).map(one).collect()
        }
        _ => Vec::new(),
    }
}

/// How long a server takes to be there again.
fn down_for(random: &mut Random) -> u64 {
    if random.percent(50) { random.between(13 * MS, 100 * MS) } else { random.below(2 * SECOND) }
}

struct Cutting {
    processes: u8,
    nodes: u8,
}

impl Cutting {
    fn kind(&self, up: bool, down: bool) -> FaultKind {
        FaultKind::Cut { processes: self.processes, nodes: self.nodes, up, down }
    }
}

impl World {
    /// A fault begins.
    pub(crate) fn strike(self: &Arc<Self>, index: usize) {
        let Fault { lasts, kind, .. } = self.plan.faults[index];
        let mut state = self.state();
        let now = state.now;
        let end = now + lasts;
        state.note(now, What::Fault(index as u32));
        match kind {
            FaultKind::Pause { process } => state.still(usize::from(process), lasts, false),
            FaultKind::Suspend { process } => state.still(usize::from(process), lasts, true),
            FaultKind::Preempt { process, instructions } => {
                state.processes[usize::from(process)].preempt_after(instructions.into(), lasts);
            }
            FaultKind::Kill { process } => {
                let process = usize::from(process);
                // The rest of its present step is noted already: it ends after that.
                let busy = state.processes[process].busy_until;
                if now < busy {
                    if busy + lasts < self.setup.horizon {
                        state.at(busy, Event::Fault(index));
                    }
                    return;
                }
                state.at(end, Event::Restart(process));
                drop(state);
                self.kill(process);
            }
            FaultKind::WallJump { process, by } => {
                let shown = state.time_of_day().saturating_add_signed(by);
                state.processes[usize::from(process)].wall.set(now, shown);
                let wakers = state.processes[usize::from(process)].wall_was_set();
                drop(state);
                wakers.into_iter().for_each(Waker::wake);
            }
            FaultKind::Step { by } => {
                // Processes in the middle of a step have read their clocks already: it comes after that.
                let busy = state.processes.iter().map(|process| process.busy_until).max();
                if let Some(busy) = busy.filter(|busy| now < *busy) {
                    if busy < self.setup.horizon {
                        state.at(busy, Event::Fault(index));
                    }
                    return;
                }
                let wakers = state.step_all_clocks(by, self.setup.ttl);
                drop(state);
                if let Some(wakers) = wakers {
                    self.cut_windows(by);
                    wakers.into_iter().for_each(Waker::wake);
                }
            }
            FaultKind::Break { process, node } => state.break_path(process.into(), node.into()),
            FaultKind::Crash { node, loses } => {
                let loses = match loses {
                    0 => Loses::Nothing,
                    u64::MAX => Loses::Everything,
                    span => Loses::Last(span),
                };
                state.crash(node.into(), loses, end);
            }
            FaultKind::Forge { process } => state.forge(process.into()),
            // The process knows by itself.
            FaultKind::Crowd { .. } => {}
            FaultKind::Flush { node } => {
                state.servers[usize::from(node)].forget(Loses::Everything, now);
                state.note(now, What::Forgot { node });
            }
            FaultKind::Jump { node, by } => {
                let shown = state.time_of_day().saturating_add_signed(by);
                state.servers[usize::from(node)].clock.set(now, shown);
            }
            FaultKind::Cut { .. }
            | FaultKind::Delay { .. }
            | FaultKind::Slow { .. }
            | FaultKind::Stop { .. }
            | FaultKind::Excursion { .. }
            | FaultKind::Poison { .. } => {
                state.apply(kind, 1);
                state.at(end, Event::Mend(index));
            }
        }
    }
}

impl State {
    /// A fault that lasts is over.
    pub(crate) fn mend(&mut self, kind: FaultKind) {
        self.apply(kind, -1);
        let (processes, nodes) = (self.processes.len(), self.servers.len());
        for process in 0..processes {
            for node in 0..nodes {
                self.flush_path(process, node);
            }
        }
    }

    /// Puts a fault that lasts into effect, or takes it back.
    fn apply(&mut self, kind: FaultKind, sign: i64) {
        let more = |count: &mut u32| *count = count.saturating_add_signed(sign as i32);
        let longer = |span: &mut u64, by: u64| *span = span.saturating_add_signed(sign * by as i64);
        match kind {
            FaultKind::Cut { processes, nodes, up, down } => {
                let has = |bits: u8, index: usize| bits >> index & 1 == 1;
                for process in (0..self.processes.len()).filter(|p| has(processes, *p)) {
                    for node in (0..self.servers.len()).filter(|n| has(nodes, *n)) {
                        let path = self.network.path(process, node);
                        if up {
                            more(&mut path.cut_up);
                        }
                        if down {
                            more(&mut path.cut_down);
                        }
                    }
                }
            }
            FaultKind::Delay { process, node, by } => {
                longer(&mut self.network.path(process.into(), node.into()).extra, by);
            }
            FaultKind::Slow { node, by } => longer(&mut self.servers[usize::from(node)].slow, by),
            FaultKind::Stop { node } => more(&mut self.servers[usize::from(node)].stopped),
            FaultKind::Excursion { node, by } => {
                let now = self.now;
                self.servers[usize::from(node)].clock.jump(now, sign * by);
            }
            FaultKind::Poison { node, fence } => {
                let server = &mut self.servers[usize::from(node)];
                if sign > 0 { server.poison(fence) } else { server.cure() }
            }
            _ => {}
        }
    }

    /// The true time of day, which the clocks are set by.
    pub(crate) fn time_of_day(&self) -> u64 {
        (WALL_START + self.now).saturating_add_signed(self.stepped)
    }

    /// Sets the time of day everywhere. Returns whom to tell.
    ///
    /// Nothing is set back in the time of a lease after it was set ahead: a process that stood still meanwhile would
    /// notice neither. Nor is it set back twice in that time, by more than fences bear.
    fn step_all_clocks(&mut self, by: i64, ttl: Duration) -> Option<Vec<Waker>> {
        let now = self.now;
        let lease = ttl.as_nanos() as u64 * 11 / 10;
        if by < 0 && self.stepped_at.is_some_and(|at| now < at + lease) {
            return None;
        }
        self.stepped += by;
        self.stepped_at = Some(now);
        self.note(now, What::Stepped { by });
        for server in &mut self.servers {
            server.clock.jump(now, by);
        }
        let processes = self.processes.iter_mut();
        Some(
            processes
                .flat_map(|process| {
                    process.wall.jump(now, by);
                    process.wall_was_set()
                })
                .collect(),
        )
    }

    fn crash(&mut self, node: usize, loses: Loses, end: u64) {
        let now = self.now;
        let server = &mut self.servers[node];
        server.forget(loses, now);
        server.up = false;
        self.note(now, What::Server { node: node as u8, up: false });
        self.drop_server(node);
        self.at(end, Event::StartServer(node));
    }

    /// A server is there again, as another start of it.
    pub(crate) fn start_server(&mut self, node: usize) {
        let (now, run_id) = (self.now, self.order.next());
        let server = &mut self.servers[node];
        if !server.up {
            server.up = true;
            server.run_id = run_id;
            self.note(now, What::Server { node: node as u8, up: true });
            self.note(now, What::Forgot { node: node as u8 });
        }
    }
}
