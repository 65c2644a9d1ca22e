//! `quorlock simulate`: the lock under simulated faults.

mod by_fault;
mod resume;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use quorlock_simulator::{
    Dialect, FaultClass, Options, Outcome, SCENARIOS, Scenario, Summary, html, run, scenario,
    simulate as run_seeds, svg,
};

use crate::args::{DialectArg, SimulateArgs};
use crate::duration::shown;
use crate::exit::{self, Failed};
use crate::{stderr, stdout};

/// A promise was not kept.
const BROKEN: u8 = exit::ERRORS_FOUND;
/// So many seeds are named for each promise.
const SHOWN_SEEDS: usize = 50;
/// So many seeds are run between two looks at the time.
const BATCH: u64 = 200;

/// What to simulate.
pub(crate) struct Simulate {
    what: What,
    options: Options,
    html: Option<PathBuf>,
    svg: Option<PathBuf>,
}

enum What {
    Scenario(&'static Scenario),
    Seed(u64),
    Seeds,
    Resume(PathBuf),
    Minutes(u64),
    ByFault,
}

impl Simulate {
    pub(crate) fn new(args: SimulateArgs) -> Result<Self, Failed> {
        let dialect = match args.dialect {
            DialectArg::Strict => Dialect::Strict,
            DialectArg::Redlock => Dialect::Redlock,
        };
        let mut options = Options::new(1..args.seeds.saturating_add(1), dialect);
        options.nodes = args.nodes.map(usize::from);
        options.clients = args.clients.map(usize::from);
        options.faults = args.faults.map(|names| faults(&names)).transpose()?;
        let what = match (args.scenario, args.seed, args.minutes) {
            (Some(name), _, _) => What::Scenario(named(&name)?),
            (None, Some(seed), _) => What::Seed(seed),
            (None, None, Some(minutes)) => What::Minutes(minutes),
            (None, None, None) if args.by_fault => What::ByFault,
            (None, None, None) => args.resume.map_or(What::Seeds, What::Resume),
        };
        Ok(Self { what, options, html: args.html, svg: args.svg })
    }
}

fn faults(names: &[String]) -> Result<Vec<FaultClass>, Failed> {
    if names == ["none"] {
        return Ok(Vec::new());
    }
    let class = |name: &String| {
        let found = FaultClass::ALL.into_iter().find(|class| class.name() == name);
        found.ok_or_else(|| {
            let all = FaultClass::ALL.map(FaultClass::name).join(", ");
            Failed::new(exit::MISUSE, format!("there is no fault {name:?}; there are {all}, none"))
        })
    };
    names.iter().map(class).collect()
}

fn named(name: &str) -> Result<&'static Scenario, Failed> {
    scenario(name).ok_or_else(|| {
        let all = SCENARIOS.map(|scenario| scenario.name).join(", ");
        Failed::new(exit::MISUSE, format!("there is no scenario {name:?}; there are {all}"))
    })
}

/// Simulates, and returns the code to exit with.
pub(crate) fn simulate(plan: &Simulate) -> Result<u8, Failed> {
    match &plan.what {
        What::Scenario(scenario) => play(plan, scenario),
        What::ByFault => by_fault::table(&plan.options),
        What::Seed(seed) => one(plan, *seed),
        What::Seeds => many(plan, None),
        What::Resume(file) => resume::go_on(plan, file),
        What::Minutes(minutes) => many(plan, Some(Duration::from_secs(60 * minutes))),
    }
}

fn play(plan: &Simulate, scenario: &Scenario) -> Result<u8, Failed> {
    let (redlock, strict) = (scenario.play(Dialect::Redlock), scenario.play(Dialect::Strict));
    let mut text = format!("{}\n{}\n", scenario.title, scenario.about);
    for (name, outcome) in [("redlock", &redlock), ("strict", &strict)] {
        let _ = writeln!(text, "\n{name}:");
        let _ = match outcome.violations.first() {
            Some(violation) => writeln!(text, "  {violation}"),
            None => writeln!(text, "  every promise was kept"),
        };
    }
    stdout::write(&text)?;
    draw(plan, scenario.title, scenario.about, &[("redlock", &redlock), ("strict", &strict)])?;
    Ok(if strict.violations.is_empty() { 0 } else { BROKEN })
}

fn one(plan: &Simulate, seed: u64) -> Result<u8, Failed> {
    let outcome = run(&plan.options.setup(seed));
    let mut options = plan.options.clone();
    options.seeds = seed..seed + 1;
    let summary = run_seeds(&options, &|_| {});
    let drawn = summary.first.as_deref().unwrap_or(&outcome);
    draw_seed(plan, drawn)?;
    report(plan, &summary)
}

fn many(plan: &Simulate, time: Option<Duration>) -> Result<u8, Failed> {
    let began = Instant::now();
    let mut options = plan.options.clone();
    let mut sum = Summary::default();
    loop {
        if time.is_some() {
            options.seeds = sum.seeds + 1..sum.seeds + 1 + BATCH;
        }
        let done = sum.seeds;
        let progress = |seeds| progress(done + seeds, &options, began, time);
        let batch = run_seeds(&options, if stderr::shows_lines() { &progress } else { &|_| {} });
        sum.absorb(batch);
        if sum.first.is_some() || time.is_none_or(|time| began.elapsed() >= time) {
            break;
        }
    }
    stderr::hide();
    if let Some(first) = &sum.first {
        draw_seed(plan, first)?;
    }
    report(plan, &sum)
}

/// A bar, in the place of the one before.
fn progress(seeds: u64, options: &Options, began: Instant, time: Option<Duration>) {
    let share = match time {
        Some(time) => began.elapsed().as_secs_f64() / time.as_secs_f64(),
        None => seeds as f64 / (options.seeds.end - options.seeds.start) as f64,
    };
    let full = (share.min(1.0) * 30.0) as usize;
    let bar = format!("{}{}", "█".repeat(full), "░".repeat(30 - full));
    stderr::show(format!("{bar} {:3.0} %  {seeds} seeds", share.min(1.0) * 100.0));
}

fn report(plan: &Simulate, summary: &Summary) -> Result<u8, Failed> {
    let mut text = format!(
        "{} seeds in the {} dialect: {} simulated hours in {}, {:.0} times faster than life\n",
        summary.seeds,
        plan.options.dialect.name(),
        (summary.simulated.as_secs_f64() / 360.0).round() / 10.0,
        shown(summary.took),
        summary.speed()
    );
    let faults: Vec<_> =
        summary.faults.iter().map(|(class, count)| format!("{class} {count}")).collect();
    let total: u64 = summary.faults.values().sum();
    let _ = writeln!(text, "{} locks taken under {total} faults", summary.acquisitions);
    if total > 0 {
        let _ = writeln!(text, "  {}", faults.join(", "));
    }
    let _ = writeln!(
        text,
        "{} writes came after one of a later holder: {} were refused where fences are checked",
        summary.stale_writes, summary.refused_writes
    );
    let Some(first) = &summary.first else {
        text.push_str("every promise was kept\n");
        stdout::write(&text)?;
        return Ok(0);
    };
    let _ = writeln!(text, "NOT every promise was kept, in {} seeds:", summary.bad_seeds.len());
    for (invariant, count) in &summary.violations {
        let in_seeds = summary.bad_seeds.iter().filter(|(_, broken)| broken.contains(invariant));
        let mut seeds: Vec<_> = in_seeds.map(|(seed, _)| seed.to_string()).collect();
        if seeds.len() > SHOWN_SEEDS {
            seeds.truncate(SHOWN_SEEDS);
            seeds.push("…".to_owned());
        }
        let _ = writeln!(text, "  {invariant}: {count}, in the seeds {}", seeds.join(", "));
    }
    let _ = writeln!(text, "\nseed {}, with no more faults than it takes:", first.setup.seed);
    for line in first.story() {
        let _ = writeln!(text, "  {line}");
    }
    let _ = writeln!(text, "\nreplay it: {}", replay(&plan.options, first.setup.seed));
    stdout::write(&text)?;
    Ok(BROKEN)
}

/// The one command that runs a seed again.
fn replay(options: &Options, seed: u64) -> String {
    format!("quorlock simulate --seed {seed} {}", settings(options))
}

/// What every seed is run with, as it is written.
fn settings(options: &Options) -> String {
    let mut command = format!("--dialect {}", options.dialect.name());
    if let Some(nodes) = options.nodes {
        let _ = write!(command, " --nodes {nodes}");
    }
    if let Some(clients) = options.clients {
        let _ = write!(command, " --clients {clients}");
    }
    if let Some(faults) = &options.faults {
        let names: Vec<_> = faults.iter().map(|class| class.name()).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(",") };
        let _ = write!(command, " --faults {names}");
    }
    command
}

fn draw_seed(plan: &Simulate, outcome: &Outcome) -> Result<(), Failed> {
    let title = format!("Seed {}", outcome.setup.seed);
    let about = format!("Replay it: {}", replay(&plan.options, outcome.setup.seed));
    let name = plan.options.dialect.name();
    draw(plan, &title, &about, &[(name, outcome)])
}

fn draw(
    plan: &Simulate,
    title: &str,
    about: &str,
    runs: &[(&str, &Outcome)],
) -> Result<(), Failed> {
    let page = plan.html.iter().map(|file| (file, html(title, about, runs)));
    let picture = plan.svg.iter().map(|file| (file, svg(title, runs)));
    for (file, drawn) in page.chain(picture) {
        fs::write(file, drawn).map_err(|error| {
            let text = format!("{} cannot be written: {error}", file.display());
            Failed::new(exit::OWN_FAILURE, text)
        })?;
        stderr::say(format_args!("drawn into {}", file.display()));
    }
    Ok(())
}
