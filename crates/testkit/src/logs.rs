//! What the library logs, for tests that read it.

use std::fmt::{self, Write};
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// Never the subscriber of any thread. While there is only one subscriber, `tracing` asks whichever
/// thread comes by first whether a line is of interest, and remembers its answer for all of them.
static IDLE: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Recorder(Arc::default())));

/// Everything that is logged on this thread while it lives.
#[derive(Debug)]
pub struct Logs {
    lines: Arc<Mutex<Vec<String>>>,
    _guard: DefaultGuard,
}

impl Logs {
    /// Begins to listen.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it listens, which a default does not")]
    pub fn new() -> Self {
        LazyLock::force(&IDLE);
        let lines = Arc::default();
        let recorder = Recorder(Arc::clone(&lines));
        Self { lines, _guard: tracing::subscriber::set_default(recorder) }
    }

    /// Returns the lines so far, each with its level before it.
    ///
    /// # Panics
    ///
    /// If a thread has panicked while it logged.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("no panic in between").clone()
    }

    /// Whether a warning has this in it.
    ///
    /// # Panics
    ///
    /// If a thread has panicked while it logged.
    #[must_use]
    pub fn warns_of(&self, what: &str) -> bool {
        self.lines().iter().any(|line| line.starts_with("WARN") && line.contains(what))
    }
}

struct Recorder(Arc<Mutex<Vec<String>>>);

impl Subscriber for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().expect("no panic in between").push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {field}={value:?}").expect("a string takes what is written");
    }
}
