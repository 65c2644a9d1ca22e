//! The library's warnings, as lines on stderr.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::exit::{self, Failed};
use crate::stderr::{fail, say, warn};

/// The variable that says what is shown.
const VARIABLE: &str = "QUORLOCK_LOG";

/// Shows what is at least so bad from now on, or what `QUORLOCK_LOG` says.
pub(crate) fn show(least: LevelFilter) -> Result<(), Failed> {
    let filter = EnvFilter::builder()
        .with_default_directive(least.into())
        .with_env_var(VARIABLE)
        .from_env()
        .map_err(|error| {
            let remedy = "write off, error, warn, info, debug or trace";
            Failed::new(exit::MISUSE, format!("{VARIABLE} cannot be read: {error}; {remedy}"))
        })?;
    tracing::subscriber::set_global_default(Registry::default().with(filter).with(Lines))
        .map_err(|error| Failed::new(exit::OWN_FAILURE, error.to_string()))
}

static HUSHED: AtomicBool = AtomicBool::new(false);

/// Leaves warnings out, or shows them again.
pub(crate) fn hush(on: bool) {
    HUSHED.store(on, Ordering::Relaxed);
}

struct Lines;

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let is_hushed = *event.metadata().level() == Level::WARN && HUSHED.load(Ordering::Relaxed);
        if !is_hushed {
            let line = line(event);
            match *event.metadata().level() {
                Level::ERROR => fail(format_args!("error: {line}")),
                Level::WARN => warn(line),
                Level::INFO => say(format_args!("info: {line}")),
                Level::DEBUG => say(format_args!("debug: {line}")),
                Level::TRACE => say(format_args!("trace: {line}")),
            }
        }
    }
}

fn line(event: &Event<'_>) -> String {
    let mut parts = Parts::default();
    event.record(&mut parts);
    format!("{}{}{}", parts.node, parts.message, parts.others)
}

/// The fields of an event: the node is named first, as in every other message.
#[derive(Default)]
struct Parts {
    node: String,
    message: String,
    others: String,
}

impl Visit for Parts {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            "node" => write!(self.node, "node {value:?}: "),
            other => write!(self.others, " {other}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    struct Keep(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Keep {
        fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
            self.0.lock().unwrap().push(line(event));
        }
    }

    #[test]
    fn lines_read_like_the_other_messages() {
        let lines = Arc::default();
        let subscriber = Registry::default().with(Keep(Arc::clone(&lines)));
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(node = "redis://a:1", "cannot be used: {}", "no route");
            tracing::info!(tries = 3, "done");
        });
        assert_eq!(
            *lines.lock().unwrap(),
            ["node redis://a:1: cannot be used: no route", "done tries=3"]
        );
    }
}
