//! The command as its users meet it: the real program, on real servers.

mod arguments;
mod embedded;
mod force;
mod lease;
mod list;
mod nodes;
mod notes;
mod outcome;
mod process;
mod scripts;
mod secrets;
mod signals;
mod status;
mod terminal;
mod waiting;
