//! How a database is set up, and what that means for the locks in it.

use std::sync::Arc;

use super::PostgresNode;
use super::address::Address;
use super::connect::Session;
use super::forget::forget_over;
use super::init::within;
use crate::Error;
use crate::admin::examine::{Examination, Unnotified, try_out};
use crate::node::{Failure, Node, NodeContext};
use crate::runtime::BoxFuture;

const UNNOTIFIED: Unnotified = Unnotified::Wrong(
    "let nothing between here and the server drop notifications, as a pooler does",
);

/// Looks a database over.
pub(in crate::node) fn examine(
    index: usize,
    url: &str,
    context: &NodeContext,
    name: &[u8],
) -> Result<BoxFuture<'static, Examination>, Error> {
    let address = Address::parse(index, url)?;
    let opened = PostgresNode::new(index, url, context).map(|node| Arc::new(node) as Arc<dyn Node>);
    let (context, name) = (context.clone(), name.to_vec());
    Ok(Box::pin(async move {
        let mut examination = Examination::new(address.label.as_str());
        examination.text("kind", "postgres");
        let looked = within(&context, look(&mut examination, &address)).await;
        let mut session = match looked.and_then(|looked| looked) {
            Ok(session) => session,
            Err(failure) => {
                examination.fail(&failure);
                return examination;
            }
        };
        let tried = try_out(&mut examination, opened, &context, &name, UNNOTIFIED).await;
        // If it cannot be forgotten, it goes by itself.
        let forgetting = forget_over(&mut session, &address.schema, tried.as_slice());
        let _ = within(&context, forgetting).await;
        examination
    }))
}

async fn look(examination: &mut Examination, address: &Address) -> Result<Session, Failure> {
    let session = Session::open(address).await?;
    examination.flag("tls", address.tls.is_used());
    Ok(session)
}
