//! A service: the one of `examples/fenced_service`, with its client.

#[path = "../../examples/fenced_service/client.rs"]
mod client;
#[path = "../../examples/fenced_service/service.rs"]
mod service;

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::{GOT_THROUGH, REFUSED, Store, late_write_in_still_world};
use client::Put;

/// A service on a port and a thread of its own.
struct Service {
    url: String,
    runtime: Option<Runtime>,
}

impl Service {
    fn start(routes: Router) -> Self {
        let (runtime, listener) = std::thread::scope(|scope| {
            // A test that has a runtime cannot wait in another.
            let start = || {
                let runtime = Runtime::new().expect("a runtime");
                let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
                (runtime, listener.expect("a free port"))
            };
            scope.spawn(start).join().expect("no panic")
        });
        let url = format!("http://{}/value", listener.local_addr().expect("it is bound"));
        runtime.spawn(async { axum::serve(listener, routes).await });
        Self { url, runtime: Some(runtime) }
    }

    /// The service as it would be without the check.
    fn unchecked() -> Self {
        let value = Arc::new(Mutex::new(String::new()));
        let (read, write) = (Arc::clone(&value), value);
        let read = async move || read.lock().expect("nobody panics").clone();
        let write = async move |text: String| *write.lock().expect("nobody panics") = text;
        Self::start(Router::new().route("/value", get(read).put(write)))
    }

    /// The status for a write with this header, and the header of the answer.
    fn put(&self, fence: Option<&str>) -> (u16, Option<String>) {
        let mut request = ureq::put(&self.url).config().http_status_as_error(false).build();
        if let Some(fence) = fence {
            request = request.header("Quorlock-Fence", fence);
        }
        let answer = request.send("5").expect("an answer");
        let header = answer.headers().get("Quorlock-Fence");
        let header = header.map(|value| value.to_str().expect("a text").to_owned());
        (answer.status().as_u16(), header)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Store for Service {
    fn write(&self, fence: u64, value: i64) -> bool {
        match client::put(&self.url, fence, &value.to_string()).expect("an answer") {
            Put::Stored => true,
            Put::TooLate { highest } => {
                assert!(highest.is_none_or(|highest| highest > fence));
                false
            }
        }
    }

    fn read(&self) -> i64 {
        client::get(&self.url).expect("an answer").parse().expect("a number")
    }
}

#[tokio::test(start_paused = true)]
async fn the_service_refuses_the_late_write() {
    assert_eq!(late_write_in_still_world(&Service::start(service::routes())).await, REFUSED);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_does_not_look_at_the_header_does_not() {
    assert_eq!(late_write_in_still_world(&Service::unchecked()).await, GOT_THROUGH);
}

#[test]
fn each_answer_is_the_one_of_the_page() {
    let service = Service::start(service::routes());
    assert_eq!(service.put(None), (428, None));
    for text in ["", "0", "-1", "1e9", "34, 35", "a", "18446744073709551616"] {
        assert_eq!(service.put(Some(text)), (400, None), "{text}");
    }
    assert_eq!(client::get(&service.url).expect("an answer"), "", "something was stored");
    assert_eq!(service.put(Some("34")), (204, None));
    assert_eq!(service.put(Some("34")), (204, None));
    assert_eq!(service.put(Some("33")), (412, Some("34".to_owned())));
    assert_eq!(
        client::put(&service.url, 33, "late").expect("an answer").to_string(),
        "refused, 34 was here"
    );
    assert_eq!(Put::TooLate { highest: None }.to_string(), "refused");
    assert_eq!(Put::Stored.to_string(), "stored");
}
