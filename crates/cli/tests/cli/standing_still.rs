//! Only `quorlock` stands still, by SIGSTOP or in a debugger, and what it runs does not.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use quorlock_testkit::{eventually, test};
use rustix::process::{Pid, Signal, kill_process};

use crate::nodes::{Nodes, quorlock};
use crate::process::{Running, is_alive};

/// Prints its own process id and that of another process. Nothing less than SIGKILL ends them.
const TWO_STUBBORN_PROCESSES: &str = "trap '' TERM; sleep 60 & echo $$ $!; wait";

/// How a run is started, with a subcommand and where its locks are.
type Start<'a> = &'a dyn Fn() -> Command;

/// Starts a run, has it stand still, and has another one tell what is left of the first when it holds the
/// lock. The TTL is so long that a busy machine ends a process in the part of it that is kept for that.
fn the_next_holder_is_alone(run: Start<'_>, ttl: &str) -> Running {
    let args = ["--ttl", ttl, "x", "--", "sh", "-c", TWO_STUBBORN_PROCESSES];
    let first = Running::start(run().args(args));
    let pids = first.pids();
    assert!(pids.len() == 2 && pids.iter().all(|pid| is_alive(*pid)), "{pids:?}");
    first.signal(Signal::STOP);
    let witness =
        format!("cat /proc/{}/stat /proc/{}/stat 2>/dev/null; echo done", pids[0], pids[1]);
    let args = ["--ttl", ttl, "-w", "60s", "x", "--", "sh", "-c", &witness];
    let second = Running::start(run().args(args));
    loop {
        let seen = second.line();
        if seen == "done" {
            break;
        }
        let (_, state) = seen.rsplit_once(") ").expect("a line of a process");
        assert!(state.starts_with(['Z', 'X']), "it runs beside the next holder: {seen}");
    }
    assert_eq!(second.end().code, Some(0));
    first
}

#[test]
fn the_command_has_ended_before_the_next_one_begins() {
    for (dialect, ttl) in [("strict", "2s"), ("redlock", "4s")] {
        let nodes = Nodes::start(1);
        let run = || {
            let mut run = nodes.quorlock("run");
            run.args(["--dialect", dialect]);
            run
        };
        let first = the_next_holder_is_alone(&run, ttl);
        first.signal(Signal::CONT);
        let first = first.end();
        assert_eq!((first.code, first.signal), (Some(76), None), "{first:?}");
        assert!(first.stderr.ends_with("the command was ended\n"), "{first:?}");
    }
}

#[test]
fn the_command_has_ended_before_the_next_one_begins_with_a_file() {
    let home = tempfile::tempdir().unwrap();
    let run = || {
        let mut run = quorlock();
        run.env("XDG_STATE_HOME", home.path()).arg("run");
        run
    };
    let first = the_next_holder_is_alone(&run, "6s");
    first.signal(Signal::CONT);
    let first = first.end();
    assert_eq!(first.code, Some(76), "{first:?}");
}

/// Between the start of its process and its own there is nobody who could end it.
#[test]
fn the_command_does_not_begin_before_somebody_knows_when_to_end_it() {
    let me = std::process::id().to_string();
    let stage = Running::start(quorlock().args(["__exec", &me, "as-it-is", "echo", "out"]));
    let stat = format!("/proc/{}/stat", stage.id());
    eventually("it stops", || fs::read_to_string(&stat).unwrap().contains(") T "));
    stage.signal(Signal::CONT);
    let stage = stage.end();
    assert_eq!((stage.code, stage.stdout.as_str()), (Some(0), "out\n"), "{stage:?}");
}

/// Nobody tells it that the lock is another's. It knows by its clock.
#[test]
fn the_loss_is_told_though_no_node_can_be_asked() {
    let nodes = Nodes::start(1);
    let args = ["--ttl", "1s", "x", "--", "sh", "-c", TWO_STUBBORN_PROCESSES];
    let run = Running::start(nodes.quorlock("run").args(args));
    let pids = run.pids();
    run.signal(Signal::STOP);
    eventually("the command is ended", || !pids.iter().any(|pid| is_alive(*pid)));
    eventually("the lock expires", || nodes.holding("x") == 0);
    nodes.0[0].kill();
    run.signal(Signal::CONT);
    let run = run.end();
    assert_eq!((run.code, run.signal), (Some(76), None), "{run:?}");
}

#[test]
fn what_the_command_left_behind_is_ended_too() {
    let nodes = Nodes::start(1);
    let script = "trap '' TERM; sleep 60 & echo $$ $!; exit 3";
    let run =
        Running::start(nodes.quorlock("run").args(["--ttl", "1s", "x", "--", "sh", "-c", script]));
    let pids = run.pids();
    eventually("the command has ended", || !is_alive(pids[0]));
    run.signal(Signal::STOP);
    eventually("what it left has ended", || !is_alive(pids[1]));
    run.signal(Signal::CONT);
    assert_eq!(run.end().code, Some(76));
}

/// Who waits to end the command hears of every extension, and does nothing while the lock is held.
#[test]
fn the_command_outlives_many_leases() {
    const TTL: Duration = Duration::from_secs(3);
    let home = tempfile::tempdir().unwrap();
    let nodes = Nodes::start(1);
    let mut file = quorlock();
    file.env("XDG_STATE_HOME", home.path()).arg("run");
    for mut run in [nodes.quorlock("run"), file] {
        let args = ["--ttl", "3s", "x", "--", "sh", "-c", "echo $$; read _; exit 3"];
        let mut run = Running::start(run.args(args));
        let pids = run.pids();
        let since = Instant::now();
        eventually("many leases pass", || {
            assert!(is_alive(pids[0]), "it was ended with its lock held");
            since.elapsed() > 3 * TTL
        });
        run.close_stdin();
        let run = run.end();
        assert_eq!(run.code, Some(3), "{run:?}");
    }
}

/// Who waits to end the command stands still itself: nothing waits for it, and it takes in what it has missed
/// before it looks at the clock.
#[test]
fn one_who_ends_the_command_may_stand_still_too() {
    const TTL: Duration = Duration::from_secs(3);
    let nodes = Nodes::start(1);
    let args = ["--ttl", "3s", "x", "--", "sh", "-c", "echo $$; read _; exit 3"];
    let mut run = Running::start(nodes.quorlock("run").args(args));
    let pids = run.pids();
    let killer = killer_of(pids[0]);
    kill_process(killer, Signal::STOP).expect("it is there");
    let since = Instant::now();
    eventually("many leases pass", || since.elapsed() > 2 * TTL);
    kill_process(killer, Signal::CONT).expect("it is there");
    let since = Instant::now();
    eventually("another lease passes", || {
        assert!(is_alive(pids[0]), "it was ended with its lock held");
        since.elapsed() > TTL
    });
    assert_eq!(nodes.holding("x"), 1);
    run.close_stdin();
    assert_eq!(run.end().code, Some(3));
    eventually("it ends with the others", || !is_alive(killer.as_raw_nonzero().get()));
}

/// The process that ends the group of that command if nobody else does.
pub(crate) fn killer_of(command: i32) -> Pid {
    let order = format!("quorlock\0__kill-group\0{command}\0");
    let mut found = None;
    eventually("somebody is there to end the group", || {
        let mut processes = fs::read_dir("/proc").expect("a list").map_while(Result::ok);
        found = processes.find_map(|process| {
            let line = fs::read(process.path().join("cmdline")).ok()?;
            let id = process.file_name().to_str()?.parse().ok()?;
            (line == order.as_bytes()).then(|| Pid::from_raw(id)).flatten()
        });
        found.is_some()
    });
    found.expect("it was found")
}
