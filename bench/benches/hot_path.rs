//! What lock + release are made of, each by itself, in this process: `cargo xtask bench micro`.
//!
//! Nodes in memory answer at once, so that what is timed is the lock's own. Only what the library lets
//! others reach is here; the wire format is in `resp`, what goes over a connection in `latency` and
//! `throughput`. To compare two versions, run it at the first, and then at the second: the differences are
//! shown. What must not become more is counted in instructions by `crates/budget`, on machines that are
//! busy too.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use quorlock::node::Node;
use quorlock::node::memory::MemoryNode;
use quorlock::runtime::TokioRuntime;
use quorlock::{Fence, Locker, MAX_NAME_BYTES, Name, Token};
use tokio::runtime::{Builder, Runtime};

/// So long that nothing is extended meanwhile.
const TTL: Duration = Duration::from_secs(60 * 60);
const HELD: usize = 10_000;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime")
}

fn locker(runtime: &Runtime, nodes: usize) -> Locker {
    let nodes = (0..nodes).map(|_| Arc::new(MemoryNode::new()) as Arc<dyn Node>);
    let builder = Locker::builder().with_nodes(nodes).max_ttl(TTL).ttl(TTL);
    runtime.block_on(builder.connect()).expect("nodes in memory are always there")
}

async fn cycle(locker: &Locker, name: &str) {
    let guard = locker.try_lock(name).await.expect("the name is free");
    guard.release().await.expect("it is held");
}

/// Lock + release of free names.
fn cycles(criterion: &mut Criterion) {
    let runtime = runtime();
    let names: Vec<_> = (0..500).map(|serial| format!("orders/{serial:06}")).collect();
    let mut group = criterion.benchmark_group("lock + release");
    for (nodes, held, title) in
        [(1, 0, "1 node"), (5, 0, "5 nodes"), (1, HELD, "1 node, 10,000 others held")]
    {
        let locker = locker(&runtime, nodes);
        let hold = async |serial| locker.try_lock(format!("held/{serial}")).await.expect("free");
        let guards: Vec<_> = (0..held).map(|serial| runtime.block_on(hold(serial))).collect();
        let mut next = names.iter().cycle();
        group.bench_function(title, |bencher| {
            bencher.iter(|| runtime.block_on(cycle(&locker, next.next().expect("without end"))));
        });
        drop(guards);
    }
    group.finish();
}

/// With a lock that is held already.
fn holding(criterion: &mut Criterion) {
    let runtime = runtime();
    let locker = locker(&runtime, 5);
    let owner = locker.new_owner();
    let guard = runtime.block_on(locker.lock("held").owner(&owner).into_future()).expect("free");
    let mut group = criterion.benchmark_group("holding");
    group.bench_function("is it held", |bencher| bencher.iter(|| black_box(&guard).is_held()));
    group.bench_function("extend, 5 nodes", |bencher| {
        bencher.iter(|| runtime.block_on(guard.extend()).expect("held"));
    });
    group.bench_function("once more for the same owner", |bencher| {
        bencher.iter(|| runtime.block_on(locker.lock("held").owner(&owner).into_future()));
    });
    group.bench_function("fence, checked at the resource", |bencher| {
        let (fenced, fence) = (Fence::new(()), guard.fence());
        bencher.iter(|| fenced.write(black_box(fence)).is_ok());
    });
    group.finish();
}

/// A release with somebody of the same process behind it.
fn passing_on(criterion: &mut Criterion) {
    let runtime = runtime();
    let locker = locker(&runtime, 5);
    criterion.bench_function("passed on within the process", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let first = locker.lock("wanted").await.expect("free");
                let mut second = Box::pin(locker.lock("wanted").into_future());
                let waits = std::future::poll_fn(|cx| {
                    std::task::Poll::Ready(Future::poll(second.as_mut(), cx).is_pending())
                });
                assert!(waits.await, "held by the first");
                first.release().await.expect("held");
                second.await.expect("passed on").release().await.expect("held");
            });
        });
    });
}

/// The small parts.
fn parts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("name");
    for length in [16, 64, MAX_NAME_BYTES] {
        let name = "n".repeat(length);
        group.throughput(Throughput::Bytes(length as u64));
        group.bench_function(format!("{length} bytes"), |bencher| {
            bencher.iter(|| Name::new(black_box(&name)));
        });
    }
    group.finish();

    let runtime = runtime();
    let _inside = runtime.enter();
    let random = TokioRuntime::current();
    let token = Token::random(&random);
    let text = token.text();
    let mut group = criterion.benchmark_group("token");
    group.bench_function("new, in a burst", |bencher| bencher.iter(|| Token::random(&random)));
    group.bench_function("as text", |bencher| bencher.iter(|| black_box(&token).text()));
    group.bench_function("from text", |bencher| bencher.iter(|| Token::parse(black_box(&text))));
    group.finish();
}

criterion_group!(benches, cycles, holding, passing_on, parts);
criterion_main!(benches);
