//! `quorlock run`: take the lock, run the command, release the lock.

use quorlock::{Error, Guard, Locker, Loss, Owner};
use rustix::process::kill_current_process_group;
use tokio::select;
use tokio::time::{Instant, sleep, sleep_until};

use crate::duration::shown;
use crate::enclosing::Enclosing;
use crate::exit::{self, End, Failed};
use crate::grace::grace;
use crate::group::Group;
use crate::group_killer::KillAt;
use crate::last_signal;
use crate::new_servers;
use crate::plan;
use crate::reaper;
use crate::signals::{Event, Signals, asks_to_end};
use crate::stderr::warn;
use crate::supervise::{self, Ended, Watch};
use crate::take::{self, Patience};
use crate::terminal::Terminal;

/// Does it all, and returns the code to exit with.
pub(crate) async fn run(plan: &plan::Run) -> Result<u8, Failed> {
    // Before signals are taken in: Ctrl-C ends the question, and this process.
    new_servers::offer(&plan.cluster).await?;
    let mut signals = Signals::listen().map_err(|error| {
        Failed::new(exit::OWN_FAILURE, format!("signals cannot be taken in: {error}"))
    })?;
    let patience = Patience::with_votes(plan.wait, plan.votes_within);
    let locker = select! {
        biased;
        signal = take::signalled(&mut signals) => return Ok(last_signal::end_by(signal)),
        connected = take::connect(plan, &patience) => connected?,
    };
    let end = run_locked(plan, &locker, &mut signals, &patience).await;
    // However it went: what a node granted is given back before the connections close.
    locker.shutdown().await;
    let end = end?;
    if let End::AllBy(signal) = end {
        // This process takes it in, and does nothing about it yet.
        let _ = kill_current_process_group(signal);
    }
    match end {
        End::Code(code) => Ok(code),
        End::By(signal) | End::AllBy(signal) => Ok(last_signal::end_by(signal)),
    }
}

async fn run_locked(
    plan: &plan::Run,
    locker: &Locker,
    signals: &mut Signals,
    patience: &Patience,
) -> Result<End, Failed> {
    let enclosing = Enclosing::from_environment();
    let owner = match plan.owner.as_deref().or(enclosing.owner_of(&plan.name)) {
        Some(id) => Owner::from_id(id)?,
        None => locker.new_owner(),
    };
    let guard = select! {
        biased;
        signal = take::signalled(signals) => {
            crate::stderr::hide();
            return Ok(End::By(signal));
        }
        guard = take::lock(plan, locker, &owner, patience) => guard?,
    };
    let held_since = Instant::now();
    let mut terminal = Terminal::open();
    let takes_terminal = terminal.as_mut().is_some_and(Terminal::goes_to_command);
    let environment = enclosing.inside(&plan.name, &owner, &guard.token(), guard.try_fence());
    let kill_at = KillAt::before_the_end(&guard, plan.cluster.ttl);
    let mut group = Group::start(plan, &environment, takes_terminal, kill_at)?;
    let killer = group.killer();
    let passed_on = Vec::new();
    let watched = &mut group;
    let mut watch =
        Watch { plan, guard: &guard, held_since, group: watched, signals, terminal, passed_on };
    let ended = select! {
        biased;
        ended = async { let ended = watch.until_end().await; finish(ended, &mut watch).await } => ended,
        never = killer.follow(&guard, plan.cluster.ttl) => match never {},
    };
    watch.take_terminal_back();
    drop(watch);
    // Its number may be another's from now on.
    drop(group);
    let end = ended?;
    if let Some(least) = plan.hold_at_least
        && !keep_until(held_since + least, &guard, signals).await
    {
        return Ok(end);
    }
    release(plan, guard, end).await
}

/// Ends the command if it has not ended, and says what is to become of the exit code.
async fn finish(ended: Ended, watch: &mut Watch<'_>) -> Result<End, Failed> {
    let Watch { plan, guard, group, .. } = watch;
    let ttl = plan.cluster.ttl;
    match ended {
        Ended::ByItself(end) => Ok(end),
        Ended::NotWaitedFor(error) => {
            group.end(plan.signal, sleep(grace(guard, ttl))).await;
            let message = format!("the command cannot be waited for, and was ended: {error}");
            Err(Failed::new(exit::OWN_FAILURE, message))
        }
        Ended::WithTheLock(Loss::Capped) => {
            let longest = plan.kill_after.unwrap_or(ttl).min(grace(guard, ttl));
            group.end(plan.signal, sleep(longest)).await;
            Err(at_the_cap(plan, guard))
        }
        Ended::AtTheCap => {
            let longest = plan.kill_after.unwrap_or_default();
            group.end(plan.signal, supervise::patience(guard, ttl, longest)).await;
            Err(at_the_cap(plan, guard))
        }
        Ended::WithTheLock(reason) => {
            let message = explain(guard, reason);
            group.end(plan.signal, sleep(grace(guard, ttl))).await;
            Err(Failed::new(exit::LOST, message))
        }
        Ended::ByTheKiller => {
            group.kill().await;
            let message = format!(
                "this process stood still for too long to extend the lock {} in time, and the \
                 command was ended",
                guard.name()
            );
            Err(Failed::new(exit::LOST, message))
        }
        Ended::Stopped(reason) => {
            let message = explain(guard, reason);
            group.kill().await;
            Err(Failed::new(exit::LOST, format!("{message} before it could go on")))
        }
    }
}

/// Keeps the lock until then, though the command has ended, unless a signal asks for the end.
/// Returns whether it is still held.
async fn keep_until(moment: Instant, guard: &Guard, signals: &mut Signals) -> bool {
    let asked = async {
        loop {
            match signals.next().await {
                Event::Signal(signal) if asks_to_end(signal) => return,
                Event::Suspend => take::stop(),
                Event::Child => reaper::collect(None),
                Event::Signal(_) => {}
            }
        }
    };
    select! {
        biased;
        reason = guard.lost() => {
            // The command itself had ended in time.
            let name = guard.name();
            warn(format_args!("the lock {name} was not kept for as long as was asked: {reason}"));
            false
        }
        () = asked => true,
        () = sleep_until(moment) => true,
    }
}

fn at_the_cap(plan: &plan::Run, guard: &Guard) -> Failed {
    let message = format!(
        "the lock {} may be held for {} at the most (--max-hold), and the command was ended",
        guard.name(),
        plan.max_hold.map_or_else(String::new, shown)
    );
    Failed::new(exit::LOST, message)
}

/// Gives the lock back after the command has ended.
async fn release(plan: &plan::Run, guard: Guard, end: End) -> Result<End, Failed> {
    match guard.release().await {
        Ok(_) => {
            let name = plan.name.display();
            tracing::info!(lock = %name, "released the lock {name}");
            Ok(end)
        }
        // The last part of the command may have run beside another holder: that is no success.
        Err(error @ Error::Lost { .. }) => Err(Failed::new(
            exit::LOST,
            format!("{error}; that was found when the command had ended with code {}", end.code()),
        )),
        Err(Error::NoQuorum { have, nodes, answers, .. }) => {
            warn(format_args!(
                "{have} of {nodes} nodes released the lock {}, which may stay taken for {}: \
                 {answers}",
                plan.name.display(),
                shown(plan.cluster.ttl)
            ));
            Ok(end)
        }
        Err(error) => {
            warn(format_args!("the lock was not released: {error}"));
            Ok(end)
        }
    }
}

/// Says why the command is ended, at the moment at which that is known.
fn explain(guard: &Guard, reason: Loss) -> String {
    let name = guard.name();
    if guard.grace().is_zero() {
        format!("the lock {name} is lost: {reason}; the command was ended")
    } else {
        // It is still held for as long as it takes. Why stands in the warnings.
        format!("the lock {name} could not be extended in time, and the command was ended")
    }
}
