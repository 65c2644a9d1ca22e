//! Having nodes forget locks whose names nobody uses again.
//!
//! A node keeps the last fence of a lock for a day after its last use. Of names that were made up for
//! one occasion, such as a measurement, that is of no use to anybody.

use std::sync::Arc;

use crate::admin::examine::all;
use crate::name::Name;
use crate::node::{self, Failure, FailureKind, NodeContext};
use crate::{Error, NodeAnswer, NodeAnswers};

/// What a node is called, and how many of the locks it has kept, since they are held or wanted.
pub(crate) type Kept = (String, Result<i64, Failure>);

/// Asks all nodes at once. Returns those that have not forgotten all, and why.
pub(crate) async fn forget(
    urls: &[String],
    context: &NodeContext,
    names: Vec<Name>,
) -> Result<NodeAnswers, Error> {
    let names: Arc<[Name]> = names.into();
    let asking =
        urls.iter().enumerate().map(|(index, url)| node::forget(index, url, context, &names));
    let mut answers = Vec::new();
    for (node, kept) in all(asking.collect::<Result<_, _>>()?).await {
        let failure = match kept {
            Ok(0) => continue,
            Ok(kept) => {
                let text =
                    format!("{kept} of them are held or waited for there, and were left alone");
                Failure::new(FailureKind::Rejected, text)
            }
            Err(failure) => failure,
        };
        answers.push(NodeAnswer { node, failure: Some(failure) });
    }
    Ok(NodeAnswers(answers))
}

/// Asks all nodes at once to forget a fence that no holder can have been given. Returns how many did, and those
/// that could not be asked.
pub(crate) async fn forget_fence(
    urls: &[String],
    context: &NodeContext,
    name: &Name,
) -> Result<(usize, NodeAnswers), Error> {
    let asking =
        urls.iter().enumerate().map(|(index, url)| node::forget_fence(index, url, context, name));
    let (mut forgotten, mut answers) = (0, Vec::new());
    for (node, count) in all(asking.collect::<Result<_, _>>()?).await {
        match count {
            Ok(count) => forgotten += usize::from(count > 0),
            Err(failure) => answers.push(NodeAnswer { node, failure: Some(failure) }),
        }
    }
    Ok((forgotten, NodeAnswers(answers)))
}
