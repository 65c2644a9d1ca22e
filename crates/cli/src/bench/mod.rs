//! `quorlock bench`: what locks on these nodes cost, and what limits them.
//!
//! ```text
//!   examine ──▶ many at a time ──▶ examine ──▶ one at a time ──▶ verdict
//! ```
//!
//! The nodes are looked over before and after the heavy part: so it is known how busy it made them.

mod load;
mod outcome;
mod verdict;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use quorlock::Locker;
use quorlock::examine::Checkup;
use tokio::select;

use self::load::{Burst, Control, many_at_a_time, one_at_a_time};
use self::outcome::Outcome;
use crate::args::BenchArgs;
use crate::exit::{self, Failed};
use crate::plan::Cluster;
use crate::signals::Signals;
use crate::stderr;
use crate::stdout;
use crate::take;

/// What is to be measured.
pub(crate) struct Bench {
    cluster: Cluster,
    name: OsString,
    time: Duration,
    count: u64,
    concurrency: u16,
    json: bool,
}

impl Bench {
    pub(crate) fn new(args: BenchArgs) -> Result<Self, Failed> {
        let cluster = Cluster::new(args.cluster, None)?;
        let BenchArgs { name, time, count, concurrency, json, .. } = args;
        Ok(Self { cluster, name, time, count, concurrency, json })
    }

    /// Names that nobody else uses start like this.
    fn prefix(&self) -> Vec<u8> {
        let mut prefix = self.name.as_bytes().to_vec();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let own = format!(":{}:{}", std::process::id(), now.unwrap_or_default().as_nanos());
        prefix.extend(own.as_bytes());
        prefix
    }
}

/// Measures, shows what came out, and returns the code to exit with.
pub(crate) async fn bench(plan: &Bench) -> Result<u8, Failed> {
    let mut signals = Signals::listen().map_err(|error| {
        Failed::new(exit::OWN_FAILURE, format!("signals cannot be taken in: {error}"))
    })?;
    let control = Control::default();
    let measuring = measure(plan, &control);
    tokio::pin!(measuring);
    let outcome = select! {
        biased;
        signal = take::signalled(&mut signals) => {
            control.stop();
            stderr::hide();
            // What is under way ends as it would: nothing is left of it then.
            let _ = measuring.await;
            stderr::say("stopped; all locks that were taken are released");
            return Ok(exit::of_signal(signal));
        }
        outcome = &mut measuring => outcome,
    };
    stderr::hide();
    let outcome = outcome?;
    stdout::write(&if plan.json { outcome.json() } else { outcome.text() })?;
    Ok(outcome.code())
}

async fn measure(plan: &Bench, control: &Control) -> Result<Outcome, Failed> {
    control.show("looking at the nodes", None);
    let before = examine(plan).await?;
    let mut outcome = Outcome::new(&before, plan.concurrency);
    if outcome.code() != 0 || control.is_stopped() {
        return Ok(outcome);
    }
    let locker = plan.cluster.connect().await?;
    let measured = load(plan, control, &locker, &mut outcome).await;
    // Whatever came of it: nothing is left on the nodes.
    locker.shutdown().await;
    measured?;
    Ok(outcome)
}

async fn load(
    plan: &Bench,
    control: &Control,
    locker: &Locker,
    outcome: &mut Outcome,
) -> Result<(), Failed> {
    let prefix = plan.prefix();
    let burst = |time| Burst { prefix: &prefix, time, count: plan.count };
    let many = burst(plan.time / 2);
    outcome.many = many_at_a_time(locker, &many, plan.concurrency, control).await;
    let after = examine(plan).await?;
    outcome.add_cpu(&after);
    outcome.one = one_at_a_time(locker, &burst(plan.time / 2), control).await;
    Ok(())
}

async fn examine(plan: &Bench) -> Result<Checkup, Failed> {
    Ok(plan.cluster.builder().examine(plan.name.as_bytes()).await?)
}
