//! The command as its users meet it: the real program, on real servers.

mod arguments;
mod bench;
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
mod operations;
mod outcome;
mod pages;
mod process;
mod reentry;
mod screen;
mod scripts;
mod secrets;
mod signals;
mod status;
mod strangers;
mod terminal;
mod waiting;
