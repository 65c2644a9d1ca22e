//! Starts child processes that die with this one, even when this one is killed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{self, Sender};
use std::thread;

/// A command, and where its child goes.
type Order = (Command, Sender<io::Result<Child>>);

/// The kernel sends the parent-death signal when the *thread* that spawned ends, so a test's own
/// thread must not spawn. This one lives as long as the process.
static SPAWNER: LazyLock<Sender<Order>> = LazyLock::new(|| {
    let (orders, inbox) = mpsc::channel::<Order>();
    thread::Builder::new()
        .name("spawner".into())
        .spawn(move || {
            for (mut command, answer) in inbox {
                // The thread that gave the order is blocked on the answer: it is there to take it.
                let _ = answer.send(command.spawn());
            }
        })
        .expect("the spawner thread starts");
    orders
});

/// Run by `sh` once the parent-death signal is set. The parent may have died just before that, and
/// then no signal will come: `$0` is the parent that should still be there. Both `setpriv` and
/// `sh` exec, so the pid stays the same throughout.
pub(crate) const UNLESS_ORPHANED: &str = r#"[ "$PPID" = "$0" ] && exec "$@""#;

/// Starts `program` as the leader of its own process group, with all its output going to `log`.
///
/// The variables are for the program only: a library to be loaded must not get into `setpriv` and
/// `sh`. So `env` sets them after those, and execs like them.
pub(crate) fn spawn(
    program: &OsStr,
    args: &[OsString],
    variables: &[(&str, OsString)],
    log: &File,
) -> io::Result<Child> {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "sh", "-c", UNLESS_ORPHANED])
        .arg(std::process::id().to_string());
    if !variables.is_empty() {
        command.arg("env");
    }
    for (name, value) in variables {
        let mut variable = OsString::from(name);
        variable.push("=");
        variable.push(value);
        command.arg(variable);
    }
    command
        .arg(program)
        .args(args)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?);

    let (answer, child) = mpsc::channel();
    SPAWNER.send((command, answer)).expect("the spawner thread never ends");
    child.recv().expect("the spawner answers every order")
}

/// Run by `sh`, whose input ends with the process that started it. A server that dies at the same
/// moment may still write, so what was removed may be there again.
const REMOVE_AT_THE_END: &str = r#"cat >&2
tries=100
until rm -rf -- "$@" || [ $tries = 0 ]; do tries=$((tries - 1)); sleep 0.05; done"#;

/// Has the directories removed once this process has ended, in whatever way.
///
/// A value in a static is never dropped, and a killed process drops nothing: so this is left to
/// another process, which waits for the end of this one and does nothing else before.
pub(crate) fn remove_at_the_end(directories: &[PathBuf]) -> io::Result<()> {
    let mut remover = Command::new("sh")
        .args(["-c", REMOVE_AT_THE_END, "sh"])
        .args(directories)
        // What interrupts the tests must not interrupt the removal.
        .process_group(0)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    // The other end of its input, which stays open as long as there is this process.
    mem::forget(remover.stdin.take());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orphan_does_not_run() {
        let runs_with_parent = |parent: u32| {
            let parent = parent.to_string();
            let mut command = Command::new("sh");
            command.args(["-c", UNLESS_ORPHANED, &parent, "true"]).status().unwrap().success()
        };
        assert!(runs_with_parent(std::process::id()));
        assert!(!runs_with_parent(0));
    }
}
