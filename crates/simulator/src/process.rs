//! Processes: tasks that run in turn, timers, and clocks of their own.
//!
//! A process can stand still (its tasks are not run, and its clocks go on), sleep with its machine
//! (its timers do not run either), be killed, or stand still in the middle of a step: then
//! all that it does after that instruction happens later.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quorlock::runtime::{BoxFuture, Moment, Runtime};

use crate::Setup;
use crate::clock::Clock;
use crate::network::LinkId;
use crate::planted::Planted;
use crate::random::Random;
use crate::trace::What;
use crate::world::{Event, State, WALL_START, World};

/// A task of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskId {
    process: usize,
    number: u64,
}

/// Something that a process has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Task(u64),
    Link(LinkId),
}

pub(crate) struct Timer {
    process: usize,
    waker: Option<Waker>,
    ended: bool,
    /// How long the machine had slept when it was set.
    slept: u64,
}

pub(crate) struct Process {
    /// Since the start of the machine, sleep included.
    pub(crate) clock: Clock,
    /// The time of day.
    pub(crate) wall: Clock,
    /// One more with each start.
    pub(crate) incarnation: u32,
    alive: bool,
    /// It does not run before that.
    pub(crate) still_until: u64,
    /// It stands still in the middle of a step until then: what it did in that step is done by then.
    pub(crate) busy_until: u64,
    /// How long its machine has slept, or will have when it wakes up.
    slept: u64,
    /// How far it is behind true time in the present step, having stood still in it.
    pub(crate) lag: u64,
    /// Where it will stand still in the middle of a step: after so many instructions, for so long.
    preemptions: Vec<(u32, u64)>,
    random: Random,
    tasks: BTreeMap<u64, Option<BoxFuture<'static, ()>>>,
    next_task: u64,
    ready: Vec<Work>,
    /// How often its time of day was set, and who waits for the next time.
    wall_sets: u64,
    wall_wakers: Vec<Waker>,
}

impl Process {
    pub(crate) fn new(setup: &Setup, random: &mut Random) -> Self {
        let boot = random.between(1, 1_000_000) * 1_000_000_000;
        let ppm = random.around_zero(setup.dialect.client_ppm());
        let offset = random.around_zero(setup.dialect.wall_offset_ns());
        Self {
            clock: Clock::new(boot, ppm),
            wall: Clock::new(WALL_START.saturating_add_signed(offset), 0),
            incarnation: 0,
            alive: false,
            still_until: 0,
            busy_until: 0,
            slept: 0,
            lag: 0,
            preemptions: Vec::new(),
            random: Random::new(random.next(), 5),
            tasks: BTreeMap::new(),
            next_task: 1,
            ready: Vec::new(),
            wall_sets: 0,
            wall_wakers: Vec::new(),
        }
    }

    /// Its time of day was set. Returns whom to tell.
    pub(crate) fn wall_was_set(&mut self) -> Vec<Waker> {
        self.wall_sets += 1;
        std::mem::take(&mut self.wall_wakers)
    }

    pub(crate) fn add(&mut self, work: Work) {
        if !self.ready.contains(&work) {
            self.ready.push(work);
        }
    }

    /// How many tasks it has.
    pub(crate) fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Has it stand still in the middle of a step, some instructions from now.
    pub(crate) fn preempt_after(&mut self, instructions: u32, span: u64) {
        self.preemptions.push((instructions, span));
    }

    /// Nothing goes wrong with it any more.
    pub(crate) fn calm(&mut self) {
        self.preemptions.clear();
    }

    /// Whether its program has come to its end.
    pub(crate) fn has_finished(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Counts an instruction.
    pub(crate) fn preempt(&mut self) {
        let Some((left, span)) = self.preemptions.first_mut() else { return };
        if *left > 0 {
            *left -= 1;
            return;
        }
        self.lag += *span;
        self.preemptions.remove(0);
    }
}

impl World {
    /// Does one piece of work of one process that runs; `false` if there is none.
    pub(crate) fn work(self: &Arc<Self>) -> bool {
        let woken = std::mem::take(&mut *self.woken.lock().expect("no panic in between"));
        for TaskId { process, number } in woken {
            self.state().processes[process].add(Work::Task(number));
        }
        let (process, work) = {
            let mut state = self.state();
            let now = state.now;
            let able = |process: &Process| {
                process.alive && process.still_until <= now && !process.ready.is_empty()
            };
            let State { order, processes, .. } = &mut *state;
            let count = processes.iter().filter(|process| able(process)).count() as u64;
            let nth = order.below(count) as usize;
            let found = processes.iter().enumerate().filter(|(_, process)| able(process)).nth(nth);
            let Some((process, _)) = found else { return false };
            let pick = order.below(processes[process].ready.len() as u64) as usize;
            state.running = Some(process);
            (process, state.processes[process].ready.swap_remove(pick))
        };
        match work {
            Work::Task(number) => self.poll(process, number),
            Work::Link(link) => {
                let link = self.state().links.get(&link).cloned();
                if let Some(link) = link {
                    link.attend();
                }
            }
        }
        self.state().running = None;
        self.observe(process);
        self.state().settle(process);
        true
    }

    fn poll(self: &Arc<Self>, process: usize, number: u64) {
        let (future, incarnation) = {
            let mut state = self.state();
            let process = &mut state.processes[process];
            (process.tasks.get_mut(&number).and_then(Option::take), process.incarnation)
        };
        let Some(mut future) = future else { return };
        let id = TaskId { process, number };
        let waker = Waker::from(Arc::new(TaskWaker { world: Arc::clone(self), id }));
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut state = self.state();
        let process = &mut state.processes[process];
        if process.incarnation == incarnation {
            if done {
                process.tasks.remove(&number);
            } else if let Some(place) = process.tasks.get_mut(&number) {
                *place = Some(future);
                return;
            }
        }
        drop(state);
        // Only here: what it drops may do something.
        drop(future);
    }

    /// Kills a process: nothing is sent by what is dropped.
    pub(crate) fn kill(&self, process: usize) {
        let (tasks, links) = {
            let mut state = self.state();
            let now = state.now;
            state.note(now, What::Killed(process as u8));
            let dead = &mut state.processes[process];
            dead.incarnation += 1;
            dead.alive = false;
            dead.ready.clear();
            dead.wall_wakers.clear();
            let tasks = std::mem::take(&mut dead.tasks);
            let links: Vec<_> = state.links.values().cloned().collect();
            (tasks, links)
        };
        for link in links.into_iter().filter(|link| link.is_of(process)) {
            link.die();
        }
        drop(tasks);
    }

    /// Starts a process.
    pub(crate) fn start(self: &Arc<Self>, process: usize) {
        {
            let mut state = self.state();
            let now = state.now;
            let new = &mut state.processes[process];
            if new.alive {
                return;
            }
            new.alive = true;
            new.still_until = 0;
            state.note(now, What::Started(process as u8));
        }
        crate::workload::start(self, process);
    }

    /// Adds a task to a process.
    pub(crate) fn spawn(&self, process: usize, incarnation: u32, future: BoxFuture<'static, ()>) {
        let mut state = self.state();
        let of = &mut state.processes[process];
        if of.incarnation != incarnation || !of.alive {
            drop(state);
            return;
        }
        let number = of.next_task;
        of.next_task += 1;
        of.tasks.insert(number, Some(future));
        of.add(Work::Task(number));
    }
}

impl State {
    /// A process that stood still in the middle of a step goes on when it does.
    fn settle(&mut self, process: usize) {
        let lag = std::mem::take(&mut self.processes[process].lag);
        if lag > 0 {
            self.processes[process].busy_until = self.now + lag;
            self.still(process, lag, false);
        }
    }

    /// A process stands still for a while, or sleeps with its machine.
    pub(crate) fn still(&mut self, process: usize, span: u64, asleep: bool) {
        let (now, until) = (self.now, self.now + span);
        self.note(now, What::Stopped { process: process as u8, until, asleep });
        let still = &mut self.processes[process];
        if asleep {
            // What it would have slept anyway is not slept twice.
            still.slept += until.saturating_sub(now.max(still.still_until));
        }
        still.still_until = still.still_until.max(until);
        self.at(until, Event::Resume(process));
    }

    /// Time to run again: that is looked at before every piece of work, and needs nothing here.
    pub(crate) fn resume(&mut self, _process: usize) {}

    /// A timer has come to its time; returns whom to wake.
    pub(crate) fn timer_ends(&mut self, id: u64) -> Option<Waker> {
        let now = self.now;
        let timer = self.timers.get_mut(&id)?;
        let slept = self.processes[timer.process].slept;
        let missed = slept - timer.slept;
        if missed > 0 {
            timer.slept = slept;
            self.at(now + missed, Event::Timer(id));
            return None;
        }
        timer.ended = true;
        timer.waker.take()
    }
}

struct TaskWaker {
    world: Arc<World>,
    id: TaskId,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.world.woken.lock().expect("no panic in between").push(self.id);
    }
}

/// The world as one process sees it: what the lock asks for the time, and for everything else.
pub(crate) struct SimulatedRuntime {
    pub(crate) world: Arc<World>,
    pub(crate) process: usize,
    pub(crate) incarnation: u32,
}

impl Runtime for SimulatedRuntime {
    fn now(&self) -> Moment {
        self.world.instruction(self.process);
        self.world.boot(self.process)
    }

    fn wall(&self) -> SystemTime {
        self.world.instruction(self.process);
        let state = self.world.state();
        let nanos = state.processes[self.process].wall.at(state.now_of(self.process));
        UNIX_EPOCH + Duration::from_nanos(nanos)
    }

    fn wall_set(&self) -> BoxFuture<'static, ()> {
        let sets = self.world.state().processes[self.process].wall_sets;
        Box::pin(WallSet { world: Arc::clone(&self.world), process: self.process, sets })
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let late = if self.world.planted() == Some(Planted::LateTimers) {
            Planted::LATE_BY
        } else {
            Duration::ZERO
        };
        let mut state = self.world.state();
        let at = state.true_after(self.process, duration + late);
        let id = state.next_timer;
        state.next_timer += 1;
        let slept = state.processes[self.process].slept;
        let timer = Timer { process: self.process, waker: None, ended: false, slept };
        state.timers.insert(id, timer);
        state.at(at, Event::Timer(id));
        Box::pin(Sleep { world: Arc::clone(&self.world), id })
    }

    fn spawn(&self, future: BoxFuture<'static, ()>) {
        self.world.spawn(self.process, self.incarnation, future);
    }

    fn random(&self, bytes: &mut [u8]) {
        self.world.state().processes[self.process].random.fill(bytes);
    }
}

impl fmt::Debug for SimulatedRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedRuntime").field("process", &self.process).finish_non_exhaustive()
    }
}

/// Ends when the time of day of a process was set more often than so.
struct WallSet {
    world: Arc<World>,
    process: usize,
    sets: u64,
}

impl Future for WallSet {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.world.state();
        let process = &mut state.processes[self.process];
        if process.wall_sets > self.sets {
            return Poll::Ready(());
        }
        if !process.wall_wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            process.wall_wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

struct Sleep {
    world: Arc<World>,
    id: u64,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.world.state().timers.get_mut(&self.id) {
            Some(timer) if !timer.ended => {
                timer.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let timer = self.world.state().timers.remove(&self.id);
        drop(timer);
    }
}
