//! The command line, as it is written and as `--help` explains it.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use crate::duration;
use crate::exit;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const EXAMPLES: &str = "\
Examples:
  quorlock run nightly-backup -- ./backup.sh      # once on this machine: no server, no set-up
  export QUORLOCK_NODES=redis://a,redis://b,redis://c
  quorlock run nightly-backup -- ./backup.sh      # once on all machines
  quorlock run -n nightly-backup -- ./backup.sh   # not now if it is taken: exit code 75
  quorlock status nightly-backup

`quorlock run --help` and `quorlock status --help` tell more.";

const RUN_EXAMPLES: &str = "\
The command runs in a process group of its own, so it cannot read from a terminal. SIGINT, SIGTERM,
SIGHUP and SIGQUIT are passed on to the group. Ctrl-Z does nothing: a lock that nobody extends would
be lost. The command finds the lock's name in QUORLOCK_NAME. The lock is released when the command
has ended, even if something it started runs on.

While the command runs, the lock is extended every third of its TTL. If that fails until a sixth of
the TTL is left, the group gets SIGTERM, and half of that time later SIGKILL: it is gone before the
lock is. If the lock is found lost, the group gets SIGTERM at once and SIGKILL within 0.1 s.

Exit codes:
    *  that of the command; 128+N if signal N ended it
   69  too few nodes can be reached
   75  the lock is taken (-n; another code with -E)
   76  the lock was lost, and the command ended
   78  arguments or settings that cannot work
  124  the lock did not become free in time (-w)
  125  quorlock itself failed
  126  the command cannot be run
  127  the command was not found
  128+N  signal N came while quorlock waited for the lock

Examples:
  quorlock run --node redis://a,redis://b,redis://c nightly -- ./backup.sh --full
  quorlock run -n -E 0 nightly -- ./backup.sh     # somebody else does it: fine
  quorlock run -w 1m30s --ttl 5s deploy/web -- sh -c './build && ./deploy'

Passwords belong into QUORLOCK_NODES: the arguments of a process can be seen by every user of the
machine. QUORLOCK_LOG says what is logged to stderr: off, error, warn (the default), info, debug.";

const STATUS_EXAMPLES: &str = "\
The first line says whether the lock is held, by whom and how long it lasts unless it is renewed.
Then comes a line for each node. A holder is shown as #, and 8 digits made from its secret token.

Exit codes: 0 held or free, 69 too few nodes answered to tell, 78 arguments or settings that cannot
work, 125 quorlock itself failed.

Examples:
  quorlock status --node redis://a,redis://b,redis://c nightly
  QUORLOCK_NODES=redis://:PASSWORD@a quorlock status nightly

Passwords belong into QUORLOCK_NODES: the arguments of a process can be seen by every user of the
machine. QUORLOCK_LOG says what is logged to stderr: off, error, warn (the default), info, debug.";

const NODE_HELP: &str = "\
A node: redis://[USER:PASSWORD@]HOST[:PORT][/DB], rediss://… with TLS, redis+unix:///PATH, or \
sqlite:PATH. Give it once per node, or list them with commas (%2C within a password) [default: \
a SQLite file of this user, for this machine: $XDG_STATE_HOME/quorlock/locks.db, or \
~/.local/state/quorlock/locks.db]";

/// Run a command while a lock is held, on this machine or across many.
///
/// The lock lives on one or more independent Redis or Valkey servers, its nodes, and is held by
/// whoever has it on a majority of them. With no node named it lives in a file, for the processes
/// of this machine.
#[derive(Parser)]
#[command(name = "quorlock", version, styles = STYLES, after_help = EXAMPLES)]
#[command(arg_required_else_help = false, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) action: Action,
}

#[derive(Subcommand)]
pub(crate) enum Action {
    Run(RunArgs),
    Status(StatusArgs),
}

/// Take a lock, run a command, release the lock.
///
/// Waits without end for the lock, unless -w or -n is given.
#[derive(Parser)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// How long the lock outlives this process if the machine dies; it is extended for as long as
    /// the command runs. At most 30s
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    pub(crate) ttl: Duration,

    /// Wait so long at the most: 10s, 1m30s, 500ms, 2h, or seconds such as 0.5 [default: without
    /// end]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,

    /// Do not wait: fail if the lock is taken
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) nonblock: bool,

    /// The exit code if the lock is taken
    #[arg(short = 'E', long, value_name = "CODE", requires = "nonblock")]
    #[arg(default_value_t = exit::TAKEN)]
    pub(crate) conflict_exit_code: u8,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// The lock
    pub(crate) name: OsString,

    /// The command, with its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// Show who holds a lock, and what each node says.
#[derive(Parser)]
#[command(after_help = STATUS_EXAMPLES)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// The lock
    pub(crate) name: OsString,
}

/// Where the lock lives. Not `Debug`: the URLs may hold passwords.
#[derive(clap::Args)]
pub(crate) struct ClusterArgs {
    #[arg(long = "node", value_name = "URL", env = "QUORLOCK_NODES", value_delimiter = ',')]
    #[arg(help = NODE_HELP)]
    #[arg(hide_env_values = true)]
    pub(crate) nodes: Vec<String>,

    /// What stands before the lock's name in the key on the nodes [default: nothing]
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub(crate) prefix: OsString,
}

/// The arguments of this process; `Err` has the exit code, and everything is said.
pub(crate) fn read() -> Result<Args, u8> {
    Args::try_parse().map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match error.print() {
            Ok(()) => 0,
            Err(_) => exit::OWN_FAILURE,
        },
        _ => {
            let text = without_urls(&error.render().to_string());
            crate::stderr::say(text.trim_start_matches("error: ").trim_end());
            exit::MISUSE
        }
    })
}

/// What was written into a wrong place may be a URL with a password.
fn without_urls(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, url)) = rest.split_once("://") {
        shown.push_str(before);
        shown.push_str("://…");
        let end = url.find(|c: char| c.is_whitespace() || "'\"".contains(c));
        rest = &url[end.unwrap_or(url.len())..];
    }
    shown + rest
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
    fn a_url_in_the_wrong_place_is_not_shown() {
        assert_eq!(
            without_urls("unexpected 'redis://:secret@h,redis://:b@i' found\nUsage: x://y"),
            "unexpected 'redis://…' found\nUsage: x://…"
        );
        assert_eq!(without_urls("nothing: here"), "nothing: here");
    }

    #[test]
    fn the_default_ttl_is_that_of_the_library() {
        let args = Args::try_parse_from(["quorlock", "run", "x", "--", "true"]).ok();
        let Some(Action::Run(run)) = args.map(|args| args.action) else { panic!("not a run") };
        assert_eq!(run.ttl, quorlock::Settings::default().ttl);
    }
}
