//! `quorlock run`: take the lock, run the command, release the lock.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::pin::pin;
use std::process::ExitStatus;

use quorlock::{Error, Guard, Locker, Loss};
use tokio::select;

use crate::duration::shown;
use crate::exit::{self, Failed};
use crate::grace::grace;
use crate::group::Group;
use crate::plan;
use crate::signals::Signals;
use crate::stderr::warn;

/// How the command came to its end.
enum Ended {
    ByItself(ExitStatus),
    NotWaitedFor(io::Error),
    WithTheLock(Loss),
}

/// Does it all, and returns the code to exit with.
pub(crate) async fn run(plan: &plan::Run) -> Result<u8, Failed> {
    let mut signals = Signals::listen().map_err(|error| {
        Failed::new(exit::OWN_FAILURE, format!("signals cannot be taken in: {error}"))
    })?;
    let locker = select! {
        biased;
        signal = signals.next() => return Ok(exit::of_signal(signal)),
        connected = plan.cluster.connect() => connected?,
    };
    let code = run_locked(plan, &locker, &mut signals).await;
    // However it went: what a node granted is given back before the connections close.
    locker.shutdown().await;
    code
}

async fn run_locked(
    plan: &plan::Run,
    locker: &Locker,
    signals: &mut Signals,
) -> Result<u8, Failed> {
    let ttl = plan.cluster.ttl;
    // With less than that it might be too late for the first extension.
    let mut lock = locker.lock(plan.name.as_bytes()).at_least(ttl / 3).note(&*plan.note);
    if let Some(wait) = plan.wait {
        lock = lock.wait(wait);
    }
    let guard = select! {
        biased;
        signal = signals.next() => return Ok(exit::of_signal(signal)),
        guard = lock.into_future() => guard.map_err(|error| not_taken(plan, error))?,
    };
    let mut group = Group::start(plan)?;
    match supervise(&mut group, &guard, signals).await {
        Ended::ByItself(status) => release(plan, guard, exit::of_command(status)).await,
        Ended::NotWaitedFor(error) => {
            group.end(grace(&guard, ttl)).await;
            let message = format!("the command cannot be waited for, and was ended: {error}");
            Err(Failed::new(exit::OWN_FAILURE, message))
        }
        Ended::WithTheLock(reason) => {
            let message = explain(&guard, reason);
            group.end(grace(&guard, ttl)).await;
            Err(Failed::new(exit::LOST, message))
        }
    }
}

fn not_taken(plan: &plan::Run, error: Error) -> Failed {
    let taken = matches!(error, Error::Taken { .. });
    let failed = Failed::from(error);
    if taken { Failed { code: plan.taken_code, ..failed } } else { failed }
}

/// Passes signals on until the command has ended, or has to.
async fn supervise(group: &mut Group, guard: &Guard, signals: &mut Signals) -> Ended {
    let mut lost = pin!(guard.lost());
    loop {
        select! {
            biased;
            status = group.leader_ended() => return match status {
                Ok(status) => Ended::ByItself(status),
                Err(error) => Ended::NotWaitedFor(error),
            },
            reason = &mut lost => return Ended::WithTheLock(reason),
            signal = signals.next() => group.signal(signal),
        }
    }
}

/// Gives the lock back after the command has ended with `code`.
async fn release(plan: &plan::Run, guard: Guard, code: u8) -> Result<u8, Failed> {
    match guard.release().await {
        Ok(_) => Ok(code),
        // The last part of the command may have run beside another holder: that is no success.
        Err(error @ Error::Lost { .. }) => Err(Failed::new(
            exit::LOST,
            format!("{error}; that was found when the command had ended with code {code}"),
        )),
        Err(Error::NoQuorum { have, nodes, answers, .. }) => {
            warn(format_args!(
                "{have} of {nodes} nodes released the lock {}, which may stay taken for {}: \
                 {answers}",
                plan.name.display(),
                shown(plan.cluster.ttl)
            ));
            Ok(code)
        }
        Err(error) => {
            warn(format_args!("the lock was not released: {error}"));
            Ok(code)
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
