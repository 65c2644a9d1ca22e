//! True time, and everything that waits for it.
//!
//! ```text
//!   queue: (time, number, event) ──▶ now ──▶ handle: a message arrives, a timer ends, a fault begins
//!                                     │
//!                                     └──▶ work: tasks of processes that run, until none is left
//! ```
//!
//! One thread, one queue, one seed: the same run, every time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use quorlock::runtime::Moment;

use crate::Setup;
use crate::board::Board;
use crate::clock::Clock;
use crate::holders::Holders;
use crate::nemesis::{FaultKind, Plan};
use crate::network::{ConnId, Down, Link, LinkId, Network};
use crate::nodes::Server;
use crate::planted::Planted;
use crate::process::{Process, TaskId, Timer, Work};
use crate::random::Random;
use crate::store::{Store, Write};
use crate::trace::{Entry, Trace, What};

/// More steps than this at one moment are an endless loop.
const MOST_STEPS: u32 = 1_000_000;

/// How long each request keeps a server from the next, where many are asked for at once: as many as may be on their way
/// are served before the first of them is late.
const SERVICE: u64 = 300_000;

/// The day on which all clocks start, in nanoseconds of the time of day.
pub(crate) const WALL_START: u64 = 1_790_000_000_000_000_000;

/// What is to happen.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    /// A timer of a process ends.
    Timer(u64),
    /// A link looks at the clock.
    Attend { process: usize, link: LinkId },
    /// Something arrives at a server.
    Up(ConnId),
    /// Something arrives at a client.
    Down(ConnId),
    /// A write arrives at the resource.
    Write(Write),
    /// A fault of the plan begins.
    Fault(usize),
    /// It ends.
    Mend(usize),
    /// A process that stood still may go on.
    Resume(usize),
    /// A process that ended is started again.
    Restart(usize),
    /// A server that ended is started again.
    StartServer(usize),
}

struct Scheduled {
    at: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// One run.
pub(crate) struct World {
    pub(crate) setup: Setup,
    pub(crate) plan: Plan,
    state: Mutex<State>,
    /// Tasks that were woken and not run since.
    pub(crate) woken: Mutex<Vec<TaskId>>,
    pub(crate) holders: Mutex<Holders>,
    pub(crate) board: Mutex<Board>,
}

pub(crate) struct State {
    pub(crate) now: u64,
    /// What all clocks were set by together, and when they last were.
    pub(crate) stepped: i64,
    pub(crate) stepped_at: Option<u64>,
    numbers: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    pub(crate) processes: Vec<Process>,
    pub(crate) servers: Vec<Server>,
    pub(crate) network: Network,
    pub(crate) links: BTreeMap<LinkId, Arc<Link>>,
    next_link: LinkId,
    arrived: BTreeMap<LinkId, VecDeque<(ConnId, Down)>>,
    pub(crate) timers: BTreeMap<u64, Timer>,
    pub(crate) next_timer: u64,
    pub(crate) store: Store,
    /// Which process runs at this moment.
    pub(crate) running: Option<usize>,
    pub(crate) order: Random,
    entries: Vec<Entry>,
}

impl World {
    pub(crate) fn new(setup: Setup, plan: Plan) -> Arc<Self> {
        let mut random = Random::new(setup.seed, 3);
        let processes = (0..setup.clients).map(|_| Process::new(&setup, &mut random)).collect();
        let crowded = plan.faults.iter().any(|fault| matches!(fault.kind, FaultKind::Crowd { .. }));
        let forgets = plan.faults.iter().any(|fault| fault.kind.forgets());
        let server = |node| {
            let ppm = random.around_zero(setup.dialect.node_ppm());
            let offset = random.around_zero(setup.dialect.node_offset_ns());
            let clock = Clock::new(WALL_START.saturating_add_signed(offset), ppm);
            let members = setup.first_members(node);
            let mut server = Server::new(clock, random.next(), forgets, &setup, members);
            server.service = if crowded { SERVICE } else { 0 };
            server
        };
        let servers = (0..setup.servers()).map(server).collect();
        let state = State {
            now: 0,
            stepped: 0,
            stepped_at: None,
            numbers: 0,
            queue: BinaryHeap::new(),
            processes,
            servers,
            network: Network::new(setup.seed, setup.clients, setup.servers()),
            links: BTreeMap::new(),
            next_link: 1,
            arrived: BTreeMap::new(),
            timers: BTreeMap::new(),
            next_timer: 1,
            store: Store::default(),
            running: None,
            order: Random::new(setup.seed, 4),
            entries: Vec::new(),
        };
        let world = Arc::new(Self {
            setup,
            plan,
            state: Mutex::new(state),
            woken: Mutex::default(),
            holders: Mutex::default(),
            board: Mutex::default(),
        });
        {
            let mut state = world.state();
            for (index, fault) in world.plan.faults.iter().enumerate() {
                state.at(fault.at, Event::Fault(index));
            }
        }
        world
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic in between")
    }

    pub(crate) fn planted(&self) -> Option<Planted> {
        self.setup.planted
    }

    /// The time since the start of its machine, as a process sees it.
    pub(crate) fn boot(&self, process: usize) -> Moment {
        let state = self.state();
        Moment::from_nanos(state.processes[process].clock.at(state.now_of(process)))
    }

    /// The time of day in microseconds, as a process sees it.
    pub(crate) fn wall_us(&self, process: usize) -> u64 {
        let state = self.state();
        state.processes[process].wall.at(state.now_of(process)) / 1_000
    }

    /// A process executes an instruction, at which it may be made to stand still.
    pub(crate) fn instruction(&self, process: usize) {
        let mut state = self.state();
        if state.running == Some(process) {
            state.processes[process].preempt();
        }
    }

    /// Notes something that a process does.
    pub(crate) fn note_by(&self, process: usize, what: What) {
        let mut state = self.state();
        let at = state.now_of(process);
        state.note(at, what);
    }

    /// Lets everything happen up to a time, or until nothing is left to happen.
    ///
    /// # Panics
    /// When a process never rests.
    pub(crate) fn run_until(self: &Arc<Self>, end: u64) {
        loop {
            let mut steps = 0;
            while self.work() {
                steps += 1;
                assert!(steps < MOST_STEPS, "seed {}: a process never rests", self.setup.seed);
            }
            let event = {
                let mut state = self.state();
                match state.queue.peek() {
                    Some(Reverse(next)) if next.at <= end => {}
                    _ => {
                        state.now = end;
                        return;
                    }
                }
                let Some(Reverse(next)) = state.queue.pop() else { return };
                state.now = next.at;
                next.event
            };
            self.handle(event);
        }
    }

    fn handle(self: &Arc<Self>, event: Event) {
        let mut state = self.state();
        match event {
            Event::Timer(id) => {
                let waker = state.timer_ends(id);
                drop(state);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            Event::Attend { process, link } => state.processes[process].add(Work::Link(link)),
            Event::Up(conn) => state.flow_up(conn),
            Event::Down(conn) => state.flow_down(conn),
            Event::Write(write) => {
                let (now, what) = (state.now, state.store.apply(&write));
                state.note(now, what);
            }
            Event::Resume(process) => state.resume(process),
            Event::StartServer(node) => state.start_server(node),
            Event::Restart(process) => {
                drop(state);
                self.start(process);
            }
            Event::Fault(index) => {
                drop(state);
                self.strike(index);
            }
            Event::Mend(index) => {
                let now = state.now;
                state.note(now, What::Mended(index as u32));
                state.mend(self.plan.faults[index].kind);
            }
        }
    }

    /// The whole trace, in order.
    pub(crate) fn take_trace(&self) -> Trace {
        Trace::of(std::mem::take(&mut self.state().entries))
    }
}

impl State {
    /// Has something happen at a time.
    pub(crate) fn at(&mut self, at: u64, event: Event) {
        self.numbers += 1;
        self.queue.push(Reverse(Scheduled { at: at.max(self.now), number: self.numbers, event }));
    }

    pub(crate) fn note(&mut self, at: u64, what: What) {
        self.entries.push(Entry { at, what });
    }

    /// The true time at which a process is, with what it stood still in the middle of its work.
    pub(crate) fn now_of(&self, process: usize) -> u64 {
        self.now + self.processes[process].lag
    }

    /// When so much has passed on the clock of a process.
    pub(crate) fn true_after(&self, process: usize, after: Duration) -> u64 {
        let (now, clock) = (self.now_of(process), &self.processes[process].clock);
        clock.when(clock.at(now).saturating_add(after.as_nanos() as u64)).max(now)
    }

    /// The clock of a process is set back, which no real one is.
    pub(crate) fn set_back(&mut self, process: usize, by: Duration) {
        let now = self.now_of(process);
        self.processes[process].clock.jump(now, -(by.as_nanos() as i64));
    }

    pub(crate) fn incarnation(&self, process: usize) -> u32 {
        self.processes[process].incarnation
    }

    pub(crate) fn new_link(&mut self, process: usize) -> (LinkId, u32) {
        let id = self.next_link;
        self.next_link += 1;
        (id, self.incarnation(process))
    }

    /// Something has come for a link.
    pub(crate) fn arrived(&mut self, process: usize, link: LinkId, conn: ConnId, message: Down) {
        if self.links.contains_key(&link) {
            self.arrived.entry(link).or_default().push_back((conn, message));
            self.processes[process].add(Work::Link(link));
        }
    }

    pub(crate) fn take_arrived(&mut self, link: LinkId) -> Option<(ConnId, Down)> {
        let arrived = self.arrived.get_mut(&link)?;
        let next = arrived.pop_front();
        if arrived.is_empty() {
            self.arrived.remove(&link);
        }
        next
    }

    /// A random number below `end`.
    pub(crate) fn chance(&mut self, end: u64) -> u64 {
        self.order.below(end)
    }

    /// How many servers' connections there are.
    pub(crate) fn connections(&self) -> usize {
        self.network.open()
    }
}
