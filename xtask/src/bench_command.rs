//! `cargo xtask bench`, which measures Quorlock beside its peers and beside the limit.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::debian;
use crate::project::{Project, run};

/// All benchmarks, in the order in which they run.
const ALL: [&str; 6] = ["latency", "throughput", "faults", "waiting", "sqlite", "memory"];

/// Those that run with client and servers on one core: between two cores the time that a sleeping
/// core takes to wake up would be most of what is measured.
const PINNED: [&str; 2] = ["latency", "faults"];

/// Runs the benchmark `which` with `options` of its own, or all of them.
pub(crate) fn bench(
    project: &Project,
    which: Option<&str>,
    options: &[String],
) -> Result<ExitCode> {
    debian::install(debian::missing_redis().as_slice())?;
    let manifest = project.root.join("bench").join("Cargo.toml");
    let target = project.target.join("bench");
    run(project
        .cargo(["build", "--release", "--locked", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(&target))?;
    let program = target.join("release").join("quorlock-bench");
    for benchmark in which.map_or_else(|| ALL.to_vec(), |one| vec![one]) {
        let mut command = if PINNED.contains(&benchmark) {
            let mut pinned = Command::new("taskset");
            pinned.args(["--cpu-list", "0"]).arg(&program);
            pinned
        } else {
            Command::new(&program)
        };
        run(command.arg(benchmark).args(options))?;
    }
    Ok(ExitCode::SUCCESS)
}
