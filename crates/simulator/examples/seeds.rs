use quorlock_simulator::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let from: u64 = args[1].parse().unwrap();
    let to: u64 = args[2].parse().unwrap();
    let start = std::time::Instant::now();
    let mut acq = 0;
    let mut entries = 0;
    let mut bad = 0;
    for seed in from..to {
        let setup = Setup::new(seed, Dialect::Redlock);
        let out = run(&setup);
        acq += out.acquisitions;
        entries += out.trace.entries().len();
        if !out.violations.is_empty() {
            bad += 1;
            if bad < 10 {
            println!("seed {seed}: {} violations", out.violations.len());
            for v in out.violations.iter().take(4) { println!("   {v}"); }
            }
        }
    }
    println!("{} seeds, {bad} bad, {acq} acquisitions, {entries} entries, {:?}", to - from, start.elapsed());
}
