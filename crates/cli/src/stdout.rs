//! What a command was asked for, on stdout.

use std::io::{self, Write};

use crate::exit::{self, Failed};

/// Writes all of it.
pub(crate) fn write(text: &str) -> Result<(), Failed> {
    try_write(text).map_err(|error| {
        Failed::new(exit::OWN_FAILURE, format!("the output cannot be written: {error}"))
    })
}

/// The same, for callers that handle the error.
pub(crate) fn try_write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
