//! A server's own clock jumps and drifts as it is told, and no other clock does.
//!
//! A reading has bounds: the true time before and after it. What they leave open is not asserted,
//! so nothing here depends on how fast the machine is.

use std::ops::RangeInclusive;
use std::panic::catch_unwind;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, thread};

use quorlock_testkit::{RedisServer, Reply, eventually, skipping, test};

const HOUR_US: i64 = 3_600_000_000;
const HOUR_MS: i64 = 3_600_000;

/// A look at the server's clock, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Reading {
    before: i64,
    shown: i64,
    after: i64,
}

impl Reading {
    fn of(server: &RedisServer) -> Self {
        let before = true_us();
        let reply = server.command(&["TIME"]);
        // Rounded up, as the server rounds down too.
        let after = true_us() + 1;
        Self { before, shown: shown_us(&reply), after }
    }

    /// How far the server's clock is ahead.
    fn ahead(self) -> RangeInclusive<i64> {
        self.shown - self.after..=self.shown - self.before
    }

    /// What a clock at this rate gains from this reading to a later one.
    fn gain_until(self, later: Self, rate: f64) -> RangeInclusive<i64> {
        let least = (later.before - self.after) as f64 * rate;
        let most = (later.after - self.before) as f64 * rate;
        least.floor() as i64 - 1..=most.ceil() as i64 + 1
    }
}

fn true_us() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    now.as_micros().try_into().expect("before the year 200,000")
}

/// What `TIME` has answered.
fn shown_us(reply: &Reply) -> i64 {
    let number = |part: &Reply| {
        let Reply::Bulk(Some(text)) = part else { panic!("{reply:?}") };
        String::from_utf8_lossy(text).parse::<i64>().expect("a number")
    };
    let Reply::Array(parts) = reply else { panic!("{reply:?}") };
    number(&parts[0]) * 1_000_000 + number(&parts[1])
}

fn remaining_ms(server: &RedisServer, key: &str) -> i64 {
    match server.command(&["PTTL", key]) {
        Reply::Int(ms) => ms,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_ahead(server: &RedisServer, by_us: i64) {
    let reading = Reading::of(server);
    assert!(reading.ahead().contains(&by_us), "not ahead by {by_us} us: {reading:?}");
}

/// Reads the clock until this rate can be told from the other one, and asserts it.
#[track_caller]
fn assert_rate(server: &RedisServer, rate: f64, other: f64) {
    let first = Reading::of(server);
    let mut last = first;
    eventually("the rates can be told apart", || {
        last = Reading::of(server);
        let (this, other) = (first.gain_until(last, rate), first.gain_until(last, other));
        this.end() < other.start() || other.end() < this.start()
    });
    let gain = last.shown - first.shown;
    let expected = first.gain_until(last, rate);
    assert!(expected.contains(&gain), "at {rate}: a gain of {expected:?}, not {gain} us");
}

#[test]
fn untouched_it_shows_the_true_time() {
    let server = RedisServer::builder().own_clock().start();
    assert_ahead(&server, 0);
    assert_rate(&server, 1.0, 1.1);
}

#[test]
fn it_jumps_forward_and_back() {
    let server = RedisServer::builder().own_clock().start();
    let clock = server.clock();
    clock.jump_ms(HOUR_MS);
    assert_ahead(&server, HOUR_US);
    clock.jump_ms(-3 * HOUR_MS);
    assert_ahead(&server, -2 * HOUR_US);
    clock.jump_ms(1);
    assert_ahead(&server, -2 * HOUR_US + 1_000);
    clock.true_time();
    assert_ahead(&server, 0);
}

#[test]
fn a_server_without_it_keeps_the_true_time() {
    let (moved, plain) = (RedisServer::builder().own_clock().start(), RedisServer::start());
    moved.clock().jump_ms(HOUR_MS);
    moved.clock().rate(2.0);
    assert_ahead(&plain, 0);
    assert_rate(&plain, 1.0, 2.0);
}

#[test]
fn it_drifts_at_the_rate_it_is_told() {
    let server = RedisServer::builder().own_clock().start();
    for rate in [1.1, 0.9, 10.0, 0.0] {
        server.clock().rate(rate);
        assert_rate(&server, rate, 1.0);
        server.clock().jump_ms(-HOUR_MS);
        assert_rate(&server, rate, 1.0);
    }
}

#[test]
fn steady_it_keeps_what_it_has_gained() {
    let server = RedisServer::builder().own_clock().start();
    let clock = server.clock();
    clock.rate(100.0);
    eventually("a tenth of a second is gained", || *Reading::of(&server).ahead().start() > 100_000);
    clock.steady();
    assert_rate(&server, 1.0, 1.01);
    assert!(*Reading::of(&server).ahead().start() > 100_000);
    clock.true_time();
    assert_ahead(&server, 0);
}

/// A server that reads the clock all the time sees no step back. At such rates it would be a long
/// one: whatever the server saw of the old rate after the new one was to hold, a thousandfold.
#[test]
fn a_new_rate_is_no_jump() {
    let server = RedisServer::builder().own_clock().start();
    server.clock().jump_ms(HOUR_MS);
    let (first, done) = (Reading::of(&server), AtomicBool::new(false));
    let readings = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut client = server.connect().expect("a connection");
            let mut readings = vec![first.shown];
            while !done.load(SeqCst) {
                for _ in 0..500 {
                    client.send(&["TIME"]).expect("sent");
                }
                for _ in 0..500 {
                    readings.push(shown_us(&client.receive().expect("a reply")));
                }
            }
            readings
        });
        for _ in 0..20 {
            server.clock().rate(1000.0);
            server.clock().rate(0.0);
        }
        done.store(true, SeqCst);
        reader.join().expect("the readings")
    });
    for pair in readings.windows(2) {
        assert!(pair[0] <= pair[1], "back by {} us", pair[0] - pair[1]);
    }
    let last = Reading::of(&server);
    let most = first.shown + first.gain_until(last, 1000.0).end();
    assert!(first.shown < last.shown && last.shown <= most, "{first:?} {last:?}");
}

#[test]
fn keys_expire_by_it() {
    let server = RedisServer::builder().own_clock().start();
    let clock = server.clock();
    let set = |key: &str| {
        let reply = server.command(&["SET", key, "value", "PX", "60000"]);
        assert_eq!(reply, Reply::Simple("OK".into()));
    };
    set("forward");
    // The key is still there in the millisecond in which it ends.
    clock.jump_ms(60_001);
    assert_eq!(server.command(&["GET", "forward"]), Reply::Bulk(None));

    set("back");
    clock.jump_ms(-HOUR_MS);
    let left_ms = remaining_ms(&server, "back");
    assert!((HOUR_MS..=HOUR_MS + 60_000).contains(&left_ms), "{left_ms}");

    // A minute passes in 60 ms; at the true rate it would outlast the deadline.
    clock.rate(1000.0);
    set("fast");
    eventually("a fast clock ends the key", || {
        server.command(&["GET", "fast"]) == Reply::Bulk(None)
    });

    clock.rate(0.0);
    set("still");
    let (before, left_ms) = (true_us(), remaining_ms(&server, "still"));
    eventually("some milliseconds pass", || true_us() - before > 10_000);
    assert_eq!(remaining_ms(&server, "still"), left_ms);
}

#[test]
fn it_can_be_set_while_the_server_is_paused_or_down() {
    let server = RedisServer::builder().own_clock().start();
    let clock = server.clock();
    server.pause();
    clock.jump_ms(HOUR_MS);
    let before = true_us();
    clock.rate(2.0);
    clock.steady();
    let most = HOUR_US + true_us() - before;
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.pid())).expect("a process");
    assert!(stat.contains(") T "), "no longer paused: {stat}");
    server.resume();
    let ahead = Reading::of(&server).ahead();
    assert!(*ahead.end() >= HOUR_US && *ahead.start() <= most, "{ahead:?}, at most {most}");

    clock.true_time();
    server.kill();
    clock.jump_ms(-HOUR_MS);
    clock.rate(2.0);
    server.restart();
    assert!(*Reading::of(&server).ahead().end() >= -HOUR_US);
    assert_rate(&server, 2.0, 1.0);
}

#[test]
fn it_stays_over_a_restart() {
    let server = RedisServer::builder().own_clock().appendonly(true).start();
    server.command(&["SET", "key", "value", "PX", "60000"]);
    server.clock().jump_ms(-HOUR_MS);
    server.restart();
    assert_ahead(&server, -HOUR_US);
    assert!(remaining_ms(&server, "key") > HOUR_MS);
    server.clock().jump_ms(HOUR_MS + 60_000);
    server.restart();
    assert_eq!(server.command(&["EXISTS", "key"]), Reply::Int(0));
}

#[test]
fn scripts_go_by_it() {
    let server = RedisServer::builder().own_clock().start();
    server.clock().jump_ms(HOUR_MS);
    let script = "local now = redis.call('TIME'); return now[1] * 1000000 + now[2]";
    let before = true_us();
    let reply = server.command(&["EVAL", script, "0"]);
    let after = true_us() + 1;
    let Reply::Int(shown) = reply else { panic!("{reply:?}") };
    assert!((before + HOUR_US..=after + HOUR_US).contains(&shown), "{before} {shown} {after}");
}

#[test]
fn a_server_with_monotonic_clocks_of_its_own_lives_with_jumps() {
    let server = RedisServer::builder().own_clock_with_monotonic().start();
    let clock = server.clock();
    for by_ms in [HOUR_MS, -2 * HOUR_MS, HOUR_MS] {
        clock.jump_ms(by_ms);
        assert_eq!(server.command(&["PING"]), Reply::Simple("PONG".into()));
    }
    assert_ahead(&server, 0);
}

#[test]
fn valkey_goes_by_it_too() {
    let server = RedisServer::builder().program(skipping::valkey()).own_clock().start();
    for ahead in [-1, 0, 1, 2] {
        server.clock().true_time();
        server.clock().jump_ms(ahead * HOUR_MS);
        assert_ahead(&server, ahead * HOUR_US);
    }
    server.clock().rate(1000.0);
    server.command(&["SET", "key", "value", "PX", "60000"]);
    eventually("a fast clock ends the key", || {
        server.command(&["GET", "key"]) == Reply::Bulk(None)
    });
}

#[test]
fn a_program_that_takes_no_notice_is_refused() {
    // Linked statically, it loads no library; then it becomes a server without the variable.
    let source = r#"
        #include <stdlib.h>
        #include <unistd.h>
        int main(int count, char **args)
        {
            unsetenv("LD_PRELOAD");
            return execvp("redis-server", args);
        }"#;
    let dir = tempfile::tempdir().expect("a directory");
    let (source_path, program) = (dir.path().join("deaf.c"), dir.path().join("deaf"));
    fs::write(&source_path, source).expect("written");
    let mut cc = Command::new(skipping::program("cc"));
    let status = cc.arg("-static").arg(&source_path).arg("-o").arg(&program).status();
    assert!(status.expect("a compiler").success());

    let builder = RedisServer::builder().program(program).own_clock();
    let panic = catch_unwind(|| builder.start()).expect_err("it started");
    let message = panic.downcast_ref::<String>().expect("a message");
    assert!(message.contains("does not go by its own clock"), "{message}");
}
