//! How the tests of a program end.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// How often a program that runs is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long to wait for the output of a program that has ended.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How some tests have ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// The name of the first test that failed.
    Failed(String),
    /// They took too long, or the program ended before all of them had run.
    Broken,
}

impl Outcome {
    /// Runs a test program until its end, the first test that fails, or the limit.
    pub(super) fn of(program: &mut Command, limit: Duration) -> Result<Self> {
        let program = program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = program.spawn().context("a test program does not start")?;
        let (tell, failed) = mpsc::channel();
        let output = child.stdout.take();
        thread::spawn(move || {
            let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines());
            for line in lines.map_while(Result::ok) {
                // Nobody listens any more once the first of them is known.
                failed_test(&line).map(|test| tell.send(test.to_owned()));
            }
        });
        let began = Instant::now();
        let outcome = loop {
            let status = child.try_wait()?;
            let wait = if status.is_some() { LAST_WORDS } else { LOOK_EVERY };
            match (failed.recv_timeout(wait), status) {
                // One test that fails is enough: the others need not be waited for.
                (Ok(test), _) => break Self::Failed(test),
                (_, Some(status)) if status.success() => return Ok(Self::Passed),
                (_, Some(_)) => return Ok(Self::Broken),
                (_, None) if began.elapsed() > limit => break Self::Broken,
                // It has closed its output, and is about to end.
                (Err(mpsc::RecvTimeoutError::Disconnected), None) => thread::sleep(LOOK_EVERY),
                (Err(mpsc::RecvTimeoutError::Timeout), None) => {}
            }
        };
        child.kill()?;
        child.wait()?;
        Ok(outcome)
    }
}

/// The test that failed, if a line of a test program says so.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Outcome {
        let limit = Duration::from_secs(60);
        Outcome::of(Command::new("sh").args(["-c", script]), limit).unwrap()
    }

    #[test]
    fn the_first_test_that_fails_ends_a_run() {
        let fails = "echo 'test a ... ok'; echo 'test b::c ... FAILED'; sleep 1000";
        assert_eq!(shell(fails), Outcome::Failed("b::c".to_owned()));
        assert_eq!(shell("echo 'test a ... FAILED'; exit 101"), Outcome::Failed("a".to_owned()));
    }

    #[test]
    fn a_run_without_one_passes_or_is_broken() {
        assert_eq!(shell("echo 'test a ... ok'"), Outcome::Passed);
        assert_eq!(shell("echo 'test result: FAILED. 0 passed'; exit 101"), Outcome::Broken);
        let hangs = Outcome::of(Command::new("sleep").arg("1000"), Duration::ZERO).unwrap();
        assert_eq!(hangs, Outcome::Broken);
    }
}
