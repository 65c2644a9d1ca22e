//! Ending by a signal.
//!
//! A shell that runs a script wants to know whether Ctrl-C has ended a command, or the command has
//! made something of its own of it, as an editor does: it stops its loops after the one and goes on
//! after the other. An exit code of 130 does not tell. So this program ends by the signal that has
//! ended its command, or its waiting.
//!
//! A signal that was taken in once cannot be given back its first meaning without `unsafe` code. It
//! has it in a process that becomes another program:
//!
//! ```text
//!   quorlock run x -- CMD ──exec──▶ quorlock __end 2 ──▶ ended by signal 2
//! ```

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::{SigSet, Signal as Masked};
use rustix::process::{Resource, Rlimit, Signal, getpid, kill_process, setrlimit};

use crate::exec::this_program;
use crate::exit;
use crate::stderr;

/// What stands in the place of a subcommand. Nobody else is to use it: it is in no help.
pub(crate) const STAGE: &str = "__end";

/// Ends this process by that signal. Returns the code to end with if that does not work.
pub(crate) fn end_by(signal: Signal) -> u8 {
    stderr::flush();
    let number = signal.as_raw().to_string();
    // It returns only if it fails.
    let _ = Command::new(this_program()).arg0("quorlock").args([STAGE, &number]).exec();
    exit::of_signal(signal)
}

/// Ends by the signal, if this process was started for that. Returns only if it was not, or with
/// the code to end with: the first process of a container is not ended by its own signals.
pub(crate) fn end(mut args: impl Iterator<Item = OsString>) -> Option<u8> {
    if args.next().is_none_or(|stage| stage != STAGE) {
        return None;
    }
    let number: i32 = args.next().and_then(|number| number.to_str()?.parse().ok()).unwrap_or(0);
    let (Some(signal), Ok(masked)) = (Signal::from_named_raw(number), Masked::try_from(number))
    else {
        return Some(exit::MISUSE);
    };
    // Nobody wants to know what this process looked like.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = SigSet::from(masked).thread_unblock();
    let _ = kill_process(getpid(), signal);
    Some(exit::of_signal(signal))
}
