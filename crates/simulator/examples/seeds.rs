use quorlock_simulator::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let mut options =
        Options::new(args[1].parse().unwrap()..args[2].parse().unwrap(), Dialect::Strict);
    for arg in &args[3..] {
        if arg == "redlock" {
            options.dialect = Dialect::Redlock;
        }
        if let Some(f) = FaultClass::ALL.iter().find(|c| c.name() == arg) {
            options.faults.get_or_insert_with(|| vec![]).push(*f);
        }
        if let Some(p) = Planted::ALL.iter().find(|c| format!("{c:?}") == *arg) {
            options.planted = Some(*p);
        }
        if let Some(n) = arg.strip_prefix("nodes=") {
            options.nodes = Some(n.parse().unwrap());
        }
        if let Some(n) = arg.strip_prefix("clients=") {
            options.clients = Some(n.parse().unwrap());
        }
        if arg == "all" {
            options.faults = Some(FaultClass::ALL.to_vec());
        }
        if arg == "+" {
            options.faults = Some(options.dialect.allowed());
        }
    }
    let s = simulate(&options, &|_| {});
    println!(
        "{} seeds {} bad, {} acq, {:?} violations, stale {} refused {} took {:?} speed {:.0}",
        s.seeds,
        s.bad_seeds,
        s.acquisitions,
        s.violations,
        s.stale_writes,
        s.refused_writes,
        s.took,
        s.speed()
    );
    if let Some(first) = &s.first {
        println!("seed {}", first.setup.seed);
        for line in first.story() {
            println!("  {line}");
        }
    }
}
