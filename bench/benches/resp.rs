//! The wire format of Redis by itself, in memory: `cargo xtask bench micro`.
//!
//! The module is the library's own, taken in as a file: it is not for others, and stays so. The commands
//! are put together as `verbs.rs` does it, which knows too much of the rest to come along.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

use resp::{Command, Value, parse, part};

#[path = "../../crates/quorlock/src/node/redis/resp.rs"]
mod resp;

const NAME: &[u8] = b"orders/000042";
const TOKEN: &[u8] = b"ql:0123456789abcdef0123456789abcdef01234567";
const TTL_MS: u64 = 10_000;
/// As they are in 2026, in microseconds: fences follow the clock.
const FENCE: u64 = 1_790_000_000_000_015;
const BLOCK: u64 = 16;
/// Run id, longest TTL and clock window, as every call of the strict dialect ends with.
const SIGNATURE: &[u8] = b"0123456789abcdef0123456789abcdef01234567 30000000 300000 ";

/// A burst of replies, as it is read from a connection that many share.
const BURST: usize = 64;

/// `SET name token NX PX ttl`.
fn set(out: &mut Vec<u8>) {
    Command::new(out, 6)
        .written(b"$3\r\nSET\r\n")
        .arg2(b"", NAME)
        .arg(TOKEN)
        .written(b"$2\r\nNX\r\n$2\r\nPX\r\n")
        .number(black_box(TTL_MS));
}

/// The acquisition of the strict dialect.
fn evalsha(by_hash: &[u8], out: &mut Vec<u8>) {
    Command::new(out, 10)
        .written(by_hash)
        .number(1)
        .arg2(b"", NAME)
        .arg(TOKEN)
        .number(black_box(TTL_MS))
        .number(black_box(FENCE))
        .number(black_box(BLOCK))
        .number(black_box(FENCE))
        .arg(SIGNATURE);
}

fn writing(criterion: &mut Criterion) {
    let by_hash = [part(b"EVALSHA"), part(&[b'a'; 40])].concat();
    write(criterion, "SET NX PX", 6, set);
    write(criterion, "EVALSHA, strict acquire", 10, |out| evalsha(&by_hash, out));
}

fn write(criterion: &mut Criterion, title: &str, parts: usize, write: impl Fn(&mut Vec<u8>)) {
    let mut out = Vec::new();
    write(&mut out);
    // A command has the form of a reply: its parts, and nothing after them.
    match parse(&out) {
        Ok(Some((Value::Array(read), used))) => assert_eq!((read.len(), used), (parts, out.len())),
        other => panic!("{title} is written as {other:?}"),
    }
    let mut group = criterion.benchmark_group("write");
    group.throughput(Throughput::Bytes(out.len() as u64));
    group.bench_function(title, |bencher| {
        bencher.iter(|| {
            out.clear();
            write(black_box(&mut out));
        });
    });
    group.finish();
}

/// Reads all replies of a buffer, and returns how many there were.
fn read_all(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while !bytes.is_empty() {
        let Ok(Some((value, used))) = parse(bytes) else { panic!("no reply") };
        black_box(value);
        bytes = &bytes[used..];
        count += 1;
    }
    count
}

fn parsing(criterion: &mut Criterion) {
    let token = std::str::from_utf8(TOKEN).expect("text");
    let queued = format!("*3\r\n$16\r\n{FENCE}\r\n$43\r\n{token}\r\n:9999\r\n");
    // Fences and releases in turns, as 32 locks in the strict dialect leave them to read.
    let burst = format!(":{FENCE}\r\n:1\r\n").repeat(BURST / 2);
    let mut group = criterion.benchmark_group("parse");
    for (title, replies, count) in [
        ("+OK", "+OK\r\n", 1),
        (":1", ":1\r\n", 1),
        ("a place in the queue", queued.as_str(), 1),
        ("64 replies in one buffer", burst.as_str(), BURST),
    ] {
        assert_eq!(read_all(replies.as_bytes()), count, "{title}");
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(title, |bencher| {
            bencher.iter(|| read_all(black_box(replies.as_bytes())));
        });
    }
    group.finish();
}

criterion_group!(benches, writing, parsing);
criterion_main!(benches);
