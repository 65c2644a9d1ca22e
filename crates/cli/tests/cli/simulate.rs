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
    let picture = folder.path().join("picture.svg");
    let svg = picture.to_str().expect("a path");
    let output = simulate(&["--scenario", "restarts-empty", "--html", path, "--svg", svg]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let (redlock, strict) = text.split_once("strict:").expect("both");
    assert!(
        redlock.contains("I1 exclusion") && strict.contains("every promise was kept"),
        "{text}"
    );
    let page = fs::read_to_string(&file).expect("a page");
    assert_eq!(page.matches("<svg ").count(), 2);
    let picture = fs::read_to_string(&picture).expect("a picture");
    assert_eq!(picture.matches("<svg ").count(), 3, "both, in a frame");
    assert!(picture.contains("every promise was kept") && picture.contains("process 1 holds"));
}

#[test]
fn each_fault_alone_shows_what_breaks_which_dialect() {
    let output = simulate(&["--by-fault", "--seeds", "4", "--nodes", "3", "--clients", "3"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let columns = |fault: &str| {
        let line = text.lines().find(|line| line.starts_with(fault)).expect("a line for each");
        (line[18..46].trim().to_owned(), line[46..].to_owned())
    };
    assert_eq!(columns("crash"), ("0".to_owned(), "0".to_owned()), "{text}");
    let (strict, redlock) = columns("restart-empty");
    assert!(redlock.contains("I1 exclusion"), "{text}");
    assert_eq!(strict, "0", "{text}");
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
