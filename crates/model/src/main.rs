//! Checks the strict protocol and the rules of its set of nodes, and that the checker finds what is
//! wrong with versions that lack one of its rules.

use std::process::ExitCode;
use std::time::Instant;

use quorlock_model::{Expected, Found, Outcome, Step, all, members};

fn main() -> ExitCode {
    let mut full = false;
    let mut wanted = Vec::new();
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--full" => full = true,
            option if option.starts_with('-') => {
                eprintln!(
                    "error: there is no option `{option}`: use `--full`, or the name of a case"
                );
                return ExitCode::from(2);
            }
            _ => wanted.push(arg),
        }
    }
    let chosen = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part));
    let cases: Vec<_> = cases(full).into_iter().filter(|case| chosen(case.name)).collect();
    if cases.is_empty() {
        eprintln!("error: no case is called `{}`", wanted.join(" "));
        return ExitCode::from(2);
    }

    let start = Instant::now();
    let mut states = 0;
    let mut wrong = 0;
    for case in &cases {
        let outcome = (case.check)();
        states += outcome.states;
        let verdict = match &outcome.found {
            Found::Holds => "holds".to_owned(),
            Found::Broken { property, .. } => format!("found: not {property}"),
            Found::Vacuous { missing } => {
                format!("says nothing: never {}", missing.join(", never "))
            }
        };
        println!("{}, {}: {verdict}", case.variant, case.name);
        println!(
            "  {} states, depth {}, {:.1} s",
            outcome.states,
            outcome.depth,
            outcome.time.as_secs_f64()
        );
        if let Found::Broken { run, .. } = &outcome.found {
            print(run);
        }
        if !outcome.is(case.expected) {
            wrong += 1;
            println!("  UNEXPECTED: should be {:?}", case.expected);
        }
    }
    println!(
        "{} cases, {wrong} not as expected, {states} states, {:.0} s",
        cases.len(),
        start.elapsed().as_secs_f64()
    );
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One case, of the lock or of the set of nodes.
struct Case {
    name: &'static str,
    variant: String,
    expected: Expected,
    check: Box<dyn Fn() -> Outcome>,
}

fn cases(full: bool) -> Vec<Case> {
    let lock = all(full).into_iter().map(|case| Case {
        name: case.name,
        variant: format!("{:?}", case.variant),
        expected: case.expected,
        check: Box::new(move || case.check()),
    });
    let members = members::all(full).into_iter().map(|case| Case {
        name: case.name,
        variant: format!("{:?}", case.variant),
        expected: case.expected,
        check: Box::new(move || case.check()),
    });
    lock.chain(members).collect()
}

fn print(run: &[Step]) {
    for (index, step) in run.iter().enumerate() {
        println!("  {index:>4}. {}", step.what);
        for part in &step.after {
            println!("          {part}");
        }
    }
}
