//! An allocator that knows how many bytes are in use.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

/// The system's allocator. It counts only once it is told to, as the other benchmarks should not pay
/// for it.
pub struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicI64 = AtomicI64::new(0);

/// Counts from now on.
pub fn count() {
    COUNTS.store(true, Relaxed);
}

/// The bytes that were asked for since the counting began, and not given back.
pub fn live_bytes() -> i64 {
    LIVE.load(Relaxed)
}

fn add(bytes: usize, sign: i64) {
    if COUNTS.load(Relaxed) {
        LIVE.fetch_add(sign * i64::try_from(bytes).unwrap_or(0), Relaxed);
    }
}

// SAFETY: all is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size(), 1);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        add(layout.size(), -1);
        unsafe { System.dealloc(block, layout) }
    }

    // The default would copy where the system can grow a block in place.
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(layout.size(), -1);
        add(size, 1);
        unsafe { System.realloc(block, layout, size) }
    }
}
