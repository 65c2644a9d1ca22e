//! What an operator does with nodes, on real servers.

mod forget;
mod init;
