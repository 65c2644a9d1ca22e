//! The command `quorlock`: runs another command while a lock is held.
//!
//! ```text
//!   args ──▶ plan ──┬──▶ run ──▶ take       connects, and waits for the lock
//!                   │     ├────▶ group      the command, and everything it starts, by way of exec
//!                   │     └────▶ supervise  signals, terminal, grace: until all of it has ended
//!                   ├──▶ acquire, extend, release   the same in steps, for scripts
//!                   ├──▶ status, list       who holds locks
//!                   ├──▶ init               new nodes are marked as new
//!                   ├──▶ doctor             what is wrong with the nodes
//!                   ├──▶ bench              what locks on them cost
//!                   ├──▶ simulate           the lock under simulated faults
//!                   └──▶ pages              manual pages and completions
//! ```
//!
//! `config` knows what the arguments leave open.

mod acquire;
mod args;
mod ask;
mod bench;
mod config;
mod doctor;
mod duration;
mod enclosing;
mod exec;
mod exit;
mod extend;
mod grace;
mod group;
mod group_killer;
mod init;
mod init_line;
mod last_signal;
mod list;
mod nearest;
mod new_servers;
mod nodes;
mod note;
mod pages;
mod plan;
mod processes;
mod reaper;
mod release;
mod run;
mod signals;
mod simulate;
mod status;
mod stderr;
mod stdout;
mod supervise;
mod take;
mod terminal;
mod time;
mod token;
mod waiting;
mod warnings;

use std::process::ExitCode;

use tracing_subscriber::filter::LevelFilter;

use crate::args::{Args, LogFormat};
use crate::exit::Failed;
use crate::plan::Plan;

fn main() -> ExitCode {
    if group_killer::kill_group(std::env::args_os().skip(1)) {
        return ExitCode::SUCCESS;
    }
    if let Some(code) = last_signal::end(std::env::args_os().skip(1)) {
        return ExitCode::from(code);
    }
    let report = |failed: Failed| {
        stderr::fail(failed.message);
        failed.code
    };
    let code = match exec::become_command() {
        Some(failed) => report(failed),
        None => match args::read() {
            Ok(args) => execute(args).unwrap_or_else(report),
            Err(code) => code,
        },
    };
    stderr::flush();
    ExitCode::from(code)
}

fn execute(args: Args) -> Result<u8, Failed> {
    if args.log == LogFormat::Json {
        stderr::write_json();
    }
    let plan = Plan::new(args)?;
    if let Some(lock) = plan.lock() {
        stderr::is_about(lock);
    }
    // These have their own way to say what the library warns of. What simulated locks meet is worth no
    // warning.
    let quiet = matches!(
        plan,
        Plan::Status(_) | Plan::List(_) | Plan::Doctor(_) | Plan::Bench(_) | Plan::Simulate(_)
    );
    let least = if quiet { LevelFilter::OFF } else { LevelFilter::WARN };
    warnings::show(least)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
            Failed::new(exit::OWN_FAILURE, format!("the runtime does not start: {error}"))
        })?;
    let code = runtime.block_on(async {
        match &plan {
            Plan::Run(plan) => run::run(plan).await,
            Plan::Acquire(plan) => acquire::acquire(plan).await,
            Plan::Extend(plan) => extend::extend(plan).await,
            Plan::Release(plan) => release::release(plan).await,
            Plan::Status(plan) => status::status(plan).await,
            Plan::List(plan) => list::list(plan).await,
            Plan::Init(plan) => init::init(plan).await,
            Plan::Nodes(plan) => nodes::nodes(plan).await,
            Plan::Doctor(plan) => doctor::doctor(plan).await,
            Plan::Bench(plan) => bench::bench(plan).await,
            Plan::Simulate(plan) => simulate::simulate(plan),
            Plan::Man(args) => pages::man(args),
            Plan::Completions(args) => pages::completions(args),
        }
    });
    // Looking a host name up may take long, and nobody needs the answer any more.
    runtime.shutdown_background();
    code
}
