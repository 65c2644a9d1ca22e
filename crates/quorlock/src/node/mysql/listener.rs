//! The connection over which grant messages come.
//!
//! ```text
//!   a release elsewhere     message ── COMMIT ── KILL QUERY of this connection
//!                                                   │
//!   quorlock_listen         is a message there? ── SLEEP(1) ── answer: the messages
//! ```
//!
//! A message that is committed before the look is seen by it. One that is committed after it is followed by the end of this very
//! call, and seen by the next. A message is removed when the next call says that it has arrived, so that none is lost with a
//! connection either. Nothing is asked while no lock is waited for.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, Params};

use super::connect::client_number;
use super::error::{broken, is_interrupted};
use super::link::Link;
use crate::node::incoming::{Malformed, grant};
use crate::node::{Failure, FailureKind};

/// So long a call waits in the server. That notices only between two calls that a client is gone.
const LONGEST_CALL: Duration = Duration::from_secs(1);
/// So much longer than it waits, and than others take, a call may take before the connection is given up.
const SLACK: Duration = Duration::from_secs(1);

/// Waits for messages, until the connection is of no more use.
pub(super) async fn listen(link: Arc<Link>, mut conn: Conn) -> Failure {
    let client = client_number(link.inbox.client);
    // What has come while there was no connection.
    let mut at_once = true;
    let mut handled = String::new();
    loop {
        if !at_once && handled.is_empty() {
            link.awaits_messages().await;
        }
        let wait = if at_once { Duration::ZERO } else { LONGEST_CALL };
        let params = (client, handled.as_bytes(), wait.as_secs_f64());
        let call = conn.exec("CALL quorlock_listen(?, ?, ?)", Params::from(params));
        let patience = link.state().patience.until_reconnect();
        let messages: Result<Vec<(u64, Vec<u8>)>, Error> = tokio::select! {
            messages = call => messages,
            () = link.runtime.sleep(wait + patience + SLACK) => {
                let text = "does not answer over the connection for grant messages";
                return Failure::new(FailureKind::Unreachable, text);
            }
        };
        let messages = match messages {
            Ok(messages) => messages,
            Err(error) if is_interrupted(&error) => {
                at_once = true;
                continue;
            }
            Err(error) => {
                return broken(&error).unwrap_or_else(|| super::error::unreachable(&error));
            }
        };
        at_once = false;
        handled.clear();
        for (id, text) in messages {
            if !handled.is_empty() {
                handled.push(',');
            }
            handled.push_str(&id.to_string());
            match grant(&text) {
                Ok(grant) => link.inbox.granted(grant),
                // Not its text: nobody knows whose it is.
                Err(Malformed) => {
                    tracing::debug!(node = link.label(), "a grant message makes no sense");
                }
            }
        }
    }
}
