//! What one process asks of another: words of the form `key=value`, as `peers/README.md` has them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow};

/// An order, or the arguments of a peer.
#[derive(Debug, Clone, Default)]
pub struct Order(BTreeMap<String, String>);

impl Order {
    pub fn new(workload: &str, name: &str) -> Self {
        Self::default().with("workload", workload).with("name", name)
    }

    /// Lock + release of free names that start with `name`.
    pub fn cycles(name: &str, concurrency: usize, count: u64, seconds: f64) -> Self {
        let order = Self::new("cycle", name).with("concurrency", concurrency);
        order.with("count", count).with("seconds", seconds)
    }

    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Self {
        self.0.insert(key.to_owned(), value.to_string());
        self
    }

    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let words = words.into_iter().map(|word| {
            let (key, value) =
                word.split_once('=').with_context(|| format!("{word} has no `=`"))?;
            Ok((key.to_owned(), value.to_owned()))
        });
        words.collect::<Result<_>>().map(Self)
    }

    pub fn text(&self, key: &str) -> Result<&str> {
        self.0.get(key).map(String::as_str).with_context(|| format!("{key} is missing"))
    }

    pub fn number<T: FromStr>(&self, key: &str) -> Result<T> {
        let text = self.text(key)?;
        text.parse().map_err(|_| anyhow!("{key}={text} is no such number"))
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "go")?;
        self.0.iter().try_for_each(|(key, value)| write!(f, " {key}={value}"))
    }
}
