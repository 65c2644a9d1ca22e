//! `acquire`, `extend` and `release`, as scripts use them.

use quorlock_testkit::test;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::nodes::{Nodes, Record, quorlock};
use crate::process::{Outcome, Running, outcome};

/// Somewhere for locks to live.
enum Place {
    File(tempfile::TempDir),
    Servers(Nodes),
}

fn places() -> [Place; 2] {
    [Place::File(tempfile::tempdir().expect("a directory")), Place::Servers(Nodes::start(3))]
}

impl Place {
    fn quorlock(&self, args: &[&str]) -> Command {
        let mut command = match self {
            Self::File(home) => {
                let mut command = quorlock();
                command.env("XDG_STATE_HOME", home.path());
                command
            }
            Self::Servers(nodes) => {
                let mut command = nodes.quorlock(args[0]);
                command.args(&args[1..]);
                return command;
            }
        };
        command.args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Outcome {
        outcome(&mut self.quorlock(args))
    }

    /// The first word about the lock.
    fn state(&self, name: &str) -> String {
        let status = self.run(&["status", "--json", name]);
        let status: serde_json::Value = serde_json::from_str(&status.stdout).expect("JSON");
        status["state"].as_str().expect("a state").to_owned()
    }

    fn remaining_ms(&self, name: &str) -> u64 {
        let status = self.run(&["status", "--json", name]);
        let status: serde_json::Value = serde_json::from_str(&status.stdout).expect("JSON");
        status["remaining_ms"].as_u64().expect("a time")
    }
}

fn assert_quiet(outcome: &Outcome, code: i32) {
    assert_eq!(outcome.code, Some(code), "{outcome:?}");
    assert_eq!((&*outcome.stdout, &*outcome.stderr), ("", ""));
}

fn token_of(acquired: &Outcome) -> String {
    assert_eq!((acquired.code, &*acquired.stderr), (Some(0), ""), "{acquired:?}");
    let token = acquired.stdout.strip_suffix('\n').expect("one line").to_owned();
    assert!(token.starts_with("ql:") && !token.contains('\n'), "{acquired:?}");
    token
}

#[test]
fn a_lock_is_taken_extended_and_given_back() {
    for place in places() {
        let token = token_of(&place.run(&["acquire", "--ttl", "10s", "x"]));
        assert_eq!(place.state("x"), "held");
        let taken = place.run(&["acquire", "-n", "-E", "3", "x"]);
        assert_eq!((taken.code, &*taken.stdout), (Some(3), ""), "{taken:?}");
        assert!(taken.stderr.contains("the lock x is taken"), "{taken:?}");
        let waited = place.run(&["acquire", "-w", "500ms", "x"]);
        assert_eq!((waited.code, &*waited.stdout), (Some(124), ""), "{waited:?}");
        let waited = place.run(&["acquire", "-w", "500ms", "-E", "9", "x"]);
        assert_eq!((waited.code, &*waited.stdout), (Some(9), ""), "{waited:?}");

        assert!(place.remaining_ms("x") <= 10_000);
        let with_token =
            |args: &[&str]| outcome(place.quorlock(args).env("QUORLOCK_TOKEN", &token));
        assert_quiet(&with_token(&["extend", "--ttl", "30s", "x"]), 0);
        assert!(place.remaining_ms("x") > 10_000);
        assert_quiet(&with_token(&["extend", "--ttl", "1s", "x"]), 0);
        assert!(place.remaining_ms("x") > 10_000, "an extension never shortens");
        assert_quiet(&with_token(&["release", "x"]), 0);
        assert_eq!(place.state("x"), "free");
        for verb in ["extend", "release"] {
            let lost = with_token(&[verb, "x"]);
            assert_eq!((lost.code, &*lost.stdout), (Some(76), ""), "{lost:?}");
            assert!(lost.stderr.contains("the lock x is lost"), "{lost:?}");
            assert!(!lost.stderr.contains(&token), "{lost:?}");
        }
        assert_eq!(place.state("x"), "free", "an extension never takes a lock");
    }
}

#[test]
fn every_way_to_give_a_token_works() {
    let place = &places()[0];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    let path = file.to_str().unwrap();
    assert_quiet(&place.run(&["acquire", "x", "--token-file", path]), 0);
    let token = fs::read_to_string(&file).unwrap();
    // What is said on the command line counts before the environment.
    let other = "ql:0000000000000000000000000000000000000000";
    for args in [["--token-file", path], ["--token", &token]] {
        let mut extend = place.quorlock(&["extend", "x"]);
        assert_quiet(&outcome(extend.args(args).env("QUORLOCK_TOKEN", other)), 0);
    }
    let mut extend = Running::start(&mut place.quorlock(&["extend", "x", "--token-file", "-"]));
    // Not closed: one line is enough.
    extend.write(&token);
    assert_quiet(&extend.end(), 0);
    assert_quiet(&place.run(&["release", "x", "--token-file", path]), 0);
}

#[test]
fn a_file_with_a_token_is_for_its_owner_alone_and_replaces_nothing_of_value() {
    for place in places() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let path = file.to_str().unwrap();
        let acquire = |name| place.run(&["acquire", "-n", name, "--token-file", path]);
        assert_quiet(&acquire("x"), 0);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
        let token = fs::read_to_string(&file).unwrap();

        let taken = acquire("x");
        assert_eq!(taken.code, Some(75), "{taken:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), token, "the token of a live lock is lost");
        assert_quiet(&place.run(&["release", "x", "--token-file", path]), 0);

        // A token of old and an empty file are replaced, with the right mode.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert_quiet(&acquire("y"), 0);
        assert_ne!(fs::read_to_string(&file).unwrap(), token);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
        fs::write(&file, "").unwrap();
        assert_quiet(&acquire("z"), 0);

        fs::write(&file, "the only copy of something\n").unwrap();
        let (link, empty) = (dir.path().join("link"), dir.path().join("empty"));
        fs::write(&empty, "").unwrap();
        std::os::unix::fs::symlink(&empty, &link).unwrap();
        let nowhere = dir.path().join("no/such/token");
        for path in [&file, &link, &nowhere, &dir.path().to_path_buf(), &"/dev/stdout".into()] {
            let path = path.to_str().unwrap();
            let refused = place.run(&["acquire", "never", "--token-file", path]);
            assert_eq!((refused.code, &*refused.stdout), (Some(78), ""), "{refused:?}");
            assert!(refused.stderr.contains(path), "{refused:?}");
        }
        assert_eq!(place.state("never"), "free", "refused before it is taken");
        assert_eq!(fs::read_to_string(&file).unwrap(), "the only copy of something\n");
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 3, "{left:?}");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}

#[test]
fn a_wrong_token_changes_nothing() {
    for place in places() {
        let token = token_of(&place.run(&["acquire", "x"]));
        let other = token_of(&place.run(&["acquire", "y"]));
        let before = place.remaining_ms("x");
        for verb in ["extend", "release"] {
            let lost = outcome(place.quorlock(&[verb, "x"]).env("QUORLOCK_TOKEN", &other));
            assert_eq!((lost.code, &*lost.stdout), (Some(76), ""), "{lost:?}");
        }
        assert!(place.state("x") == "held" && place.remaining_ms("x") <= before);
        for verb in ["extend", "release"] {
            let odd = outcome(place.quorlock(&[verb, "x"]).env("QUORLOCK_TOKEN", &other[1..]));
            assert_eq!(odd.code, Some(78), "{odd:?}");
            assert!(!odd.stderr.contains(&other[10..]), "{odd:?}");
            let none = place.run(&[verb, "x"]);
            assert_eq!(none.code, Some(78), "{none:?}");
            assert!(none.stderr.contains("QUORLOCK_TOKEN") && none.stderr.contains("--token-file"));
        }
        let mut release = place.quorlock(&["release", "x"]);
        assert_quiet(&outcome(release.env("QUORLOCK_TOKEN", &token)), 0);
    }
}

#[test]
fn a_token_is_shown_to_nobody_else() {
    let nodes = Nodes::start(1);
    let acquired = outcome(nodes.quorlock("acquire").arg("x").env("QUORLOCK_LOG", "trace"));
    let token = acquired.stdout.trim().to_owned();
    assert!(token.starts_with("ql:") && !acquired.stderr.contains(&token), "{acquired:?}");
    let mut extend = nodes.quorlock("extend");
    extend.args(["x", "--token-file", "-"]).env("QUORLOCK_LOG", "trace");
    let mut extend = Running::start(&mut extend);
    nodes.0[0].pause();
    extend.write(&format!("{token}\n"));
    // It connects once it has the token, and nobody answers: so it can be looked at.
    let seen: Vec<u8> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read(entry.unwrap().path().join("cmdline")).ok())
        .flatten()
        .collect();
    assert!(!String::from_utf8_lossy(&seen).contains(&token), "every user can see it");
    nodes.0[0].resume();
    let extended = extend.end();
    assert!(!extended.stderr.contains(&token), "{extended:?}");
    for args in [&["extend", "x", &token][..], &["release", "--oops", &token, "x"]] {
        let wrong = outcome(quorlock().args(args));
        assert_eq!(wrong.code, Some(78), "{wrong:?}");
        assert!(!wrong.stderr.contains(&token[3..]), "{wrong:?}");
    }
}

#[test]
fn a_command_finds_the_token_of_its_lock_and_can_extend_and_release_by_it() {
    for place in places() {
        let script = "echo $QUORLOCK_TOKEN; \"$QUORLOCK\" extend x --ttl 30s; echo $?; read _; \
            \"$QUORLOCK\" release x; echo $?";
        let mut run = place.quorlock(&["run", "--ttl", "10s", "x", "-c", script]);
        // That of a lock which a script around it has taken is none of its business.
        let mut run = Running::start(run.env("QUORLOCK_TOKEN", "ql:another"));
        let token = run.line();
        assert!(token.starts_with("ql:") && token != "ql:another", "{token}");
        assert_eq!(run.line(), "0");
        assert!(place.remaining_ms("x") > 10_000);
        run.write("\n");
        assert_eq!(run.line(), "0");
        let run = run.end();
        assert_eq!(run.code, Some(76), "it was not held to the end: {run:?}");
        assert_eq!(place.state("x"), "free");
    }
}

#[test]
fn a_run_inside_a_run_has_the_token_of_its_own_lock() {
    let nodes = Nodes::start(1);
    let script = r#"for name in x y; do "$QUORLOCK" run $name -- printenv QUORLOCK_TOKEN; done;
        echo $QUORLOCK_TOKEN; read _; exit 0"#;
    let mut run = Running::start(nodes.quorlock("run").args(["x", "-c", script]));
    let [same, other, own] = [run.line(), run.line(), run.line()];
    assert_eq!(Record::on(&nodes.0[0], "x").expect("it is held").token, own);
    assert_eq!(same, own, "it takes part in the lock around it");
    assert!(other.starts_with("ql:") && other != own, "{other}");
    run.close_stdin();
    assert_eq!(run.end().code, Some(0));
}

#[test]
fn a_token_that_nobody_got_leaves_no_lock() {
    for place in places() {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut acquire = place.quorlock(&["acquire", "x"]);
        let code =
            acquire.stdout(full).stderr(std::process::Stdio::null()).status().unwrap().code();
        assert_eq!(code, Some(125));
        assert_eq!(place.state("x"), "free");
    }
}

#[test]
fn a_signal_ends_the_waiting_and_leaves_nothing() {
    let nodes = Nodes::start(3);
    nodes.take("x");
    let acquire = Running::start(nodes.quorlock("acquire").arg("x"));
    nodes.wait_for_clients();
    acquire.signal(rustix::process::Signal::TERM);
    let ended = acquire.end();
    assert_eq!((ended.signal, &*ended.stdout), (Some(15), ""), "{ended:?}");
    nodes.delete("x");
    for server in &nodes.0 {
        assert_eq!(server.kept(), 0);
    }
}

#[test]
fn too_few_nodes_give_69_and_change_nothing() {
    let nodes = Nodes::start(3);
    // So that a busy machine, too, asks all of them.
    let mut acquire = nodes.quorlock("acquire");
    let token = token_of(&outcome(acquire.env("QUORLOCK_NODE_LIMIT", "2s").arg("x")));
    quorlock_testkit::eventually("every node has it", || nodes.holding("x") == 3);
    nodes.0[0].kill();
    nodes.0[1].kill();
    for verb in ["extend", "release"] {
        let few = outcome(nodes.quorlock(verb).arg("x").env("QUORLOCK_TOKEN", &token));
        assert_eq!((few.code, &*few.stdout), (Some(69), ""), "{few:?}");
    }
    assert_eq!(Record::on(&nodes.0[2], "x").expect("it is held").token, token);
}

#[test]
fn a_ttl_that_is_too_long_is_refused() {
    let long = outcome(quorlock().args(["acquire", "--ttl", "1h", "x"]));
    assert_eq!(long.code, Some(78), "{long:?}");
    assert!(long.stderr.contains("30.0s"), "{long:?}");
}
