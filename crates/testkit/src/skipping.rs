//! Tests on a machine that lacks a program which they need.
//!
//! Plain `cargo test` works on any machine: a test that needs what is not there is skipped, and says so.
//! `cargo xtask test` installs everything and lists it in [`REQUIRED`], so that nothing is skipped there: what is
//! missing all the same is a failure.

use std::any::Any;
use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use crate::zookeeper;

/// The environment variable that lists what has to be there, with commas in between. What it does not name may be
/// missing.
pub const REQUIRED: &str = "QUORLOCK_TEST_REQUIRES";

/// Why a test cannot run here. The payload of a panic that no hook reports.
struct Lacking(String);

/// Ends the test for want of `what`: it is skipped, or fails if [`REQUIRED`] names it.
///
/// The text says what is missing, and how it can be had. Tests that call this, or that start a server, are made with
/// [`macro@crate::test`].
///
/// # Panics
///
/// Always.
pub fn lacks(what: &str, text: impl fmt::Display) -> ! {
    let required = std::env::var(REQUIRED).unwrap_or_default();
    assert!(!required.split(',').any(|name| name == what), "{text}");
    resume_unwind(Box::new(Lacking(text.to_string())))
}

/// Returns where a program is on the PATH. Without it the test is skipped, or fails: see [`lacks`].
///
/// # Panics
///
/// If it is not there.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&path).map(|folder| folder.join(name));
    files.find(|file| file.is_file()).unwrap_or_else(|| {
        lacks(name, format_args!("no `{name}` is on the PATH: `cargo xtask test` installs it"))
    })
}

/// Returns the server program of Valkey that `QUORLOCK_TEST_VALKEY` names. Without it the test is skipped, or fails:
/// see [`lacks`].
///
/// # Panics
///
/// If it names none.
#[must_use]
pub fn valkey() -> OsString {
    std::env::var_os("QUORLOCK_TEST_VALKEY").unwrap_or_else(|| {
        lacks("valkey", "QUORLOCK_TEST_VALKEY names no server: `cargo xtask test` installs one")
    })
}

/// Returns the class path of the ZooKeeper server that Debian's package has. Without it the test is skipped, or fails:
/// see [`lacks`].
///
/// # Panics
///
/// If it is not there.
#[must_use]
pub fn zookeeper() -> OsString {
    zookeeper::find_class_path().unwrap_or_else(|| {
        lacks("zookeeper", "no ZooKeeper is here: `cargo xtask test` installs it")
    })
}

/// Runs a test, for [`macro@crate::test`].
#[doc(hidden)]
pub fn test(name: &str, test: impl FnOnce()) {
    catch_unwind(AssertUnwindSafe(test)).unwrap_or_else(|panic| ended(name, panic));
}

/// Runs an async test, for [`macro@crate::test`].
#[doc(hidden)]
pub async fn async_test(name: &str, test: impl Future<Output = ()>) {
    let mut test = pin!(test);
    std::future::poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| test.as_mut().poll(cx)));
        polled.unwrap_or_else(|panic| {
            ended(name, panic);
            Poll::Ready(())
        })
    })
    .await;
}

/// A test has panicked: reports what it lacks, if that is the reason, and goes on panicking otherwise.
fn ended(name: &str, panic: Box<dyn Any + Send>) {
    match panic.downcast::<Lacking>() {
        Ok(lacking) => report(name, lacking.0),
        Err(panic) => resume_unwind(panic),
    }
}

/// Says that a test is skipped, and how many were before it.
pub(crate) fn report(name: &str, reason: impl fmt::Display) {
    static SKIPPED: AtomicUsize = AtomicUsize::new(0);
    let count = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    // In one piece, and not by a macro that prints: the test runner would keep that to itself.
    let line = format!("skipped ({count} so far): {name}: {reason}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
