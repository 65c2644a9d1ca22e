//! `quorlock simulate`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

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

fn kept(file: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(file).ok()?).ok()
}

/// What was counted, without how long it took.
fn counted(file: &Path) -> Value {
    let mut kept = kept(file).expect("a file of seeds");
    let all = kept.as_object_mut().expect("an object");
    for passing in ["begun", "saved", "took_ms"] {
        all.remove(passing).expect("it is there");
    }
    kept
}

fn resume(seeds: u64, file: &Path, more: &[&str]) -> Output {
    let (seeds, file) = (seeds.to_string(), file.to_str().expect("a path"));
    simulate(&[&["--seeds", &seeds, "--resume", file], more].concat())
}

/// Killed in the middle it goes on, and comes to the same as in one go.
#[test]
fn seeds_that_take_days_go_on_where_they_were_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let [file, other] = ["seeds.json", "other.json"].map(|name| folder.path().join(name));
    let mut long = Command::new(env!("CARGO_BIN_EXE_quorlock"))
        .args(["simulate", "--seeds", "1000000", "--resume"])
        .arg(&file)
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let reached = || kept(&file).and_then(|kept| kept["seeds"].as_u64()).unwrap_or_default();
    let began = Instant::now();
    while reached() == 0 {
        assert!(began.elapsed() < Duration::from_secs(300), "no seeds are saved");
        thread::sleep(Duration::from_millis(5));
    }
    long.kill().expect("it runs");
    long.wait().expect("it ends");

    let begun = kept(&file).expect("a file of seeds")["begun"].clone();
    let more = reached() + 60;
    let output = resume(more, &file, &[]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains(&format!("{more} seeds in the strict dialect")), "{text}");
    assert!(text.ends_with("every promise was kept\n"), "{text}");
    assert_eq!(resume(more, &other, &[]).status.code(), Some(0));
    assert_eq!(counted(&file), counted(&other), "the same as in one go");
    assert_eq!(kept(&file).expect("a file of seeds")["begun"], begun);
    let again = stdout(&resume(more, &file, &[]));
    let shared = |text: &str| text.lines().skip(2).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(shared(&again), shared(&text), "nothing is left to run");
}

/// What was counted by another program, or with other settings, is another matter.
#[test]
fn seeds_of_another_program_are_not_gone_on_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("seeds.json");
    assert_eq!(resume(2, &file, &[]).status.code(), Some(0));
    let own = fs::read_to_string(&file).expect("a file of seeds");
    let refused = |more: &[&str], says: [&str; 2]| {
        let output = resume(4, &file, more);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(78), "{text}");
        assert!(says.iter().all(|part| text.contains(part)), "{text}");
    };
    refused(&["--nodes", "5"], ["--dialect strict, and", "--dialect strict --nodes 5"]);
    let (value, version) = (kept(&file).expect("a file"), env!("CARGO_PKG_VERSION"));
    let runs = value["runs"].as_str().expect("what the runs come to");
    fs::write(&file, own.replace(runs, "0123")).expect("written");
    refused(&[], ["runs 0123", &format!("runs {runs}")]);
    fs::write(&file, own.replace(version, "0.0.7")).expect("written");
    refused(&[], ["version 0.0.7", &format!("version {version}")]);
    fs::write(&file, &own[..own.len() / 2]).expect("written");
    assert_eq!(resume(4, &file, &[]).status.code(), Some(125), "a file that is none");
    fs::write(&file, &own).expect("written");
    assert_eq!(resume(4, &file, &[]).status.code(), Some(0));
    assert_eq!(kept(&file).expect("a file")["seeds"], 4);
}

/// Seeds that break a promise are counted on the way, told at the end, and not lost in between.
#[test]
fn broken_promises_are_kept_in_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("seeds.json");
    let bad = ["--dialect", "redlock", "--faults", "pause,restart-empty,crash"];
    let first = resume(10, &file, &bad);
    assert_eq!(first.status.code(), Some(1), "{}", stdout(&first));
    let again = resume(10, &file, &bad);
    assert_eq!(again.status.code(), Some(1));
    let story = |output: &Output| {
        let text = stdout(output);
        text.split_once("NOT every promise").map(|(_, story)| story.to_owned()).expect("a story")
    };
    assert_eq!(story(&again), story(&first), "the same seeds, and the same story");
    assert!(
        kept(&file).expect("a file")["bad_seeds"].as_object().is_some_and(|bad| !bad.is_empty())
    );
}
