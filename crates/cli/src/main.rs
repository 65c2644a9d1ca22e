//! The command `quorlock`: runs another command while a lock is held.
//!
//! ```text
//!   args ──▶ plan ──┬──▶ run ──▶ group     the command, and everything it starts
//!                   │     ├────▶ signals   passed on to the group
//!                   │     └────▶ grace     what the group gets to end in
//!                   ├──▶ acquire, extend, release   the same in steps, for scripts
//!                   └──▶ status, list      who holds locks
//! ```

mod acquire;
mod args;
mod duration;
mod exit;
mod extend;
mod grace;
mod group;
mod list;
mod note;
mod plan;
mod release;
mod run;
mod signals;
mod status;
mod stderr;
mod stdout;
mod time;
mod token;
mod warnings;

use std::process::ExitCode;

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
    warnings::show()?;
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
        }
    });
    // Looking a host name up may take long, and nobody needs the answer any more.
    runtime.shutdown_background();
    code
}
