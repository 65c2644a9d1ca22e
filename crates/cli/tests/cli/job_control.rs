//! At a terminal: who reads, who is interrupted, who is stopped.

use quorlock_testkit::{eventually, test};

use crate::nodes::Nodes;
use crate::process::is_alive;
use crate::terminal::Terminal;

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

// What the commands print is written in two parts in what is typed, since that is shown as well.

#[test]
fn a_command_reads_what_is_typed() {
    let nodes = Nodes::start(1);
    let mut shell = Terminal::shell(&nodes);
    shell.types("$QUORLOCK run x -c 'echo re\"\"ady; read line; echo \"<$line>\"; exit 7'\n");
    shell.sees("ready");
    shell.types("hello\n");
    shell.sees("<hello>");
    assert_eq!(shell.exit_code(), "7");
    nodes.all_released("x");
}

#[test]
fn a_command_that_cannot_be_told_to_wait_for_its_turn_has_it() {
    let nodes = Nodes::start(1);
    let mut shell = Terminal::shell(&nodes);
    // In the background, its reading would fail.
    shell.types(
        "$QUORLOCK run x -c 'trap \"\" TTIN; echo re\"\"ady; read line; echo \"<$line>\"'\n",
    );
    shell.sees("ready");
    shell.types("hello\n");
    shell.sees("<hello>");
}

#[test]
fn a_script_goes_on_with_the_terminal_after_the_command() {
    let nodes = Nodes::start(1);
    let mut shell = Terminal::shell(&nodes);
    // Without job control, nobody but the program itself gives the terminal back to the script.
    shell.types("sh -c '$QUORLOCK run x -c \"read a\"; echo ne\"\"xt; read b; echo \"<$b>\"'\n");
    shell.types("one\n");
    shell.sees("next");
    shell.types("two\n");
    shell.sees("<two>");
    assert_eq!(shell.exit_code(), "0");
}

#[test]
fn ctrl_c_ends_the_command() {
    let nodes = Nodes::start(1);
    let mut shell = Terminal::shell(&nodes);
    shell.types("$QUORLOCK run x -c 'echo re\"\"ady; exec sleep 60'\n");
    shell.sees("ready");
    shell.types(CTRL_C);
    assert_eq!(shell.exit_code(), "130");
    nodes.all_released("x");
}

#[test]
fn ctrl_c_ends_the_waiting_of_which_the_screen_tells() {
    let nodes = Nodes::start(1);
    nodes.take("x");
    let mut shell = Terminal::shell(&nodes);
    shell.types("$QUORLOCK run x -- echo o\"\"ut\n");
    shell.sees("waiting for the lock x, held by #");
    shell.types(CTRL_C);
    assert_eq!(shell.exit_code(), "130");
    assert_eq!(nodes.holding("x"), 1, "what is somebody else's stays");
}

/// A script that runs commands one after the other, as people write them.
const LOOP: &str = "for turn in 1 2; do $QUORLOCK run x -c \"$COMMAND\"; echo be\"\"hind $?; done";

#[test]
fn ctrl_c_ends_the_script_around_a_run_as_it_does_without_one() {
    let nodes = Nodes::start(1);
    for sh in ["bash", "sh"] {
        let mut shell = Terminal::shell(&nodes);
        let command = "echo re\"\"ady; exec sleep 60";
        shell.types(&format!("COMMAND='{command}' {sh} -c '{LOOP}'\n"));
        shell.sees("ready");
        shell.types(CTRL_C);
        let before = shell.sees("$ ");
        assert!(!before.contains("behind"), "{sh}: {before:?}");
        assert_eq!(shell.exit_code(), "130", "{sh}");
        nodes.all_released("x");

        // In a pipeline the terminal is not the command's, and the key reaches the run itself.
        let command = "echo re\"\"ady >&2; exec sleep 60";
        shell.types(&format!("COMMAND='{command}' {sh} -c '{LOOP} | cat'\n"));
        shell.sees("ready");
        shell.types(CTRL_C);
        let before = shell.sees("$ ");
        assert!(!before.contains("behind"), "{sh}: {before:?}");
        assert_eq!(shell.exit_code(), "130", "{sh}");

        nodes.take("x");
        shell.types(&format!("COMMAND=true {sh} -c '{LOOP}'\n"));
        shell.sees("waiting for the lock x, held by #");
        shell.types(CTRL_C);
        let before = shell.sees("$ ");
        assert!(!before.contains("behind"), "{sh}: {before:?}");
        assert_eq!(shell.exit_code(), "130", "{sh}");
        nodes.delete("x");
    }
}

#[test]
fn a_script_goes_on_after_a_command_that_made_something_else_of_ctrl_c() {
    let nodes = Nodes::start(1);
    let mut shell = Terminal::shell(&nodes);
    let command = "trap \"exit 3\" INT; echo re\"\"ady; while :; do sleep 0.01; done";
    shell.types(&format!("COMMAND='{command}' bash -c '{LOOP}'\n"));
    for _ in 0..2 {
        shell.sees("ready");
        shell.types(CTRL_C);
        shell.sees("behind 3");
    }
    // A signal that nobody typed is the command's own affair.
    shell.types(&format!("COMMAND='kill -TERM $$' bash -c '{LOOP}'\n"));
    shell.sees("behind 143");
    shell.sees("behind 143");
    assert_eq!(shell.exit_code(), "0");
}

#[test]
fn ctrl_c_ends_a_run_around_a_run() {
    let nodes = Nodes::start(1);
    let mut shell = Terminal::shell(&nodes);
    let script = "$QUORLOCK run y -c \"echo re\\\"\\\"ady; exec sleep 60\"; echo be\"\"hind";
    shell.types(&format!("$QUORLOCK run x -- bash -c '{script}'\n"));
    shell.sees("ready");
    shell.types(CTRL_C);
    let before = shell.sees("$ ");
    assert!(!before.contains("behind"), "{before:?}");
    assert_eq!(shell.exit_code(), "130");
    nodes.all_released("x");
    nodes.all_released("y");
}

#[test]
fn nothing_of_the_waiting_is_left_on_the_screen() {
    let nodes = Nodes::start(1);
    nodes.take("x");
    let mut shell = Terminal::shell(&nodes);
    shell.types("$QUORLOCK run x -- echo o\"\"ut\n");
    shell.sees("waiting for the lock x, held by #");
    nodes.delete("x");
    let before = shell.sees("out");
    assert!(before.ends_with("\r\x1b[K"), "{before:?}");
}

#[test]
fn the_waiting_in_the_background_is_not_shown() {
    let nodes = Nodes::start(1);
    nodes.take("x");
    nodes.take("y");
    let mut shell = Terminal::shell(&nodes);
    shell.types("$QUORLOCK run x -- true &\n");
    nodes.wait_for_queue("x", 1);
    shell.types("$QUORLOCK run y -- true\n");
    let before = shell.sees("waiting for the lock y, held by #");
    assert!(!before.contains("waiting for the lock x"), "{before:?}");
}

#[test]
fn a_warning_does_not_stop_the_one_who_extends_the_lock() {
    let nodes = Nodes::start(3);
    let mut shell = Terminal::shell(&nodes);
    // A process that writes from the background is stopped then.
    let run = "$QUORLOCK run --ttl 2s x -c 'echo re\"\"ady; read line; echo \"<$line>\"; exit 7'";
    shell.types(&format!("stty tostop; {run}\n"));
    shell.sees("ready");
    nodes.0[2].kill();
    shell.sees("warning: node ");
    shell.types("hello\n");
    shell.sees("<hello>");
    assert_eq!(shell.exit_code(), "7");
}

#[test]
fn ctrl_z_stops_the_command_which_goes_on_with_its_lock() {
    let nodes = Nodes::start(3);
    let mut shell = Terminal::shell(&nodes);
    shell.types("$QUORLOCK run x -c 'echo re\"\"ady; read line; echo \"<$line>\"; exit 7'\n");
    shell.sees("ready");
    shell.types(CTRL_Z);
    shell.sees("stopped; the lock x is kept for ");
    shell.sees("Stopped");
    shell.sees("$ ");
    assert!(nodes.holding("x") >= 2);
    shell.types("fg\n");
    shell.types("more\n");
    shell.sees("<more>");
    assert_eq!(shell.exit_code(), "7");
    nodes.all_released("x");
}

#[test]
fn a_command_whose_lock_was_lost_while_it_stood_still_does_not_go_on() {
    let nodes = Nodes::start(3);
    let mut shell = Terminal::shell(&nodes);
    // It says so if it goes on for a moment, whatever it gets. It starts nothing: a shell that is
    // about to start something cannot be stopped if that is stopped first.
    let script = "trap \"echo w\\\"\\\"ent on\" CONT TERM; echo pid $$ =; while :; do :; done";
    shell.types(&format!("$QUORLOCK run x -c '{script}'\n"));
    shell.sees("\npid ");
    let pid: i32 = shell.sees(" ").parse().unwrap();
    shell.types(CTRL_Z);
    shell.sees("stopped; the lock x is kept for ");
    shell.sees("Stopped");
    shell.sees("$ ");
    nodes.delete("x");
    nodes.take("x");
    shell.types("fg\n");
    let said = shell.sees("the lock x is lost");
    assert!(!said.contains("went on"), "{said}");
    shell.sees("the command was ended before it could go on");
    assert_eq!(shell.exit_code(), "76");
    assert!(!is_alive(pid));
    assert_eq!(nodes.holding("x"), 3, "what is somebody else's stays");
}

#[test]
fn ctrl_z_stops_what_ignores_it_as_well() {
    let nodes = Nodes::start(1);
    let mut shell = Terminal::shell(&nodes);
    let script = "(trap \"\" TSTP; exec sleep 60) & echo pid $! =; read line";
    shell.types(&format!("$QUORLOCK run x -c '{script}'\n"));
    shell.sees("\npid ");
    let pid = shell.sees(" ");
    shell.types(CTRL_Z);
    shell.sees("Stopped");
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    eventually("it stands still", || state().contains(") T "));
}

#[test]
fn ctrl_z_stops_the_waiting() {
    let nodes = Nodes::start(1);
    nodes.take("x");
    let mut shell = Terminal::shell(&nodes);
    shell.types("$QUORLOCK run x -- echo o\"\"ut\n");
    shell.sees("waiting for the lock x, held by #");
    shell.types(CTRL_Z);
    shell.sees("Stopped");
    shell.types("fg\n");
    shell.sees("waiting for the lock x, held by #");
    nodes.delete("x");
    shell.sees("out");
    assert_eq!(shell.exit_code(), "0");
}

#[test]
fn a_run_inside_a_run_is_stopped_and_goes_on_too() {
    let nodes = Nodes::start(1);
    let mut shell = Terminal::shell(&nodes);
    let script = "echo re\"\"ady; read line; echo \"<$line>\"";
    shell.types(&format!("$QUORLOCK run x -- $QUORLOCK run y -c '{script}'\n"));
    shell.sees("ready");
    shell.types(CTRL_Z);
    shell.sees("Stopped");
    shell.types("fg\n");
    shell.types("more\n");
    shell.sees("<more>");
    assert_eq!(shell.exit_code(), "0");
}

#[test]
fn a_command_in_a_pipeline_can_read_too() {
    let nodes = Nodes::start(1);
    let mut shell = Terminal::shell(&nodes);
    shell.types("$QUORLOCK run x -c 'echo re\"\"ady; read line; echo \"<$line>\"' | cat\n");
    shell.sees("ready");
    shell.types("hello\n");
    shell.sees("<hello>");
    assert_eq!(shell.exit_code(), "0");
}

#[test]
fn a_command_in_the_background_waits_for_the_foreground_to_read() {
    let nodes = Nodes::start(1);
    let mut shell = Terminal::shell(&nodes);
    shell.types("$QUORLOCK run x -c 'read line; echo \"<$line>\"; exit 7' &\n");
    shell.sees("the lock x is kept for ");
    shell.types("until jobs -s | grep -q .; do sleep 0.01; done; echo sto\"\"od\n");
    shell.sees("stood");
    shell.types("fg\n");
    shell.types("hello\n");
    shell.sees("<hello>");
    assert_eq!(shell.exit_code(), "7");
}
