//! Prints what the traces of some seeds come to, for comparing builds: `digest FIRST LAST`.

use quorlock_simulator::{Dialect, Setup, run};

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|arg| arg.parse::<u64>().ok());
    let (first, last) = (numbers.next().unwrap_or(1), numbers.next().unwrap_or(10));
    for dialect in [Dialect::Redlock, Dialect::Strict] {
        for seed in first..=last {
            let digest = run(&Setup::new(seed, dialect)).trace.digest();
            println!("{} {seed} {digest:016x}", dialect.name());
        }
    }
}
