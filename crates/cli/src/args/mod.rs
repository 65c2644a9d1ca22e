//! The command line, as it is written and as `--help` explains it.

mod acquire;
mod bench;
mod dialect;
mod doctor;
mod extend;
mod init;
mod list;
mod mistakes;
mod nodes;
mod note;
mod pages;
mod release;
mod run;
mod simulate;
mod status;
mod token;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::error::ErrorKind;
use clap::{Parser, Subcommand, ValueEnum};

use crate::stderr::{self, fail, hint};
use crate::{duration, exit};
pub(crate) use acquire::AcquireArgs;
pub(crate) use bench::BenchArgs;
pub(crate) use dialect::DialectArgs;
pub(crate) use doctor::DoctorArgs;
pub(crate) use extend::ExtendArgs;
pub(crate) use init::InitArgs;
pub(crate) use list::ListArgs;
pub(crate) use mistakes::quoted;
pub(crate) use nodes::{ChangeArgs, NodesArgs};
pub(crate) use note::NoteArgs;
pub(crate) use pages::{CompletionsArgs, ManArgs, Shell};
pub(crate) use release::ReleaseArgs;
pub(crate) use run::RunArgs;
pub(crate) use simulate::{DialectArg, SimulateArgs};
pub(crate) use status::StatusArgs;
pub(crate) use token::TokenArgs;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const EXAMPLES: &str = "\
What the arguments leave open is looked up in the environment (QUORLOCK_NODES and others), then \
in a file: --config FILE or QUORLOCK_CONFIG, else ~/.config/quorlock/config.toml, else \
/etc/quorlock/config.toml. It is TOML, and may have:
  nodes = [\"redis://a\", \"redis://b\"]  # or a table [[nodes]] each, with url,
                                      # username and password_file
  username = \"locks\"                  # for nodes whose URL names no user
  password_file = \"password\"          # for nodes whose URL has no password
  prefix = \"app:\"
  dialect = \"strict\"
  max_ttl = \"30s\"
  ttl = \"10s\"
  wait = \"1m30s\"
  node_limit = \"200ms\"
  connect_limit = \"1s\"

Exit codes are listed in the help of each command: quorlock run --help. The same everywhere are \
69 (too few nodes can be reached), 78 (arguments or settings that cannot work) and 125 (quorlock \
itself failed).

Examples:
  quorlock run backup -- ./backup.sh        # once for this user: no set-up
  export QUORLOCK_NODES=redis://a,redis://b,redis://c
  quorlock run backup -- ./backup.sh        # once on all machines
  quorlock run -n backup -- ./backup.sh     # not now if taken: exit code 75
  quorlock status backup
  quorlock list
  quorlock init                             # once, for new nodes
  quorlock nodes                            # who votes; add, remove, replace
  quorlock doctor                           # what is wrong with the nodes
  quorlock bench                            # what locks on them cost
  QUORLOCK_TOKEN=$(quorlock acquire deploy) # for scripts";

/// Over the options that all commands with a lock have.
const NODES: &str = "Nodes";

/// What a node may be, with the forms of the URLs that the library knows.
fn node_help() -> String {
    format!(
        "A node: {}; ?name=NAME if machines reach it under different addresses. Give it once per node, or list them \
         with commas. Where the URL has no user or no password, QUORLOCK_USERNAME and QUORLOCK_PASSWORD or the \
         file QUORLOCK_PASSWORD_FILE count [env: QUORLOCK_NODES] [default: a SQLite file for the processes of this \
         user on this machine: $XDG_STATE_HOME/quorlock/locks.db, or ~/.local/state/quorlock/locks.db. For several \
         users, name one that all of them may write to, such as sqlite:/var/lib/quorlock/locks.db]",
        quorlock::node::url_forms()
    )
}

/// Run a command while a lock is held, on this machine or across many.
///
/// The lock lives on one or more independent Redis or Valkey servers, its nodes, and is held by
/// the process that has it on a majority of them. With no node named it lives in a file, for the processes
/// of this user on this machine.
#[derive(Parser)]
#[command(name = "quorlock", version, styles = STYLES, after_help = EXAMPLES)]
#[command(arg_required_else_help = false, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[arg(long, value_name = "FORMAT", global = true, default_value = "text", help = LOG_HELP)]
    pub(crate) log: LogFormat,

    #[command(subcommand)]
    pub(crate) action: Action,
}

const LOG_HELP: &str = "\
How messages go to stderr. text: for people. json: one object in each line, with time, level (error, warn, info, \
debug, trace), message, lock and node (or null). What the command of a run writes there stays as it is. \
QUORLOCK_LOG=info says as well whom a lock is waited for, and when it was taken and released";

/// How messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Subcommand)]
pub(crate) enum Action {
    Run(RunArgs),
    Acquire(AcquireArgs),
    Extend(ExtendArgs),
    Release(ReleaseArgs),
    Status(StatusArgs),
    List(ListArgs),
    Init(InitArgs),
    Nodes(NodesArgs),
    Doctor(DoctorArgs),
    Bench(BenchArgs),
    Simulate(SimulateArgs),
    Man(ManArgs),
    Completions(CompletionsArgs),
}

/// Where the lock lives. Not `Debug`: the URLs may hold passwords.
#[derive(clap::Args)]
pub(crate) struct ClusterArgs {
    #[arg(long = "node", value_name = "URL", help = node_help(), help_heading = NODES)]
    pub(crate) nodes: Vec<String>,

    #[arg(
        help = "What stands before the lock's name in the key on the nodes [env: QUORLOCK_PREFIX] \
                  [default: nothing]"
    )]
    #[arg(long, value_name = "PREFIX", help_heading = NODES)]
    pub(crate) prefix: Option<OsString>,

    #[command(flatten)]
    pub(crate) dialect: DialectArgs,

    #[arg(
        help = "How long a node may take to answer [env: QUORLOCK_NODE_LIMIT] [default: 200ms, or a \
                  twentieth of the TTL if that is less]"
    )]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, help_heading = NODES)]
    pub(crate) node_limit: Option<Duration>,

    #[arg(
        help = "How long it may take to connect to a node [env: QUORLOCK_CONNECT_LIMIT] [default: \
                  1s]"
    )]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, help_heading = NODES)]
    pub(crate) connect_limit: Option<Duration>,

    #[arg(help = "The file with what the arguments and the environment leave open [env: \
                  QUORLOCK_CONFIG] [default: quorlock/config.toml in $XDG_CONFIG_HOME or ~/.config, or \
                  else in /etc]")]
    #[arg(long, value_name = "FILE", help_heading = NODES)]
    pub(crate) config: Option<PathBuf>,
}

/// The arguments of this process; `Err` has the exit code, and everything is said.
pub(crate) fn read() -> Result<Args, u8> {
    Args::try_parse().map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match error.print() {
            Ok(()) => 0,
            Err(_) => exit::OWN_FAILURE,
        },
        _ => {
            let args: Vec<_> = std::env::args_os().collect();
            if asks_for_json(&args) {
                stderr::write_json();
            }
            let text = mistakes::explain(&error, &args);
            fail(text.replace("\n  tip:", &format!("\n  {}", hint("tip:"))));
            exit::MISUSE
        }
    })
}

/// Whether messages are to be JSON, though the rest cannot be read.
fn asks_for_json(args: &[OsString]) -> bool {
    let own = args.iter().take_while(|arg| *arg != "--").collect::<Vec<_>>();
    own.iter().any(|arg| *arg == "--log=json") || own.windows(2).any(|two| two == ["--log", "json"])
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn what_is_lined_up_by_hand_fits_and_the_rest_is_left_to_the_terminal() {
        let mut command = Args::command();
        command.build();
        let all = command.get_subcommands().chain([&command]);
        for (name, text) in all.map(|it| (it.get_name(), it.get_after_help().unwrap().to_string()))
        {
            let mut paragraph = false;
            for line in text.lines() {
                let prose = !line.is_empty() && !line.starts_with("  ");
                assert!(prose || line.chars().count() <= 80, "{name}: {line}");
                assert!(!(prose && paragraph), "{name}: broken by hand before {line}");
                paragraph = prose;
            }
        }
    }

    #[test]
    fn the_defaults_in_the_help_are_those_of_the_library() {
        let settings = quorlock::Settings::default();
        let mut command = Args::command();
        let help = command.find_subcommand_mut("run").unwrap().render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for (option, default) in [
            ("--ttl", settings.ttl),
            ("--node-limit", settings.node_limit),
            ("--connect-limit", settings.connect_limit),
            ("--max-ttl", settings.max_ttl),
        ] {
            let text = help.split(&format!("{option} <")).nth(1).unwrap();
            let said = text.split("[default: ").nth(1).unwrap();
            let said = said.split([',', ']']).next().unwrap();
            assert_eq!(crate::duration::parse(said), Ok(default), "{option}");
        }
    }
}
