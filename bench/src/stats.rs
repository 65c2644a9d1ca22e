//! What many timings say.

use std::time::Duration;

/// The timings of one system, round by round.
#[derive(Debug, Default)]
pub struct Timings {
    rounds: Vec<Vec<Duration>>,
}

impl Timings {
    /// Adds the timings of one round.
    pub fn add(&mut self, mut round: Vec<Duration>) {
        round.sort_unstable();
        self.rounds.push(round);
    }

    /// The median over the rounds of each round's quantile, in µs.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        let each = self.rounds.iter().map(|round| at(round, quantile).as_secs_f64() * 1e6);
        median(each.collect())
    }
}

/// The quantile of figures that are sorted and not none.
pub fn at<T: Copy>(sorted: &[T], quantile: f64) -> T {
    let index = ((sorted.len() - 1) as f64 * quantile).round() as usize;
    sorted[index]
}

/// The middle one of some figures.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
