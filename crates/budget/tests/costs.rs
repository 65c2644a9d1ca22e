//! What a lock costs, counted and not timed, so that a busy machine cannot hide that it has become more.
//!
//! The program of this package runs under valgrind twice, with few cycles of lock + release and with
//! many, on nodes in memory. The difference is what the cycles cost, without the start of the program.
//! System calls count with what they take in the process: almost nothing.
//!
//! It is built as a release, whatever these tests are built as: with the optimizations that users have,
//! and without debug assertions, which may cost what they like.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use quorlock_testkit::{skipping, test};
use tempfile::TempDir;

/// The most instructions of lock + release: what they were when this was last written down, and 15 %,
/// since compilers and C libraries differ. A change that makes it faster writes down the new number.
const ONE_NODE: u64 = MEASURED_ONE_NODE * 115 / 100;
const FIVE_NODES: u64 = MEASURED_FIVE_NODES * 115 / 100;
const MEASURED_ONE_NODE: u64 = 8_222;
const MEASURED_FIVE_NODES: u64 = 22_486;

/// The most allocations of lock + release on one node, those of the node itself included.
const ALLOCATIONS: u64 = 6;

const FEW: u64 = 1_000;
const MANY: u64 = 4_000;

/// Built once, for all tests here.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    // Inside of the target folder, wherever that is.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target folder");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--release", "--package", "quorlock-budget"])
        .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
        .arg("--target-dir")
        .arg(target)
        // For the names of functions and their lines, if somebody wants to look.
        .env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only")
        .env_remove("RUSTFLAGS")
        .status();
    assert!(built.is_ok_and(|status| status.success()), "the program was not built: see above");
    target.join("release").join("quorlock-budget")
});

/// Cycles on so many nodes while so many other locks are held.
#[derive(Clone, Copy)]
struct Load {
    nodes: u64,
    held: u64,
}

#[test]
fn lock_and_release_stay_within_their_instructions() {
    for (nodes, budget) in [(1, ONE_NODE), (5, FIVE_NODES)] {
        let load = Load { nodes, held: 0 };
        let cost = instructions(load);
        println!("{nodes} node(s): {cost} instructions for lock + release, of {budget}");
        assert!(
            cost <= budget,
            "lock + release on {nodes} node(s) in memory takes {cost} instructions, and its budget is \
             {budget}.\n{}",
            how_to_look(load)
        );
    }
}

#[test]
fn a_lock_costs_the_same_while_many_are_held() {
    let (alone, among_many) = (Load { nodes: 1, held: 0 }, Load { nodes: 1, held: 10_000 });
    let (cost, among) = (instructions(alone), instructions(among_many));
    println!("{cost} instructions, and {among} while 10,000 other locks are held");
    assert!(
        among * 10 <= cost * 11,
        "lock + release takes {cost} instructions, and {among} while 10,000 other locks are held: that \
         is above 1.1 times as many.\n{}",
        how_to_look(among_many)
    );
}

#[test]
fn lock_and_release_stay_within_their_allocations() {
    let load = Load { nodes: 1, held: 0 };
    let count = per_cycle(|cycles| {
        let output = valgrind(&["--tool=memcheck", "--leak-check=no"], load, cycles);
        number_after(&output, "total heap usage:")
    });
    println!("{count} allocations for lock + release, of {ALLOCATIONS}");
    assert!(
        count <= ALLOCATIONS,
        "lock + release on one node in memory allocates {count} times, and may {ALLOCATIONS} times.\n\
         Where: valgrind --tool=dhat {} {}",
        PROGRAM.display(),
        arguments(load, MANY).join(" ")
    );
}

fn instructions(load: Load) -> u64 {
    let folder = TempDir::new().expect("a folder for what callgrind writes");
    let file = format!("--callgrind-out-file={}", folder.path().join("out").display());
    per_cycle(|cycles| {
        let output = valgrind(&["--tool=callgrind", &file], load, cycles);
        number_after(&output, "Collected :")
    })
}

/// What each cycle adds.
fn per_cycle(cost_of: impl Fn(u64) -> u64) -> u64 {
    let (few, many) = (cost_of(FEW), cost_of(MANY));
    assert!(many > few, "{MANY} cycles cost {many}, and {FEW} cost {few}: nothing was counted");
    (many - few).div_ceil(MANY - FEW)
}

/// What valgrind says of a run.
fn valgrind(options: &[&str], load: Load, cycles: u64) -> String {
    let output = Command::new(skipping::program("valgrind"))
        .args(options)
        .arg(&*PROGRAM)
        .args(arguments(load, cycles))
        .output()
        .expect("valgrind starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "valgrind or the program failed:\n{text}");
    text
}

fn arguments(load: Load, cycles: u64) -> [String; 3] {
    [load.nodes, load.held, cycles].map(|number| number.to_string())
}

/// The number that follows upon some words, without the marks between its thousands.
fn number_after(text: &str, words: &str) -> u64 {
    let (_, rest) = text.split_once(words).unwrap_or_else(|| panic!("no {words:?} in:\n{text}"));
    let number = rest.split_whitespace().next().unwrap_or_default().replace(',', "");
    number.parse().unwrap_or_else(|_| panic!("no number after {words:?} in:\n{text}"))
}

fn how_to_look(load: Load) -> String {
    let arguments = arguments(load, MANY).join(" ");
    format!(
        "Where they are spent:\n  valgrind --tool=callgrind --callgrind-out-file=callgrind.out {} {arguments}\n  \
         callgrind_annotate --auto=no callgrind.out | less\n\
         If it is worth it, or the compiler is another: write the new number down in \
         crates/budget/tests/costs.rs",
        PROGRAM.display()
    )
}
