//! The client: every write brings the fence of its holder along.

use std::fmt;

use ureq::Error;

/// What became of a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Put {
    Stored,
    /// Another one has the lock by now, or had it: stop, and do not send this again.
    TooLate {
        /// Its fence, if the service tells.
        highest: Option<u64>,
    },
}

pub(crate) fn put(url: &str, fence: u64, text: &str) -> Result<Put, Error> {
    let answer = ureq::put(url)
        .config()
        .http_status_as_error(false)
        .build()
        .header("Quorlock-Fence", fence.to_string())
        .send(text)?;
    match answer.status().as_u16() {
        200..300 => Ok(Put::Stored),
        412 => {
            let highest = answer.headers().get("Quorlock-Fence");
            let highest = highest.and_then(|fence| fence.to_str().ok()?.parse().ok());
            Ok(Put::TooLate { highest })
        }
        status => Err(Error::StatusCode(status)),
    }
}

pub(crate) fn get(url: &str) -> Result<String, Error> {
    ureq::get(url).call()?.into_body().read_to_string()
}

impl fmt::Display for Put {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stored => f.write_str("stored"),
            Self::TooLate { highest: Some(highest) } => write!(f, "refused, {highest} was here"),
            Self::TooLate { highest: None } => f.write_str("refused"),
        }
    }
}
