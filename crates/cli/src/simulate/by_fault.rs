//! `quorlock simulate --by-fault`: each fault alone, in both dialects.

use std::fmt::Write as _;

use quorlock_simulator::{Dialect, FaultClass, Options, Summary, simulate};

use super::BROKEN;
use crate::exit::Failed;
use crate::{stderr, stdout};

/// Runs the seeds once for each fault and dialect, and returns the code to exit with: strict has to
/// bear every one of them.
pub(super) fn table(options: &Options) -> Result<u8, Failed> {
    let seeds = options.seeds.end - options.seeds.start;
    let mut text = format!(
        "{seeds} seeds for each fault alone: the seeds in which a promise was not kept\n\n"
    );
    let _ = writeln!(text, "{:<18}{:<28}redlock", "fault", "strict");
    let mut code = 0;
    for class in FaultClass::ALL {
        let run = |dialect| {
            stderr::show(format!("{class}, {}", Dialect::name(dialect)));
            let faults = Some(vec![class]);
            simulate(&Options { dialect, faults, ..options.clone() }, &|_| {})
        };
        let (redlock, strict) = (run(Dialect::Redlock), run(Dialect::Strict));
        let _ = writeln!(text, "{:<18}{:<27} {}", class.name(), broken(&strict), broken(&redlock));
        if !strict.bad_seeds.is_empty() {
            code = BROKEN;
        }
    }
    stderr::hide();
    stdout::write(&text)?;
    Ok(code)
}

fn broken(summary: &Summary) -> String {
    let kinds = summary.violations.iter().map(|(invariant, count)| format!("{invariant} {count}"));
    let kinds: Vec<_> = kinds.collect();
    if kinds.is_empty() {
        return "0".to_owned();
    }
    format!("{} ({})", summary.bad_seeds.len(), kinds.join(", "))
}
