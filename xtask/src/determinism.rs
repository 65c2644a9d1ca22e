//! The same seed gives the same trace, in every build.

use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::project::{Project, command_line};

/// So many seeds of each dialect are compared.
const SEEDS: u32 = 20;

/// Simulates some seeds in two builds, and compares what their traces come to.
pub(crate) fn determinism(project: &Project) -> Result<ExitCode> {
    let (debug, release) = (digests(project, false)?, digests(project, true)?);
    if debug.is_empty() {
        bail!("the simulator has printed nothing");
    }
    let differ: Vec<_> = debug.lines().zip(release.lines()).filter(|(a, b)| a != b).collect();
    if debug == release {
        println!("{} seeds give the same trace in both builds", debug.lines().count());
        return Ok(ExitCode::SUCCESS);
    }
    for (debug, release) in differ {
        println!("debug {debug}, release {release}");
    }
    println!("something that differs between builds decides what happens");
    Ok(ExitCode::FAILURE)
}

fn digests(project: &Project, release: bool) -> Result<String> {
    let seeds = SEEDS.to_string();
    let mut command = project.cargo(["run", "--quiet", "-p", "quorlock-simulator"]);
    if release {
        command.arg("--release");
    }
    command.args(["--example", "digest", "--", "1", &seeds]).stderr(Stdio::inherit());
    let line = command_line(&command);
    println!("    {line}");
    let output = command.output().with_context(|| format!("`{line}` does not start"))?;
    if !output.status.success() {
        bail!("`{line}` failed ({}): its message is above", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
