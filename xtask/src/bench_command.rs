//! `cargo xtask bench`, which measures Quorlock beside its peers and beside the limit.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::debian;
use crate::project::{Project, run};

/// Runs the benchmark `which`, or all of them.
///
/// Latency and faults are measured with client and servers on one core: between two cores the time
/// that a sleeping core takes to wake up would be most of what is measured.
pub(crate) fn bench(project: &Project, which: Option<&str>) -> Result<ExitCode> {
    debian::install(debian::missing_redis().as_slice())?;
    let manifest = project.root.join("bench").join("Cargo.toml");
    let target = project.target.join("bench");
    run(project
        .cargo(["build", "--release", "--locked", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(&target))?;
    let program = target.join("release").join("quorlock-bench");
    let benchmarks = which.map_or_else(|| vec!["latency", "throughput", "faults"], |one| vec![one]);
    for benchmark in benchmarks {
        let mut command = if benchmark == "throughput" {
            Command::new(&program)
        } else {
            let mut pinned = Command::new("taskset");
            pinned.args(["--cpu-list", "0"]).arg(&program);
            pinned
        };
        run(command.arg(benchmark))?;
    }
    Ok(ExitCode::SUCCESS)
}
