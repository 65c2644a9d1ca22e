//! Locks that nobody else wants, as fast as they go.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use quorlock::{Error, Locker};
use rustix::time::{ClockId, clock_gettime};
use tokio::task::LocalSet;
use tokio::time::sleep;

use crate::stderr;

const SHOWN_EVERY: Duration = Duration::from_millis(100);
const BAR: usize = 24;

/// Whether to go on, and who looks on.
#[derive(Debug, Clone, Default)]
pub(super) struct Control(Rc<Cell<bool>>);

impl Control {
    pub(super) fn stop(&self) {
        self.0.set(true);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.0.get()
    }

    /// Shows what goes on and how much of it is done, on a terminal.
    pub(super) fn show(&self, what: &str, done: Option<f64>) {
        if !stderr::shows_lines() || self.is_stopped() {
            return;
        }
        let bar = done.map(|done| {
            let filled = (done.clamp(0.0, 1.0) * BAR as f64) as usize;
            format!("  {}{} {:3.0} %", "█".repeat(filled), "░".repeat(BAR - filled), done * 100.0)
        });
        stderr::show(format!("{what}{}", bar.unwrap_or_default()));
    }
}

/// What is to be done: the first of both limits ends it.
pub(super) struct Burst<'a> {
    /// How the names start.
    pub(super) prefix: &'a [u8],
    pub(super) time: Duration,
    pub(super) count: u64,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// How long each lock and each release took.
    pub(super) locks: Vec<Duration>,
    pub(super) releases: Vec<Duration>,
    pub(super) took: Duration,
    /// Of this process.
    pub(super) cpu: Duration,
    pub(super) failed: u64,
    /// Why the first one failed.
    pub(super) error: Option<String>,
}

/// What the tasks of a part share.
struct Shared {
    locker: Locker,
    prefix: Vec<u8>,
    start: Instant,
    time: Duration,
    count: u64,
    begun: Cell<u64>,
    loaded: RefCell<Loaded>,
    control: Control,
}

impl Shared {
    fn done(&self) -> f64 {
        let time = self.start.elapsed().as_secs_f64() / self.time.as_secs_f64();
        time.max(self.begun.get() as f64 / self.count as f64)
    }

    async fn work(&self, task: u16) {
        // The same name again and again: in the strict dialect, a node keeps its last number for a day.
        let mut name = self.prefix.clone();
        name.extend(format!(":{task}").as_bytes());
        loop {
            let over = self.start.elapsed() >= self.time || self.begun.get() >= self.count;
            if over || self.control.is_stopped() {
                return;
            }
            self.begun.set(self.begun.get() + 1);
            if let Err(error) = self.cycle(&name).await {
                self.note(&error);
                // Nodes that refuse at once would be asked without a pause.
                sleep(Duration::from_millis(1)).await;
            }
        }
    }

    fn note(&self, error: &Error) {
        let mut loaded = self.loaded.borrow_mut();
        loaded.failed += 1;
        loaded.error.get_or_insert_with(|| error.to_string());
    }

    async fn cycle(&self, name: &[u8]) -> Result<(), Error> {
        let start = Instant::now();
        let guard = self.locker.try_lock(name).await?;
        let locked = Instant::now();
        guard.release().await?;
        let mut loaded = self.loaded.borrow_mut();
        loaded.locks.push(locked - start);
        loaded.releases.push(locked.elapsed());
        Ok(())
    }
}

pub(super) async fn many_at_a_time(
    locker: &Locker,
    burst: &Burst<'_>,
    tasks: u16,
    control: &Control,
) -> Loaded {
    run(locker, burst, tasks, "many", &format!("{tasks} at a time"), control).await
}

pub(super) async fn one_at_a_time(locker: &Locker, burst: &Burst<'_>, control: &Control) -> Loaded {
    run(locker, burst, 1, "one", "one at a time", control).await
}

async fn run(
    locker: &Locker,
    burst: &Burst<'_>,
    tasks: u16,
    part: &str,
    what: &str,
    control: &Control,
) -> Loaded {
    let mut prefix = burst.prefix.to_vec();
    prefix.extend(format!(":{part}").as_bytes());
    let cpu = cpu_time();
    let shared = Rc::new(Shared {
        locker: locker.clone(),
        prefix,
        start: Instant::now(),
        time: burst.time,
        count: burst.count,
        begun: Cell::new(0),
        loaded: RefCell::default(),
        control: control.clone(),
    });
    let all = LocalSet::new();
    for task in 0..tasks {
        let shared = Rc::clone(&shared);
        all.spawn_local(async move { shared.work(task).await });
    }
    let shown = async {
        loop {
            control.show(what, Some(shared.done()));
            sleep(SHOWN_EVERY).await;
        }
    };
    tokio::select! {
        () = all => {}
        () = shown => {}
    }
    let mut loaded = shared.loaded.take();
    (loaded.took, loaded.cpu) = (shared.start.elapsed(), cpu_time().saturating_sub(cpu));
    loaded.locks.sort_unstable();
    loaded.releases.sort_unstable();
    loaded
}

/// The processor time of this process so far.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
