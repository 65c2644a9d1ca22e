//! Asking whether something is meant.

use std::io::{self, IsTerminal, Write};

use crate::exit::{self, Failed};

/// Asks, if there is somebody to ask.
pub(crate) fn is_meant(question: &str) -> Result<bool, Failed> {
    if !io::stdin().is_terminal() {
        let remedy = "add --yes if that is meant, for there is no terminal to ask on";
        return Err(Failed::new(exit::MISUSE, format!("{question} {remedy}")));
    }
    let failed = |error: io::Error| {
        Failed::new(exit::OWN_FAILURE, format!("it cannot be asked whether that is meant: {error}"))
    };
    write!(io::stderr(), "{question} [y/N] ").map_err(failed)?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(failed)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes" | "Yes"))
}
