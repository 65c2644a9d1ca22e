//! The command as its users meet it: the real program, on real servers.

mod arguments;
mod embedded;
mod lease;
mod nodes;
mod outcome;
mod process;
mod secrets;
mod signals;
mod status;
mod waiting;
