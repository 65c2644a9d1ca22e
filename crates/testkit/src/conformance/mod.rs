//! What every kind of node has to do, whatever stands behind it.
//!
//! A case holds no backend's name. It is given a [`Backend`], opens nodes on it, and puts calls to
//! them. [`conformance!`](crate::conformance!) makes one test of each case for one backend; a
//! backend that lacks a case does not exist, and `tests/conformance.rs` of the library fails when a
//! kind of node has no such line.

mod cases;
mod probe;

use std::sync::Arc;

use quorlock::node::Node;

pub use cases::*;
pub use probe::{Owner, Probe, owner};

/// One authority, and the means to talk to it.
pub trait Backend {
    /// A new handle of the same authority, as another process would have.
    fn open(&self) -> Arc<dyn Node>;
}

/// Makes the tests of all cases for one backend: `conformance!(memory, make())`, where `make()`
/// gives a fresh [`Backend`] in a tokio context, or `None` to skip.
///
/// With a single argument it hands the list of all cases to that macro.
#[macro_export]
macro_rules! conformance {
    (@tests $make:expr, [$($case:ident)*]) => {$(
        #[tokio::test]
        async fn $case() {
            match $make {
                Some(backend) => $crate::conformance::$case(&backend).await,
                None => eprintln!("skipped: this backend is not on this machine"),
            }
        }
    )*};
    (@names [$($case:ident)*]) => { &[$(stringify!($case)),*] };
    (@all $($then:tt)*) => {
        $crate::conformance! { $($then)* [
            a_free_name_is_granted_and_seen
            a_taken_name_is_refused_and_nothing_changes
            a_release_by_the_owner_frees_the_name
            a_release_of_nothing_is_refused
            a_release_with_another_token_changes_nothing
            an_extension_makes_the_record_last_longer
            an_extension_never_shortens_the_record
            an_extension_with_another_token_changes_nothing
            an_extension_never_creates_a_record
            an_expired_record_is_free
            an_expired_owner_cannot_touch_the_next_record
            odd_names_are_told_apart_exactly
            calls_take_effect_in_the_order_of_submission
            two_handles_share_one_record
            every_call_of_a_burst_is_answered
            a_round_that_nobody_waits_for_still_runs
        ] }
    };
    ($backend:ident, $make:expr) => {
        mod $backend {
            use super::*;
            $crate::conformance!(@all @tests $make,);
        }
    };
}

/// The names of all cases.
pub const CASES: &[&str] = conformance!(@all @names);
