//! What every kind of node has to do, whatever stands behind it.
//!
//! A case holds no backend's name. It is given a [`Backend`], opens nodes on it, and puts calls to
//! them. [`conformance!`](crate::conformance!) makes one test of each case for one backend; a
//! backend that lacks a case does not exist, and `tests/nodes/conformance.rs` of the library fails when a
//! kind of node has no such line.

mod cases;
mod client;
mod fences;
mod looks;
mod needs;
mod participants;
mod probe;
mod queues;
mod sessions;
mod yields;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{ClientId, Node};

pub use cases::*;
pub use client::{Client, GrantMessage, Waiter};
pub use fences::*;
pub use looks::*;
pub use participants::*;
pub use probe::{Owner, Probe, owner};
pub use queues::*;
pub use sessions::*;
pub use yields::*;

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(30);
/// What is left of a record may be shown so much too long where another machine's clock ends it.
const ESTIMATE: Duration = Duration::from_secs(1);

/// One authority, and the means to talk to it.
pub trait Backend {
    /// A new handle of the same authority, as another process would have, once it can be used.
    fn open(&self, client: ClientId) -> impl Future<Output = Arc<dyn Node>>;

    /// Ends when the authority knows that no handle of `client` is left.
    fn gone(&self, client: ClientId) -> impl Future<Output = ()>;

    /// How much it keeps, be it records, queues or notes. Not the fences of past holders.
    fn kept(&self) -> usize;
}

/// Makes the tests of all cases for one backend: `conformance!(memory, make())`, where `make()`
/// gives a fresh [`Backend`] in a tokio context.
///
/// With a single argument it hands the list of all cases to that macro.
#[macro_export]
macro_rules! conformance {
    (@tests $make:expr, [$($case:ident)*]) => {$(
        #[$crate::test]
        async fn $case() {
            $crate::conformance::$case(&$make).await;
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
            calls_of_each_name_keep_their_order_under_load
            a_busy_name_keeps_its_order_amid_others
            a_round_that_nobody_waits_for_still_runs
            a_record_outlives_its_client
            a_record_ends_with_the_session_of_its_client
            waiting_for_a_free_name_is_granted_at_once
            waiting_for_a_taken_name_tells_who_has_it
            waiting_for_what_is_ours_keeps_it_longer_and_never_shorter
            turns_come_in_the_order_of_arrival_and_nobody_else_is_notified
            a_grant_message_names_the_latest_request
            the_lease_of_a_grant_lasts_as_long_as_the_latest_request_asked_for
            a_holder_that_has_passed_the_lock_on_cannot_touch_it
            a_ticket_that_was_given_up_is_passed_over
            a_client_that_is_gone_is_passed_over
            a_record_that_ran_out_goes_to_the_first_in_line_whichever_client_asks
            a_new_ticket_pushes_nobody_aside_and_an_agreed_one_stands_where_it_says
            repeating_a_wait_changes_nothing
            yielding_lets_the_waiter_before_us_have_it_and_keeps_our_place
            yielding_keeps_what_nobody_before_us_waits_for
            yielding_to_a_client_that_is_gone_keeps_the_lock
            a_release_does_not_pass_the_lock_on_to_its_own_ticket
            waiters_of_one_client_are_told_apart
            a_notified_waiter_may_ask_the_node_at_once
            every_holder_has_a_higher_fence_than_those_before
            a_block_of_fences_is_nobody_elses
            a_fence_is_confirmed_by_the_holder_alone
            a_fence_outlives_its_record
            a_grant_comes_with_a_fence_of_its_own
            a_fence_is_as_high_as_the_latest_request_wants_it
            a_record_stays_until_the_last_who_takes_part_has_left
            a_record_stays_with_its_maker_when_others_have_left
            a_record_lasts_as_long_as_the_last_of_those_who_hold_it
            a_record_is_free_when_the_last_participant_is_over
            a_client_that_takes_no_part_changes_nothing
            the_next_holder_shares_its_record_with_nobody
            the_last_who_takes_part_passes_the_lock_on
            a_lock_in_which_somebody_takes_part_is_not_yielded
            a_lock_is_taken_away_from_all_who_take_part
            a_fence_that_would_not_grow_is_not_given_out
            a_note_is_kept_beside_the_record_and_goes_with_an_empty_one
            only_the_holder_can_leave_a_note
            a_note_of_an_earlier_holder_does_not_count
            a_look_counts_those_who_wait
            a_list_names_every_lock_that_is_held_and_nothing_else
            a_lock_can_be_taken_away_from_the_holder_that_was_seen
            a_lock_that_is_taken_away_goes_to_the_first_in_line
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
