//! Many callers and many locks at once, on real servers.
//!
//! These tests keep all processors busy. They are a program of their own so that none of them runs beside a test
//! with a time limit.

mod bad_network;
mod gate;
