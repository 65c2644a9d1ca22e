//! The project's own commands: `cargo xtask test`, `cargo xtask verify`, `cargo xtask fix`,
//! `cargo xtask bench`, `cargo xtask model`.

mod bench_command;
mod debian;
mod model_command;
mod project;
mod python_peers;
mod steps;
mod tally;
mod test_command;
mod verify;

use std::env;
use std::process::ExitCode;

use anyhow::Result;

use crate::project::Project;

const HELP: &str = "\
The project's own commands.

Usage: cargo xtask <COMMAND>

Commands:
  test [ARGS…]  Install what the tests need and is missing, then run all tests
  verify        Check format, lints, documents, licences; changes no source file
  fix           Put right what the formatter and the linter can put right
  bench [WHICH] Measure Quorlock beside its peers: latency, throughput, faults, waiting, sqlite,
                memory, or all; `bench waiting --quick` to try something out
  model [NAME]  Look at every state of the strict protocol, within small bounds; `model --full`
                goes further, in some minutes; `model heal` checks the cases with that name

ARGS of `test` narrow the run. They go to `cargo test`, after the options that are always there
(all packages unless ARGS name some, all features, no stop at the first failure):
  cargo xtask test -p quorlock-protocol    the tests of one package
  cargo xtask test --doc                   the documentation tests
  cargo xtask test -- some_name            the tests with `some_name` in their name

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
        ("bench", []) => bench_command::bench(&Project::find()?, None, &[]),
        ("bench", [which, options @ ..]) => {
            match options.iter().find(|option| !option.starts_with("--")) {
                None => bench_command::bench(&Project::find()?, Some(which), options),
                Some(extra) => Ok(usage_error(&format!(
                    "`bench` takes one benchmark, but was given `{extra}` as well: leave it out"
                ))),
            }
        }
        ("model", options) => model_command::model(&Project::find()?, options),
        ("verify" | "fix", [extra, ..]) => Ok(usage_error(&format!(
            "`{command}` takes no arguments, but was given `{extra}`: leave it out"
        ))),
        _ => Ok(usage_error(&format!(
            "there is no command `{command}`: use `test`, `verify`, `fix`, `bench` or `model`"
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
        for command in ["\n  test ", "\n  verify ", "\n  fix ", "\n  bench ", "\n  model "] {
            assert!(HELP.contains(command), "{command:?} is not in the help");
        }
    }
}
