//! `cargo xtask bench command`, which measures `quorlock run` beside `flock`: what a lock on one
//! machine costs a script, without a server.
//!
//! Both run `true`, in turns, so that whatever else the machine does is the same for both.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::project::{Project, command_line, run};

const ROUNDS: usize = 200;

/// Runs that are not counted: the file is made, and the programs are read from the disk.
const WARM_UP: usize = 10;

/// Measures, and prints what was found.
pub(crate) fn bench(project: &Project) -> Result<ExitCode> {
    run(&mut project.cargo(["build", "--release", "--locked", "--package", "quorlock-cli"]))?;
    let program = project.target.join("release").join("quorlock");
    let home = project.target.join("beside-flock");
    if home.exists() {
        fs::remove_dir_all(&home).context("the folder of an earlier run cannot be removed")?;
    }
    fs::create_dir_all(&home).context("no folder for the locks")?;
    let quorlock = |args: &[&str]| {
        let mut command = Command::new(&program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("QUORLOCK_") {
                command.env_remove(&name);
            }
        }
        command.env("QUORLOCK_CONFIG", "/dev/null").env("XDG_STATE_HOME", &home).args(args);
        command
    };
    let mut flock = Command::new("flock");
    flock.arg(home.join("flock")).arg("true");
    let mut systems = [
        System::new("quorlock run x -- true", quorlock(&["run", "x", "--", "true"])),
        System::new("flock FILE true", flock),
        System::new("quorlock --help", quorlock(&["--help"])),
    ];
    for round in 0..WARM_UP + ROUNDS {
        for system in &mut systems {
            let took = system.time()?;
            if round >= WARM_UP {
                system.timings.push(took);
            }
        }
    }
    report(&systems, &program)
}

/// One of those that are measured.
struct System {
    name: &'static str,
    command: Command,
    timings: Vec<Duration>,
}

impl System {
    fn new(name: &'static str, mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Self { name, command, timings: Vec::new() }
    }

    /// From the start of the process to its end.
    fn time(&mut self) -> Result<Duration> {
        let started = Instant::now();
        let status = self.command.status();
        let took = started.elapsed();
        let line = command_line(&self.command);
        let status = status.with_context(|| format!("`{line}` does not start"))?;
        if !status.success() {
            bail!("`{line}` failed ({status}): its message is above");
        }
        Ok(took)
    }
}

fn report(systems: &[System; 3], program: &Path) -> Result<ExitCode> {
    println!("{ROUNDS} runs each, in turns, in ms      mean     p50     p99");
    for System { name, timings, .. } in systems {
        let [mean, p50, p99] = figures(timings);
        println!("{name:<34} {mean:>7.2} {p50:>7.2} {p99:>7.2}");
    }
    let [[mean, p50, p99], [flock_mean, flock_p50, flock_p99], _] =
        [0, 1, 2].map(|which| figures(&systems[which].timings));
    let ratios = [mean / flock_mean, p50 / flock_p50, p99 / flock_p99];
    let [mean, p50, p99] = ratios;
    println!("{:<34} {mean:>7.2} {p50:>7.2} {p99:>7.2}", "quorlock run / flock");
    let bytes = fs::metadata(program).context("the program was built")?.len();
    println!("the program has {:.1} MB ({bytes} bytes)", bytes as f64 / 1e6);
    Ok(ExitCode::SUCCESS)
}

/// Mean, median and 99th percentile, in ms.
fn figures(timings: &[Duration]) -> [f64; 3] {
    let mut ms: Vec<f64> = timings.iter().map(|timing| timing.as_secs_f64() * 1e3).collect();
    ms.sort_by(f64::total_cmp);
    let at = |quantile: f64| ms[((ms.len() - 1) as f64 * quantile).round() as usize];
    [ms.iter().sum::<f64>() / ms.len() as f64, at(0.5), at(0.99)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_sorted_timings() {
        let timings: Vec<_> = (1..=101).rev().map(Duration::from_millis).collect();
        let [mean, p50, p99] = figures(&timings);
        assert!((mean - 51.0).abs() < 1e-9 && (p50 - 51.0).abs() < 1e-9, "{mean} {p50}");
        assert!((p99 - 100.0).abs() < 1e-9, "{p99}");
    }

    #[test]
    fn a_command_that_fails_is_not_measured() {
        let failed = System::new("false", Command::new("false")).time().unwrap_err();
        assert!(failed.to_string().contains("`false` failed"), "{failed}");
    }
}
