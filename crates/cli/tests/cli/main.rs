//! The command as its users meet it: the real program, on real servers.

mod arguments;
mod embedded;
mod group;
mod hold;
mod job_control;
mod lease;
mod nodes;
mod outcome;
mod process;
mod reentry;
mod secrets;
mod shell;
mod signals;
mod status;

mod waiting;
