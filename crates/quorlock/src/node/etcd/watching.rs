//! Watching keys: the cluster says what becomes of them from now on.

use std::future::pending;

use futures_util::StreamExt as _;
use futures_util::stream::once;
use http::uri::PathAndQuery;
use tonic::metadata::AsciiMetadataValue;
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

use super::client::Client;
use super::keys::end_of;
use super::messages::{WatchCreateRequest, WatchRequest, WatchResponse};

impl Client {
    /// Watches all keys that begin with `prefix`, but for the events of one kind. What is read after this returns is at
    /// least as new as the beginning of the watch.
    pub(super) async fn watch(
        &self,
        prefix: Vec<u8>,
        filter: i32,
    ) -> Result<Streaming<WatchResponse>, Status> {
        let (_, mut grpc) = self.active_grpc().await?;
        let (range_end, filters) = (end_of(&prefix), vec![filter]);
        let create = WatchCreateRequest { key: prefix, range_end, filters };
        // The watch ends with the stream of requests.
        let requests = once(async { WatchRequest { create: Some(create) } })
            .chain(once(pending::<WatchRequest>()));
        let mut request = self.request(requests);
        // A member that has lost the cluster ends the watch.
        request.metadata_mut().insert("hasleader", AsciiMetadataValue::from_static("true"));
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
        let mut stream = grpc.streaming(request, path, codec).await?.into_inner();
        match stream.message().await? {
            Some(first) if first.created && !first.canceled => Ok(stream),
            Some(first) => Err(Status::permission_denied(first.cancel_reason)),
            None => Err(Status::unavailable("the watch ended at once")),
        }
    }
}
