//! The service: one text, which is taken from the latest holder of a lock only.
//!
//! ```text
//! PUT /value    with Quorlock-Fence: FENCE, and the text as its body
//!     204       it is stored
//!     412       a later holder was here, whose fence stands in Quorlock-Fence; nothing was changed
//!     428       there is no fence
//!     400       it is not a number
//! GET /value    needs no fence
//! ```

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use quorlock::Fence;

const FENCE: HeaderName = HeaderName::from_static("quorlock-fence");

type Value = State<Arc<Fence<String>>>;

pub(crate) fn routes() -> Router {
    let value = Arc::new(Fence::new(String::new()));
    Router::new().route("/value", get(read).put(write)).with_state(value)
}

async fn read(State(value): Value) -> String {
    value.read().clone()
}

async fn write(State(value): Value, headers: HeaderMap, text: String) -> Response {
    let fence = match fence(&headers) {
        Ok(fence) => fence,
        Err(refusal) => return refusal.into_response(),
    };
    // The body is here already: whatever waits has to come before the check.
    match value.write(fence) {
        Ok(mut value) => {
            *value = text;
            StatusCode::NO_CONTENT.into_response()
        }
        Err(stale) => {
            let highest = [(FENCE, stale.highest.to_string())];
            (StatusCode::PRECONDITION_FAILED, highest, stale.to_string()).into_response()
        }
    }
}

fn fence(headers: &HeaderMap) -> Result<u64, (StatusCode, &'static str)> {
    let header = headers.get(FENCE).ok_or((
        StatusCode::PRECONDITION_REQUIRED,
        "take the lock, and send Guard::fence() in the header Quorlock-Fence",
    ))?;
    let fence = header.to_str().ok().and_then(|text| text.parse().ok());
    fence.filter(|fence| *fence > 0).ok_or((
        StatusCode::BAD_REQUEST,
        "Quorlock-Fence has to be the fence of a holder, in digits",
    ))
}
