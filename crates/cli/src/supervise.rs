//! Watching over a command that runs under a lock, until it has ended or has to.
//!
//! # Ctrl-Z
//!
//! A process that stands still cannot extend a lock. So everything stops together, as a user
//! expects, and nothing of the command goes on before it is certain that the lock is still held:
//!
//! ```text
//!   the command stops ─▶ its whole group ─▶ extend ─▶ this process's group     the shell is back
//!                                                            │ fg, bg
//!   the command goes on ◀── held ── is it? ask the nodes ◀───┘
//!   SIGKILL, exit code 76 ◀── lost ──┘
//! ```

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use quorlock::{Guard, GuardState, Loss};
use rustix::process::{Signal, getpgrp, getpid, kill_current_process_group, kill_process};
use tokio::select;
use tokio::time::{Instant, sleep, sleep_until};

use crate::duration::shown;
use crate::exit::{self, End};
use crate::grace;
use crate::group::Group;
use crate::plan;
use crate::processes;
use crate::reaper;
use crate::signals::{Event, Signals, asks_to_end};
use crate::stderr::{self, say};
use crate::terminal::Terminal;

/// After how long it is said what the lock is still held for.
const BEFORE_SAID: Duration = Duration::from_secs(1);

/// How the command came to its end.
pub(crate) enum Ended {
    ByItself(End),
    NotWaitedFor(io::Error),
    /// It has not ended, and the lock is lost or about to be.
    WithTheLock(Loss),
    /// As before, and nothing of it may go on: it stood still while the lock was lost.
    Stopped(Loss),
    /// It has not ended, and has to before the lock reaches its longest time.
    AtTheCap,
    /// By another process, since this one has stood still for too long.
    ByTheKiller,
}

/// A command under a lock, and what it takes to watch over it.
pub(crate) struct Watch<'a> {
    pub(crate) plan: &'a plan::Run,
    pub(crate) guard: &'a Guard,
    pub(crate) held_since: Instant,
    pub(crate) group: &'a mut Group,
    pub(crate) signals: &'a mut Signals,
    pub(crate) terminal: Option<Terminal>,
    /// The signals that were passed on to the command.
    pub(crate) passed_on: Vec<Signal>,
}

/// What has ended of the command.
enum Part {
    Leader(ExitStatus),
    /// All the others, after the leader, which had ended so.
    Rest(End),
}

/// Whom this process takes along when it stops.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Everybody in its group, as the terminal would have done if the group had been in front.
    AllOfUs,
    /// Nobody: the others have got the signal as well.
    This,
    /// Everybody in its group, for they are in the background and want to read.
    ForInput,
}

impl Watch<'_> {
    /// Passes signals on until the whole group has ended, or has to.
    pub(crate) async fn until_end(&mut self) -> Ended {
        let mut lost = pin!(self.guard.lost());
        let cap = cap(self.plan).map(|cap| self.held_since + cap);
        let mut kill_at = None;
        let mut said_at = None;
        let mut end = None;
        let mut suspend_asked = false;
        loop {
            let event = select! {
                biased;
                // Before the end of the command: if this process stood still, another has ended it.
                reason = &mut lost => return Ended::WithTheLock(reason),
                ended = next_end(self.group, end) => match ended {
                    Err(error) => return Ended::NotWaitedFor(error),
                    Ok(_) if self.group.killer().has_killed() => return Ended::ByTheKiller,
                    Ok(Part::Rest(end)) => return Ended::ByItself(end),
                    Ok(Part::Leader(status)) => {
                        reaper::collect(None);
                        let by = self.end_of(status);
                        if self.plan.leave_behind {
                            return Ended::ByItself(by);
                        }
                        end = Some(by);
                        said_at = Some(Instant::now() + BEFORE_SAID);
                        continue;
                    }
                },
                () = at(cap) => return Ended::AtTheCap,
                () = at(kill_at) => {
                    kill_at = None;
                    self.group.send(Signal::KILL);
                    continue;
                }
                () = at(said_at) => {
                    said_at = None;
                    // Those who are left may be of a kind that Ctrl-C does not end.
                    self.take_terminal_back();
                    self.say_who_is_left();
                    continue;
                }
                event = self.signals.next() => event,
            };
            let stop = match event {
                Event::Signal(signal) => {
                    self.pass_on(signal, end.is_some());
                    if asks_to_end(signal) {
                        let from_now = |after| Instant::now() + after;
                        kill_at = kill_at.or(self.plan.kill_after.map(from_now));
                    }
                    None
                }
                Event::Suspend if end.is_some() => Some(Stop::This),
                Event::Suspend => {
                    suspend_asked = true;
                    self.group.send(Signal::TSTP);
                    None
                }
                Event::Child => {
                    reaper::collect(end.is_none().then(|| self.group.id()));
                    let stopped = end.is_none().then(|| self.group.leader_stopped());
                    match stopped.flatten() {
                        None => None,
                        Some(_) if std::mem::take(&mut suspend_asked) => Some(Stop::This),
                        Some(signal) => self.when_stopped(signal),
                    }
                }
            };
            if let Some(stop) = stop
                && let Err(reason) = self.suspend(stop).await
            {
                return Ended::Stopped(reason);
            }
        }
    }

    pub(crate) fn take_terminal_back(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
    }

    /// What the end of the command makes of the end of this process.
    fn end_of(&self, status: ExitStatus) -> End {
        let code = End::Code(exit::of_command(status));
        let Some(signal) = status.signal().and_then(Signal::from_named_raw) else { return code };
        let has_terminal = self.terminal.as_ref().is_some_and(Terminal::is_given);
        match signal {
            _ if self.passed_on.contains(&signal) => End::By(signal),
            Signal::INT | Signal::QUIT if has_terminal => End::AllBy(signal),
            _ => code,
        }
    }

    fn pass_on(&mut self, signal: Signal, leader_has_ended: bool) {
        if !self.passed_on.contains(&signal) {
            self.passed_on.push(signal);
        }
        if !asks_to_end(signal) {
            return self.group.send(signal);
        }
        self.group.signal(signal);
        if leader_has_ended && signal != Signal::TERM {
            // What a shell starts in the background ignores SIGINT and SIGQUIT.
            self.group.signal(Signal::TERM);
        }
    }

    fn say_who_is_left(&self) {
        let members = self.group.members();
        let who = match members.len() {
            1 => "a process".to_owned(),
            count => format!("{count} processes"),
        };
        let list: Vec<_> =
            members.iter().map(|process| format!("{} {}", process.id, process.name)).collect();
        say(format_args!(
            "waiting for {who} that {} left behind, with the lock {} held: {}",
            self.plan.program.display(),
            self.guard.name(),
            list.join(", ")
        ));
    }

    /// The command stands still, and nobody asked this process for it: what to do.
    fn when_stopped(&mut self, signal: i32) -> Option<Stop> {
        let for_terminal = [Signal::TTIN, Signal::TTOU].map(Signal::as_raw).contains(&signal);
        let group = self.group.id();
        match &mut self.terminal {
            Some(terminal) if terminal.is_given() => return Some(Stop::AllOfUs),
            Some(terminal) if for_terminal => {
                if !terminal.give(group) {
                    return Some(Stop::ForInput);
                }
                self.group.send(Signal::CONT);
            }
            _ => say(format_args!(
                "the command was stopped by signal {signal}; the lock {} stays held until it goes \
                 on and ends",
                self.guard.name()
            )),
        }
        None
    }

    /// Stops everything, and goes on if the lock is still held then.
    async fn suspend(&mut self, stop: Stop) -> Result<(), Loss> {
        self.take_terminal_back();
        if processes::somebody_continues(getpgrp()) {
            // All of it: what ignores Ctrl-Z would go on, and the lock is not extended any more.
            self.group.send(Signal::STOP);
            self.check().await?;
            let left = self.guard.remaining().saturating_sub(self.plan.cluster.lead());
            let name = self.guard.name();
            say(format_args!(
                "stopped; the lock {name} is kept for {}: go on before that, or the command is \
                 ended then",
                shown(left)
            ));
            stderr::flush();
            // Nothing can keep a process from stopping itself. It stands still in here.
            let _ = match stop {
                Stop::AllOfUs => kill_current_process_group(Signal::STOP),
                Stop::This => kill_process(getpid(), Signal::STOP),
                Stop::ForInput => kill_current_process_group(Signal::TTIN),
            };
            self.check().await?;
        } else {
            say("there is no shell to make a stopped command go on: it goes on at once");
        }
        if let Some(terminal) = &mut self.terminal {
            terminal.give(self.group.id());
        }
        self.group.send(Signal::CONT);
        Ok(())
    }

    /// Makes the lock last for as long as it can. If the nodes do not answer it lasts as long as
    /// they have said before.
    async fn check(&self) -> Result<(), Loss> {
        let _ = self.guard.extend().await;
        self.group.killer().update(self.guard, self.plan.cluster.ttl);
        match self.guard.state() {
            GuardState::Lost(reason) => Err(reason),
            _ => Ok(()),
        }
    }
}

/// When to end the command by itself: so that it gets its whole time to end in before the lock is
/// as old as it may become. `None` if the library's own notice is early enough.
fn cap(plan: &plan::Run) -> Option<Duration> {
    let kill_after = plan.kill_after?;
    let last_part = grace::reserve(plan.cluster.ttl);
    let notice = plan.cluster.lead().saturating_sub(last_part);
    (kill_after > notice).then(|| plan.max_hold?.checked_sub(kill_after + last_part)).flatten()
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// The end of the leader, or, when that has ended, of all the others.
async fn next_end(group: &mut Group, leader: Option<End>) -> io::Result<Part> {
    match leader {
        None => group.leader_ended().await.map(Part::Leader),
        Some(end) => {
            group.all_ended().await;
            Ok(Part::Rest(end))
        }
    }
}

/// Ends after `longest`, or when the lease of the lock makes it necessary.
pub(crate) async fn patience(guard: &Guard, ttl: Duration, longest: Duration) {
    select! {
        () = sleep(longest) => {}
        () = async { guard.lost().await; sleep(grace::grace(guard, ttl)).await } => {}
    }
}
