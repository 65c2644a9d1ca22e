//! The command as its users meet it: the real program, on real servers.

mod arguments;
mod config;
mod doctor;
mod embedded;
mod lease;
mod nodes;
mod operations;
mod outcome;
mod pages;
mod process;
mod secrets;
mod signals;
mod status;
mod waiting;
