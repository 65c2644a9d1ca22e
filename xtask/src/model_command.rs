//! `cargo xtask model`, which checks the model of the strict protocol.

use std::process::ExitCode;

use anyhow::Result;

use crate::project::{Project, run};

/// Runs the checker, built for speed, with `options` of its own.
pub(crate) fn model(project: &Project, options: &[String]) -> Result<ExitCode> {
    let arguments = ["run", "--quiet", "--release", "--locked", "--package=quorlock-model", "--"];
    run(project.cargo(arguments).args(options))?;
    Ok(ExitCode::SUCCESS)
}
