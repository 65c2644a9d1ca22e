//! The command and everything it starts: one process group.

use std::io;
use std::process::ExitStatus;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, test_kill_process_group,
    waitid,
};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::exec;
use crate::exit::{self, Failed};
use crate::group_killer::{GroupKiller, KillAt};
use crate::plan;
use crate::processes::{self, Process};
use crate::reaper;
use crate::stderr::warn;

/// How often is looked whether a group is gone: nothing tells of processes that are not children.
/// The first while it is being ended, and every moment counts.
const LOOK_EVERY: Duration = Duration::from_millis(2);
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LONGEST_LOOK: Duration = Duration::from_millis(200);

/// How long a group that was killed is waited for.
const LAST_LOOK: Duration = Duration::from_millis(100);

/// A process group with a leader that is a child of ours. Dropped while the leader runs, it is
/// killed, and so it is if this process is killed, or stands still for too long.
pub(crate) struct Group {
    leader: Child,
    id: Pid,
    killer: Rc<GroupKiller>,
}

impl Group {
    /// Starts the command as the leader of a new group, which is killed then unless its
    /// [killer](Self::killer) hears of a later time.
    pub(crate) fn start(
        plan: &plan::Run,
        environment: &[(&str, std::ffi::OsString)],
        takes_terminal: bool,
        kill_at: KillAt,
    ) -> Result<Self, Failed> {
        let stage = exec::command(&plan.program, &plan.args, takes_terminal);
        let mut leader = Command::from(stage)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .process_group(0)
            // On this thread, which is the main one: the runtime has no other.
            .spawn()
            .map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => exec::no_room(&error),
                _ => Failed::new(
                    exit::OWN_FAILURE,
                    format!("no process can be started: {error}; is /proc there?"),
                ),
            })?;
        let id = leader.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let Some(id) = id else {
            return Err(Failed::new(
                exit::OWN_FAILURE,
                "the system gave a process without a number",
            ));
        };
        // Without it the command would run on beside the next holder when this process stands still.
        let killer = match GroupKiller::start(id, kill_at) {
            Ok(killer) => Rc::new(killer),
            Err(error) => {
                let _ = leader.start_kill();
                return Err(exec::no_room(&error));
            }
        };
        let group = Self { leader, id, killer };
        group.begin();
        Ok(group)
    }

    /// Lets the leader go on that has stopped before it becomes the command.
    fn begin(&self) {
        // The exit code of one that was ended meanwhile is for `leader_ended` to collect.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(self.id), options), Err(Errno::INTR)) {}
        let _ = self.leader_stopped();
        let _ = kill_process(self.id, Signal::CONT);
    }

    /// Ends the group if this process cannot.
    pub(crate) fn killer(&self) -> Rc<GroupKiller> {
        Rc::clone(&self.killer)
    }

    pub(crate) fn id(&self) -> Pid {
        self.id
    }

    /// Ends when the leader has. Nothing is lost by dropping the future.
    pub(crate) async fn leader_ended(&mut self) -> io::Result<ExitStatus> {
        self.leader.wait().await
    }

    /// The signal that has stopped the leader since this was last asked, if one has.
    pub(crate) fn leader_stopped(&self) -> Option<i32> {
        // Without EXITED: the exit code is for `leader_ended` to collect.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        waitid(WaitId::Pid(self.id), options).ok()??.stopping_signal()
    }

    /// Passes a signal on to the whole group.
    pub(crate) fn signal(&self, signal: Signal) {
        self.send(signal);
        // Who stands still, as one does that read from a terminal out of turn, cannot heed it.
        self.send(Signal::CONT);
    }

    /// Passes a signal on to the whole group, and to those that stand still when they go on.
    pub(crate) fn send(&self, signal: Signal) {
        match kill_process_group(self.id, signal) {
            Ok(()) | Err(Errno::SRCH) => {}
            // A command that has become another user is out of reach.
            Err(error) => warn(format_args!("the command cannot be sent {signal:?}: {error}")),
        }
    }

    /// Ends the whole group: by `signal`, and when `patience` is over by SIGKILL.
    pub(crate) async fn end(&mut self, signal: Signal, patience: impl Future<Output = ()>) {
        self.signal(signal);
        tokio::select! {
            () = self.gone(LOOK_EVERY) => {}
            () = patience => self.kill().await,
        }
    }

    /// Ends the whole group by SIGKILL. Who stands still does not go on before.
    pub(crate) async fn kill(&mut self) {
        self.send(Signal::KILL);
        // A leader that cannot be waited for was waited for before.
        let _ = self.leader.wait().await;
        let _ = timeout(LAST_LOOK, self.gone(LOOK_EVERY)).await;
    }

    /// Ends when the leader has, and every other process of the group too. Nothing is lost by
    /// dropping the future.
    pub(crate) async fn all_ended(&mut self) {
        self.gone(LONGEST_LOOK).await;
    }

    /// Who is in the group, as far as the system tells.
    pub(crate) fn members(&self) -> Vec<Process> {
        processes::living_members(self.id).unwrap_or_default()
    }

    async fn gone(&mut self, longest_pause: Duration) {
        let _ = self.leader.wait().await;
        let mut pause = FIRST_LOOK.min(longest_pause);
        while self.is_there() {
            sleep(pause).await;
            reaper::collect(None);
            pause = (pause * 2).min(longest_pause);
        }
    }

    /// Whether there is a process in the group which is not dead. The dead may stay there for ever
    /// if nobody collects them, as in a container without an init process.
    fn is_there(&self) -> bool {
        test_kill_process_group(self.id) != Err(Errno::SRCH)
            && processes::living_members(self.id).is_none_or(|living| !living.is_empty())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.leader.id().is_some() {
            self.send(Signal::KILL);
        }
        self.killer.dismiss();
    }
}
