//! Where and when something was measured.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

/// Figures mean little without it.
pub struct Machine {
    cpu: String,
    cores: usize,
    kernel: String,
    redis: String,
    date: String,
    /// How many processes wanted to run when it began: above zero, others were measured as well.
    load: String,
}

impl Machine {
    pub fn this() -> Self {
        let first = |file: &str, key: &str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
            line.split_once(':').map_or(line, |(_, value)| value).trim().to_owned()
        };
        let word = |file: &str, number: usize| {
            let text = fs::read_to_string(file).unwrap_or_default();
            text.split_whitespace().nth(number).unwrap_or("?").to_owned()
        };
        let said = |program: &str, args: &[&str]| {
            let output = Command::new(program).args(args).output();
            output.map_or_else(|_| "?".into(), |o| String::from_utf8_lossy(&o.stdout).into_owned())
        };
        let redis = said("redis-server", &["--version"]);
        let redis = redis.split_whitespace().find_map(|word| word.strip_prefix("v="));
        Self {
            cpu: first("/proc/cpuinfo", "model name"),
            // Of the machine, not those that this process was pinned to.
            cores: fs::read_to_string("/proc/cpuinfo").map_or(0, |text| {
                text.lines().filter(|line| line.starts_with("processor")).count()
            }),
            kernel: word("/proc/version", 2),
            redis: redis.unwrap_or("?").to_owned(),
            date: said("date", &["-u", "+%Y-%m-%d"]).trim().to_owned(),
            load: word("/proc/loadavg", 0),
        }
    }

    /// In one line.
    pub fn line(&self) -> String {
        let Self { cpu, cores, kernel, redis, date, load } = self;
        format!(
            "{date}, {cpu}, {cores} cores, load {load} at the start, Linux {kernel}, Redis {redis}"
        )
    }

    pub fn json(&self) -> Value {
        let Self { cpu, cores, kernel, redis, date, load } = self;
        json!({
            "date": date, "cpu": cpu, "cores": cores, "linux": kernel, "redis": redis,
            "load_at_start": load.parse::<f64>().ok(),
        })
    }

    #[cfg(test)]
    pub fn example() -> Self {
        Self {
            cpu: "Some CPU".into(),
            cores: 2,
            kernel: "6.0".into(),
            redis: "7.0".into(),
            date: "2026-01-02".into(),
            load: "0.10".into(),
        }
    }
}
