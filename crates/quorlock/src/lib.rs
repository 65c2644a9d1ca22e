//! Lock.
