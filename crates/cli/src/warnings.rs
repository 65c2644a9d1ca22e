//! What the library has to say, as lines on stderr.

use std::env;
use std::fmt::{self, Write};
use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::exit::{self, Failed};
use crate::nearest::nearest;
use crate::stderr::{self, Level, fail, say, warn};

/// The variable that says what is shown.
pub(crate) const VARIABLE: &str = "QUORLOCK_LOG";

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Shows what is at least so bad from now on, or what `QUORLOCK_LOG` says.
pub(crate) fn show(least: LevelFilter) -> Result<(), Failed> {
    let said = env::var(VARIABLE).unwrap_or_default();
    check(&said)?;
    let filter = EnvFilter::builder().with_default_directive(least.into());
    let filter = filter.parse(said).map_err(|error| refusal(&error.to_string()))?;
    tracing::subscriber::set_global_default(Registry::default().with(filter).with(Lines))
        .map_err(|error| Failed::new(exit::OWN_FAILURE, error.to_string()))
}

/// A word that is no level would be taken for a part of the program, and nothing else be shown.
fn check(said: &str) -> Result<(), Failed> {
    let words = said.split(',').map(str::trim).filter(|word| !word.is_empty());
    // `quorlock=debug` and the like are for those who know the parts.
    for word in words.filter(|word| !word.contains(['=', '['])) {
        let word = word.to_lowercase();
        if !LEVELS.contains(&&*word) {
            let meant = nearest(&word, LEVELS).map(|meant| format!(", as perhaps {meant} is"));
            return Err(refusal(&format!("{word:?} is no level{}", meant.unwrap_or_default())));
        }
    }
    Ok(())
}

fn refusal(problem: &str) -> Failed {
    let remedy = "write off, error, warn, info, debug or trace";
    Failed::new(exit::MISUSE, format!("{VARIABLE} cannot be read: {problem}; {remedy}"))
}

/// What waits to be said, if anything has to wait.
static HELD_BACK: Mutex<Option<Vec<Said>>> = Mutex::new(None);

/// Holds back what is said of single nodes, until [`flush`](HeldBack::flush): an error may be about to say all of
/// it at once. Dropped, it leaves that unsaid.
pub(crate) struct HeldBack(());

impl HeldBack {
    pub(crate) fn new() -> Self {
        *held_back() = Some(Vec::new());
        Self(())
    }

    /// Says it now.
    pub(crate) fn flush(self) {
        for said in held_back().take().into_iter().flatten() {
            said.tell();
        }
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        *held_back() = None;
    }
}

fn held_back() -> std::sync::MutexGuard<'static, Option<Vec<Said>>> {
    // What was held back is whole, whichever thread panicked.
    HELD_BACK.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

struct Lines;

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let said = Said::new(event);
        match &mut *held_back() {
            Some(others) if !said.node.is_empty() && said.level == Level::Warn => others.push(said),
            _ => said.tell(),
        }
    }
}

/// An event, in words.
struct Said {
    level: Level,
    /// That something is over which was warned about. It is as important, and no warning.
    all_clear: bool,
    lock: String,
    node: String,
    message: String,
    others: String,
}

impl Said {
    fn new(event: &Event<'_>) -> Self {
        let level = match *event.metadata().level() {
            tracing::Level::ERROR => Level::Error,
            tracing::Level::WARN => Level::Warn,
            tracing::Level::INFO => Level::Info,
            tracing::Level::DEBUG => Level::Debug,
            tracing::Level::TRACE => Level::Trace,
        };
        let mut said = Self {
            level,
            all_clear: false,
            lock: String::new(),
            node: String::new(),
            message: String::new(),
            others: String::new(),
        };
        event.record(&mut said);
        said
    }

    fn tell(&self) {
        if stderr::is_json() {
            let known = |text: &'_ str| (!text.is_empty()).then(|| text.to_owned());
            let (lock, node) = (known(&self.lock), known(&self.node));
            let level = if self.all_clear { Level::Info } else { self.level };
            let message = format!("{}{}", self.message, self.others);
            return stderr::log(level, lock.as_deref(), node.as_deref(), message);
        }
        match self.level {
            Level::Error => fail(format_args!("error: {self}")),
            Level::Warn if self.all_clear => say(self),
            Level::Warn => warn(self),
            Level::Info => say(format_args!("info: {self}")),
            Level::Debug => say(format_args!("debug: {self}")),
            Level::Trace => say(format_args!("trace: {self}")),
        }
    }
}

/// The node is named first, as in every other message. The lock stands in the message.
impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.node.is_empty() {
            write!(f, "node {}: ", self.node)?;
        }
        write!(f, "{}{}", self.message, self.others)
    }
}

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        match field.name() {
            "all_clear" => self.all_clear = value,
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            "node" => write!(self.node, "{value:?}"),
            "lock" => write!(self.lock, "{value:?}"),
            other => write!(self.others, " {other}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct Keep(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Keep {
        fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
            let said = Said::new(event);
            let clear = if said.all_clear { "over: " } else { "" };
            self.0.lock().unwrap().push(format!("{clear}{said}"));
        }
    }

    #[test]
    fn lines_read_like_the_other_messages() {
        let lines = Arc::default();
        let subscriber = Registry::default().with(Keep(Arc::clone(&lines)));
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(node = "redis://a:1", "cannot be used: {}", "no route");
            tracing::info!(tries = 3, "done");
            tracing::warn!(all_clear = true, lock = "x", "the lock x is extended again");
        });
        assert_eq!(
            *lines.lock().unwrap(),
            [
                "node redis://a:1: cannot be used: no route",
                "done tries=3",
                "over: the lock x is extended again"
            ]
        );
    }

    #[test]
    fn levels_are_known_and_parts_are_left_to_those_who_know_them() {
        for fine in ["", "warn", "WARN", "info,quorlock=debug", "quorlock::node=trace", "off"] {
            assert!(check(fine).is_ok(), "{fine}");
        }
        for (wrong, says) in
            [("inof", "as perhaps info is"), ("quorlock", "\"quorlock\" is no level; ")]
        {
            let message = check(wrong).unwrap_err().message;
            assert!(message.contains(says) && message.contains("write off, error"), "{message}");
        }
    }
}
