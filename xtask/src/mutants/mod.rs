//! `cargo xtask mutants`, which makes small mistakes and checks that tests notice them.

mod explained;
mod lua;
mod outcome;
mod rust;
mod scripts;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::project::Project;

/// The scripts, beside the areas of Rust.
const LUA: &str = "lua";

/// What to look at.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mutants {
    areas: Vec<&'static str>,
    part: Part,
}

/// How much of it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Part {
    /// Files with one of these in their names; all if there is none.
    files: Vec<String>,
    /// One of so many parts, from zero.
    shard: Option<(usize, usize)>,
    /// Also what has been caught before.
    again: bool,
    /// With the tests that catch most of them alone, to see where to look.
    quick: bool,
}

impl Part {
    fn takes(&self, file: &str) -> bool {
        self.files.is_empty() || self.files.iter().any(|text| file.contains(text.as_str()))
    }

    fn holds(&self, index: usize) -> bool {
        self.shard.is_none_or(|(which, of)| index % of == which)
    }
}

impl Mutants {
    /// Reads what stands after `mutants`.
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let known: Vec<_> = rust::AREAS.iter().map(|area| area.name).chain([LUA]).collect();
        let mut mutants = Self { areas: Vec::new(), part: Part::default() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("`{arg}` needs a value"));
            match (arg.as_str(), known.iter().find(|area| *area == arg)) {
                ("--file", _) => mutants.part.files.push(value()?.clone()),
                ("--shard", _) => mutants.part.shard = Some(shard(value()?)?),
                ("--again", _) => mutants.part.again = true,
                ("--quick", _) => mutants.part.quick = true,
                (_, Some(area)) => mutants.areas.push(area),
                (other, None) => bail!("there is no `{other}`: use {} or none", known.join(", ")),
            }
        }
        if mutants.areas.is_empty() {
            mutants.areas = known;
        }
        Ok(mutants)
    }

    /// Makes the mutants and runs the tests, one area after the other.
    pub(crate) fn run(&self, project: &Project) -> Result<ExitCode> {
        let mut good = true;
        for name in &self.areas {
            good &= match rust::AREAS.iter().find(|area| area.name == *name) {
                Some(area) => rust::run(project, area, &self.part)?,
                None => scripts::run(project, &self.part)?,
            };
        }
        Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Reads `WHICH/OF`, from zero.
fn shard(text: &str) -> Result<(usize, usize)> {
    let parts = text.split_once('/').and_then(|(which, of)| {
        let (which, of) = (which.parse().ok()?, of.parse().ok()?);
        (which < of).then_some((which, of))
    });
    parts.with_context(|| format!("`{text}` is no part: write 0/4 for the first of four"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Mutants> {
        Mutants::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn nothing_is_all_of_it() {
        assert_eq!(parse("").unwrap().areas, ["protocol", "drive", "lua"]);
        assert_eq!(parse("lua --again").unwrap().areas, ["lua"]);
        assert!(parse("luaa").unwrap_err().to_string().contains("`luaa`"));
    }

    #[test]
    fn parts_are_picked_by_file_and_by_share() {
        let Mutants { part, .. } = parse("protocol --file lease --shard 1/4").unwrap();
        assert!(part.takes("src/lease.rs") && !part.takes("src/acquire.rs"));
        let Mutants { part: both, .. } = parse("--file lease --file acquire").unwrap();
        assert!(both.takes("src/lease.rs") && both.takes("src/acquire.rs"));
        assert!(!both.takes("src/extend.rs"));
        assert!(part.holds(1) && part.holds(5) && !part.holds(4));
        assert!(Part::default().takes("any") && Part::default().holds(7));
        for wrong in ["--shard 4/4", "--shard x", "--shard", "--file"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
