//! `quorlock simulate --resume`: so many seeds that they take days.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use quorlock_simulator::{FaultClass, Invariant, Options, Summary, run, simulate as run_seeds};
use serde_json::{Map, Value, json};

use super::{BATCH, Simulate, draw_seed, progress, report, settings};
use crate::exit::{self, Failed};
use crate::time::utc;
use crate::{stderr, stdout};

/// So many seeds tell one program from another by what happens in them.
const PROBED: u64 = 20;

/// Runs the seeds that are not in the file yet, and returns the code to exit with.
pub(super) fn go_on(plan: &Simulate, file: &Path) -> Result<u8, Failed> {
    let (began, options) = (Instant::now(), &plan.options);
    let program = Program::of(options);
    let mut reached = Reached::read(file, &program)?;
    // What is written at the end can be written.
    reached.save(file, &program)?;
    while reached.sum.seeds + 1 < options.seeds.end {
        let done = reached.sum.seeds;
        let seeds = done + 1..options.seeds.end.min(done + 1 + BATCH);
        let chunk = Options { seeds, ..options.clone() };
        let progress = |seeds| progress(done + seeds, options, began, None);
        let batch = run_seeds(&chunk, if stderr::shows_lines() { &progress } else { &|_| {} });
        reached.sum.absorb(batch);
        reached.save(file, &program)?;
    }
    stderr::hide();
    stdout::write(&format!("begun {}, {}\n", reached.begun, program.text()))?;
    if let Some(seed) = reached.sum.bad_seeds.keys().next() {
        // The story of it is not in the file.
        let chunk = Options { seeds: *seed..*seed + 1, ..options.clone() };
        reached.sum.first = run_seeds(&chunk, &|_| {}).first;
    }
    if let Some(first) = &reached.sum.first {
        draw_seed(plan, first)?;
    }
    report(plan, &reached.sum)
}

/// Whose seeds they are: what is counted together has to come from the same.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    version: String,
    /// What the runs of the first seeds come to. Another program in which they come to the same may
    /// go on.
    runs: String,
    settings: String,
}

impl Program {
    fn of(options: &Options) -> Self {
        let digests = (1..=PROBED).map(|seed| run(&options.setup(seed)).trace.digest());
        let runs = digests.fold(0, |all: u64, one| all.rotate_left(7) ^ one);
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            runs: format!("{runs:016x}"),
            settings: settings(options),
        }
    }

    fn text(&self) -> String {
        format!("version {} with runs {} and {}", self.version, self.runs, self.settings)
    }
}

/// What was reached so far.
struct Reached {
    begun: String,
    sum: Summary,
}

impl Reached {
    /// What is in the file; nothing if it is not there.
    fn read(file: &Path, program: &Program) -> Result<Self, Failed> {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { begun: utc(SystemTime::now()), sum: Summary::default() });
            }
            Err(error) => return Err(failed(file, "cannot be read", &error)),
        };
        let kept = serde_json::from_str::<Value>(&text)
            .map_err(|error| failed(file, "is no file of simulated seeds", &error))?;
        let theirs = Program {
            version: text_of(&kept, "version"),
            runs: text_of(&kept, "runs"),
            settings: text_of(&kept, "settings"),
        };
        if theirs != *program {
            let text = format!(
                "{} was begun by {}, and this is {}; what is counted together has to come from the \
                 same: go on with that program and those settings, or name another file",
                file.display(),
                theirs.text(),
                program.text()
            );
            return Err(Failed::new(exit::MISUSE, text));
        }
        Ok(Self { begun: text_of(&kept, "begun"), sum: summary(&kept) })
    }

    /// Puts it into the file, all of it or nothing.
    fn save(&self, file: &Path, program: &Program) -> Result<(), Failed> {
        let Summary { simulated, took, faults, violations, bad_seeds, .. } = &self.sum;
        let by_name = |(name, count): (&'static str, &u64)| (name.to_owned(), json!(count));
        let faults: Map<_, _> =
            faults.iter().map(|(class, count)| by_name((class.name(), count))).collect();
        let violations: Map<_, _> =
            violations.iter().map(|(kind, count)| by_name((kind.name(), count))).collect();
        let bad_seeds: Map<_, _> = bad_seeds
            .iter()
            .map(|(seed, kinds)| {
                let kinds: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
                (seed.to_string(), json!(kinds))
            })
            .collect();
        let kept = json!({
            "seeds": self.sum.seeds,
            "begun": self.begun,
            "saved": utc(SystemTime::now()),
            "version": program.version,
            "runs": program.runs,
            "settings": program.settings,
            "simulated_ms": millis(*simulated),
            "took_ms": millis(*took),
            "acquisitions": self.sum.acquisitions,
            "stale_writes": self.sum.stale_writes,
            "refused_writes": self.sum.refused_writes,
            "faults": faults,
            "violations": violations,
            "bad_seeds": bad_seeds,
        });
        let mut fresh = file.as_os_str().to_owned();
        fresh.push(".new");
        let written = fs::write(&fresh, format!("{kept:#}\n"));
        let renamed = written.and_then(|()| fs::rename(&fresh, file));
        renamed.map_err(|error| failed(file, "cannot be written", &error))
    }
}

fn summary(kept: &Value) -> Summary {
    let number = |key: &str| kept.get(key).and_then(Value::as_u64).unwrap_or_default();
    let pairs = |key: &str| kept.get(key).and_then(Value::as_object).into_iter().flatten();
    let invariant = |name: &str| Invariant::ALL.into_iter().find(|kind| kind.name() == name);
    let counts = |key| pairs(key).filter_map(|(name, count)| Some((name, count.as_u64()?)));
    Summary {
        seeds: number("seeds"),
        simulated: Duration::from_millis(number("simulated_ms")),
        took: Duration::from_millis(number("took_ms")),
        acquisitions: number("acquisitions"),
        stale_writes: number("stale_writes"),
        refused_writes: number("refused_writes"),
        faults: counts("faults")
            .filter_map(|(name, count)| {
                Some((FaultClass::ALL.into_iter().find(|class| class.name() == name)?, count))
            })
            .collect(),
        violations: counts("violations")
            .filter_map(|(name, count)| Some((invariant(name)?, count)))
            .collect(),
        bad_seeds: pairs("bad_seeds")
            .filter_map(|(seed, kinds)| {
                let kinds = kinds.as_array()?.iter().filter_map(|kind| invariant(kind.as_str()?));
                Some((seed.parse().ok()?, kinds.collect()))
            })
            .collect::<BTreeMap<_, _>>(),
        first: None,
    }
}

fn text_of(kept: &Value, key: &str) -> String {
    kept.get(key).and_then(Value::as_str).unwrap_or("unknown").to_owned()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn failed(file: &Path, what: &str, error: &dyn std::fmt::Display) -> Failed {
    Failed::new(exit::OWN_FAILURE, format!("{} {what}: {error}", file.display()))
}
