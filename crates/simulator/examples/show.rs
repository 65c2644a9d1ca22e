use quorlock_simulator::trace::What;
use quorlock_simulator::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let seed: u64 = args[2].parse().unwrap();
    let from: f64 = args[3].parse().unwrap();
    let to: f64 = args[4].parse().unwrap();
    let filter: Vec<&str> = args[5..].iter().map(|s| s.as_str()).collect();
    let d = if args[1] == "strict" { Dialect::Strict } else { Dialect::Redlock };
    let out = run(&Setup::new(seed, d));
    println!("{} nodes, {} clients", out.setup.nodes, out.setup.clients);
    for f in &out.plan.faults {
        if f.at as f64 / 1e9 < to && (f.at + f.lasts) as f64 / 1e9 > from {
            println!("  {f}");
        }
    }
    for v in &out.violations {
        println!("{v}");
    }
    for e in out.trace.entries() {
        let at = e.at as f64 / 1e9;
        let text = format!("{:?}", e.what);
        if at >= from
            && at <= to
            && !matches!(e.what, What::Answered { .. })
            && (filter.is_empty() || filter.iter().any(|f| text.contains(f)))
        {
            println!("{at:.6} {text}");
        }
    }
}
