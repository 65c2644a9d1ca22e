//! Locks that nobody else wants, as fast as they go.

use std::iter;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quorlock::{Error, Locker};
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::stderr;

const SHOWN_EVERY: Duration = Duration::from_millis(100);
const BAR: usize = 24;

/// Whether to go on, and who looks on.
#[derive(Debug, Clone, Default)]
pub(super) struct Control(Arc<AtomicBool>);

impl Control {
    pub(super) fn stop(&self) {
        self.0.store(true, Relaxed);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.0.load(Relaxed)
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

/// In less time the looks at the nodes are most of what their processors do.
const SHORTEST: Duration = Duration::from_millis(50);

impl Loaded {
    /// Whether it says something about what is used up.
    pub(super) fn is_long_enough(&self) -> bool {
        self.took >= SHORTEST
    }

    /// Whether so many failed that the rest says little.
    pub(super) fn is_full_of_failures(&self) -> bool {
        self.failed > self.locks.len() as u64 / 100
    }

    /// Whether nothing but failures came of it.
    pub(super) fn is_in_vain(&self) -> bool {
        self.locks.is_empty() && self.failed > 0
    }
}

/// What the tasks of a part share.
struct Shared {
    locker: Locker,
    start: Instant,
    time: Duration,
    count: u64,
    begun: AtomicU64,
    loaded: Mutex<Loaded>,
    control: Control,
}

impl Shared {
    fn done(&self) -> f64 {
        let time = self.start.elapsed().as_secs_f64() / self.time.as_secs_f64();
        time.max(self.begun.load(Relaxed) as f64 / self.count as f64)
    }

    async fn work(&self, name: Vec<u8>) {
        loop {
            let over = self.start.elapsed() >= self.time || self.control.is_stopped();
            if over || self.begun.fetch_add(1, Relaxed) >= self.count {
                return;
            }
            if let Err(error) = self.cycle(&name).await {
                self.note(&error);
                // Nodes that refuse at once would be asked without a pause.
                sleep(Duration::from_millis(1)).await;
            }
        }
    }

    fn loaded(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, error: &Error) {
        let mut loaded = self.loaded();
        loaded.failed += 1;
        loaded.error.get_or_insert_with(|| error.to_string());
    }

    async fn cycle(&self, name: &[u8]) -> Result<(), Error> {
        let start = Instant::now();
        let guard = self.locker.try_lock(name).await?;
        let locked = Instant::now();
        guard.release().await?;
        let mut loaded = self.loaded();
        loaded.locks.push(locked - start);
        loaded.releases.push(locked.elapsed());
        Ok(())
    }
}

/// All names that are used: each again and again, so that there is little to clear away.
pub(super) fn names(prefix: &[u8], tasks: u16) -> Vec<Vec<u8>> {
    let one = iter::once(name(prefix, "one", 0));
    (0..tasks).map(|task| name(prefix, "many", task)).chain(one).collect()
}

fn name(prefix: &[u8], part: &str, task: u16) -> Vec<u8> {
    [prefix, format!(":{part}:{task}").as_bytes()].concat()
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
    let cpu = cpu_time();
    let shared = Arc::new(Shared {
        locker: locker.clone(),
        start: Instant::now(),
        time: burst.time,
        count: burst.count,
        begun: AtomicU64::new(0),
        loaded: Mutex::default(),
        control: control.clone(),
    });
    // Tasks, as in a service: the future that a runtime blocks on is woken by way of the system.
    let mut all = JoinSet::new();
    for task in 0..tasks {
        let (shared, name) = (Arc::clone(&shared), name(burst.prefix, part, task));
        all.spawn(async move { shared.work(name).await });
    }
    let shown = async {
        loop {
            control.show(what, Some(shared.done()));
            sleep(SHOWN_EVERY).await;
        }
    };
    tokio::select! {
        _ = all.join_all() => {}
        () = shown => {}
    }
    let mut loaded = std::mem::take(&mut *shared.loaded());
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
