//! `quorlock bench`: what locks on these nodes cost, and what limits them.
//!
//! ```text
//!   examine ──▶ many at a time ──▶ examine ──▶ one at a time ──▶ forget the names ──▶ verdict
//! ```
//!
//! The nodes are looked over before and after the heavy part: so it is known how busy it made them.

mod load;
mod outcome;
mod verdict;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use quorlock::admin::examine::Checkup;
use quorlock::node::ClientId;
use quorlock::runtime::TokioRuntime;
use quorlock::{Locker, NodeAnswer};
use tokio::select;

use self::load::{Burst, Control, many_at_a_time, names, one_at_a_time};
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
        let own = format!(":{}", ClientId::random(&TokioRuntime::current()));
        [self.name.as_bytes(), own.as_bytes()].concat()
    }

    /// Clears the names away. Returns what is left, and why: nothing on nodes that could not be used.
    async fn forget(&self, prefix: &[u8], before: &Checkup) -> Option<String> {
        let used = |it: &NodeAnswer| before.nodes.iter().any(|at| at.usable && at.node == it.node);
        match self.cluster.builder().admin().forget(names(prefix, self.concurrency)).await {
            Ok(mut left) => {
                left.0.retain(used);
                (!left.0.is_empty()).then(|| left.to_string())
            }
            Err(error) => Some(error.to_string()),
        }
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
            let left = measuring.await.ok().and_then(|outcome| outcome.left());
            stderr::say(match left {
                None => "stopped; nothing is left on the nodes".to_owned(),
                Some(left) => format!("stopped. {left}"),
            });
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
    let prefix = plan.prefix();
    let measured = load(plan, control, &locker, &prefix, &mut outcome).await;
    // Whatever came of it: nothing is left on the nodes.
    locker.shutdown().await;
    outcome.not_forgotten = plan.forget(&prefix, &before).await;
    measured?;
    Ok(outcome)
}

async fn load(
    plan: &Bench,
    control: &Control,
    locker: &Locker,
    prefix: &[u8],
    outcome: &mut Outcome,
) -> Result<(), Failed> {
    let burst = Burst { prefix, time: plan.time / 2, count: plan.count };
    outcome.many = many_at_a_time(locker, &burst, plan.concurrency, control).await;
    if !control.is_stopped() {
        outcome.look_again(&examine(plan).await?);
        outcome.one = one_at_a_time(locker, &burst, control).await;
    }
    Ok(())
}

async fn examine(plan: &Bench) -> Result<Checkup, Failed> {
    Ok(plan.cluster.builder().admin().examine(plan.name.as_bytes()).await?)
}
