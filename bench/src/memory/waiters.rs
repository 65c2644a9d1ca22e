//! Tasks that wait for names which somebody else holds.

use std::future::{Future, IntoFuture};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use quorlock_testkit::{RedisServer, eventually, servers};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle as Task;

use super::{LOCKS, Memory, WAITER_GOAL_BYTES, take, verdict};
use crate::commands::{Shares, count_from_now};
use crate::systems::{TTL, quorlock, rslock_at};

/// Until everybody has asked, been refused and settled down.
const SETTLE: Duration = Duration::from_secs(3);
const WATCH: Duration = Duration::from_millis(300);
const WINDOW: Duration = Duration::from_secs(3);
const SAMPLES: u32 = 60;

pub fn measure(system: &str, nodes: usize) -> Result<()> {
    let servers = servers(nodes);
    let names: Vec<String> = (0..LOCKS).map(|number| format!("bench/wait/{number}")).collect();
    take(&servers, &names)?;
    let client = Client::start()?;
    let row = match system {
        "quorlock" => {
            let locker = client.handle.block_on(quorlock(&servers))?;
            let lock = |name: &String| locker.lock(name).into_future();
            wait_and_look(&client.handle, &servers, &names, lock)?
        }
        "rslock" => {
            let urls = servers.iter().map(RedisServer::url).collect();
            let manager = rslock_at(urls, u32::MAX);
            wait_and_look(&client.handle, &servers, &names, |name| {
                let (manager, name) = (manager.clone(), name.clone());
                async move { manager.lock(name.as_bytes(), TTL).await }
            })?
        }
        other => bail!("no system {other}"),
    };
    println!(
        "{nodes:>5}  {system:<8}  {:>6}  {:>6.0}  {:>6.0}  {:>8.0}  {:>19.1}  {:>15.1}  {}",
        row.future,
        row.heap,
        row.most,
        row.resident,
        row.commands,
        row.left,
        verdict(system, row.heap <= WAITER_GOAL_BYTES && row.commands == 0.0)
    );
    Ok(())
}

struct Row {
    future: usize,
    /// The mean and the most of what was seen.
    heap: f64,
    most: f64,
    resident: f64,
    commands: f64,
    left: f64,
}

fn wait_and_look<F>(
    handle: &Handle,
    servers: &[RedisServer],
    names: &[String],
    lock: impl Fn(&String) -> F,
) -> Result<Row>
where
    F: Future<Output: Send> + Send + 'static,
{
    let mut tasks = Vec::with_capacity(LOCKS);
    let before = Memory::now()?;
    tasks.extend(names.iter().map(|name| handle.spawn(lock(name))));
    thread::sleep(SETTLE);

    let shares = Shares::watch(&servers[0], WATCH)?;
    let commands = count_from_now(servers)?;
    let mut samples = Vec::new();
    for _ in 0..SAMPLES {
        thread::sleep(WINDOW / SAMPLES);
        samples.push(Memory::now()?.each_since(before));
    }
    let commands = commands(&shares)?;
    ensure!(tasks.iter().all(|task| !task.is_finished()), "a waiter got what was taken");
    end(&mut tasks);
    let left = Memory::now()?.each_since(before).live;

    // After what is measured, as its memory would be used again.
    let before = Memory::now()?;
    tasks.extend(names.iter().map(|_| handle.spawn(Room::<F>(MaybeUninit::uninit()))));
    let empty = Memory::now()?.each_since(before).live;
    end(&mut tasks);

    let mean = |figure: fn(&Memory) -> f64| {
        samples.iter().map(figure).sum::<f64>() / f64::from(SAMPLES) - empty
    };
    Ok(Row {
        future: size_of::<F>(),
        heap: mean(|memory| memory.live),
        most: samples.iter().map(|memory| memory.live).fold(0.0, f64::max) - empty,
        resident: mean(|memory| memory.resident),
        commands: commands / WINDOW.as_secs_f64(),
        left,
    })
}

/// Cancels all, and gives what they leave behind the time to go.
fn end<T>(tasks: &mut Vec<Task<T>>) {
    for task in tasks.iter() {
        task.abort();
    }
    eventually("all tasks have ended", || tasks.iter().all(Task::is_finished));
    tasks.clear();
    thread::sleep(Duration::from_secs(1));
}

/// As large as the future `F`, and never ready.
struct Room<F>(MaybeUninit<F>);

impl<F: Future> Future for Room<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<F::Output> {
        Poll::Pending
    }
}

/// The runtime that waits, on a thread of its own, so that looking on does not depend on how busy it
/// is.
struct Client {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || drop(runtime.block_on(stopped)));
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}
