//! The command `quorlock`: runs another command while a lock is held.
//!
//! ```text
//!   args ──▶ plan ──┬──▶ run ──▶ group     the command, and everything it starts
//!                   │     ├────▶ signals   passed on to the group
//!                   │     └────▶ grace     what the group gets to end in
//!                   ├──▶ status            who holds a lock
//!                   ├──▶ doctor            what is wrong with the nodes
//!                   └──▶ pages             manual pages and completions
//! ```
//!
//! `config` knows what the arguments leave open.

mod args;
mod config;
mod doctor;
mod duration;
mod exit;
mod grace;
mod group;
mod pages;
mod plan;
mod run;
mod signals;
mod status;
mod stderr;
mod warnings;

use std::process::ExitCode;

use tracing_subscriber::filter::LevelFilter;

use crate::args::Args;
use crate::exit::Failed;
use crate::plan::Plan;

fn main() -> ExitCode {
    let code = match args::read() {
        Ok(args) => execute(args).unwrap_or_else(|failed| {
            stderr::say(failed.message);
            failed.code
        }),
        Err(code) => code,
    };
    stderr::flush();
    ExitCode::from(code)
}

fn execute(args: Args) -> Result<u8, Failed> {
    let plan = Plan::new(args)?;
    // The doctor has its own way to say what the library warns of.
    let least = if matches!(plan, Plan::Doctor(_)) { LevelFilter::OFF } else { LevelFilter::WARN };
    warnings::show(least)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
            Failed::new(exit::OWN_FAILURE, format!("the runtime does not start: {error}"))
        })?;
    let code = runtime.block_on(async {
        match &plan {
            Plan::Run(plan) => run::run(plan).await,
            Plan::Status(plan) => status::status(plan).await,
            Plan::Doctor(plan) => doctor::doctor(plan).await,
            Plan::Man(args) => pages::man(args),
            Plan::Completions(args) => pages::completions(args),
        }
    });
    // Looking a host name up may take long, and nobody needs the answer any more.
    runtime.shutdown_background();
    code
}
