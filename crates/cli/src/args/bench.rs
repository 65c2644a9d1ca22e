//! `quorlock bench`, as it is written.

use std::ffi::OsString;
use std::time::Duration;

use clap::Parser;

use super::ClusterArgs;
use crate::duration;

const BENCH_EXAMPLES: &str = "\
Takes and releases locks that nobody else wants, first many at a time, then one at a time, and says what \
the nodes can do and what stands in the way of more. The locks have random names of their own, which are \
cleared away in the end, also after Ctrl-C. It loads the nodes as much as it can: mind who else uses them. \
Where a user may only touch certain keys, give a NAME that starts like them.

It tells:
  round trip   of each node, and of the majority that a lock waits for; a node
               that is much slower than the others is named
  latency      of a lock and of a release, in round trips as well: one is the
               least that is possible
  throughput   locks a second, and what each costs the processor here
  limit        what is used up: the processor here, that of a node, the one
               writer that a file can have; or only time on the network, and
               then more at a time give more

With --json it is one object: nodes (each with node, usable, round_trip_us, cpu_share and slow), needed, \
round_trip_us, one_at_a_time {locks, seconds, lock_p50_us, lock_p99_us, release_p50_us, lock_round_trips}, \
many_at_a_time {concurrency, locks, seconds, locks_per_s, client_cpu_us, client_cpu_share}, failed, error, \
limit (client, server, file or network), left (where names could not be cleared away) and verdict, the same \
in words. What is not known is null. Fields may be added, and those that are there stay.

Exit codes:
    0  measured
   69  too few nodes can be used, or all locks of a part failed
   78  arguments or settings that cannot work, such as one server behind two
       URLs
  125  quorlock itself failed
  130  Ctrl-C

Examples:
  quorlock bench
  quorlock bench --node redis://a,redis://b,redis://c --concurrency 256
  quorlock bench --count 1000 --json | jq .many_at_a_time.locks_per_s";

/// Measure what locks on these nodes cost, and say what limits them.
#[derive(Parser)]
#[command(after_help = BENCH_EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// How long to measure at most
    #[arg(long, value_name = "DURATION", value_parser = some_time, default_value = "6s")]
    pub(crate) time: Duration,

    /// How many locks to take at most, in each of the two parts
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: u64,

    /// How many to take at a time in the first part
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrency: u16,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// How the names of the locks start
    #[arg(default_value = "quorlock-bench")]
    pub(crate) name: OsString,
}

/// In no time nothing can be measured.
fn some_time(text: &str) -> Result<Duration, String> {
    duration::parse(text).and_then(|time| match time {
        Duration::ZERO => Err("nothing can be measured in no time; write 6s or so".to_owned()),
        time => Ok(time),
    })
}
