//! A list of commands that all run, whatever becomes of the ones before.

use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::Result;

use crate::project::{command_line, run};

/// Runs steps one after the other and remembers which failed.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    done: usize,
    failed: Vec<String>,
}

impl Steps {
    /// Announces and runs one command.
    pub(crate) fn run(&mut self, title: &str, command: &mut Command) {
        self.run_with(title, || {
            println!("    {}", command_line(command));
            run(command)
        });
    }

    /// Announces and runs one step that is more than a command.
    pub(crate) fn run_with(&mut self, title: &str, step: impl FnOnce() -> Result<()>) {
        println!("==> {title}");
        let started = Instant::now();
        let result = step();
        let seconds = started.elapsed().as_secs_f32();
        self.done += 1;
        match result {
            Ok(()) => println!("    {title}: good, {seconds:.1} s"),
            Err(error) => {
                println!("    {title}: FAILED, {seconds:.1} s: {error:#}");
                self.failed.push(title.to_owned());
            }
        }
    }

    /// Says how it went, with `remedy` if something failed, and gives the exit code.
    pub(crate) fn finish(&self, remedy: &str) -> ExitCode {
        if self.failed.is_empty() {
            println!("all {} steps are good", self.done);
            return ExitCode::SUCCESS;
        }
        println!("{} of {} steps failed:", self.failed.len(), self.done);
        for title in &self.failed {
            println!("  {title}");
        }
        println!("{remedy}");
        ExitCode::FAILURE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_step_does_not_stop_the_next() {
        let mut steps = Steps::default();
        steps.run("first", &mut Command::new("false"));
        steps.run("second", &mut Command::new("true"));
        steps.run("third", &mut Command::new("no-program-has-this-name"));
        assert_eq!(steps.done, 3);
        assert_eq!(steps.failed, ["first", "third"]);
        assert_eq!(steps.finish(""), ExitCode::FAILURE);
    }

    #[test]
    fn all_good_is_success() {
        let mut steps = Steps::default();
        steps.run("only", &mut Command::new("true"));
        assert_eq!(steps.finish(""), ExitCode::SUCCESS);
    }
}
