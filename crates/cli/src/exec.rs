//! The last step before a command: a process of this program that becomes the command.
//!
//! ```text
//!   quorlock run x -- CMD        the parent: holds and extends the lock
//!      └─ quorlock __exec …      the child: asks to die with its parent, waits, takes the terminal
//!            └─ CMD              the same process, with the same id
//! ```
//!
//! What has to be arranged within the child itself, between its start and the command's, is done
//! here in plain code instead of in the narrow gap between `fork` and `exec`, where hardly any code
//! is sound. The command gets the same arguments, folder, files and environment as it would without
//! this step, and the same signals: what a process takes in is reset when it becomes another, and
//! the standard library resets the rest.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Signal, getpgrp, getpid, getppid, kill_process};

use crate::enclosing;
use crate::exit::{self, Failed};
use crate::stderr;
use crate::terminal;

/// What stands in the place of a subcommand. Nobody else is to use it: it is in no help.
pub(crate) const STAGE: &str = "__exec";

/// What the command may do with the terminal.
const FOREGROUND: &str = "foreground";
const AS_IT_IS: &str = "as-it-is";

/// Behind that: what there is to be said is for programs.
const JSON: &str = ",json";

/// A command that runs `program` by way of this step. It stops before that, until it is sent SIGCONT. It must be spawned by the main thread: the
/// system ends the command when the *thread* that started it ends.
pub(crate) fn command(program: &OsStr, args: &[OsString], takes_terminal: bool) -> Command {
    let mut command = Command::new(this_program());
    let parent = getpid().as_raw_nonzero().to_string();
    let place = if takes_terminal { FOREGROUND } else { AS_IT_IS };
    let log = if stderr::is_json() { JSON } else { "" };
    let place = format!("{place}{log}");
    command.arg0("quorlock").args([STAGE, &parent, &place]).arg(program).args(args);
    command
}

/// What to start to get this program once more. Not its path: there may be a newer one by now.
pub(crate) fn this_program() -> PathBuf {
    if cfg!(target_os = "linux") {
        return "/proc/self/exe".into();
    }
    std::env::current_exe().unwrap_or_else(|_| "quorlock".into())
}

/// Becomes the command, if this process was started for that. Returns only if it was not, or if the
/// command cannot be run.
pub(crate) fn become_command() -> Option<Failed> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != STAGE {
        return None;
    }
    let (Some(parent), Some(place), Some(program)) = (args.next(), args.next(), args.next()) else {
        return Some(Failed::new(exit::MISUSE, "__exec is not for use by hand; see --help"));
    };
    let place = place.to_string_lossy();
    if place.ends_with(JSON) {
        stderr::write_json();
        stderr::is_about(&std::env::var_os(enclosing::NAME).unwrap_or_default());
    }
    if !die_with(&parent) {
        // No process extends the lock any more, and none waits for an exit code.
        std::process::exit(exit::OWN_FAILURE.into());
    }
    // Until somebody knows when to end the command, though this process's parent stands still by then.
    let _ = kill_process(getpid(), Signal::STOP);
    if place.starts_with(FOREGROUND) {
        // If it fails, the command stands still when it reads from the terminal, and is helped then.
        let _ = terminal::make_foreground(io::stdin(), getpgrp());
    }
    Some(not_run(&program, &Command::new(&program).args(args).exec()))
}

/// Has the system kill this process when its parent ends, however that comes about. It holds for
/// the command as well, unless that gains the rights of another user as it starts. It does not hold
/// for what the command starts in turn.
///
/// Returns whether the parent is still there: it may have ended before this was asked for.
fn die_with(parent: &OsStr) -> bool {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::set_parent_process_death_signal;
        // A system that does not know of it keeps the command running, as one without Linux does.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
    // A parent in another PID namespace has no number here.
    getppid().is_none_or(|id| parent == id.as_raw_nonzero().to_string().as_str())
}

/// As shells and `env` tell them apart.
fn not_run(program: &OsStr, error: &io::Error) -> Failed {
    let program = program.display();
    match error.kind() {
        io::ErrorKind::NotFound => Failed::new(
            exit::NOT_FOUND,
            format!("the command {program} was not found; check its name and the PATH"),
        ),
        io::ErrorKind::OutOfMemory => no_room(error),
        _ => Failed::new(
            exit::NOT_EXECUTABLE,
            format!("the command {program} cannot be run: {error}; is it a program?"),
        ),
    }
}

pub(crate) fn no_room(error: &io::Error) -> Failed {
    let message = format!("the system has no room for another process: {error}; try again later");
    Failed::new(exit::OWN_FAILURE, message)
}
