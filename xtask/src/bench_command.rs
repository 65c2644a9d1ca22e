//! `cargo xtask bench`, which measures Quorlock beside its peers and beside the limit.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Result, bail};

use crate::debian;
use crate::project::{Project, run};
use crate::python_peers;

/// All benchmarks, in the order in which they run.
const ALL: [&str; 14] = [
    "latency",
    "unpinned",
    "throughput",
    "burst",
    "contended",
    "faults",
    "distant",
    "engines",
    "growth",
    "rounds",
    "release",
    "waiting",
    "sqlite",
    "memory",
];

/// Those that run with client and servers on one core: between two cores the time that a sleeping
/// core takes to wake up would be most of what is measured.
const PINNED: [&str; 3] = ["latency", "faults", "growth"];

/// Not part of all: one shows that the figures of `waiting` can be trusted, one is a trial of ten minutes.
const BY_NAME: [&str; 2] = ["waiting-check", "stopped-leader"];

/// Those that need etcd and ZooKeeper.
const ON_ENGINES: [&str; 2] = ["engines", "stopped-leader"];

/// Those that are measured on a Valkey as well, or only there: it has had a command for a release since 9.0,
/// and Redis since 8.4.
const ON_VALKEY: [&str; 2] = ["throughput", "release"];

/// Those that know no shorter way.
const NEVER_QUICK: [&str; 2] = ["sqlite", "memory"];

/// What is to be measured, and how.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bench {
    names: Vec<&'static str>,
    quick: bool,
    save: bool,
}

impl Bench {
    /// Reads what stands after `bench`.
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let mut bench = Self { names: Vec::new(), quick: false, save: false };
        let mut all = false;
        for arg in args {
            match (arg.as_str(), ALL.iter().chain(&BY_NAME).find(|name| *name == arg)) {
                ("--quick", _) => bench.quick = true,
                ("--save", _) => bench.save = true,
                ("all", _) => all = true,
                (_, Some(name)) => bench.names.push(name),
                (other, None) => {
                    bail!("there is no benchmark `{other}`: use {} or all", ALL.join(", "))
                }
            }
        }
        if bench.quick && bench.save {
            bail!("what is measured with `--quick` is not worth to be kept: leave out `--save`");
        }
        if all || bench.names.is_empty() {
            bench.names = ALL.to_vec();
            if bench.quick {
                bench.names.retain(|name| !NEVER_QUICK.contains(name));
            }
        }
        Ok(bench)
    }

    /// Builds and runs the benchmarks, one after the other.
    pub(crate) fn run(&self, project: &Project) -> Result<ExitCode> {
        debian::install(debian::missing_redis().as_slice())?;
        if self.names.iter().any(|name| ON_ENGINES.contains(name)) {
            let missing: Vec<_> =
                debian::missing_etcd().chain(debian::missing_zookeeper()).collect();
            debian::install(&missing)?;
        }
        let manifest = project.root.join("bench").join("Cargo.toml");
        let target = project.target.join("bench");
        run(project
            .cargo(["build", "--release", "--locked", "--manifest-path"])
            .arg(manifest)
            .arg("--target-dir")
            .arg(&target))?;
        let program = target.join("release").join("quorlock-bench");
        for name in &self.names {
            let mut command = if PINNED.contains(name) {
                let mut pinned = Command::new("taskset");
                pinned.args(["--cpu-list", "0"]).arg(&program);
                pinned
            } else {
                Command::new(&program)
            };
            if ON_VALKEY.contains(name)
                && let Some(valkey) = valkey(project)?
            {
                command.env("QUORLOCK_TEST_VALKEY", valkey);
            }
            command.arg(name).arg("--target").arg(project.target.join("bench-peers"));
            if self.quick {
                command.arg("--quick");
            }
            if self.save {
                command.arg("--save").arg(project.root.join("docs").join("performance"));
            }
            run(&mut command)?;
        }
        if self.quick && self.names.len() == ALL.len() - NEVER_QUICK.len() {
            println!("\nleft out, since they know no shorter way: {}", NEVER_QUICK.join(", "));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The Valkey that the tests use, if there is one for this machine.
fn valkey(project: &Project) -> Result<Option<PathBuf>> {
    let Ok(python) = python_peers::find_python() else { return Ok(None) };
    debian::install(python_peers::missing_package(&python).as_slice())?;
    Ok(python_peers::prepare(project, &python)?.valkey)
}

/// Times the parts of a lock and the wire format by themselves, and compares with the time before.
pub(crate) fn micro(project: &Project) -> Result<ExitCode> {
    run(project
        .cargo(["bench", "--locked", "--bench", "hot_path", "--bench", "resp", "--manifest-path"])
        .arg(project.root.join("bench").join("Cargo.toml"))
        .arg("--target-dir")
        .arg(project.target.join("bench")))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Bench> {
        Bench::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn nothing_is_all_of_it() {
        assert_eq!(parse("").unwrap().names, ALL);
        assert_eq!(
            parse("all --save").unwrap(),
            Bench { names: ALL.to_vec(), quick: false, save: true }
        );
        assert_eq!(parse("--quick").unwrap().names.len(), ALL.len() - NEVER_QUICK.len());
    }

    #[test]
    fn benchmarks_are_picked_by_name() {
        let some = parse("faults latency --quick").unwrap();
        assert_eq!(some, Bench { names: vec!["faults", "latency"], quick: true, save: false });
        let error = parse("latncy").unwrap_err().to_string();
        assert!(error.contains("`latncy`") && error.contains("latency, unpinned"), "{error}");
    }

    #[test]
    fn what_is_only_tried_out_is_not_kept() {
        assert!(parse("latency --quick --save").unwrap_err().to_string().contains("--save"));
    }
}
