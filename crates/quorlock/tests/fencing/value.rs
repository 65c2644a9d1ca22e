//! A value in a process.

use std::sync::Mutex;

use quorlock::{Fence, Stale};

use super::{GOT_THROUGH, REFUSED, Store, late_write_in_still_world};

impl Store for Fence<i64> {
    fn write(&self, fence: u64, value: i64) -> bool {
        match Fence::write(self, fence) {
            Ok(mut behind) => {
                *behind = value;
                true
            }
            Err(Stale { .. }) => false,
        }
    }

    fn read(&self) -> i64 {
        *Fence::read(self)
    }
}

impl Store for Mutex<i64> {
    fn write(&self, _: u64, value: i64) -> bool {
        *self.lock().expect("nobody panics") = value;
        true
    }

    fn read(&self) -> i64 {
        *self.lock().expect("nobody panics")
    }
}

#[tokio::test(start_paused = true)]
async fn a_fence_refuses_the_late_write() {
    assert_eq!(late_write_in_still_world(&Fence::new(0)).await, REFUSED);
}

#[tokio::test(start_paused = true)]
async fn a_mutex_does_not() {
    assert_eq!(late_write_in_still_world(&Mutex::new(0)).await, GOT_THROUGH);
}
