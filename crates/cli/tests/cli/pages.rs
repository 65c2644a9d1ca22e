//! Manual pages and completions, as packagers and shells use them.

use std::fs;
use std::process::{Command, Stdio};

use crate::nodes::quorlock;
use crate::process::outcome;

/// The commands that the help names.
fn commands() -> Vec<String> {
    let help = outcome(quorlock().arg("--help")).stdout;
    let list = help.split("Commands:\n").nth(1).expect("a list of commands");
    let lines = list.lines().take_while(|line| line.starts_with("  "));
    let names: Vec<_> = lines
        .map(|line| line.split_whitespace().next().expect("as the test has it").to_owned())
        .collect();
    assert!(names.len() >= 5, "{names:?}");
    names
}

fn completions(shell: &str) -> String {
    let run = outcome(quorlock().args(["completions", shell]));
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    run.stdout
}

#[test]
fn every_command_has_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("share/man/man1");
    let run = outcome(quorlock().arg("man").arg(&dir));
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "", ""), "{run:?}");
    let mut pages = vec!["quorlock.1".to_owned()];
    pages.extend(commands().iter().map(|name| format!("quorlock-{name}.1")));
    for page in pages {
        let path = dir.join(&page);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.lines().any(|line| line.starts_with(".TH quorlock")), "{page}: {text}");
        for part in [".SH NAME", ".SH SYNOPSIS", "Examples:"] {
            assert!(text.contains(part) || page == "quorlock-status.1", "{page} has no {part}");
        }
        // Where there is a reader of such pages, it has nothing to complain about.
        if let Ok(read) = Command::new("groff")
            .args(["-Kutf8", "-man", "-Tutf8", "-ww", "-z"])
            .arg(&path)
            .output()
        {
            assert_eq!(String::from_utf8_lossy(&read.stderr), "", "{page}");
        }
    }
    let first = outcome(quorlock().arg("man"));
    assert_eq!(first.code, Some(0));
    assert_eq!(first.stdout, fs::read_to_string(dir.join("quorlock.1")).unwrap());
}

#[test]
fn pages_that_cannot_be_written_are_told() {
    let run = outcome(quorlock().args(["man", "/dev/null/man1"]));
    assert_eq!((run.code, run.stdout.as_str()), (Some(78), ""), "{run:?}");
    assert!(run.stderr.contains("/dev/null/man1"), "{run:?}");
}

#[test]
fn bash_completes_commands_and_options() {
    let script = completions("bash");
    let complete = |words: &[&str]| {
        // As bash itself does it: the words, which of them is under the cursor, then the function.
        let ask = r#"
            source /dev/stdin || exit 1
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
            how=$(complete -p quorlock) || exit 1
            how=${how#*-F }
            "${how%% *}" quorlock "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            printf '%s\n' "${COMPREPLY[@]}""#;
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", ask, "bash"]).args(words);
        let mut bash = bash.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut bash.stdin.take().unwrap(), script.as_bytes()).unwrap();
        let output = bash.wait_with_output().unwrap();
        assert!(output.status.success(), "{words:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(complete(&["quorlock", "doc"]), ["doctor"]);
    for name in commands() {
        assert!(complete(&["quorlock", ""]).contains(&name), "{name}");
    }
    assert!(complete(&["quorlock", "run", "--no"]).contains(&"--node".to_owned()));
    assert_eq!(complete(&["quorlock", "completions", "z"]), ["zsh"]);
}

#[test]
fn the_other_shells_get_a_script_that_knows_every_command() {
    for (shell, start) in [("zsh", "#compdef quorlock"), ("fish", "#")] {
        let script = completions(shell);
        assert!(script.starts_with(start), "{shell}: {script}");
        for name in commands() {
            assert!(script.contains(&name), "{shell} does not know {name}");
        }
        // Where there is such a shell, it can read the script.
        if let Ok(mut read) = Command::new(shell).args(["-n"]).stdin(Stdio::piped()).spawn() {
            std::io::Write::write_all(&mut read.stdin.take().unwrap(), script.as_bytes()).unwrap();
            assert!(read.wait().unwrap().success(), "{shell}");
        }
    }
    let unknown = outcome(quorlock().args(["completions", "cmd"]));
    assert_eq!(unknown.code, Some(78), "{unknown:?}");
    assert!(unknown.stderr.contains("bash, zsh, fish"), "{unknown:?}");
}

#[test]
fn a_reader_of_only_the_start_is_not_blamed() {
    for args in [&["man"][..], &["completions", "bash"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let run = quorlock().args(args).stdout(writer).output().unwrap();
        assert_eq!(run.status.code(), Some(0), "{args:?}: {run:?}");
        assert_eq!(run.stderr, b"", "{args:?}: {run:?}");
    }
}
