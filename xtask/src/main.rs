//! The project's own commands: `cargo xtask test`, `verify`, `fix`, `bench`, `model`,
//! `determinism` and `mutants`.

mod bench_command;
mod beside_flock;
mod curator_peer;
mod debian;
mod determinism;
mod go_peer;
mod model_command;
mod mutants;
mod project;
mod python_peers;
mod steps;
mod tally;
mod test_command;
mod verify;

use std::env;
use std::process::ExitCode;

use anyhow::Result;

use crate::bench_command::Bench;
use crate::mutants::Mutants;
use crate::project::Project;

const HELP: &str = "\
The project's own commands.

Usage: cargo xtask <COMMAND>

Commands:
  test [ARGS…]  Install what the tests need and is missing, then run all tests
  verify        Check format, lints, documents, licences; changes no source file
  fix           Put right what the formatter and the linter can put right
  bench [WHICH…] Measure Quorlock beside its peers and the limit (all: 20 minutes)
                `bench command` is `quorlock run` beside `flock`; `bench micro` times
                the parts of a lock and Redis' wire format by themselves, in memory
  model [NAME]  Look at every state of the strict protocol and of its set of nodes, within small
                bounds; `model --full` goes further, in some minutes; `model heal` checks the cases
                with that name, `model members` those of the set of nodes
  determinism   Simulate some seeds in a debug and in a release build, and compare the traces
  mutants [WHICH…] Make small mistakes in the rules and check that tests notice each of them

ARGS of `test` narrow the run. They go to `cargo test`, after the options that are always there
(all packages unless ARGS name some, all features, no stop at the first failure):
  cargo xtask test -p quorlock-protocol    the tests of one package
  cargo xtask test --doc                   the documentation tests
  cargo xtask test -- some_name            the tests with `some_name` in their name

WHICH of `bench` is all, or some of:
  latency       lock + release of a free name, one at a time, on one and on five nodes
  unpinned      the same with client and servers on any core
  throughput    64, 256 and 1,024 at a time
  burst         10,000 names at once with default settings, all up and one node hung (Quorlock and rslock)
  contended     one name that 16 or 64 waiters want, in one process or four
  faults        one of five nodes hung, two of five dead
  engines       on etcd and on ZooKeeper, beside their own locks, and beside Quorlock on Redis; handed over too
  distant       five nodes at a distance, and one of them slower
  growth        what a lock costs while many are held, and after a million names (Quorlock only)
  rounds        how often one round trip is enough, alone and among 16 processes (Quorlock only)
  release       what a release costs the server, as a script and as one command
  waiting       who is next, on nodes that are further away (Quorlock and rslock)
  sqlite        locks in one file, beside what the file alone costs
  memory        what held locks and waiters need of it (Quorlock and rslock)
Only by its name:
  stopped-leader  an etcd leader that stands still, and what holders believe then: thirty runs, ten minutes
All but those with Quorlock in brackets, `release` and `sqlite` run beside locks of other languages, which are
installed into the target folder; what cannot be installed is named with the reason. `--quick` tries it out in five minutes. `--save` writes
the first eleven, and `stopped-leader`, to docs/performance as JSON and as charts; nothing else is ever written there.

WHICH of `mutants` is all, or some of:
  protocol      crates/protocol, by its own tests (cargo-mutants, which is installed if it is missing)
  drive         crates/quorlock/src/drive, by the simulator and tests of the library; takes hours
  lua           the scripts of the strict dialect, by the tests on real servers
`--file TEXT` narrows it to files with TEXT in their names, `--shard 0/4` to the first of four parts. What
was caught before is not tried again, so that a run that was ended goes on; `--again` tries all of it. Those
that may survive stand in xtask/mutants/explained.txt, with the reason; anything else is an error.

The last line of `test` is the summary: `N passed, N failed, N skipped`.
";

/// The exit code for a command line that makes no sense, as other programs have it.
const USAGE_ERROR: u8 = 2;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> Result<ExitCode> {
    let Some((command, rest)) = args.split_first() else {
        return Ok(help());
    };
    if asks_for_help(args) {
        return Ok(help());
    }
    match (command.as_str(), rest) {
        ("test", extra) => test_command::run(&Project::find()?, extra),
        ("verify", []) => verify::verify(&Project::find()?),
        ("fix", []) => verify::fix(&Project::find()?),
        ("bench", [which]) if which == "command" => beside_flock::bench(&Project::find()?),
        ("bench", [which]) if which == "micro" => bench_command::micro(&Project::find()?),
        ("bench", args) => match Bench::parse(args) {
            Ok(bench) => bench.run(&Project::find()?),
            Err(error) => Ok(usage_error(&error.to_string())),
        },
        ("model", options) => model_command::model(&Project::find()?, options),
        ("mutants", args) => match Mutants::parse(args) {
            Ok(mutants) => mutants.run(&Project::find()?),
            Err(error) => Ok(usage_error(&error.to_string())),
        },
        ("determinism", []) => determinism::determinism(&Project::find()?),
        ("verify" | "fix" | "determinism", [extra, ..]) => Ok(usage_error(&format!(
            "`{command}` takes no arguments, but was given `{extra}`: leave it out"
        ))),
        _ => Ok(usage_error(&format!(
            "there is no command `{command}`: use `test`, `verify`, `fix`, `bench`, `model`, \
             `determinism` or `mutants`"
        ))),
    }
}

fn help() -> ExitCode {
    print!("{HELP}");
    ExitCode::SUCCESS
}

fn usage_error(message: &str) -> ExitCode {
    eprintln!("error: {message}\nSee `cargo xtask --help`.");
    ExitCode::from(USAGE_ERROR)
}

/// Whether help is asked for. What stands after `--` belongs to the test programs.
fn asks_for_help(args: &[String]) -> bool {
    args[0] == "help"
        || args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "-h" || arg == "--help")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(line: &str) -> bool {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        asks_for_help(&args)
    }

    #[test]
    fn help_is_seen_before_the_double_dash_only() {
        assert!(asks("--help"));
        assert!(asks("help"));
        assert!(asks("test -h"));
        assert!(!asks("test -p quorlock"));
        assert!(!asks("test -- --help"));
    }

    #[test]
    fn help_lists_every_command() {
        let all = ["test", "verify", "fix", "bench", "model", "determinism", "mutants"];
        for command in all.map(|command| format!("\n  {command} ")) {
            assert!(HELP.contains(&command), "{command:?} is not in the help");
        }
    }
}
