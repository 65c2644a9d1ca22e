//! The command as its users meet it: the real program, on real servers.

mod arguments;
mod config;
mod doctor;
mod embedded;
mod force;
mod group;
mod hold;
mod job_control;
mod lease;
mod list;
mod nodes;
mod notes;
mod on_terminal;
mod operations;
mod outcome;
mod pages;
mod process;
mod redlock;
mod reentry;
mod scripts;
mod secrets;
mod shell;
mod signals;
mod status;
mod waiting;
