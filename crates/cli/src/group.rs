//! The command and everything it starts: one process group.

use std::ffi::OsStr;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::exit::{self, Failed};
use crate::plan;
use crate::stderr::warn;

/// How often is looked whether a group is gone: nothing tells of processes that are not children.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// How long a group that was killed is waited for. The dead may stay in it for ever if nobody
/// collects them, as in a container without an init process.
const LAST_LOOK: Duration = Duration::from_millis(100);

/// A process group with a leader that is a child of ours. Dropped while the leader runs, it is
/// killed.
pub(crate) struct Group {
    leader: Child,
    id: Pid,
}

impl Group {
    /// Starts the command as the leader of a new group.
    pub(crate) fn start(plan: &plan::Run) -> Result<Self, Failed> {
        let leader = Command::new(&plan.program)
            .args(&plan.args)
            .env("QUORLOCK_NAME", &plan.name)
            .process_group(0)
            .spawn()
            .map_err(|error| not_started(&plan.program, &error))?;
        let id = leader.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let Some(id) = id else {
            return Err(Failed::new(
                exit::OWN_FAILURE,
                "the system gave a process without a number",
            ));
        };
        Ok(Self { leader, id })
    }

    /// Ends when the leader has. Nothing is lost by dropping the future.
    pub(crate) async fn leader_ended(&mut self) -> io::Result<ExitStatus> {
        self.leader.wait().await
    }

    /// Passes a signal on to the whole group.
    pub(crate) fn signal(&self, signal: Signal) {
        self.send(signal);
        // Who stands still, as one does that read from a terminal out of turn, cannot heed it.
        self.send(Signal::CONT);
    }

    /// Ends the whole group: by SIGTERM, and after `grace` by SIGKILL.
    pub(crate) async fn end(&mut self, grace: Duration) {
        self.signal(Signal::TERM);
        if timeout(grace, self.gone()).await.is_err() {
            self.send(Signal::KILL);
            // A leader that cannot be waited for was waited for before.
            let _ = self.leader.wait().await;
            let _ = timeout(LAST_LOOK, self.gone()).await;
        }
    }

    /// Ends when no process is left in the group.
    async fn gone(&mut self) {
        let _ = self.leader.wait().await;
        while test_kill_process_group(self.id) != Err(Errno::SRCH) {
            sleep(LOOK_EVERY).await;
        }
    }

    fn send(&self, signal: Signal) {
        match kill_process_group(self.id, signal) {
            Ok(()) | Err(Errno::SRCH) => {}
            // A command that has become another user is out of reach.
            Err(error) => warn(format_args!("the command cannot be sent {signal:?}: {error}")),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.leader.id().is_some() {
            self.send(Signal::KILL);
        }
    }
}

/// As shells and `env` tell them apart.
fn not_started(program: &OsStr, error: &io::Error) -> Failed {
    let program = program.display();
    match error.kind() {
        io::ErrorKind::NotFound => Failed::new(
            exit::NOT_FOUND,
            format!("the command {program} was not found; check its name and the PATH"),
        ),
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => Failed::new(
            exit::OWN_FAILURE,
            format!("the system has no room for another process: {error}; try again later"),
        ),
        _ => Failed::new(
            exit::NOT_EXECUTABLE,
            format!("the command {program} cannot be run: {error}; is it a program?"),
        ),
    }
}
