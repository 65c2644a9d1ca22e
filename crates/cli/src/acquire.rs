//! `quorlock acquire`: take a lock for a time, and hand its token over.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use quorlock::{Guard, Locker};
use serde_json::json;
use tokio::select;

use crate::args::AcquireArgs;
use crate::exit::{self, End, Failed};
use crate::last_signal;
use crate::note;
use crate::plan::Cluster;
use crate::signals::Signals;
use crate::stderr;
use crate::take::{self, Patience};
use crate::token::{self, Target};

/// A lock to be taken.
pub(crate) struct Acquire {
    cluster: Cluster,
    pub(crate) name: OsString,
    /// The longest time to wait for the lock; `None` without end.
    wait: Option<Duration>,
    /// The exit code if it is taken, or was not free in time, instead of one for each.
    conflict_code: Option<u8>,
    note: String,
    /// Where the token goes, if not to stdout.
    file: Option<Target>,
    json: bool,
}

impl Acquire {
    pub(crate) fn new(args: AcquireArgs) -> Result<Self, Failed> {
        let cluster = Cluster::for_scripts(args.cluster, args.ttl)?;
        let (wait, note) = (args.wait.or(cluster.wait), cluster.note);
        Ok(Self {
            cluster,
            name: args.name,
            wait: if args.nonblock { Some(Duration::ZERO) } else { wait },
            conflict_code: args.conflict_exit_code,
            note: note::of_the_caller(&args.note, note)?,
            file: args.token_file.map(Target::new).transpose()?,
            json: args.json,
        })
    }
}

/// Does it, and returns the code to exit with.
pub(crate) async fn acquire(plan: &Acquire) -> Result<u8, Failed> {
    let mut signals = Signals::listen().map_err(|error| {
        Failed::new(exit::OWN_FAILURE, format!("signals cannot be taken in: {error}"))
    })?;
    let locker = select! {
        biased;
        signal = take::signalled(&mut signals) => return Ok(last_signal::end_by(signal)),
        connected = plan.cluster.connect() => connected?,
    };
    let end = take_it(plan, &locker, &mut signals).await;
    // However it went: the note is there, and what a node granted in vain is given back.
    locker.shutdown().await;
    match end? {
        End::Code(code) => Ok(code),
        End::By(signal) | End::AllBy(signal) => Ok(last_signal::end_by(signal)),
    }
}

async fn take_it(plan: &Acquire, locker: &Locker, signals: &mut Signals) -> Result<End, Failed> {
    // A script wants most of the time that it has asked for.
    let least = locker.validity() / 2;
    let lock = locker.lock(plan.name.as_bytes()).fixed().at_least(least).note(&*plan.note);
    let lock = match plan.wait {
        Some(wait) => lock.wait(wait),
        None => lock,
    };
    let patience = Patience::new(plan.wait);
    let guard = select! {
        biased;
        signal = take::signalled(signals) => {
            stderr::hide();
            return Ok(End::By(signal));
        }
        guard = take::wait_for(lock, locker, &plan.name, &patience) => {
            guard.map_err(|error| take::not_taken(error, plan.conflict_code))?
        }
    };
    hand_over(plan, locker, guard).await.map(End::Code)
}

async fn hand_over(plan: &Acquire, locker: &Locker, guard: Guard) -> Result<u8, Failed> {
    let fence = guard.try_fence();
    let token = guard.into_token()?;
    let object = |token| {
        json!({ "name": plan.name.to_string_lossy(), "token": token, "fence": fence }).to_string()
    };
    let written = match (&plan.file, plan.json) {
        (None, false) => token::write_line(io::stdout(), token.as_str()),
        (None, true) => token::write_line(io::stdout(), &object(Some(token.as_str()))),
        (Some(file), false) => file.write(token.as_str()),
        (Some(file), true) => {
            file.write(token.as_str()).and_then(|()| token::write_line(io::stdout(), &object(None)))
        }
    };
    let Err(error) = written else { return Ok(0) };
    // A lock whose token is lost would block all others until its end.
    if let Ok(guard) = locker.resume(plan.name.as_bytes(), token).await {
        drop(guard);
    }
    let message = format!("the token cannot be written, and the lock is given back: {error}");
    Err(Failed::new(exit::OWN_FAILURE, message))
}
