//! The thread on which locks are kept while their holders work.

use std::convert::Infallible;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use tokio::runtime;
use tokio::sync::mpsc;

use crate::Error;
use crate::runtime::{BoxFuture, Moment, Runtime, TokioRuntime};

/// A tokio runtime on a thread of its own, which lives as long as this or any task that it runs.
///
/// The locker, its guards and its connections all have a part in this, so that nobody has to stop the
/// thread: it ends after the last of them, with all that they left to be done.
#[derive(Debug)]
struct OwnThread {
    tokio: TokioRuntime,
    /// Nothing is ever sent: the thread ends when the last one is dropped.
    alive: mpsc::Sender<Infallible>,
}

/// Starts the thread.
pub(super) fn start() -> Result<Arc<dyn Runtime>, Error> {
    let cannot = |error: std::io::Error| {
        Error::misuse(
            format!("the thread that keeps the locks cannot be started: {error}"),
            "let this process have another thread and a few more open files",
        )
    };
    let tokio = runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let (alive, mut over) = mpsc::channel(1);
    let own = {
        let _context = tokio.enter();
        OwnThread { tokio: TokioRuntime::current(), alive }
    };
    let run = move || {
        tokio.block_on(over.recv());
    };
    thread::Builder::new().name("quorlock".to_owned()).spawn(run).map_err(cannot)?;
    Ok(Arc::new(own))
}

impl Runtime for OwnThread {
    fn now(&self) -> Moment {
        self.tokio.now()
    }

    fn wall(&self) -> SystemTime {
        self.tokio.wall()
    }

    fn wall_set(&self) -> BoxFuture<'static, ()> {
        self.tokio.wall_set()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.tokio.sleep(duration)
    }

    fn spawn(&self, future: BoxFuture<'static, ()>) {
        let alive = self.alive.clone();
        self.tokio.spawn(Box::pin(async move {
            future.await;
            drop(alive);
        }));
    }

    fn random(&self, bytes: &mut [u8]) {
        self.tokio.random(bytes);
    }
}
