//! `quorlock simulate`.

use std::fs;
use std::process::{Command, Output};

fn simulate(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorlock"));
    command.arg("simulate").args(args).output().expect("it starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn tells_what_was_run_and_that_all_promises_were_kept() {
    let output = simulate(&["--seeds", "4"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with("4 seeds in the strict dialect"), "{text}");
    assert!(text.contains("times faster than life") && text.contains("restart-empty "), "{text}");
    assert!(text.ends_with("every promise was kept\n"), "{text}");
    assert!(output.stderr.is_empty(), "no bar where nobody looks");
}

/// The redlock dialect with nodes that forget.
#[test]
fn a_broken_promise_is_told_and_the_command_it_prints_replays_it() {
    let faults = "pause,restart-empty,crash";
    let output = simulate(&["--seeds", "10", "--dialect", "redlock", "--faults", faults]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("NOT every promise was kept") && text.contains("I1 exclusion"), "{text}");
    let replay = text.lines().last().and_then(|line| line.strip_prefix("replay it: "));
    let replay = replay.expect("a command");
    let args: Vec<_> = replay.split(' ').skip(2).collect();
    let again = simulate(&args);
    assert_eq!(again.status.code(), Some(1), "{replay}");
    let story =
        |text: &str| text.split_once("with no more faults").map(|(_, story)| story.to_owned());
    assert_eq!(story(&stdout(&again)), story(&text), "the same story");
}

#[test]
fn a_scenario_is_played_in_both_dialects_and_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("picture.html");
    let path = file.to_str().expect("a path");
    let output = simulate(&["--scenario", "restarts-empty", "--html", path]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let (redlock, strict) = text.split_once("strict:").expect("both");
    assert!(
        redlock.contains("I1 exclusion") && strict.contains("every promise was kept"),
        "{text}"
    );
    let page = fs::read_to_string(&file).expect("a page");
    assert_eq!(page.matches("<svg ").count(), 2);
}

#[test]
fn wrong_names_are_refused_with_the_right_ones() {
    for (args, right) in
        [(["--scenario", "nope"], "three-way-split"), (["--faults", "nope"], "lose-last-second")]
    {
        let output = simulate(&args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(78), "{text}");
        assert!(text.contains("\"nope\"") && text.contains(right), "{text}");
    }
    assert_eq!(simulate(&["--seeds", "0"]).status.code(), Some(78));
    assert_eq!(simulate(&["--nodes", "9"]).status.code(), Some(78));
}
